"""Which of its rows a client trains its local model on, in which order, and which it predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair.assign import pieces
from feda4fair.errors import MeasureError, RecipeError
from feda4fair.federation import Client, Federation
from feda4fair.partition import Subdivide
from feda4fair.recipe import ClientSplit, RowSplit
from feda4fair.split import SPLITS, scatter_split, shuffle_split, split_rows

__all__ = ["OWN_SPLIT", "Cut", "cuts"]

Ints = NDArray[np.int64]

OWN_SPLIT = RowSplit(validation=0.0, test=0.2)
"""How a client splits its own rows where the config splits by client."""

TEST = SPLITS.index("test")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """What one client trains on and predicts.

    Parameters
    ----------
    client : str
        Its name.
    train, test : ndarray of int64
        Rows of the federation's table; train in the order of training.
    gone : ndarray of int64
        Rows of the federation's dropped table that are predicted too.
    note : str
        What did not go as usual.
    """

    client: str
    train: Ints
    test: Ints
    gone: Ints
    note: str = ""


def cuts(federation: Federation, split: RowSplit = OWN_SPLIT) -> list[Cut]:
    """Cut every client of a federation.

    Parameters
    ----------
    federation : Federation
    split : RowSplit
        How clients split their own rows where the config splits by client; a client's dropped
        rows are split like the others, so that both protocols share the cut.

    Returns
    -------
    list of Cut
        In client order.

    Raises
    ------
    MeasureError
        If the rows of a released config are not those of the release.
    """
    bounds = _dropped_bounds(federation)
    return [
        _cut(federation, client, np.arange(start, stop), split)
        for client, start, stop in zip(federation.clients, bounds[:-1], bounds[1:], strict=True)
    ]


def _dropped_bounds(federation: Federation) -> Ints:
    """Return where the dropped rows of each client begin and end; they are sorted by client."""
    names = np.array([client.name for client in federation.clients], dtype=object)
    gone = federation.dropped["client_id"].to_numpy(zero_copy_only=False)
    return np.append(np.searchsorted(gone, names), len(gone))


def _cut(federation: Federation, client: Client, gone: Ints, split: RowSplit) -> Cut:
    recipe = federation.recipe
    released = recipe.sampler == "released" and not recipe.control
    note = ""
    match recipe.split:
        case RowSplit() as within:
            train, held = _within(federation, client, within if released else None)
            names = federation.dropped["split"].take(pa.array(gone)).to_pylist()
            gone = gone[np.array([name == "test" for name in names], dtype=np.bool_)]
        case ClientSplit() if released:
            order = _piece_order(federation, client)
            train, held, note = _piece_split(federation, client, order, split)
            ids = federation.dropped["row_id"].to_numpy()[gone]
            scope = (recipe.name, client.name, "own")
            gone = gone[scatter_split(ids, split, seed=recipe.seed, scope=scope) == TEST]
        case ClientSplit():
            train, held, gone = _keyed(federation, client, gone, split)
        case _:
            assert_never(recipe.split)
    return Cut(
        client=client.name,
        train=train + client.start,
        test=held + client.start,
        gone=gone,
        note=note,
    )


def _by_row_id(federation: Federation, client: Client) -> Ints:
    """Return the positions of a client's rows, all splits together, by row_id."""
    return np.argsort(federation.table["row_id"].to_numpy()[client.start : client.stop])


def _within(
    federation: Federation, client: Client, released: RowSplit | None
) -> tuple[Ints, Ints]:
    """Return the rows to train on and the test rows of a client split by rows.

    Those of a released silo train in the order of the released procedure.
    """
    order = _by_row_id(federation, client)
    test = federation.split_of(client) == TEST
    if released is None:
        return order[~test[order]], order[test[order]]
    seed = federation.recipe.seed
    order = order[np.random.default_rng(seed).permutation(client.rows)]
    train, held = _shuffled(federation, client, order, released)
    if not test[held].all() or len(held) != test.sum():
        raise MeasureError(
            f"{federation.recipe}: the test rows of {client.name} are not those of the released "
            "procedure; build the folder again from the complete source."
        )
    return train, held


def _piece_split(
    federation: Federation, client: Client, order: Ints, split: RowSplit
) -> tuple[Ints, Ints, str]:
    """Split a piece's rows, stratified unless a stratum is too small for it."""
    try:
        return *_shuffled(federation, client, order, split), ""
    except RecipeError:
        plain = replace(split, stratify=())
        note = f"{client.name}: too few rows to split by {', '.join(split.stratify)}."
        return *_shuffled(federation, client, order, plain), note


def _shuffled(
    federation: Federation, client: Client, order: Ints, split: RowSplit
) -> tuple[Ints, Ints]:
    """Split a client's rows, taken in an order, as ``train_test_split`` does."""
    rows = federation.table.slice(client.start, client.rows)
    strata = _strata(rows, split.stratify)[order] if split.stratify else None
    seed = federation.recipe.seed
    rest, test = shuffle_split(strata, np.arange(len(order)), split.test, seed)
    return order[rest], order[test]


def _strata(table: pa.Table, names: Sequence[str]) -> Ints:
    joint = np.zeros(table.num_rows, dtype=np.int64)
    for name in names:
        values, place = np.unique(table[name].to_numpy(), return_inverse=True)
        joint = joint * len(values) + place
    return joint


def _piece_order(federation: Federation, client: Client) -> Ints:
    """Return the positions of a piece's rows in the released order.

    The pieces of a released client were cut from a permutation of the rows that survived
    injection. How many these were is not written down, but the few numbers that give a piece of
    this size give quite different pieces; only the right one puts its rows before or at their
    row_id, later and later as dropped rows are passed.
    """
    recipe = federation.recipe
    by_id = _by_row_id(federation, client)
    if recipe.subdivide is None:
        return by_id[np.random.default_rng(recipe.seed).permutation(client.rows)]
    dropped = sum(entry.dropped for entry in federation.ledger if entry.client == client.parent)
    row_id = federation.table["row_id"].to_numpy()[client.start : client.stop][by_id]
    for ranks in _candidates(client, recipe.subdivide, recipe.seed):
        lag = row_id - np.sort(ranks)
        if lag[0] >= 0 and lag[-1] <= dropped and (np.diff(lag) >= 0).all():
            return by_id[np.argsort(np.argsort(ranks))]
    raise MeasureError(
        f"{recipe}: the rows of {client.name} are no piece of a released {client.parent}; build "
        "the folder again from the complete source."
    )


def _candidates(client: Client, subdivide: Subdivide, seed: int) -> Iterator[Ints]:
    """Yield the ranks of the piece's rows for each number of survivors that fits its size."""
    parts, cut = subdivide.pieces(client.rows), subdivide.cut
    piece = int(client.name.rpartition("_")[2])
    for rows in range(parts * (client.rows - 1), parts * (client.rows + 1) + 1):
        member = pieces(rows, parts, cut) == piece
        if member.sum() == client.rows:
            yield np.random.default_rng(seed).permutation(rows)[member]


def _keyed(
    federation: Federation, client: Client, gone: Ints, split: RowSplit
) -> tuple[Ints, Ints, Ints]:
    """Split a client's own rows, with the dropped ones, as they were before injection."""
    recipe = federation.recipe
    columns = ["row_id", "label", *recipe.schema.sensitive]
    here = federation.table.slice(client.start, client.rows)
    there = federation.dropped.take(pa.array(gone)).select(columns)
    flipped = here["flipped"].to_numpy()
    label = pa.array(here["label"].to_numpy() ^ flipped)
    here = here.select(columns).set_column(1, "label", label)
    both = pa.concat_tables([here, there.cast(here.schema)])
    order = np.argsort(both["row_id"].to_numpy(), kind="stable")
    strata = _strata(both.take(pa.array(order)), split.stratify)
    codes = np.empty(len(order), dtype=np.int8)
    scope = (recipe.name, client.name, "own")
    codes[order] = split_rows(strata, split, seed=recipe.seed, scope=scope)
    test = codes == TEST
    own = order[order < client.rows]
    return own[~test[own]], own[test[own]], gone[test[client.rows :]]
