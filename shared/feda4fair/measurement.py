"""From a federation to its fairness report: counts of labels, before and after injection."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feda4fair.columns import Value
from feda4fair.cube import Cube
from feda4fair.encode import as_numpy
from feda4fair.federation import Federation
from feda4fair.rates import Against
from feda4fair.recipe import Recipe
from feda4fair.report import FairnessReport, measure_cube

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
    _, after = count_labels(federation)
    return measure_cube(after, against=against, compare=contenders(federation.recipe))


def contenders(recipe: Recipe) -> tuple[str, ...]:
    """Return the attributes that compete for a client's worst: those that the rules name.

    The others are measured and shown. A recipe without rules lets all compete.
    """
    named = {attribute for rule in recipe.rules for attribute, _ in rule.where}
    return tuple(name for name in recipe.schema.sensitive if name in named)


def count_labels(federation: Federation) -> tuple[Cube, Cube]:
    """Count labels by client and sensitive attributes, before and after injection.

    Parameters
    ----------
    federation : Federation
        What to count.

    Returns
    -------
    before, after : Cube
        Clean labels with the rows that injection removed, and the labels as they are.
    """
    table = federation.table
    after = _count(federation, table)
    moved = np.zeros_like(after.counts)
    flipped = np.flatnonzero(table["flipped"].to_numpy())
    if len(flipped):
        columns = ["client_id", *federation.recipe.schema.sensitive, "label"]
        moved = _count(federation, table.select(columns).take(flipped)).counts
    gone = _count(federation, federation.dropped).counts
    before = replace(after, counts=after.counts - moved + moved[:, :, ::-1] + gone)
    return before, after


def _count(federation: Federation, table: pa.Table) -> Cube:
    """Count the labels of some rows of a federation, sorted by client."""
    names = pa.array([client.name for client in federation.clients], pa.string())
    recipe = federation.recipe
    if table is federation.table:
        clients = np.repeat(np.arange(len(names)), [c.rows for c in federation.clients])
    else:
        clients = pc.index_in(table["client_id"], names).to_numpy()
    return Cube.count(
        clients=clients,
        client_names=names.to_pylist(),
        attributes={
            name: (as_numpy(table[name]), _names(federation, name))
            for name in recipe.schema.sensitive
        },
        y_true=table["label"].to_numpy(),
    )


def _names(federation: Federation, name: str) -> dict[Value, str]:
    """Return code and name of every value; values without declared names name themselves."""
    coding = federation.recipe.schema[name].coding
    if coding is not None:
        return dict(coding.names)
    tables = (federation.table, federation.dropped)
    present = {value for table in tables for value in pc.unique(table[name]).to_pylist()}
    return {value: str(value) for value in sorted(present, key=str)}
