"""README.md of a built folder: YAML that the Hub reads, and a page that people read.

A build writes no pictures, since its bytes must not depend on a drawing library: the page shows
the PNG files that lie in ``assets/`` when it is rendered, and `render_again` renders it anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import yaml

from feda4fair.croissant import render_croissant
from feda4fair.dataset import Dataset
from feda4fair.datasheet import environment, render_datasheet
from feda4fair.facts import Facts, Stage, read_facts
from feda4fair.manifest import Manifest, read_manifest, write_manifest
from feda4fair.merge import SIZES, assemble, block, merge_card
from feda4fair.phrases import (
    composition,
    figure,
    gap,
    injected,
    listed,
    resolvable,
    splits,
    verdict,
)

__all__ = [
    "CARD",
    "card_metadata",
    "merge_card",
    "render_again",
    "render_card",
    "render_pages",
    "write_card",
]

CARD = "README.md"

MOST_LINES = 300
"""Lines of a client table on the card; the files of a larger federation hold the rest."""

GIT_ATTRIBUTES = (
    "*.parquet filter=lfs diff=lfs merge=lfs -text\n*.png filter=lfs diff=lfs merge=lfs -text\n"
)


def write_card(folder: Path, manifest: Manifest, dataset: Dataset, existing: str = "") -> None:
    """Write the pages of a build whose data lie in the folder already.

    They are README.md, LICENSE, CITATION.cff, CITATION.bib, .gitattributes, croissant.json, one
    datasheet for each config, and the dataset's own assets.

    Parameters
    ----------
    folder : Path
        The folder, with ``data``, ``statistics``, ``clients`` and ``recipes``.
    manifest : dict
        Its manifest, before the hashes of files.
    dataset : Dataset
        Where assets come from; everything else is in the manifest.
    existing : str
        The README.md of an earlier build, whose hand-written parts are kept.
    """
    if dataset.folder is not None:
        for asset in dataset.assets:
            (folder / "assets").mkdir(exist_ok=True)
            shutil.copyfile(dataset.folder / asset, folder / "assets" / asset)
    _write_pages(folder, manifest, existing, whole=True)


def render_again(folder: Path, manifest: Manifest | None = None) -> Manifest:
    """Render the pages of a built folder anew, from nothing but the folder.

    What people wrote into its README.md is kept, and the manifest gets the new hashes.

    Parameters
    ----------
    folder : Path
        A built folder.
    manifest : dict, optional
        Its manifest, if that in the folder is out of date.

    Returns
    -------
    dict
        The manifest.
    """
    manifest = manifest or read_manifest(folder)
    card = folder / CARD
    _write_pages(folder, manifest, card.read_text("utf-8") if card.is_file() else "")
    return write_manifest(folder, manifest)


def _write_pages(folder: Path, manifest: Manifest, existing: str, *, whole: bool = False) -> None:
    facts = read_facts(folder, manifest)
    pages = render_pages(facts)
    pages[CARD] = merge_card(existing, pages[CARD], whole=whole)
    (folder / "datasheets").mkdir(exist_ok=True)
    for name, text in pages.items():
        (folder / name).write_text(text, "utf-8", newline="\n")


def render_pages(facts: Facts) -> dict[str, str]:
    """Return the text of every page of a build by its path; the card as nobody wrote on it."""
    pages = {
        CARD: render_card(facts),
        "LICENSE": _license(facts),
        "CITATION.cff": _citation(facts),
        "CITATION.bib": facts.manifest["citation"].strip() + "\n",
        ".gitattributes": GIT_ATTRIBUTES,
        "croissant.json": render_croissant(facts),
    }
    for config in facts.configs:
        pages[f"datasheets/{config.name}.md"] = render_datasheet(facts, config)
    return pages


def card_metadata(facts: Facts) -> dict[str, Any]:
    """Return the YAML block of the card.

    ``dataset_info`` holds features only: split sizes there would make ``load_dataset(...,
    filters=...)`` fail its own check. A config's description names its content, since ``datasets``
    takes local folders of one name for the same dataset, and shows old rows from its cache, unless
    this block tells them apart.
    """
    prose, manifest = facts.prose, facts.manifest
    configs = []
    for position, (name, config) in enumerate(manifest["configs"].items()):
        data_files = [
            {"split": split, "path": f"data/{name}/{split}-*.parquet"}
            for split in config["splits"]
        ]
        content = f"rows with content hash {config['content_sha256'][:16]}"
        entry: dict[str, Any] = {
            "config_name": name,
            "description": content,
            "data_files": data_files,
        }
        configs.append(entry | ({"default": True} if position == 0 else {}))
    tags = [*prose.get("tags", []), *(["synthetic"] if manifest["synthetic"] else [])]
    return {
        "pretty_name": _title(facts),
        "license": prose.get("license", "unknown"),
        **{key: prose[key] for key in ("license_name", "license_link") if key in prose},
        "language": ["en"],
        "size_categories": [_size_category(manifest)],
        **{key: prose[key] for key in ("task_categories",) if key in prose},
        "tags": tags,
        "annotations_creators": ["no-annotation"],
        "source_datasets": ["original"],
        "configs": configs,
        "dataset_info": [
            {"config_name": name, "features": _yaml_features(config["features"])}
            for name, config in manifest["configs"].items()
        ],
    }


def _title(facts: Facts) -> str:
    return str(facts.prose.get("title", facts.manifest["dataset"]))


def _size_category(manifest: Manifest) -> str:
    rows = max(config["rows"] for config in manifest["configs"].values())
    return next((name for limit, name in SIZES if rows < limit), "n>1T")


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


def render_card(facts: Facts) -> str:
    """Return the card as Markdown text with its YAML block."""
    example = _example(facts)
    body = (
        _environment()
        .get_template("dataset_card.md.j2")
        .render(
            facts=facts,
            manifest=facts.manifest,
            configs=facts.configs,
            prose=facts.prose,
            title=_title(facts),
            example=example,
            most=MOST_LINES,
            pictures=[name for name in facts.assets if name.endswith(".png")],
            lists=[name for name in facts.assets if not name.endswith(".png")],
            provenance=_provenance(facts),
            rebuild=_rebuild(facts, example),
            columns=_columns(facts),
            control=next((c.recipe.control for c in facts.configs if c.recipe.control), ""),
        )
    )
    return assemble(card_metadata(facts), body)


def _environment() -> jinja2.Environment:
    made = environment()
    made.globals["block"] = _block
    made.filters |= {
        "cell": lambda text: str(text).replace("|", "\\|").replace("\n", " "),
        "composition": composition,
        "disparity": _disparity,
        "figure": figure,
        "gap": gap,
        "injected": injected,
        "resolvable": resolvable,
        "splits": splits,
        "stem": lambda name: Path(name).stem.replace("-", " "),
        "thousands": lambda count: f"{count:,}",
        "verdict": verdict,
    }
    return made


def _block(name: str, caller: Callable[[], str]) -> str:
    return block(name, caller())


def _disparity(stage: Stage) -> str:
    """Return a disparity, and the favored value where that attains it."""
    favored = f" ({', '.join(stage.favored)} favored)" if stage.favored else ""
    return figure(stage.disparity) + favored


def _example(facts: Facts) -> dict[str, str]:
    """Return a config, a split, a client and a file that the loading lines can name."""
    config = facts.configs[-1]
    split = config.entry["example"]["split"]
    (first, *_) = config.entry["splits"][split]["files"]
    return {
        "config": config.name,
        "split": split,
        "client": config.entry["example"]["client"],
        "file": f"data/{config.name}/{first}",
    }


def _rebuild(facts: Facts, example: dict[str, str]) -> str:
    """Return the dataset's own words on rebuilding its rows from an index."""
    text = str(facts.prose.get("rebuild", ""))
    names = {
        "{repository}": f"feda4fair/{facts.manifest['dataset']}",
        "{config}": example["config"],
    }
    for name, value in names.items():
        text = text.replace(name, value)
    return text.strip()


def _provenance(facts: Facts) -> str:
    """Return the columns that no model may see, as code."""
    config = facts.configs[-1]
    names = [
        f"`{column['name']}`"
        for column in config.entry["columns"]
        if column["role"] == "provenance" and column["name"] in config.entry["features"]
    ]
    return listed(names)


def _columns(facts: Facts) -> list[dict[str, str]]:
    """Return the columns of all configs once, with the configs that give them other meanings."""
    merged: dict[str, dict[str, Any]] = {}
    for config in facts.configs:
        for column in config.entry["columns"]:
            text = _meaning(column)
            entry = merged.setdefault(
                column["name"], {"name": column["name"], "role": column["role"], "texts": {}}
            )
            entry["texts"].setdefault(text, []).append(config.name)
    return [
        {"name": entry["name"], "role": entry["role"], "text": _meanings(entry["texts"])}
        for entry in merged.values()
    ]


def _meaning(column: dict[str, Any]) -> str:
    """Return a column's description, and its codes where the description does not name them."""
    description, names = column["description"], column.get("names", {})
    if all(name in description for name in names.values()):
        return str(description)
    return f"{description} {'; '.join(f'{code} {name}' for code, name in names.items())}.".strip()


def _meanings(texts: dict[str, list[str]]) -> str:
    if len(texts) == 1:
        return next(iter(texts))
    return " ".join(f"*{', '.join(configs)}:* {text}" for text, configs in texts.items())


def _license(facts: Facts) -> str:
    text = facts.prose.get("license_text", "No license is stated; ask whoever built the data.")
    return str(text).strip() + "\n"


def _citation(facts: Facts) -> str:
    """Return CITATION.cff: the data, and beside them what their BibTeX names first."""
    manifest = facts.manifest
    data = {
        "cff-version": "1.2.0",
        "message": "If you use these data, please cite the works that CITATION.bib lists.",
        "title": _title(facts),
        "type": "dataset",
        "version": manifest["version"],
        **({"date-released": facts.prose["published"]} if "published" in facts.prose else {}),
        "authors": [{"name": facts.prose.get("authors", f"The makers of {_title(facts)}")}],
        **({"preferred-citation": facts.prose["paper"]} if "paper" in facts.prose else {}),
    }
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)
