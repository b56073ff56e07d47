"""croissant.json of a built folder: Croissant metadata with its responsible AI vocabulary.

Records are read from the Parquet files beside ``croissant.json``, so they load without a network.

References
----------
MLCommons, Croissant Format Specification 1.0, and Croissant RAI Specification 1.0.
"""

from __future__ import annotations

import json
from typing import Any

from feda4fair.facts import ConfigFacts, Facts
from feda4fair.phrases import counted, figure, injected, listed, resolvable

__all__ = ["render_croissant"]

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{
        term: f"cr:{term}"
        for term in (
            *("citeAs", "column", "equivalentProperty", "extract", "field", "fileObject"),
            *("fileProperty", "fileSet", "format", "includes", "isLiveDataset", "jsonPath"),
            *("key", "md5", "parentField", "path", "recordSet", "references", "regex"),
            *("repeated", "replace", "samplingRate", "separator", "source", "subField"),
            *("transform",),
        )
    },
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}
"""The JSON-LD context that the specification gives, and PROV."""

LICENSES = {
    "apache-2.0": "https://spdx.org/licenses/Apache-2.0.html",
    "cc-by-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "cc-by-sa-4.0": "https://creativecommons.org/licenses/by-sa/4.0/",
    "cc0-1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
    "mit": "https://spdx.org/licenses/MIT.html",
}


def render_croissant(facts: Facts) -> str:
    """Return croissant.json.

    Parameters
    ----------
    facts : Facts
        What the built folder says.

    Returns
    -------
    str
        JSON-LD that conforms to Croissant 1.0 and Croissant RAI 1.0; the same text for the same
        folder.
    """
    manifest, prose = facts.manifest, facts.prose
    url = f"https://huggingface.co/datasets/feda4fair/{manifest['dataset']}"
    document = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": [
            "http://mlcommons.org/croissant/1.0",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "name": f"feda4fair-{manifest['dataset']}",
        "alternateName": prose.get("title", manifest["dataset"]),
        "description": _plain(prose.get("summary", "")) or f"Federation {manifest['dataset']}.",
        "url": url,
        "license": _license(prose, url),
        "version": manifest["version"],
        "creator": {"@type": "sc:Organization", "name": "The FeDa4Fair contributors"},
        "publisher": {"@type": "sc:Organization", "name": "FeDa4Fair"},
        **({"citeAs": manifest["citation"]} if manifest["citation"] else {}),
        **({"keywords": prose["tags"]} if "tags" in prose else {}),
        **({"datePublished": prose["published"]} if "published" in prose else {}),
        "inLanguage": "en",
        "isLiveDataset": False,
        **_responsible(facts),
        "distribution": [
            _file_set(config, split) for config in facts.configs for split in _splits(config)
        ],
        "recordSet": [
            _record_set(config, split) for config in facts.configs for split in _splits(config)
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _plain(text: str) -> str:
    return " ".join(text.split())


def _license(prose: dict[str, Any], url: str) -> str:
    name = prose.get("license", "unknown")
    link = str(prose.get("license_link", ""))
    if name in LICENSES:
        return LICENSES[name]
    return link if "://" in link else f"{url}/blob/main/LICENSE"


def _splits(config: ConfigFacts) -> list[str]:
    return list(config.entry["splits"])


def _files(config: ConfigFacts, split: str) -> str:
    return f"files/{config.name}/{split}"


def _file_set(config: ConfigFacts, split: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": _files(config, split),
        "name": f"{config.name} {split}",
        "description": f"Parquet files of split {split} of config {config.name}.",
        "encodingFormat": "application/x-parquet",
        "includes": f"data/{config.name}/{split}-*.parquet",
    }


def _record_set(config: ConfigFacts, split: str) -> dict[str, Any]:
    name = f"{config.name}/{split}"
    rows = config.entry["splits"][split]["rows"]
    described = {column["name"]: column for column in config.entry["columns"]}
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": f"{config.recipe.description} Split {split}, {rows:,} rows.".strip(),
        "field": [
            _field(name, _files(config, split), column, feature, described.get(column, {}))
            for column, feature in config.entry["features"].items()
        ],
    }


def _field(
    record_set: str, files: str, column: str, feature: dict[str, Any], described: dict[str, Any]
) -> dict[str, Any]:
    names = "; ".join(f"{code} {name}" for code, name in described.get("names", {}).items())
    meaning = described.get("description", "")
    image = feature["_type"] == "Image"
    source: dict[str, Any] = {"fileSet": {"@id": files}, "extract": {"column": column}}
    if image:
        source["transform"] = {"jsonPath": "bytes"}
    return {
        "@type": "cr:Field",
        "@id": f"{record_set}/{column}",
        "name": f"{record_set}/{column}",
        "description": f"{meaning} {names}".strip(),
        "dataType": "sc:ImageObject" if image else _data_type(feature),
        "source": source,
    }


def _data_type(feature: dict[str, Any]) -> str:
    dtype = "int64" if feature["_type"] == "ClassLabel" else feature["dtype"]
    if dtype == "bool":
        return "sc:Boolean"
    if dtype.startswith(("int", "uint")):
        return "sc:Integer"
    return "sc:Float" if dtype.startswith("float") else "sc:Text"


def _responsible(facts: Facts) -> dict[str, Any]:
    """Return the responsible AI part: what a person wrote, and what was injected."""
    prose = facts.prose
    answers = prose.get("datasheet", {})
    written = {
        "rai:dataCollection": prose.get("collection", ""),
        "rai:dataPreprocessingProtocol": prose.get("preprocessing", ""),
        "rai:dataUseCases": prose.get("uses", ""),
        "rai:dataSocialImpact": prose.get("ethics", ""),
        "rai:dataReleaseMaintenancePlan": prose.get("maintenance", ""),
        "rai:personalSensitiveInformation": _sensitive(facts, answers.get("identification", "")),
    }
    return {
        **{key: _plain(text) for key, text in written.items() if text},
        "rai:dataBiases": _biases(facts),
        "rai:dataLimitations": [_plain(limit) for limit in prose.get("limits", [])],
        "rai:dataManipulationProtocol": (
            "Within each client, rules remove a share of the rows of one group that carry one "
            "label and change the label of another share; counts are exact and everything is "
            "listed in manifest.json and clients/."
        ),
        "rai:hasSyntheticData": bool(facts.manifest["synthetic"]),
        **({"prov:wasDerivedFrom": prose["source_url"]} if "source_url" in prose else {}),
    }


def _sensitive(facts: Facts, identification: str) -> str:
    columns = {
        column["name"]
        for config in facts.configs
        for column in config.entry["columns"]
        if column["role"] == "sensitive" and column["name"] in config.entry["features"]
    }
    if not columns:
        return f"No sensitive column is in the files. {identification}".strip()
    names = listed(sorted(columns))
    return f"Sensitive columns: {names}. {identification}".strip()


def _biases(facts: Facts) -> list[str]:
    texts = []
    for config in facts.configs:
        means = "; ".join(
            f"{a.name} {figure(a.mean_before)} before and {figure(a.mean_after)} after injection"
            for a in config.ruled
        )
        texts.append(
            f"{config.name}, {counted(config.entry['clients'], 'client')}: bias was injected on "
            f"purpose ({injected(config)}). Mean demographic disparity of the "
            f"labels: {means}. {resolvable(config)}"
            if config.rules
            else f"{config.name}, {counted(config.entry['clients'], 'client')}: no bias was "
            f"injected. Mean demographic disparity of the labels: {means}. {resolvable(config)}"
        )
    return texts
