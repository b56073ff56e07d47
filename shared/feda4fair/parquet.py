"""Parquet files in Hub layout, the same bytes for the same rows.

One row group holds one client and split (cut above 100 MB), shards end at client boundaries, the
writer's settings are fixed, and the schema is the Hub's feature schema.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair.bias import LedgerEntry
from feda4fair.content import content_sha256
from feda4fair.cube import Cube, concatenate
from feda4fair.dataset import Index
from feda4fair.encode import ranked
from feda4fair.federation import Client, Federation
from feda4fair.measurement import contenders, count_labels
from feda4fair.recipe import Recipe
from feda4fair.report import measure_cube
from feda4fair.schema import Schema
from feda4fair.shards import Shards, SideFile, abandon, write_parquet
from feda4fair.split import SPLITS

__all__ = [
    "ConfigFiles",
    "ConfigWriter",
    "ContentDigest",
    "arrow_schema",
    "complete",
    "hub_features",
]

Attach = Callable[[pa.Table], pa.Table]


def hub_features(schema: Schema) -> dict[str, Any]:
    """Return the features of a built config in the Hub's own notation.

    Equal to ``datasets.Features(...).to_dict()`` of the same columns; written out so that a build
    need not import ``datasets``.
    """
    features: dict[str, Any] = {"client_id": _value("string"), "row_id": _value("int64")}
    for column in schema.columns:
        image = column.dtype == "image"
        features[column.name] = {"_type": "Image"} if image else _value(column.dtype)
    features["label"] = {"names": list(schema.label.names), "_type": "ClassLabel"}
    features["flipped"] = _value("bool")
    return features


def _value(dtype: str) -> dict[str, str]:
    return {"dtype": dtype, "_type": "Value"}


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a built config, with the Hub's and our metadata.

    The ``huggingface`` entry is what ``datasets.Features.arrow_schema`` writes; the ``feda4fair``
    entry holds roles and code names of the columns.
    """
    features = hub_features(schema)
    fields = [pa.field(name, _arrow_type(feature)) for name, feature in features.items()]
    roles = {column.name: column.role for column in schema.columns}
    names = {
        column.name: {str(code): name for code, name in column.coding.names}
        for column in schema.columns
        if column.coding is not None
    }
    metadata = {
        "huggingface": json.dumps({"info": {"features": features}}),
        "feda4fair": json.dumps({"roles": {**roles, "label": "label"}, "names": names}),
    }
    return pa.schema(fields, metadata=metadata)


def _arrow_type(feature: dict[str, Any]) -> pa.DataType:
    match feature["_type"]:
        case "Image":
            return pa.struct({"bytes": pa.binary(), "path": pa.string()})
        case "ClassLabel":
            return pa.int64()
        case _:
            return pa.type_for_alias(feature["dtype"])


def dropped_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of the removed rows: no ``flipped``, but ``rule`` and ``split``."""
    fields = [field for field in arrow_schema(schema) if field.name != "flipped"]
    return pa.schema([*fields, pa.field("rule", pa.string()), pa.field("split", pa.string())])


def complete(table: pa.Table, schema: pa.Schema, attach: Attach) -> pa.Table:
    """Return the rows of one client in their written form: attached columns, order, types."""
    return attach(table).select(schema.names).cast(schema)


class ContentDigest:
    """Content hash of a config: over clients and splits in order, each with its rows' hash.

    ``client_id`` is left out of the rows, since the client's name is hashed. Hashing runs in a
    thread of its own beside the encoding of Parquet.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._held: list[tuple[str, str, pa.Table]] = []
        self._done: list[Future[bytes]] = []

    def feed(self, client: str, split: str, table: pa.Table) -> None:
        """Add the rows of one client and split."""
        self._held.append((client, split, table))

    def rest(self) -> None:
        """Begin to hash what was fed so far."""
        if self._held:
            self._done.append(self._pool.submit(_hash_lines, self._held))
            self._held = []

    def hexdigest(self) -> str:
        """Return the hash of all that was fed, as 64 hexadecimal digits."""
        self.rest()
        self._pool.shutdown()
        digest = hashlib.sha256()
        for lines in self._done:
            digest.update(lines.result())
        return digest.hexdigest()


def _hash_lines(tables: list[tuple[str, str, pa.Table]]) -> bytes:
    """Return a line with the hash of its rows for each client and split."""
    lines = []
    for client, split, table in tables:
        rows = table.drop_columns(["client_id"]).replace_schema_metadata(None)
        lines.append(f"{client}\x1f{split}\x1f{content_sha256(rows)}\n")
    return "".join(lines).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """The rows of one client in one split, and what the client index says of them."""

    client: Client
    split: str
    rows: pa.Table
    positives: int
    flipped: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFiles:
    """What one config came to: its counts, its files and its hashes.

    ``form`` is "index" where only the publishable index was written, ``features`` are the written
    columns in the Hub's notation; ``splits`` maps a split to rows, bytes in memory and file names
    below ``data/<config>/``; ``example`` names a client and its split for loading lines;
    ``empty_cells`` lists (client, attribute, value, label) that test holds and train lacks.
    """

    recipe: Recipe
    form: Literal["full", "index"]
    features: dict[str, Any]
    example: dict[str, str]
    splits: dict[str, dict[str, Any]]
    clients: int
    rows: int
    positives: int
    flipped: int
    dropped: int
    source_rows: int
    left_out: int
    content_sha256: str
    dropped_sha256: str
    ledger: tuple[LedgerEntry, ...]
    empty_cells: tuple[tuple[str, str, str, str], ...]


class ConfigWriter:
    """Write one config part by part.

    Parameters
    ----------
    folder : Path
        Folder of the repository; data goes to ``data/<config>/`` below it.
    recipe : Recipe
        Recipe of the config.
    attach : callable
        Adds columns that are too large to carry along (images) to the rows of one client.
    client_names : mapping of str to str
        Names of clients for people.
    index : Index, optional
        Write only this index of the rows, and no removed rows; hashes and counts are still
        those of the full rows.
    """

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        *,
        attach: Attach,
        client_names: dict[str, str] | None = None,
        index: Index | None = None,
    ) -> None:
        self.folder, self.recipe, self.attach, self.form = folder, recipe, attach, index
        self.client_names = client_names or {}
        self.schema = arrow_schema(recipe.schema)
        data = folder / "data" / recipe.name
        data.mkdir(parents=True)
        written = self.schema if index is None else index.schema
        self.shards = {split: Shards(data, split, written) for split in SPLITS}
        self.removed_schema = dropped_schema(recipe.schema)
        path = folder / "dropped" / f"{recipe.name}.parquet"
        self.removed = None if index else SideFile(path, self.removed_schema)
        self.before: list[Cube] = []
        self.after: list[Cube] = []
        self.digest, self.removed_digest = ContentDigest(), ContentDigest()
        self.index: list[dict[str, Any]] = []
        self.ledger: list[LedgerEntry] = []
        self.empty_cells: list[tuple[str, str, str, str]] = []
        self.clients = self.flipped = self.dropped = self.source_rows = self.left_out = 0

    def __enter__(self) -> ConfigWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        open_writers = [shards.writer for shards in self.shards.values()]
        open_writers.append(None if self.removed is None else self.removed.writer)
        for writer in open_writers:
            if writer is not None and writer.is_open:
                abandon(writer)

    def add(self, federation: Federation) -> None:
        """Write the clients of a part after those already written."""
        self.source_rows += federation.source_rows
        self.left_out += federation.left_out
        self.ledger += federation.ledger
        before, after = count_labels(federation)
        self.before.append(before)
        self.after.append(after)
        self.empty_cells += _empty_cells(federation)
        self.clients += len(federation.clients)
        self.dropped += federation.dropped.num_rows
        rules = _rules_of(federation)
        for piece in self._pieces(federation):
            self._add_piece(piece, rules[piece.client.name])
        for client in federation.clients:
            gone = federation.dropped_of(client.name)
            if gone.num_rows:
                self._add_removed(client, gone)
        self.digest.rest()
        self.removed_digest.rest()

    def _pieces(self, federation: Federation) -> Iterator[_Piece]:
        """Yield the rows of every client and split; only rows with images are completed singly."""
        whole = federation.table
        images = any(column.dtype == "image" for column in self.recipe.schema.columns)
        if not images:
            whole = complete(whole, self.schema, self.attach)
        positives = np.concatenate(([0], np.cumsum(whole["label"].to_numpy())))
        flipped = np.concatenate(([0], np.cumsum(whole["flipped"].to_numpy())))
        gone = Counter(zip(*_names_of(federation.dropped, "client_id", "split"), strict=True))
        for client in federation.clients:
            bounds = client.start + np.searchsorted(federation.split_of(client), range(4))
            for name, (start, stop) in zip(SPLITS, pairwise(bounds.tolist()), strict=True):
                if start == stop:
                    continue
                rows = whole.slice(start, stop - start)
                yield _Piece(
                    client=client,
                    split=name,
                    rows=complete(rows, self.schema, self.attach) if images else rows,
                    positives=int(positives[stop] - positives[start]),
                    flipped=int(flipped[stop] - flipped[start]),
                    dropped=gone[client.name, name],
                )

    def _add_piece(self, piece: _Piece, rules: tuple[list[str], list[float], list[float]]) -> None:
        client, split, rows = piece.client, piece.split, piece.rows
        written = rows if self.form is None else self.form.rows(rows, split)
        shard, row_group = self.shards[split].write(written)
        self.digest.feed(client.name, split, rows)
        texts, drop, flip = rules
        self.index.append(
            {
                "client_id": client.name,
                "name": self._name(client),
                "parent": client.parent,
                "split": split,
                "fold": client.fold,
                "file": shard,
                "row_group": row_group,
                "rows": rows.num_rows,
                "positives": piece.positives,
                "flipped": piece.flipped,
                "dropped": piece.dropped,
                "rules": texts,
                "drop": drop,
                "flip": flip,
            }
        )
        self.flipped += piece.flipped

    def _add_removed(self, client: Client, gone: pa.Table) -> None:
        removed = complete(gone, self.removed_schema, self.attach)
        if self.removed is not None:
            self.removed.write(removed)
        self.removed_digest.feed(client.name, "dropped", removed)

    def _name(self, client: Client) -> str:
        name = self.client_names.get(client.parent, client.parent)
        if self.recipe.subdivide is None:
            return name
        piece, parts = int(client.name.rpartition("_")[2]) + 1, self.recipe.subdivide.parts
        return f"{name}, part {piece} of {parts}" if parts else f"{name}, part {piece}"

    def leave_out(self, rows: int) -> None:
        """Count rows of the source that came to no part."""
        self.source_rows += rows
        self.left_out += rows

    def finish(self) -> ConfigFiles:
        """Close all files, write the client index and the recipe, and return what was written."""
        splits: dict[str, dict[str, Any]] = {}
        for name, shards in self.shards.items():
            files = shards.finish()
            if files:
                splits[name] = {
                    "rows": shards.rows,
                    "num_bytes": shards.num_bytes,
                    "files": files,
                }
        if self.removed is not None:
            self.removed.close()
        for entry in self.index:
            files = splits[entry["split"]]["files"]
            entry["file"] = f"data/{self.recipe.name}/{files[entry['file']]}"
        index = pa.Table.from_pylist(self.index, schema=INDEX_SCHEMA)
        write_parquet(index, self.folder / "clients" / f"{self.recipe.name}.parquet")
        self._write_statistics()
        recipes = self.folder / "recipes"
        recipes.mkdir(exist_ok=True)
        (recipes / f"{self.recipe.name}.json").write_text(self.recipe.to_json(), "utf-8")
        first = min(self.index, key=lambda entry: SPLITS.index(entry["split"]))
        return ConfigFiles(
            recipe=self.recipe,
            form="index" if self.form else "full",
            features=self.form.features if self.form else hub_features(self.recipe.schema),
            example={"split": first["split"], "client": first["client_id"]},
            splits=splits,
            clients=self.clients,
            rows=sum(split["rows"] for split in splits.values()),
            positives=sum(entry["positives"] for entry in self.index),
            flipped=self.flipped,
            dropped=self.dropped,
            source_rows=self.source_rows,
            left_out=self.left_out,
            content_sha256=self.digest.hexdigest(),
            dropped_sha256=self.removed_digest.hexdigest(),
            ledger=tuple(sorted(self.ledger, key=lambda entry: entry.client)),
            empty_cells=tuple(self.empty_cells),
        )

    def _write_statistics(self) -> None:
        """Write the fairness of every client before and after injection, in one long table."""
        compare = contenders(self.recipe)
        before = measure_cube(concatenate(self.before), compare=compare).statistics()
        after = measure_cube(concatenate(self.after), compare=compare).statistics()
        tables = [
            table.replace_schema_metadata(None).add_column(
                0, STAGE, [pa.repeat(stage, table.num_rows)]
            )
            for stage, table in (("before", before), ("after", after))
        ]
        table = pa.concat_tables(tables).replace_schema_metadata(after.schema.metadata)
        write_parquet(table, self.folder / "statistics" / f"{self.recipe.name}.parquet")


STAGE = pa.field("stage", pa.string(), nullable=False)
"""First column of ``statistics/<config>.parquet``: "before" or "after" injection.

The other columns are those of :data:`feda4fair.longform.STATISTICS`; the file's metadata holds the
report after injection, which ``FairnessReport.read_parquet`` gives back.
"""

INDEX_SCHEMA = pa.schema(
    {
        "client_id": pa.string(),
        "name": pa.string(),
        "parent": pa.string(),
        "split": pa.string(),
        "fold": pa.int8(),
        "file": pa.string(),
        "row_group": pa.int32(),
        "rows": pa.int64(),
        "positives": pa.int64(),
        "flipped": pa.int64(),
        "dropped": pa.int64(),
        "rules": pa.list_(pa.string()),
        "drop": pa.list_(pa.float64()),
        "flip": pa.list_(pa.float64()),
    }
)
"""Columns of ``clients/<config>.parquet``, one row for each client and split.

``file`` and ``row_group`` say where the client's first row group lies; ``rules``, ``drop`` and
``flip`` are its rules and the rates drawn for it; ``dropped`` counts rows removed from the split.
"""


def _rules_of(federation: Federation) -> dict[str, tuple[list[str], list[float], list[float]]]:
    """Return rules and drawn rates by client; ledger entries may name the client's parent."""
    by_name: dict[str, tuple[list[str], list[float], list[float]]] = {}
    for entry in federation.ledger:
        texts, drop, flip = by_name.setdefault(entry.client, ([], [], []))
        texts.append(entry.rule)
        drop.append(entry.drop)
        flip.append(entry.flip)
    empty: tuple[list[str], list[float], list[float]] = ([], [], [])
    return {
        client.name: by_name.get(client.name, by_name.get(client.parent, empty))
        for client in federation.clients
    }


def _names_of(table: pa.Table, *columns: str) -> list[list[str]]:
    return [table[column].to_pylist() for column in columns]


def _empty_cells(federation: Federation) -> list[tuple[str, str, str, str]]:
    """Return (client, attribute, value, label) of every cell that test holds and train lacks.

    Clients without rows in train, which are test as a whole, have no such cells.
    """
    schema, table = federation.recipe.schema, federation.table
    if not federation.clients:
        return []
    sizes = np.diff(federation.offsets)
    base = np.repeat(np.arange(len(sizes)), sizes) * 2 + table["label"].to_numpy()
    found = []
    for place, attribute in enumerate(schema.sensitive):
        coding = schema[attribute].coding
        names = dict(coding.names) if coding is not None else {}
        levels, codes = _levels(table[attribute])
        cell = (base * len(levels) + codes) * len(SPLITS) + federation.split
        shape = (len(sizes), 2, len(levels), len(SPLITS))
        counts = np.bincount(cell, minlength=int(np.prod(shape))).reshape(shape)
        train, test = counts[..., SPLITS.index("train")], counts[..., SPLITS.index("test")]
        has_train = np.asarray(train.any(axis=(1, 2)))
        lacking = (test > 0) & (train == 0) & has_train[:, None, None]
        for client, outcome, level in np.argwhere(lacking).tolist():
            name = names.get(levels[level], str(levels[level]))
            found.append((client, place, level, outcome, attribute, name))
    return [
        (federation.clients[client].name, attribute, name, schema.label.names[outcome])
        for client, _, _, outcome, attribute, name in sorted(found, key=lambda cell: cell[:4])
    ]


def _levels(column: pa.ChunkedArray) -> tuple[list[Any], NDArray[np.integer[Any]]]:
    """Return levels and the level of every value; small integers need no sorting for it."""
    if pa.types.is_integer(column.type) and len(column):
        values = column.to_numpy()
        low, high = int(values.min()), int(values.max())
        if high - low < 1_000 and high < 2**63:
            return list(range(low, high + 1)), values.astype(np.int64) - low
    return ranked(column)
