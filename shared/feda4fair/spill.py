"""Rows that do not fit in memory, dealt to files of neighboring clients.

The source is passed over twice at most: once for the columns that decide who gets which row, and
once to move the rows. What stays in memory is one block of rows, then one file with its clients;
partitions that deal rows keep four bytes for each row besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair.assign import assign
from feda4fair.columns import Value
from feda4fair.decide import Codes
from feda4fair.encode import encode, ranked
from feda4fair.errors import RecipeError, SchemaError
from feda4fair.federation import Federation
from feda4fair.partition import Assigned, Dirichlet, Natural, Shards
from feda4fair.recipe import Recipe
from feda4fair.steps import Seen, federate_dealt, selected_rows

__all__ = ["BUCKET_BYTES", "Blocks", "Spilled", "spill"]

BUCKET_BYTES = 128_000_000
"""Rows of one file, in memory; several such files are worked on at once."""

_CLIENT = "client_id"
"""Column that holds the position of each row's client; no column of a schema has this name."""

_EMPTY = "empty.arrow"
"""File without rows, for clients of which none was selected."""

Ints = NDArray[np.int64]


@runtime_checkable
class Blocks(Protocol):
    """A source that can be read block by block."""

    @property
    def is_large(self) -> bool:
        """Whether the rows are better dealt to files than held in memory."""

    @property
    def row_bytes(self) -> float:
        """Memory of a row."""

    @property
    def num_rows(self) -> int:
        """Rows in all."""

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows in order, some or all columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spilled:
    """Files of encoded rows, each with all rows of some neighboring clients.

    Parameters
    ----------
    recipe : Recipe
        What is made of them.
    clients : tuple of str
        All clients before subdivision, in the order of the files.
    bounds : tuple of int
        Where each file's clients begin in ``clients``, and the end.
    folder : Path
        Where the files lie.
    source_rows, left_out : int
        Rows of the source, and those that no file holds.
    """

    recipe: Recipe
    clients: tuple[str, ...]
    bounds: tuple[int, ...]
    folder: Path
    source_rows: int
    left_out: int

    @property
    def parts(self) -> tuple[int, ...]:
        """Numbers of the files."""
        return tuple(range(len(self.bounds) - 1))

    def read(self, part: int) -> pa.Table:
        """Return the rows of a file in source order."""
        path = _path(self.folder, part)
        with pa.ipc.open_stream(path if path.exists() else self.folder / _EMPTY) as stream:
            return stream.read_all().combine_chunks()

    def holding(self, clients: Sequence[str]) -> tuple[int, ...]:
        """Return the files that hold the named clients."""
        parents = {self.recipe.parent(client) for client in clients}
        unknown = sorted(parents - set(self.clients))
        if unknown:
            raise RecipeError(
                f"{self.recipe}: no client {', '.join(unknown)}; it has {len(self.clients)}, "
                f"{self.clients[0]} to {self.clients[-1]}."
            )
        return tuple(
            part
            for part in self.parts
            if parents & set(self.clients[self.bounds[part] : self.bounds[part + 1]])
        )

    def federate(self, part: int, table: pa.Table) -> Federation:
        """Return the federation of a file's clients."""
        first, stop = self.bounds[part], self.bounds[part + 1]
        return federate_dealt(
            table.drop_columns([_CLIENT]),
            table[_CLIENT].to_numpy() - np.int32(first),
            self.clients[first:stop],
            tuple(sorted(self.clients)),
            self.recipe,
            source_rows=table.num_rows,
        )


def _path(folder: Path, part: int) -> Path:
    return folder / f"{part:05d}.arrow"


def spill(source: Blocks, recipe: Recipe, folder: Path) -> Spilled:
    """Deal the rows of a source to files.

    Parameters
    ----------
    source : Blocks
        Where the rows come from.
    recipe : Recipe
        Who gets which row.
    folder : Path
        Where the files go.

    Raises
    ------
    SchemaError, RecipeError
        As :func:`feda4fair.steps.federate_table`.
    """
    folder.mkdir(parents=True)
    names, codes, counts = _clients(source, recipe)
    order = sorted(range(len(names)), key=lambda i: _key(names[i], recipe))
    place = np.empty(len(names) + 1, dtype=np.int32)
    place[order], place[-1] = np.arange(len(names)), -1
    clients = tuple(names[i] for i in order)
    keys = [_key(name, recipe) for name in clients]
    bounds = _bounds(keys, counts[order], max(1, int(BUCKET_BYTES / source.row_bytes)))
    bucket = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    seen, moved = Seen(), 0
    with ExitStack() as stack:
        writers: dict[int, pa.RecordBatchStreamWriter] = {}
        for encoded, own in _dealt_blocks(source, recipe, codes, names):
            seen.add(encoded, recipe)
            client = place[own]
            rows = encoded.append_column(_CLIENT, pa.array(client))
            if not moved:
                with pa.ipc.new_stream(folder / _EMPTY, rows.schema):
                    pass
            moved += _scatter(rows, client, bucket, writers, stack, folder)
    seen.check(recipe, tuple(sorted(clients)))
    return Spilled(
        recipe=recipe,
        clients=clients,
        bounds=tuple(bounds),
        folder=folder,
        source_rows=source.num_rows,
        left_out=source.num_rows - moved,
    )


def _key(name: str, recipe: Recipe) -> str:
    """Return what sorts clients as their final names are sorted."""
    return name if recipe.subdivide is None else f"{name}_"


def _bounds(keys: Sequence[str], counts: Ints, most: int) -> list[int]:
    """Cut clients into runs of about ``most`` rows, where their final names keep the order.

    Pieces of ``a`` and of ``a_1`` are sorted among each other, so no cut comes between these.
    """
    bounds, filled, chain = [0], 0, keys[0]
    for position, (key, rows) in enumerate(zip(keys, counts.tolist(), strict=True)):
        inside = key.endswith("_") and key.startswith(chain)
        if filled and filled + rows > most and not inside:
            bounds.append(position)
            filled = 0
        filled += rows
        chain = chain if inside else key
    return [*bounds, len(keys)]


def _scatter(
    rows: pa.Table,
    client: NDArray[np.int32],
    bucket: Ints,
    writers: dict[int, pa.RecordBatchStreamWriter],
    stack: ExitStack,
    folder: Path,
) -> int:
    """Append a block's rows to the files of their clients; return how many have a client."""
    held = np.flatnonzero(client >= 0)
    target = bucket[client[held]]
    small = target.astype(np.min_scalar_type(len(bucket)))
    by_target = np.argsort(small, kind="stable")
    rows = rows.take(pa.array(held[by_target]))
    ends = np.cumsum(np.bincount(target))
    for part in np.unique(target).tolist():
        if part not in writers:
            writer = pa.ipc.new_stream(_path(folder, part), rows.schema)
            writers[part] = stack.enter_context(writer)
        start = int(ends[part - 1]) if part else 0
        writers[part].write_table(rows.slice(start, int(ends[part]) - start))
    return len(held)


def _clients(
    source: Blocks, recipe: Recipe
) -> tuple[tuple[str, ...], NDArray[np.int32] | None, Ints]:
    """Return the clients, the client of each selected row, and about how many rows each has.

    Natural clients are found block by block when the rows are moved: their codes are None.
    """
    partition, rows = recipe.partition, source.num_rows
    if isinstance(partition, Natural):
        return _natural(source, partition, recipe)
    if isinstance(partition, Assigned):
        names, codes = assign(
            pa.table({"row": np.zeros(rows, np.int8)}), partition, seed=0, scope=""
        )
        return names, codes, np.bincount(codes[codes >= 0], minlength=len(names))
    by = partition.by if isinstance(partition, Dirichlet | Shards) else ()
    strata: Ints | None = None
    if by or recipe.select:
        content = _deciding(source, recipe, by)
        rows = len(content.label)
        if rows == 0:
            raise RecipeError(
                f"{recipe}: no row of {source.num_rows} is left; check source and select."
            )
        strata = content.strata(by) if by else None
    dealt = pa.table({"row": np.zeros(rows, np.int8)})
    names, codes = assign(dealt, partition, seed=recipe.seed, scope=recipe.name, strata=strata)
    return names, codes, np.bincount(codes, minlength=len(names))


def _natural(
    source: Blocks, partition: Natural, recipe: Recipe
) -> tuple[tuple[str, ...], None, Ints]:
    held: dict[str, int] = {}
    for block in source.blocks([partition.column]):
        names, codes = assign(block, partition, seed=recipe.seed, scope=recipe.name)
        for name, rows in zip(names, np.bincount(codes).tolist(), strict=True):
            held[name] = held.get(name, 0) + rows
    ordered = tuple(sorted(held))
    return ordered, None, np.array([held[name] for name in ordered])


def _deciding(source: Blocks, recipe: Recipe, by: Sequence[str]) -> Codes:
    """Return label and attributes of the selected rows: what decides who gets them."""
    wanted = {*by, *(name for name, _ in recipe.select)} - {"label"}
    columns = tuple(column for column in recipe.schema.columns if column.name in wanted)
    schema = replace(recipe.schema, columns=columns)
    label: list[NDArray[np.int8]] = []
    attributes = {name: _Growing() for name in by if name != "label"}
    for block in source.blocks([*(c.name for c in columns), schema.label.column]):
        encoded = encode(block, schema)
        encoded = encoded.take(pa.array(selected_rows(encoded, recipe)))
        label.append(encoded["label"].to_numpy())
        for name, values in attributes.items():
            values.add(encoded[name])
    joined = {name: values.ranks() for name, values in attributes.items()}
    return Codes(np.empty(0, np.int64), np.concatenate(label), joined)


class _Growing:
    """An attribute that comes in blocks, kept as numbers whatever its values are."""

    def __init__(self) -> None:
        self._known: dict[Value, int] = {}
        self._codes: list[NDArray[np.int32]] = []

    def add(self, values: pa.ChunkedArray) -> None:
        """Add the values of a block."""
        levels, codes = ranked(values)
        known = [self._known.setdefault(level, len(self._known)) for level in levels]
        self._codes.append(np.array(known, dtype=np.int32)[codes])

    def ranks(self) -> NDArray[np.int32]:
        """Return the position of each value among all, sorted."""
        rank = np.empty(len(self._known), dtype=np.int32)
        for position, level in enumerate(sorted(self._known)):
            rank[self._known[level]] = position
        return rank[np.concatenate(self._codes)]


def _dealt_blocks(
    source: Blocks, recipe: Recipe, codes: NDArray[np.int32] | None, names: tuple[str, ...]
) -> Iterator[tuple[pa.Table, NDArray[np.int32]]]:
    """Yield encoded blocks of selected rows with the position of each row's client in names."""
    position = {name: i for i, name in enumerate(names)}
    start = taken = 0
    last_id = -1
    for block in source.blocks():
        numbered = _numbered(block, start)
        encoded = encode(numbered, recipe.schema)
        last_id = _check_ascending(encoded, last_id)
        chosen = selected_rows(encoded, recipe)
        if codes is None:
            own_names, own = assign(block, recipe.partition, seed=recipe.seed, scope=recipe.name)
            own = np.array([position[name] for name in own_names], np.int32)[own][chosen]
        elif isinstance(recipe.partition, Assigned):
            own = codes[start : start + block.num_rows][chosen]
        else:
            own = codes[taken : taken + len(chosen)]
        start, taken = start + block.num_rows, taken + len(chosen)
        if len(chosen) < block.num_rows:
            encoded = encoded.take(pa.array(chosen))
        yield encoded, own


def _numbered(block: pa.Table, start: int) -> pa.Table:
    """Add row ids by position in the source, unless there are some."""
    if "row_id" in block.column_names:
        return block
    ids = np.arange(start, start + block.num_rows, dtype=np.int64)
    return block.append_column("row_id", pa.array(ids))


def _check_ascending(encoded: pa.Table, last: int) -> int:
    """Make sure that no row id comes twice, which blocks can only tell if ids ascend."""
    ids = encoded["row_id"].to_numpy()
    if ids[0] <= last or (np.diff(ids) <= 0).any():
        raise SchemaError(
            "row_id: the ids of a source that is read in blocks must ascend; sort it, or rename "
            "the column and positions are used."
        )
    return int(ids[-1])
