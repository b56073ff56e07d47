"""Who gets which row: pure functions from a table or a row count to client codes."""

from __future__ import annotations

from typing import Literal, assert_never

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair import seeds
from feda4fair.errors import RecipeError, SchemaError
from feda4fair.recipe import Iid, Natural, Partition
from feda4fair.schema import plain

__all__ = ["assign", "pieces"]


def assign(
    table: pa.Table, partition: Partition, *, seed: int, scope: str
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Assign every row to one client.

    Parameters
    ----------
    table : pyarrow.Table, n rows
        Rows in source order.
    partition : Natural or Iid
        How to assign.
    seed : int
        Seed of the recipe; ``scope`` (the config name) completes the key of the stream.

    Returns
    -------
    clients : tuple of str
        Client names, sorted.
    codes : ndarray of int32, shape (n,)
        Position of the row's client in ``clients``.

    Raises
    ------
    RecipeError
        If there are more clients than rows, or the natural column is absent.
    SchemaError
        If the natural column has missing values.

    Examples
    --------
    >>> names, codes = assign(pa.table({"x": range(5)}), Iid(clients=2), seed=7, scope="demo")
    >>> names, sorted(codes.tolist())
    (('c0', 'c1'), [0, 0, 0, 1, 1])
    """
    match partition:
        case Natural(column=column):
            return _natural(table, column)
        case Iid(clients=clients):
            return _iid(table.num_rows, clients, seed=seed, scope=scope)
        case _:
            assert_never(partition)


def _natural(table: pa.Table, column: str) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    if column not in table.column_names:
        raise RecipeError(
            f"Natural(column={column!r}): no such column among {', '.join(table.column_names)}."
        )
    values = plain(table[column])
    if values.null_count:
        raise SchemaError(
            f"{column}: {values.null_count} of {len(values)} rows name no client; fill them or "
            "leave the rows out."
        )
    kinds = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_integer,
        pa.types.is_boolean,
    )
    if not any(is_kind(values.type) for is_kind in kinds):
        raise SchemaError(
            f"{column}: values of type {values.type} cannot name clients; use text or whole "
            "numbers."
        )
    encoded = values.cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    names = encoded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), dtype=np.int32)
    rank[order] = np.arange(len(names), dtype=np.int32)
    return tuple(names[i] for i in order), rank[encoded.indices.to_numpy()]


def _iid(
    rows: int, clients: int, *, seed: int, scope: str
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    if clients > rows:
        raise RecipeError(
            f"Iid(clients={clients}): the table has only {rows} rows; use at most {rows} clients."
        )
    width = len(str(clients - 1))
    codes = np.empty(rows, dtype=np.int32)
    codes[seeds.permutation(seed, scope, "iid", size=rows)] = np.arange(rows) % clients
    return tuple(f"c{i:0{width}d}" for i in range(clients)), codes


def pieces(rows: int, parts: int, cut: Literal["balanced", "floor"]) -> NDArray[np.int32]:
    """Return the piece of every position of a client that is cut into parts.

    Parameters
    ----------
    rows : int
        Rows of the client.
    parts : int
        Number of pieces.
    cut : {"balanced", "floor"}
        See :class:`feda4fair.recipe.Subdivide`.

    Returns
    -------
    ndarray of int32, shape (rows,)
        Piece of each position, -1 where "floor" leaves the position out.

    Examples
    --------
    >>> pieces(7, 3, "balanced").tolist()
    [0, 0, 0, 1, 1, 2, 2]
    >>> pieces(7, 3, "floor").tolist()
    [0, 0, 1, 1, 2, 2, -1]
    """
    size, extra = divmod(rows, parts)
    sizes = np.full(parts, size)
    if cut == "balanced":
        sizes[:extra] += 1
        extra = 0
    codes = np.repeat(np.arange(parts, dtype=np.int32), sizes)
    return np.concatenate((codes, np.full(extra, -1, dtype=np.int32)))
