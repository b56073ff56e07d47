"""Who gets which row: one pure function for each kind of partition."""

from __future__ import annotations

from typing import Literal, assert_never

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair import seeds
from feda4fair.encode import plain
from feda4fair.errors import RecipeError, SchemaError
from feda4fair.partition import (
    Assigned,
    Dirichlet,
    Iid,
    LogNormal,
    Natural,
    Partition,
    PowerLaw,
    Shards,
    Sizes,
)

__all__ = ["assign", "numbered", "pieces"]

Codes = NDArray[np.int32]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DRAWS = 100
"""Most Dirichlet draws that are tried until no client is too small."""

MOST_CELLS = 100_000_000
"""Most clients times levels in all draws together."""


def assign(
    table: pa.Table,
    partition: Partition,
    *,
    seed: int,
    scope: str,
    strata: Ints | None = None,
) -> tuple[tuple[str, ...], Codes]:
    """Assign every row to one client.

    Parameters
    ----------
    table : pyarrow.Table, n rows
        Rows in source order.
    partition : Natural, Iid, Dirichlet, Shards or Assigned
        How to assign.
    seed : int
        Seed of the recipe; ``scope`` (the config name) completes the key of the stream.
    strata : ndarray of int64, shape (n,), optional
        Joint code of what ``partition.by`` names, not negative.

    Returns
    -------
    clients : tuple of str
        Client names, sorted.
    codes : ndarray of int32, shape (n,)
        Position of the row's client in ``clients``; -1 where an assignment made elsewhere gives
        the row to none.

    Raises
    ------
    RecipeError
        If a client would get too few rows, or the natural column is absent.
    SchemaError
        If the natural column has missing values.

    Examples
    --------
    >>> names, codes = assign(pa.table({"x": range(5)}), Iid(2), seed=7, scope="demo")
    >>> names, sorted(codes.tolist())
    (('c0', 'c1'), [0, 0, 0, 1, 1])
    """
    match partition:
        case Natural(column=column):
            return _natural(table, column)
        case Assigned():
            return partition.clients, _assigned(table, partition)
        case Iid():
            codes = _iid(table.num_rows, partition, seed, scope)
        case Dirichlet():
            codes = _dirichlet(_levels(strata), partition, seed, scope)
        case Shards():
            codes = _shards(_levels(strata), partition, seed, scope)
        case _:
            assert_never(partition)
    return numbered(partition.clients), codes


def numbered(clients: int) -> tuple[str, ...]:
    """Return the names of clients that are dealt, in order.

    Examples
    --------
    >>> numbered(11)[0], numbered(11)[-1]
    ('c00', 'c10')
    """
    width = len(str(clients - 1))
    return tuple(f"c{i:0{width}d}" for i in range(clients))


def _natural(table: pa.Table, column: str) -> tuple[tuple[str, ...], Codes]:
    if table.column_names.count(column) != 1:
        found = "two such columns" if column in table.column_names else "no such column"
        raise RecipeError(
            f"Natural(column={column!r}): {found} among {', '.join(table.column_names)}."
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


def _assigned(table: pa.Table, partition: Assigned) -> Codes:
    if partition.rows != table.num_rows:
        raise RecipeError(
            f"Assigned: made for {partition.rows:,} rows, but the source has {table.num_rows:,}; "
            "use the source that it was made on."
        )
    return partition.decode()


def _iid(rows: int, partition: Iid, seed: int, scope: str) -> Codes:
    clients = partition.clients
    _check_room("Iid", clients, partition.smallest, rows)
    order = seeds.permutation(seed, scope, "iid", size=rows)
    codes = np.empty(rows, dtype=np.int32)
    if partition.sizes is None:
        codes[order] = np.resize(np.arange(clients, dtype=np.int32), rows)
        return codes
    counts = _shares(rows, _weights(partition.sizes, clients, seed, scope))
    if counts.min() < partition.smallest:
        raise RecipeError(
            f"Iid(clients={clients}): by these sizes the smallest of {clients} clients gets "
            f"{counts.min()} of {rows:,} rows, fewer than smallest={partition.smallest}; use "
            "fewer clients or more equal sizes."
        )
    codes[order] = np.repeat(np.arange(clients, dtype=np.int32), counts)
    return codes


def _check_room(kind: str, clients: int, smallest: int, rows: int) -> None:
    if clients * smallest > rows:
        raise RecipeError(
            f"{kind}(clients={clients}): {clients:,} clients of at least {smallest:,} rows need "
            f"{clients * smallest:,}, but there are {rows:,}; use at most "
            f"{rows // smallest:,} clients."
        )


def _weights(sizes: Sizes, clients: int, seed: int, scope: str) -> Floats:
    match sizes:
        case PowerLaw(exponent=exponent):
            rank = seeds.permutation(seed, scope, "sizes", size=clients) + 1
            falling: Floats = rank.astype(np.float64) ** -exponent
            return falling
        case LogNormal(sigma=sigma):
            from scipy.special import ndtri  # here: it loads slowly

            z = ndtri(_units(seed, scope, "sizes", size=clients))
            spread: Floats = np.exp(sigma * (z - z.max()))
            return spread
        case tuple():
            return np.array(sizes) / max(sizes)
        case None:
            return np.ones(clients)
        case _:
            assert_never(sizes)


def _units(seed: int, *names: str | int, size: int) -> Floats:
    """Return uniform draws in (0, 1): the middles of 53-bit cells."""
    return seeds.uniforms(seed, *names, size=size) + 2.0**-54


def _shares(rows: int, weights: Floats) -> Ints:
    """Share rows by weight: largest remainders, on a tie the first; the sum is exact.

    Weights are rounded, so that the last digits of a platform decide nothing.
    """
    exact: Floats = np.round(weights / weights.sum(), 12)
    exact *= rows / exact.sum()
    counts: Ints = np.floor(exact).astype(np.int64)
    missing = rows - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts


def _levels(strata: Ints | None) -> Ints:
    """Return each row's level: those that occur, numbered from 0 in order of their codes."""
    assert strata is not None, "a partition by levels needs strata"
    if strata.max(initial=0) > MOST_CELLS:
        sorted_levels: Ints = np.unique(strata, return_inverse=True)[1]
        return sorted_levels
    levels: Ints = (np.cumsum(np.bincount(strata) > 0) - 1)[strata]
    return levels


def _dirichlet(levels: Ints, partition: Dirichlet, seed: int, scope: str) -> Codes:
    clients, smallest = partition.clients, partition.smallest
    _check_room("Dirichlet", clients, smallest, len(levels))
    totals = np.bincount(levels)
    draws = min(DRAWS, MOST_CELLS // (clients * len(totals)))
    if draws == 0:
        raise RecipeError(
            f"Dirichlet(clients={clients}): {len(totals):,} levels of {', '.join(partition.by)} "
            "are too many for so many clients; use fewer clients or a coarser attribute."
        )
    best = -1
    for draw in range(draws):
        counts = np.stack(
            [
                _shares(int(total), _dirichlet_draw(partition, seed, scope, draw, level))
                for level, total in enumerate(totals)
            ]
        )
        least = int(counts.sum(axis=0).min())
        if least >= smallest:
            return _by_level(levels, counts, seed, scope)
        best = max(best, least)
    raise RecipeError(
        f"Dirichlet(alpha={partition.alpha:g}): in {draws} draws of {clients} clients from "
        f"{len(levels):,} rows the smallest client never got smallest={smallest} rows, at best "
        f"{best}; use {f'smallest={best}, ' if best else ''}a larger alpha or fewer clients."
    )


def _dirichlet_draw(partition: Dirichlet, seed: int, scope: str, draw: int, level: int) -> Floats:
    """Return one symmetric Dirichlet draw, shape (clients,), from gamma draws in logarithms.

    A gamma draw of shape alpha is one of shape alpha + 1 times u ** (1 / alpha); small alphas
    would underflow otherwise.
    """
    from scipy.special import gammaincinv  # here: it loads slowly

    alpha, size = partition.alpha, partition.clients
    key = (scope, "dirichlet", draw, level)
    gamma = gammaincinv(alpha + 1, _units(seed, *key, "gamma", size=size))
    log = np.log(gamma) + np.log(_units(seed, *key, "power", size=size)) / alpha
    share: Floats = np.exp(log - log.max())
    return share


def _by_level(levels: Ints, counts: Ints, seed: int, scope: str) -> Codes:
    """Deal the rows of every level, in random order, in the given numbers, shape (V, K)."""
    order = _shuffled_by_level(levels, seed, scope)
    codes = np.empty(len(levels), dtype=np.int32)
    clients = np.tile(np.arange(counts.shape[1], dtype=np.int32), len(counts))
    codes[order] = np.repeat(clients, counts.ravel())
    return codes


def _shuffled_by_level(levels: Ints, seed: int, scope: str) -> Ints:
    """Return the rows sorted by level, those of one level in random order."""
    order = seeds.permutation(seed, scope, "levels", size=len(levels))
    small = levels.astype(np.min_scalar_type(int(levels.max(initial=0))))
    by_level: Ints = order[np.argsort(small[order], kind="stable")]
    return by_level


def _shards(levels: Ints, partition: Shards, seed: int, scope: str) -> Codes:
    clients, shards = partition.clients, partition.clients * partition.per_client
    _check_room("Shards", clients, partition.per_client, len(levels))
    order = _shuffled_by_level(levels, seed, scope)
    owner = np.empty(shards, dtype=np.int32)
    owner[seeds.permutation(seed, scope, "shards", size=shards)] = np.arange(shards) % clients
    codes = np.empty(len(levels), dtype=np.int32)
    codes[order] = owner[pieces(len(levels), shards, "balanced")]
    return codes


def pieces(rows: int, parts: int, cut: Literal["balanced", "floor"]) -> NDArray[np.int32]:
    """Return the piece of every position of a client that is cut into parts.

    Parameters
    ----------
    rows : int
        Rows of the client.
    parts : int
        Number of pieces.
    cut : {"balanced", "floor"}
        See :class:`feda4fair.partition.Subdivide`.

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
