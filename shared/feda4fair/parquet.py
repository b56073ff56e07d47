"""Parquet files in Hub layout, the same bytes for the same rows.

One row group holds one client and split (cut above 100 MB), shards end at client boundaries, the
writer's settings are fixed, and the schema is the Hub's feature schema.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from feda4fair.bias import LedgerEntry
from feda4fair.content import content_sha256
from feda4fair.cube import Cube, concatenate
from feda4fair.dataset import Index
from feda4fair.federation import Client, Federation
from feda4fair.measurement import contenders, count_labels
from feda4fair.recipe import Recipe
from feda4fair.report import measure_cube
from feda4fair.schema import Schema
from feda4fair.split import SPLITS

__all__ = [
    "ConfigFiles",
    "ConfigWriter",
    "ContentDigest",
    "arrow_schema",
    "complete",
    "hub_features",
    "write_parquet",
]

ROW_GROUP_BYTES = 100_000_000
SHARD_BYTES = 300_000_000

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


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    plain = {f.name for f in schema if pa.types.is_struct(f.type)}
    paths = [
        path_name
        for f in schema
        for path_name in ([f"{f.name}.bytes", f"{f.name}.path"] if f.name in plain else [f.name])
    ]
    delta = {"row_id": "DELTA_BINARY_PACKED"} if "row_id" in schema.names else None
    return pq.ParquetWriter(
        path,
        schema,
        version="2.6",
        data_page_version="1.0",
        compression={p: "none" if p.endswith(".bytes") else "zstd" for p in paths},
        compression_level={p: 3 for p in paths if not p.endswith(".bytes")},
        use_dictionary=[p for p in paths if p != "row_id" and not p.endswith(".bytes")],
        column_encoding=delta,
        write_statistics=True,
        write_page_index=True,
        store_schema=True,
    )


def _abandon(writer: pq.ParquetWriter) -> None:
    """Close a file that will be removed; a full disk is no news then.

    A writer whose close failed would try again, and complain, when it is collected.
    """
    with suppress(OSError):
        writer.close()
    writer.is_open = False


def complete(table: pa.Table, schema: pa.Schema, attach: Attach) -> pa.Table:
    """Return the rows of one client in their written form: attached columns, order, types."""
    return attach(table).select(schema.names).cast(schema)


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a side table (index, statistics, removed rows) with the fixed settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _writer(path, table.schema) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))


def _content_bytes(table: pa.Table) -> int:
    """Return the bytes of a table's values, however its rows lie in memory.

    ``nbytes`` counts the bits before a slice, so it would make files depend on who cut it.
    """
    return sum(_column_bytes(column) for column in table.columns)


def _column_bytes(column: pa.ChunkedArray) -> int:
    if pa.types.is_struct(column.type):
        return sum(_column_bytes(pc.struct_field(column, field.name)) for field in column.type)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return 4 * len(column) + (pc.sum(pc.binary_length(column)).as_py() or 0)
    return (len(column) * int(column.type.bit_width) + 7) // 8


@dataclass(slots=True)
class _Shards:
    """The shard files of one split, written one after another."""

    folder: Path
    split: str
    schema: pa.Schema
    paths: list[Path] = field(default_factory=list)
    writer: pq.ParquetWriter | None = None
    filled: int = 0
    row_group: int = 0
    rows: int = 0
    num_bytes: int = 0

    def write(self, table: pa.Table) -> tuple[int, int]:
        """Write one client; return its shard and its first row group."""
        size_in_memory = _content_bytes(table)
        if self.writer is None or self.filled + size_in_memory > SHARD_BYTES:
            self.close()
            self.paths.append(self.folder / f"{self.split}-{len(self.paths):05d}.parquet")
            self.writer = _writer(self.paths[-1], self.schema)
            self.filled = self.row_group = 0
        first = self.row_group
        groups = max(1, -(-size_in_memory // ROW_GROUP_BYTES))
        size = -(-table.num_rows // groups)
        self.writer.write_table(table, row_group_size=size)
        self.row_group += -(-table.num_rows // size)
        self.filled += size_in_memory
        self.rows += table.num_rows
        self.num_bytes += size_in_memory
        return len(self.paths) - 1, first

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def finish(self) -> list[str]:
        """Give the shards their final names, which tell how many there are."""
        self.close()
        names = []
        for index, path in enumerate(self.paths):
            name = f"{self.split}-{index:05d}-of-{len(self.paths):05d}.parquet"
            path.replace(path.with_name(name))
            names.append(name)
        return names


class ContentDigest:
    """Content hash of a config: over clients and splits in order, each with its rows' hash.

    ``client_id`` is left out of the rows, since the client's name is hashed. Hashing runs in a
    thread of its own beside the encoding of Parquet.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._parts: list[tuple[str, str, Future[str]]] = []

    def feed(self, client: str, split: str, table: pa.Table) -> None:
        """Add the rows of one client and split."""
        rows = table.drop_columns(["client_id"]).replace_schema_metadata(None)
        self._parts.append((client, split, self._pool.submit(content_sha256, rows)))

    def hexdigest(self) -> str:
        """Return the hash of all that was fed, as 64 hexadecimal digits."""
        self._pool.shutdown()
        digest = hashlib.sha256()
        for client, split, rows in self._parts:
            digest.update(f"{client}\x1f{split}\x1f{rows.result()}\n".encode())
        return digest.hexdigest()


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
        self.shards = {split: _Shards(data, split, written) for split in SPLITS}
        self.removed_schema = dropped_schema(recipe.schema)
        self.removed = None if index else self._removed_writer()
        self.before: list[Cube] = []
        self.after: list[Cube] = []
        self.digest, self.removed_digest = ContentDigest(), ContentDigest()
        self.index: list[dict[str, Any]] = []
        self.ledger: list[LedgerEntry] = []
        self.empty_cells: list[tuple[str, str, str, str]] = []
        self.clients = self.flipped = self.dropped = self.source_rows = self.left_out = 0

    def _removed_writer(self) -> pq.ParquetWriter:
        path = self.folder / "dropped" / f"{self.recipe.name}.parquet"
        path.parent.mkdir(exist_ok=True)
        return _writer(path, self.removed_schema)

    def __enter__(self) -> ConfigWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        open_writers = [shards.writer for shards in self.shards.values()] + [self.removed]
        for writer in open_writers:
            if writer is not None and writer.is_open:
                _abandon(writer)

    def add(self, federation: Federation) -> None:
        """Write the clients of a part after those already written."""
        self.source_rows += federation.source_rows
        self.left_out += federation.left_out
        self.ledger += federation.ledger
        before, after = count_labels(federation)
        self.before.append(before)
        self.after.append(after)
        rules = _rules_of(federation)
        for client, rows in federation:
            gone = federation.dropped_of(client.name)
            self._add_client(client, rows, federation.split_of(client), gone, rules)

    def _add_client(
        self,
        client: Client,
        rows: pa.Table,
        split: NDArray[np.int8],
        gone: pa.Table,
        rules: dict[str, tuple[list[str], list[float], list[float]]],
    ) -> None:
        gone_by_split = Counter(gone["split"].to_pylist())
        for code, name in enumerate(SPLITS):
            start, stop = np.searchsorted(split, [code, code + 1])
            if start == stop:
                continue
            table = complete(rows.slice(start, stop - start), self.schema, self.attach)
            written = table if self.form is None else self.form.rows(table, name)
            shard, row_group = self.shards[name].write(written)
            self.digest.feed(client.name, name, table)
            texts, drop, flip = rules.get(client.name, ([], [], []))
            self.index.append(
                {
                    "client_id": client.name,
                    "name": self._name(client),
                    "parent": client.parent,
                    "split": name,
                    "fold": client.fold,
                    "file": shard,
                    "row_group": row_group,
                    "rows": table.num_rows,
                    "positives": pc.sum(table["label"]).as_py(),
                    "flipped": pc.sum(table["flipped"]).as_py(),
                    "dropped": gone_by_split[name],
                    "rules": texts,
                    "drop": drop,
                    "flip": flip,
                }
            )
            self.flipped += self.index[-1]["flipped"]
        if gone.num_rows:
            removed = complete(gone, self.removed_schema, self.attach)
            if self.removed is not None:
                self.removed.write_table(removed, row_group_size=removed.num_rows)
            self.removed_digest.feed(client.name, "dropped", removed)
        self.clients += 1
        self.dropped += gone.num_rows
        self.empty_cells += _empty_cells(client.name, rows, split, self.recipe.schema)

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


def _empty_cells(
    client: str, rows: pa.Table, split: NDArray[np.int8], schema: Schema
) -> list[tuple[str, str, str, str]]:
    """Return (client, attribute, value, label) of every cell that test holds and train lacks."""
    test, train = SPLITS.index("test"), SPLITS.index("train")
    cells = []
    label = rows["label"].to_numpy()
    for attribute in schema.sensitive:
        coding = schema[attribute].coding
        names = dict(coding.names) if coding is not None else {}
        levels, codes = _levels(rows[attribute].to_numpy())
        place = (codes * 2 + label) * len(SPLITS) + split
        counts = np.bincount(place, minlength=len(levels) * 2 * len(SPLITS))
        counts = counts.reshape(len(levels), 2, len(SPLITS))
        if not counts[..., train].any():
            return []
        for value, outcome in np.argwhere((counts[..., test] > 0) & (counts[..., train] == 0)):
            level = levels[value]
            name = names.get(level, str(level))
            cells.append((client, attribute, name, schema.label.names[outcome]))
    return cells


def _levels(values: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return levels and the level of every value; small integers need no sorting for it."""
    if np.issubdtype(values.dtype, np.integer) and len(values):
        low, high = int(values.min()), int(values.max())
        if high - low < 1_000:
            return list(range(low, high + 1)), values.astype(np.int64) - low
    levels, codes = np.unique(values, return_inverse=True)
    return levels.tolist(), codes
