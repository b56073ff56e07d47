"""Features of the linear model: what is a category, what a quantity, and what is never one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("torch", reason="torch is not installed (extra fl)")
pytest.importorskip("flwr", reason="flwr is not installed (extra fl)")

from feda4fair import Column, Natural, Recipe, Schema
from feda4fair.errors import MeasureError
from feda4fair.fl.encoding import MOST_VALUES, fit


def recipe(**dtypes: str) -> Recipe:
    columns = [Column(name=name, dtype=dtype) for name, dtype in dtypes.items()]
    columns += [Column(name="sex", dtype="int8", role="sensitive")]
    return Recipe(
        dataset="d", name="d", schema=Schema(columns=tuple(columns)), partition=Natural(column="w")
    )


def test_sensitive_attributes_and_provenance_are_no_features() -> None:
    table = pa.table({"row_id": [0, 1], "sex": [1, 2], "x": [3, 4], "label": [0, 1]})
    found = fit(table, recipe(x="int8"))
    assert [name for name, _ in found.categories] == ["x"]
    assert found.quantities == ()


def test_unknown_values_take_the_column_without_weight() -> None:
    found = fit(pa.table({"x": [5, 3, 5], "y": ["b", "a", "b"]}), recipe(x="int8", y="string"))
    assert found.width == 5
    table = pa.table({"x": [3, 4, 5, 9], "y": ["a", "b", "c", ""]})
    assert found.codes(table).tolist() == [[1, 3], [0, 4], [2, 0], [0, 0]]


def test_floats_and_many_whole_numbers_are_scaled() -> None:
    many = np.arange(MOST_VALUES + 1)
    table = pa.table({"x": many.astype(float) * 2, "y": many, "z": np.full(len(many), 7.0)})
    found = fit(table, recipe(x="float64", y="int32", z="float32"))
    assert [name for name, _, _ in found.quantities] == ["x", "y", "z"]
    scaled = found.scaled(table)
    assert scaled.mean(axis=0) == pytest.approx([0, 0, 0], abs=1e-5)
    assert scaled.std(axis=0) == pytest.approx([1, 1, 0], abs=1e-5)


@pytest.mark.parametrize(
    "column", [[1, None, 2], [True, None, False], ["a", None, "b"], [1.5, None, 2.5]]
)
def test_missing_values_are_encoded(column: list[Any]) -> None:
    table = pa.table({"x": column})
    found = fit(table, recipe(x=str(table["x"].type).replace("double", "float64")))
    assert np.isfinite(found.scaled(table)).all()
    assert (found.codes(table) > 0).all()


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(MeasureError, match="no training row"):
        fit(pa.table({"x": pa.array([], pa.int8())}), recipe(x="int8"))
    with pytest.raises(MeasureError, match="no feature but images"):
        fit(pa.table({"sex": [1]}), recipe())
