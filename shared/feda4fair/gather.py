"""Move rows to where they were decided to be: the one step that touches all columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair.decide import Assignment
from feda4fair.federation import Client, Federation
from feda4fair.recipe import (
    Recipe,
)
from feda4fair.split import SPLITS

__all__ = ["gather"]

Rows = NDArray[np.int64]


def gather(
    encoded: pa.Table,
    assignment: Assignment,
    recipe: Recipe,
    source_rows: int,
    fold: Mapping[str, int],
) -> Federation:
    """Move the rows: one take for those that stay, one for those that were dropped."""
    rank = np.argsort(np.array(assignment.names, dtype=object), kind="stable")
    position = np.empty(len(rank) + 1, dtype=np.int64)
    position[rank], position[-1] = np.arange(len(rank)), -1
    names = [assignment.names[i] for i in rank]
    sorted_codes = position[assignment.client]
    place = sorted_codes * len(SPLITS) + assignment.split
    kept = _in_order(place, (assignment.client >= 0) & (assignment.rule < 0))
    gone = _in_order(sorted_codes, (assignment.client >= 0) & (assignment.rule >= 0))
    label = encoded["label"].to_numpy()
    table = _columns(encoded, kept, names, sorted_codes)
    flipped = assignment.flipped[kept]
    table = table.append_column("label", pa.array(label[kept] ^ flipped, pa.int64()))
    table = table.append_column("flipped", pa.array(flipped))
    dropped = _columns(encoded, gone, names, sorted_codes)
    dropped = dropped.append_column("label", pa.array(label[gone], pa.int64()))
    dropped = dropped.append_column("rule", _rule_names(assignment, recipe, gone))
    splits = pa.array(SPLITS).take(pa.array(assignment.split[gone]))
    dropped = dropped.append_column("split", splits)
    counts = np.bincount(sorted_codes[kept], minlength=len(names))
    stops = np.cumsum(counts)
    return Federation(
        recipe=recipe,
        clients=tuple(
            Client(
                name=name,
                parent=assignment.parents[rank[i]],
                start=int(stops[i] - counts[i]),
                stop=int(stops[i]),
                fold=fold.get(name),
            )
            for i, name in enumerate(names)
        ),
        table=table,
        split=assignment.split[kept],
        dropped=dropped,
        ledger=tuple(assignment.ledger),
        source_rows=source_rows,
        left_out=source_rows - len(kept) - len(gone),
    )


def _in_order(place: NDArray[np.int64], mask: NDArray[np.bool_]) -> Rows:
    """Return the marked rows by place, then by position."""
    rows = np.flatnonzero(mask)
    own = place[rows]
    own = own.astype(np.min_scalar_type(int(own.max()))) if len(own) else own
    return rows[np.argsort(own, kind="stable")]


def _columns(
    encoded: pa.Table, rows: Rows, names: list[str], codes: NDArray[np.int64]
) -> pa.Table:
    """Return client_id, row_id and the schema's columns of the given rows."""
    clients = pa.DictionaryArray.from_arrays(
        pa.array(codes[rows], pa.int32()), pa.array(names, pa.string())
    )
    table = encoded.drop_columns(["label"]).take(pa.array(rows)).combine_chunks()
    return table.add_column(0, "client_id", clients.cast(pa.string()))


def _rule_names(assignment: Assignment, recipe: Recipe, rows: Rows) -> pa.Array:
    """Return for each dropped row the name of its rule."""
    first: dict[str, int] = {}
    for position, entry in enumerate(assignment.ledger):
        first.setdefault(entry.client, position)
    injected = assignment.names if recipe.control else assignment.parents
    base = np.array([first.get(client, 0) for client in injected], dtype=np.int64)
    positions = base[assignment.client[rows]] + assignment.rule[rows]
    names = pa.array([entry.rule for entry in assignment.ledger], pa.string())
    return names.take(pa.array(positions))
