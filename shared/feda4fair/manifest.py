"""manifest.json: what a built folder holds, where it comes from, and the hashes that prove it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feda4fair.content import SourceFile
from feda4fair.dataset import Dataset
from feda4fair.errors import OutputError
from feda4fair.schema import Schema

if TYPE_CHECKING:
    from feda4fair.parquet import ConfigFiles

__all__ = [
    "MANIFEST",
    "build_manifest",
    "file_sha256",
    "parse_manifest",
    "read_manifest",
    "write_manifest",
]

MANIFEST = "manifest.json"
FORMAT = 1

CONFIG: dict[Any, Any] = {
    **dict.fromkeys(("description", "control", "form"), str),
    **dict.fromkeys(("recipe_sha256", "content_sha256", "dropped_sha256"), str),
    **dict.fromkeys(("clients", "rows", "positives", "flipped", "dropped"), int),
    **dict.fromkeys(("source_rows", "left_out"), int),
    "example": {"split": str, "client": str},
    "splits": {...: {"rows": int, "files": [str]}},
    "features": {...: {"_type": str}},
    "columns": [{"name": str, "role": str, "description": str}],
    "ledger": [dict],
    "empty_cells": [list],
}
SHAPE: dict[Any, Any] = {
    **dict.fromkeys(("dataset", "version", "citation"), str),
    **dict.fromkeys(("synthetic", "benchmark"), bool),
    **dict.fromkeys(("prose", "source_options"), dict),
    "notes": [str],
    "versions": {...: str, **dict.fromkeys(("feda4fair", "numpy", "pyarrow"), str)},
    "sources": [{"name": str}],
    "configs": {...: CONFIG},
    "files": {...: {"bytes": int, "sha256": str}},
}
"""What a manifest holds at least: a mapping by key, ``...`` for any key, or a list of one kind."""

Manifest = dict[str, Any]


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def build_manifest(
    dataset: Dataset,
    configs: Sequence[ConfigFiles],
    sources: Sequence[SourceFile],
    *,
    synthetic: bool,
    options: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> Manifest:
    """Describe a build; no clock, host name or path is part of it.

    Parameters
    ----------
    dataset : Dataset
        What was built.
    configs : sequence of ConfigFiles
        What each config came to.
    sources : sequence of SourceFile
        What was read.
    synthetic : bool
        Whether the rows are the made-up sample.
    options : mapping
        Options of the dataset's source that give it again.
    notes : sequence of str
        Sentences on how this build differs from the published benchmark; none if it does not.
    """
    return {
        "format": FORMAT,
        "dataset": dataset.name,
        "version": dataset.version,
        "synthetic": synthetic,
        "benchmark": dataset.folder is not None and not synthetic and not notes,
        "own": dataset.folder is None,
        "notes": list(notes),
        "prose": dataset.prose,
        "citation": dataset.citation,
        "versions": {
            name: importlib.metadata.version(name) for name in ("feda4fair", "numpy", "pyarrow")
        },
        "source_options": dict(options),
        "sources": [asdict(source) for source in sources],
        "configs": {config.recipe.name: _config(config) for config in configs},
        "files": {},
    }


def _config(config: ConfigFiles) -> dict[str, Any]:
    recipe = config.recipe
    return {
        "description": recipe.description,
        "control": recipe.control,
        "form": config.form,
        "example": config.example,
        "recipe_sha256": hashlib.sha256(recipe.to_json().encode()).hexdigest(),
        "content_sha256": config.content_sha256,
        "dropped_sha256": config.dropped_sha256,
        "clients": config.clients,
        "rows": config.rows,
        "positives": config.positives,
        "flipped": config.flipped,
        "dropped": config.dropped,
        "source_rows": config.source_rows,
        "left_out": config.left_out,
        "splits": config.splits,
        "features": config.features,
        "columns": written_columns(recipe.schema, config.features),
        "ledger": [asdict(entry) for entry in config.ledger],
        "empty_cells": [list(cell) for cell in config.empty_cells],
    }


def written_columns(schema: Schema, features: Collection[str]) -> list[dict[str, Any]]:
    """Return role, names and description of every column among the features that are written."""
    return [column for column in _columns(schema) if column["name"] in features]


def _columns(schema: Schema) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"name": "client_id", "role": "provenance", "description": "Client that holds the row."},
        {
            "name": "row_id",
            "role": "provenance",
            "description": "Position of the row in the source as read, from 0.",
        },
    ]
    for column in schema.columns:
        names = {} if column.coding is None else {str(c): n for c, n in column.coding.names}
        rows.append(
            {
                "name": column.name,
                "role": column.role,
                "dtype": column.dtype,
                "names": names,
                "description": column.description,
            }
        )
    label = schema.label
    rows.append(
        {
            "name": "label",
            "role": "label",
            "dtype": "int64",
            "names": {"0": label.names[0], "1": label.names[1]},
            "description": f"{label.description} 1 is the favorable outcome.".strip(),
        }
    )
    rows.append(
        {
            "name": "flipped",
            "role": "provenance",
            "description": "Injection changed the label; the clean label is label XOR flipped.",
        }
    )
    rows.append(
        {"name": "split", "role": "provenance", "description": "train, validation or test."}
    )
    return rows


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> Manifest:
    """Hash every other file of the folder into the manifest and write it."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / MANIFEST)
    complete = {
        **manifest,
        "files": {
            path.relative_to(folder).as_posix(): {
                "bytes": path.stat().st_size,
                "sha256": file_sha256(path),
            }
            for path in files
        },
    }
    text = json.dumps(complete, indent=1, ensure_ascii=False) + "\n"
    (folder / MANIFEST).write_text(text, "utf-8")
    return complete


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a built folder.

    Raises
    ------
    OutputError
        If the folder holds no manifest of this format.
    """
    path = folder / MANIFEST
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a JSON object"
        raise OutputError(f"{path}: {reason}; name a folder that build.py wrote.") from None
    return parse_manifest(text, str(path))


def parse_manifest(text: str, where: str) -> Manifest:
    """Return the manifest that a text holds; everything that is read of it later has its type.

    Parameters
    ----------
    text : str
        JSON, from whomever.
    where : str
        Names the text in messages.

    Raises
    ------
    OutputError
        If it is no manifest of this format.
    """
    try:
        manifest: Manifest = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        raise OutputError(
            f"{where}: not a JSON object; name a folder that build.py wrote."
        ) from None
    wrong = f"not of format {FORMAT}"
    if manifest.get("format") == FORMAT:
        wrong = _mistake(manifest, SHAPE) or ("no config" if not manifest["configs"] else "")
    if wrong:
        raise OutputError(
            f"{where}: not a manifest of format {FORMAT} ({wrong}); build the folder again."
        )
    return manifest


def _mistake(value: Any, shape: Any) -> str:
    """Return the first place where a value is not of a shape, empty if it is."""
    match shape:
        case dict():
            if not isinstance(value, dict):
                return "no object"
            named = [key for key in shape if key is not ...]
            lacking = [key for key in named if key not in value]
            if lacking:
                return f"no {lacking[0]!r}"
            for key, item in value.items():
                if mistake := _mistake(item, shape.get(key, shape.get(..., object))):
                    return f"{str(key)[:40]!r}: {mistake}"
            return ""
        case [kind]:
            if not isinstance(value, list):
                return "no list"
            return next((mistake for item in value if (mistake := _mistake(item, kind))), "")
        case _:
            fits = isinstance(value, shape) and (shape is not int or type(value) is int)
            return "" if fits else f"no {shape.__name__}"
