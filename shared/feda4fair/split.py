"""Train, validation and test: of rows within a client, or of whole clients."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from feda4fair import seeds
from feda4fair.errors import RecipeError
from feda4fair.recipe import RowSplit

__all__ = [
    "SPLITS",
    "draw_test_clients",
    "folds",
    "released_split",
    "scatter_split",
    "shuffle_split",
    "split_rows",
]

SPLITS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(3)


def split_rows(
    strata: NDArray[np.int64], split: RowSplit, *, seed: int, scope: tuple[str, ...]
) -> NDArray[np.int8]:
    """Split the rows of one client, every stratum in proportion.

    Rows are ordered by stratum and, within it, at random; a row is test where the running count
    ``floor(rank * share)`` steps up; validation is marked likewise among the rows left. So the
    whole client holds each share within one row, and every stratum, however small, holds test
    within one row and the other two within two.

    Parameters
    ----------
    strata : ndarray of int64, shape (n,)
        Joint code of the attributes to stratify by.
    split : RowSplit
        Shares.
    seed : int
        Seed of the recipe.
    scope : tuple of str
        Config and client: key of the stream.

    Returns
    -------
    ndarray of int8, shape (n,)
        0 train, 1 validation, 2 test.

    Examples
    --------
    >>> codes = split_rows(np.zeros(50, np.int64), RowSplit(), seed=7, scope=("demo", "c0"))
    >>> np.bincount(codes).tolist()
    [35, 5, 10]
    """
    rows = len(strata)
    order = np.lexsort((seeds.raw_bits(seed, *scope, "split", size=rows), strata))
    codes = np.zeros(rows, dtype=np.int8)
    test = _steps(rows, split.test)
    codes[order[test]] = TEST
    rest = order[~test]
    codes[rest[_steps(len(rest), split.validation / (1 - split.test))]] = VALIDATION
    return codes


def _steps(rows: int, share: float) -> NDArray[np.bool_]:
    """Mark the ranks at which ``floor(rank * share)`` steps up, centered so that none lags."""
    count = np.floor(np.arange(rows + 1) * share + 0.5)
    steps: NDArray[np.bool_] = np.diff(count) > 0
    return steps


def scatter_split(
    row_id: NDArray[np.int64], split: RowSplit, *, seed: int, scope: tuple[str, ...]
) -> NDArray[np.int8]:
    """Give each row a split by its own row_id, whatever other rows are there.

    The draw of a row is number ``row_id`` of the client's stream. It serves rows that injection
    removed where the splits of the other rows are given from outside.
    """
    size = int(row_id.max()) + 1 if len(row_id) else 0
    draw = seeds.uniforms(seed, *scope, "restored split", size=size)[row_id]
    codes = np.zeros(len(row_id), dtype=np.int8)
    codes[draw < split.validation + split.test] = VALIDATION
    codes[draw < split.test] = TEST
    return codes


def released_split(
    strata: NDArray[np.int64] | None, rows: int, split: RowSplit, *, seed: int
) -> NDArray[np.int8]:
    """Split the rows of one client exactly as the released evaluation does.

    Equal to scikit-learn's ``train_test_split(test_size=split.test, random_state=seed,
    stratify=strata)`` and a second one on what it returned as train. Written out on the legacy
    ``RandomState`` stream, which NumPy keeps frozen, so that no release of scikit-learn can move
    a published row; a test holds the two equal.

    Parameters
    ----------
    strata : ndarray of int64, shape (rows,), or None
        Joint code of the attributes to stratify by, not negative; None for a plain shuffle.
    rows : int
        Number of rows.
    split : RowSplit
        Shares.
    seed : int
        Seed of both draws.

    Returns
    -------
    ndarray of int8, shape (rows,)
        0 train, 1 validation, 2 test.

    Raises
    ------
    RecipeError
        If a stratum has a single row, or a side has fewer rows than there are strata.
    """
    rest, test = shuffle_split(strata, np.arange(rows), split.test, seed)
    codes = np.zeros(rows, dtype=np.int8)
    codes[test] = TEST
    if split.validation:
        _, validation = shuffle_split(strata, rest, split.validation / (1 - split.test), seed)
        codes[validation] = VALIDATION
    return codes


def shuffle_split(
    strata: NDArray[np.int64] | None, positions: NDArray[np.int64], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return train and test positions as scikit-learn's ``train_test_split`` does.

    Parameters and errors are those of `released_split`; ``share`` is the share of test.
    """
    state = np.random.RandomState(seed)
    count = math.ceil(len(positions) * share)
    if strata is None:
        order = state.permutation(len(positions))
        return positions[order[count:]], positions[order[:count]]
    own = strata[positions]
    present = np.bincount(own)
    level = np.cumsum(present > 0) - 1
    codes = level.astype(np.min_scalar_type(len(present)))[own]
    sizes = np.bincount(codes)
    if sizes.min() < 2 or min(count, len(positions) - count) < len(sizes):
        raise RecipeError(
            f"{len(positions)} rows in {len(sizes)} strata, the smallest with {sizes.min()}, "
            "are too few for a stratified split."
        )
    first = _proportional(sizes, len(positions) - count, state)
    second = _proportional(sizes - first, count, state)
    members = np.split(np.argsort(codes, kind="stable"), np.cumsum(sizes)[:-1])
    large, small = [], []
    for rows, n, m in zip(members, first, second, strict=True):
        shuffled = rows[state.permutation(len(rows))]
        large.append(shuffled[:n])
        small.append(shuffled[n : n + m])
    rest = state.permutation(np.concatenate(large))
    return positions[rest], positions[np.concatenate(small)]


def _proportional(
    sizes: NDArray[np.int64], draws: int, state: np.random.RandomState
) -> NDArray[np.int64]:
    """Share draws among strata by largest remainders, ties broken by the state."""
    exact = sizes / sizes.sum() * draws
    counts = np.floor(exact)
    missing = int(draws - counts.sum())
    remainder = exact - counts
    for value in np.unique(remainder)[::-1]:
        if missing == 0:
            break
        tied = np.flatnonzero(remainder == value)
        take = min(len(tied), missing)
        counts[state.choice(tied, size=take, replace=False)] += 1
        missing -= take
    shared: NDArray[np.int64] = counts.astype(np.int64)
    return shared


def folds(clients: Mapping[str, str], count: int, *, seed: int, scope: str) -> dict[str, int]:
    """Assign clients to folds, pieces of one parent together.

    Parents are taken in a random order, larger families first, and each goes to the smallest
    fold so far.

    Parameters
    ----------
    clients : mapping of str to str
        Client and its parent (itself where clients are not pieces).
    count : int
        Number of folds.
    seed : int
        Seed of the recipe; ``scope`` (config name) completes the key.

    Returns
    -------
    dict of str to int
        Fold from 0 to ``count - 1`` of every client.

    Examples
    --------
    >>> fold = folds({"TX_0": "TX", "TX_1": "TX", "RI_0": "RI"}, 2, seed=7, scope="demo")
    >>> fold["TX_0"] == fold["TX_1"] != fold["RI_0"]
    True
    """
    size = Counter(clients.values())
    rank = {parent: seeds.key(seed, scope, "fold", parent) for parent in size}
    load = [0] * count
    fold_of: dict[str, int] = {}
    for parent in sorted(size, key=lambda p: (-size[p], rank[p], p)):
        fold_of[parent] = min(range(count), key=lambda fold: (load[fold], fold))
        load[fold_of[parent]] += size[parent]
    return {client: fold_of[parent] for client, parent in clients.items()}


def draw_test_clients(
    clients: Mapping[str, tuple[str, str]], count: int, *, seed: int, scope: str
) -> tuple[str, ...]:
    """Draw test clients in proportion to their strata, pieces of one parent together.

    Strata get their share of ``count`` by largest remainders. Parents are tried in random order
    and taken whole while every stratum has room; the first of 10,000 orders that fills all
    strata exactly wins.

    Parameters
    ----------
    clients : mapping of str to (str, str)
        Client, its parent and its stratum (for instance its most biased value).
    count : int
        Number of test clients.
    seed : int
        Seed of the recipe; ``scope`` (config name) completes the key.

    Raises
    ------
    RecipeError
        If no order fills the strata exactly.
    """
    sizes = Counter(stratum for _, stratum in clients.values())
    quota = _largest_remainders(sizes, count)
    families: dict[str, list[str]] = {}
    for client, (parent, _) in sorted(clients.items()):
        families.setdefault(parent, []).append(client)
    for attempt in range(10_000):
        left = dict(quota)
        chosen: list[str] = []
        bits = seeds.raw_bits(seed, scope, "test clients", attempt, size=len(families))
        for position in np.argsort(bits, kind="stable"):
            members = list(families.values())[position]
            need = Counter(clients[member][1] for member in members)
            if all(left[stratum] >= number for stratum, number in need.items()):
                chosen += members
                left = {stratum: left[stratum] - need[stratum] for stratum in left}
        if not any(left.values()):
            return tuple(sorted(chosen))
    raise RecipeError(
        f"{scope}: no choice of whole parents gives {count} test clients with {quota}; use "
        "another count."
    )


def _largest_remainders(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    total = sum(sizes.values())
    if count > total:
        raise RecipeError(f"{count} test clients wanted of {total}; ask for fewer.")
    quota = {stratum: size * count // total for stratum, size in sizes.items()}
    by_remainder: Sequence[str] = sorted(
        sizes, key=lambda stratum: (-(sizes[stratum] * count % total), stratum)
    )
    for stratum in by_remainder[: count - sum(quota.values())]:
        quota[stratum] += 1
    return quota
