"""Features as a linear model takes them: one-hot categories and scaled quantities.

Sensitive attributes and provenance are never features, as in :mod:`feda4fair.evaluate`. Which
column is a category follows from the schema and the training rows alone, in sorted order, so that
every client and every run has the same encoding. In a real federation the clients would send the
sets of their values; here they are read from the federation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feda4fair.errors import MeasureError
from feda4fair.recipe import Recipe

__all__ = ["MOST_VALUES", "Encoding", "fit"]

MOST_VALUES = 1024
"""Whole numbers with more values than this among the training rows are quantities."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Encoding:
    """How rows become numbers.

    Parameters
    ----------
    categories : tuple of (str, ndarray)
        Columns and their known values, ascending.
    quantities : tuple of (str, float, float)
        Columns with the mean and the standard deviation of the training rows.
    """

    categories: tuple[tuple[str, NDArray[Any]], ...]
    quantities: tuple[tuple[str, float, float], ...]

    @property
    def width(self) -> int:
        """Number of one-hot columns, and one for values that no training row has."""
        return 1 + sum(len(values) for _, values in self.categories)

    def codes(self, table: pa.Table) -> NDArray[np.int32]:
        """Return the one-hot column of every category, shape (n, categories).

        Column 0 stands for unknown values and never has a weight.
        """
        codes = np.zeros((table.num_rows, len(self.categories)), dtype=np.int32)
        base = 1
        for position, (name, values) in enumerate(self.categories):
            column = _plain(table[name])
            at = np.minimum(np.searchsorted(values, column), len(values) - 1)
            codes[:, position] = np.where(values[at] == column, base + at, 0)
            base += len(values)
        return codes

    def scaled(self, table: pa.Table) -> NDArray[np.float32]:
        """Return quantities with mean 0 and deviation 1 in training, shape (n, quantities)."""
        scaled = np.zeros((table.num_rows, len(self.quantities)), dtype=np.float32)
        for position, (name, mean, deviation) in enumerate(self.quantities):
            column = table[name].cast(pa.float64()).fill_null(mean).to_numpy()
            scaled[:, position] = (np.nan_to_num(column, nan=mean) - mean) / deviation
        return scaled


def fit(table: pa.Table, recipe: Recipe) -> Encoding:
    """Fit the encoding of a federation's features to training rows.

    Floats are quantities, and so are whole numbers with more than ``MOST_VALUES`` values; all
    else are categories. Missing values are a category of their own, or the mean.

    Parameters
    ----------
    table : pyarrow.Table
        Training rows of all clients.
    recipe : Recipe
        Recipe of the federation.

    Raises
    ------
    MeasureError
        If there is no row, or no feature that a linear model could take.

    Examples
    --------
    >>> from feda4fair import Column, Natural, Schema
    >>> schema = Schema(columns=(Column(name="size", dtype="int8"),))
    >>> recipe = Recipe(dataset="d", name="d", schema=schema, partition=Natural(column="w"))
    >>> found = fit(pa.table({"size": [5, 3, 5]}), recipe)
    >>> found.codes(pa.table({"size": [3, 5, 4]})).tolist()
    [[1], [2], [0]]
    """
    columns = [c for c in recipe.schema.columns if c.role == "feature" and c.dtype != "image"]
    if not columns or not table.num_rows:
        what = "no training row" if columns else "no feature but images"
        raise MeasureError(f"{recipe}: {what} to fit an encoding to; a linear model needs both.")
    categories, quantities = [], []
    for column in columns:
        values = table[column.name]
        kind = values.type
        numeric = pa.types.is_floating(kind) or pa.types.is_integer(kind)
        if pa.types.is_floating(kind) or (
            numeric and pc.count_distinct(values).as_py() > MOST_VALUES
        ):
            known = values.cast(pa.float64()).drop_null().to_numpy()
            known = known[~np.isnan(known)]
            deviation = float(known.std()) if len(known) else 0.0
            mean = float(known.mean()) if len(known) else 0.0
            quantities.append((column.name, mean, deviation or 1.0))
        else:
            categories.append((column.name, np.unique(_plain(values))))
    return Encoding(categories=tuple(categories), quantities=tuple(quantities))


def _plain(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return values that can be sorted; missing ones become text or the smallest number."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        least = np.iinfo(np.int64).min
        return np.asarray(column.cast(pa.int64()).fill_null(least).to_numpy())
    text = column.cast(pa.string()).fill_null("")
    return np.asarray(text.to_numpy(zero_copy_only=False).astype(str))
