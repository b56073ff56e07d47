"""README.md of a built folder: YAML that the Hub reads, and a page that people read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jinja2
import yaml

from feda4fair.dataset import Dataset
from feda4fair.manifest import Manifest

__all__ = ["card_metadata", "render_card", "write_card"]

SIZE_CATEGORIES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
)


def card_metadata(manifest: Manifest, dataset: Dataset) -> dict[str, Any]:
    """Return the YAML block of the card.

    ``dataset_info`` holds features only: split sizes there would make ``load_dataset(...,
    filters=...)`` fail its own check.
    """
    prose = dataset.prose
    configs = []
    for position, (name, config) in enumerate(manifest["configs"].items()):
        data_files = [
            {"split": split, "path": f"data/{name}/{split}-*.parquet"}
            for split in config["splits"]
        ]
        entry: dict[str, Any] = {"config_name": name, "data_files": data_files}
        configs.append(entry | ({"default": True} if position == 0 else {}))
    metadata: dict[str, Any] = {
        "pretty_name": prose["title"],
        "license": prose["license"],
        **{key: prose[key] for key in ("license_name", "license_link") if key in prose},
        "language": ["en"],
        "size_categories": [_size_category(manifest)],
        "task_categories": prose["task_categories"],
        "tags": prose["tags"],
        "annotations_creators": ["no-annotation"],
        "source_datasets": ["original"],
        "configs": configs,
        "dataset_info": [
            {"config_name": name, "features": _yaml_features(config["features"])}
            for name, config in manifest["configs"].items()
        ],
    }
    if manifest["synthetic"]:
        metadata["tags"] = [*metadata["tags"], "synthetic"]
    return metadata


def _size_category(manifest: Manifest) -> str:
    rows = max(config["rows"] for config in manifest["configs"].values())
    return next((name for limit, name in SIZE_CATEGORIES if rows < limit), "n>1T")


def _yaml_features(features: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, feature in features.items():
        match feature["_type"]:
            case "ClassLabel":
                names = {str(code): text for code, text in enumerate(feature["names"])}
                rows.append({"name": name, "dtype": {"class_label": {"names": names}}})
            case "Image":
                rows.append({"name": name, "dtype": "image"})
            case _:
                rows.append({"name": name, "dtype": feature["dtype"]})
    return rows


def render_card(manifest: Manifest, dataset: Dataset) -> str:
    """Return the card as Markdown text with its YAML block."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("feda4fair.cards", ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["cell"] = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    body = environment.get_template("dataset_card.md.j2").render(
        manifest=manifest,
        configs=manifest["configs"],
        prose=dataset.prose,
        citation=dataset.citation,
        dataset=dataset,
        example=_example(manifest),
        attributes=_attributes(manifest),
    )
    metadata = yaml.safe_dump(
        card_metadata(manifest, dataset), sort_keys=False, allow_unicode=True, width=1000
    )
    return f"---\n{metadata}---\n{body}"


def _example(manifest: Manifest) -> dict[str, str]:
    """Return a config, a split and a client that the loading lines can name."""
    names = list(manifest["configs"])
    name = next((n for n in names if n.endswith("value-device")), names[-1])
    config = manifest["configs"][name]
    return {"config": name, **config["example"]}


def _attributes(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the columns of all configs once, with the configs that give them other names."""
    merged: dict[str, dict[str, Any]] = {}
    for name, config in manifest["configs"].items():
        for column in config["columns"]:
            entry = merged.setdefault(column["name"], {**column, "variants": {}})
            text = "; ".join(f"{c} {n}" for c, n in column.get("names", {}).items())
            entry["variants"].setdefault((text, column["description"]), []).append(name)
    return list(merged.values())


def write_card(folder: Path, manifest: Manifest, dataset: Dataset) -> None:
    """Write README.md and what stands beside it: license, citation and assets."""
    (folder / "README.md").write_text(render_card(manifest, dataset), "utf-8")
    (folder / "LICENSE").write_text(dataset.prose["license_text"].strip() + "\n", "utf-8")
    (folder / "CITATION.bib").write_text(dataset.citation + "\n", "utf-8")
    (folder / ".gitattributes").write_text(
        "*.parquet filter=lfs diff=lfs merge=lfs -text\n"
        "*.png filter=lfs diff=lfs merge=lfs -text\n",
        "utf-8",
    )
    for asset in dataset.assets:
        (folder / "assets").mkdir(exist_ok=True)
        shutil.copyfile(dataset.folder / asset, folder / "assets" / asset)
