"""Read a built folder back into the federation that was written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from feda4fair.bias import LedgerEntry
from feda4fair.errors import Feda4FairError, OutputError
from feda4fair.federation import Client, Federation
from feda4fair.manifest import read_manifest
from feda4fair.recipe import Recipe
from feda4fair.split import SPLITS

__all__ = ["read_federation", "recipe_sha256"]


def recipe_sha256(recipe: Recipe) -> str:
    """Return the SHA-256 of a recipe's JSON text, as the manifest of a build records it."""
    return hashlib.sha256(recipe.to_json().encode()).hexdigest()


def read_federation(folder: Path, config: str, *, features: bool = True) -> Federation:
    """Read one config of a built folder.

    Parameters
    ----------
    folder : Path
        A folder that ``build.py`` wrote.
    config : str
        Name of the config.
    features : bool, default True
        Read the features too, but never images; otherwise only sensitive attributes and labels.

    Returns
    -------
    Federation
        Equal to the one that was written, but for images and for columns not asked for.

    Raises
    ------
    OutputError
        If the folder is no build, lacks the config or a file of it, or a file is damaged or does
        not belong to the others.
    """
    manifest = read_manifest(folder)
    if config not in manifest["configs"]:
        known = ", ".join(manifest["configs"])
        raise OutputError(f"{folder}: no config {config!r}; it has {known}.")
    facts = manifest["configs"][config]
    if facts["form"] == "index":
        raise OutputError(
            f"{folder}: {config} is the index form, which holds no rows; rebuild them with join."
        )
    recipe = Recipe.from_json(folder / "recipes" / f"{config}.json")
    if recipe_sha256(recipe) != facts["recipe_sha256"] or recipe.name != config:
        raise OutputError(
            f"{folder}/recipes/{config}.json: is not the recipe that the manifest names "
            f"({facts['recipe_sha256'][:12]}); build the folder again."
        )
    try:
        return _federation(folder, recipe, facts, features=features)
    except Feda4FairError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, pa.ArrowException):
        raise OutputError(
            f"{folder}: the files of {config} do not fit each other; build or download the "
            "folder again."
        ) from None


def _federation(
    folder: Path, recipe: Recipe, facts: dict[str, Any], *, features: bool
) -> Federation:
    config = recipe.name
    tabular = tuple(c.name for c in recipe.schema.columns if c.dtype != "image")
    chosen = tabular if features else recipe.schema.sensitive
    wanted = ["client_id", "row_id", *chosen, "label"]
    index = _read(folder / "clients" / f"{config}.parquet")
    names, parents, folds = _clients(index)
    table, split, position = _rows(folder / "data" / config, facts, [*wanted, "flipped"], names)
    stops = np.cumsum(np.bincount(position, minlength=len(names)))
    if not np.array_equal(np.diff(stops, prepend=0), _counts(index, names)):
        raise OutputError(
            f"{folder}: the rows of {config} do not fit clients/{config}.parquet; build the "
            "folder again."
        )
    dropped = _read(folder / "dropped" / f"{config}.parquet", [*wanted, "rule", "split"])
    return Federation(
        recipe=recipe,
        clients=tuple(
            Client(name=name, parent=parent, start=int(start), stop=int(stop), fold=fold)
            for name, parent, fold, start, stop in zip(
                names, parents, folds, [0, *stops[:-1]], stops, strict=True
            )
        ),
        table=table,
        split=split,
        dropped=dropped.replace_schema_metadata(None),
        ledger=tuple(LedgerEntry(**entry) for entry in facts["ledger"]),
        source_rows=facts["source_rows"],
        left_out=facts["left_out"],
    )


def _read(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    try:
        return pq.read_table(path, columns=columns, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise OutputError(f"{path}: {reason}; build or download the folder again.") from None


def _clients(index: pa.Table) -> tuple[list[str], list[str], list[int | None]]:
    """Return name, parent and fold of every client, in the order of their rows."""
    facts = {
        row["client_id"]: (row["parent"], row["fold"])
        for row in index.select(["client_id", "parent", "fold"]).to_pylist()
    }
    names = sorted(facts)
    return names, [facts[name][0] for name in names], [facts[name][1] for name in names]


def _counts(index: pa.Table, names: list[str]) -> NDArray[np.int64]:
    totals = dict.fromkeys(names, 0)
    for row in index.select(["client_id", "rows"]).to_pylist():
        totals[row["client_id"]] += row["rows"]
    return np.array([totals[name] for name in names], dtype=np.int64)


def _rows(
    data: Path, facts: dict[str, Any], columns: list[str], names: list[str]
) -> tuple[pa.Table, NDArray[np.int8], NDArray[np.int64]]:
    """Return all rows by client, split and row_id, with the split and the client of each."""
    parts, codes = [], []
    for code, split in enumerate(SPLITS):
        for file in facts["splits"].get(split, {}).get("files", []):
            if Path(file).name != file or "\0" in file:
                raise OutputError(f"{data}: {file!r} is no data file of a build.")
            parts.append(_read(data / file, columns))
            codes.append(np.full(parts[-1].num_rows, code, dtype=np.int8))
    table = pa.concat_tables(parts).replace_schema_metadata(None)
    clients = table["client_id"].combine_chunks().dictionary_encode()
    place = {name: position for position, name in enumerate(names)}
    lookup = np.array([place.get(name, -1) for name in clients.dictionary.to_pylist()])
    position = lookup[clients.indices.to_numpy()]
    if (position < 0).any():
        raise OutputError(f"{data}: holds a client that clients/*.parquet lacks; build again.")
    splits = np.concatenate(codes)
    order = np.lexsort((table["row_id"].to_numpy(), splits, position))
    return table.take(pa.array(order)), splits[order], position[order]
