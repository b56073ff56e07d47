"""From a federation to its fairness report: counts of labels, before and after injection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from feda4fair.cube import Cube
from feda4fair.federation import Federation
from feda4fair.rates import Against
from feda4fair.recipe import Recipe
from feda4fair.report import FairnessReport, measure_cube
from feda4fair.schema import Value

__all__ = ["contenders", "count_labels", "measure"]


def measure(federation: Federation, *, against: Against = "rest") -> FairnessReport:
    """Measure the labels of a federation: demographic disparity of every client.

    Parameters
    ----------
    federation : Federation
        What to measure.
    against : {"rest", "pairs"}
        Definition of the disparity, see :mod:`feda4fair.fairness`.
    """
    return measure_cube(
        count_labels(federation), against=against, compare=contenders(federation.recipe)
    )


def contenders(recipe: Recipe) -> tuple[str, ...]:
    """Return the attributes that compete for a client's worst: those that the rules name.

    The others are measured and shown. A recipe without rules lets all compete.
    """
    named = {attribute for rule in recipe.rules for attribute, _ in rule.where}
    return tuple(name for name in recipe.schema.sensitive if name in named)


def count_labels(federation: Federation, *, restored: bool = False) -> Cube:
    """Count labels by client and sensitive attributes.

    Parameters
    ----------
    federation : Federation
        What to count.
    restored : bool, default False
        Count as before injection: clean labels, and the rows that injection removed.
    """
    table, gone = federation.table, federation.dropped
    clients = np.repeat(
        np.arange(len(federation.clients)), [client.rows for client in federation.clients]
    )
    label = table["label"].to_numpy()
    columns = {name: table[name] for name in federation.recipe.schema.sensitive}
    if restored:
        position = pa.array([client.name for client in federation.clients])
        removed = pa.compute.index_in(gone["client_id"], position).to_numpy()
        clients = np.concatenate([clients, removed])
        label = np.concatenate([label ^ table["flipped"].to_numpy(), gone["label"].to_numpy()])
        columns = {
            name: pa.chunked_array([*column.chunks, *gone[name].chunks])
            for name, column in columns.items()
        }
    return Cube.count(
        clients=clients,
        client_names=[client.name for client in federation.clients],
        attributes={
            name: (column.to_numpy(), _names(federation.recipe, name, [column]))
            for name, column in columns.items()
        },
        y_true=label,
    )


def _names(recipe: Recipe, name: str, columns: Sequence[pa.ChunkedArray]) -> dict[Value, str]:
    """Return code and name of every value; values without declared names name themselves."""
    coding = recipe.schema[name].coding
    if coding is not None:
        return dict(coding.names)
    present = {value for column in columns for value in pa.compute.unique(column).to_pylist()}
    return {value: str(value) for value in sorted(present, key=str)}
