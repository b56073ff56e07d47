"""Parquet files with fixed settings: shards of clients, and side tables."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = ["Shards", "SideFile", "abandon", "open_writer", "write_parquet"]

ROW_GROUP_BYTES = 100_000_000
SHARD_BYTES = 300_000_000

SHARD_GROUPS = 2_000
"""Most row groups of a shard: each costs memory while it is written and bytes of the footer."""

SIDE_ROWS = 50_000
"""Rows of a side table from which on a row group ends."""


def open_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer with the settings that give the same bytes everywhere."""
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


def abandon(writer: pq.ParquetWriter) -> None:
    """Close a file that will be removed; a full disk is no news then.

    A writer whose close failed would try again, and complain, when it is collected.
    """
    with suppress(OSError):
        writer.close()
    writer.is_open = False


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a side table (index, statistics, removed rows) with the fixed settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_writer(path, table.schema) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))


class SideFile:
    """A side table that is written in row groups of whole pieces, however it is handed over."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.parent.mkdir(exist_ok=True)
        self.writer = open_writer(path, schema)
        self._held: list[pa.Table] = []
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        """Add the rows of one client."""
        self._held.append(table)
        self._rows += table.num_rows
        if self._rows >= SIDE_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            table = pa.concat_tables(self._held).combine_chunks()
            self.writer.write_table(table, row_group_size=self._rows)
        self._held, self._rows = [], 0

    def close(self) -> None:
        """Write what is held and end the file."""
        self._flush()
        self.writer.close()


def _content_bytes(table: pa.Table) -> int:
    """Return the bytes of a table's values, however its rows lie in memory.

    ``nbytes`` counts the bits before a slice, so it would make files depend on who cut it.
    """
    rows = table.num_rows
    fixed, bits, variable = _widths(table.schema)
    size: int = rows * fixed + bits * ((rows + 7) // 8)
    return size + sum(_column_bytes(table[name]) for name in variable)


@cache
def _widths(schema: pa.Schema) -> tuple[int, int, tuple[str, ...]]:
    """Return the bytes of a row's fixed columns, its columns of one bit, and the other columns."""
    fixed = bits = 0
    variable = []
    for field_ in schema:
        if pa.types.is_boolean(field_.type):
            bits += 1
        elif pa.types.is_primitive(field_.type):
            fixed += int(field_.type.bit_width) // 8
        else:
            variable.append(field_.name)
    return fixed, bits, tuple(variable)


def _column_bytes(column: pa.ChunkedArray) -> int:
    if pa.types.is_struct(column.type):
        return sum(_column_bytes(pc.struct_field(column, field.name)) for field in column.type)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return 4 * len(column) + (pc.sum(pc.binary_length(column)).as_py() or 0)
    return (len(column) * int(column.type.bit_width) + 7) // 8


@dataclass(slots=True)
class Shards:
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
        full = self.filled + size_in_memory > SHARD_BYTES or self.row_group >= SHARD_GROUPS
        if self.writer is None or full:
            self.close()
            self.paths.append(self.folder / f"{self.split}-{len(self.paths):05d}.parquet")
            self.writer = open_writer(self.paths[-1], self.schema)
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
        """End the shard in hand."""
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
