from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from feda4fair.codes import binary, encode, positions
from feda4fair.errors import MeasureError


@pytest.mark.parametrize(
    ("values", "pos_label"),
    [
        ([True, False, True], None),
        ([1, 0, 1], None),
        (np.array([1.0, 0.0, 1.0]), None),
        (np.array([True, False, True], dtype=object), None),
        (pd.Series([True, False, True], dtype="boolean"), None),
        ([2, 1, 2], 2),
        ([1, -1, 1], 1),
        ([">50K", "<=50K", ">50K"], ">50K"),
    ],
)
def test_every_spelling_of_binary_labels_means_the_same(values, pos_label):
    assert binary(values, "y_true", pos_label).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([1, 2, 1], "1, 2"),
        ([-1, 1], "-1, 1"),
        ([0, 1, 2], "0, 1, 2"),
        ([0.0, 1.0, np.nan], "missing"),
        (["yes", "no"], "'no', 'yes'"),
        (pd.Series([True, None], dtype="boolean"), "missing"),
    ],
)
def test_labels_whose_favorable_value_is_unknown_are_refused(values, named):
    with pytest.raises(MeasureError, match=r"y_true: got the labels") as error:
        binary(values, "y_true")
    assert named in str(error.value)
    assert "pos_label" in str(error.value)


@pytest.mark.parametrize("values", [[0, 1, 2], [1.0, 2.0, np.nan], [3, 4]])
def test_a_declared_favorable_label_does_not_hide_a_third_class(values):
    with pytest.raises(MeasureError, match="at most two labels"):
        binary(values, "y_true", pos_label=1)


def test_swapping_the_declaration_complements_the_labels():
    values = ["good", "bad", "good"]
    assert (binary(values, "y", "good") == ~binary(values, "y", "bad")).all()


def test_values_of_a_column_are_sorted_and_a_categorical_keeps_its_declaration():
    codes, values = encode(["b", "a", "b"], "Z")
    assert (codes.tolist(), values) == ([1, 0, 1], ("a", "b"))
    declared = pd.Series(pd.Categorical(["b", "a"], categories=["c", "b", "a"]))
    codes, values = encode(declared, "Z")
    assert (codes.tolist(), values) == ([1, 2], ("c", "b", "a"))


@pytest.mark.parametrize(
    "column",
    [
        pl.Series(["b", "a", "b"], dtype=pl.Enum(["c", "b", "a"])),
        pa.chunked_array([["b"], ["a", "b"]], pa.dictionary(pa.int8(), pa.string())),
        pa.array(["b", "a", "b"]),
        ("b", "a", "b"),
    ],
)
def test_arrow_and_polars_columns_are_read_like_any_other(column):
    codes, values = encode(column, "Z")
    assert [values[code] for code in codes] == ["b", "a", "b"]
    assert ("c" in values) == isinstance(column, pl.Series)


@pytest.mark.parametrize(
    "column",
    [["a", None], np.array([1.0, np.nan]), pd.Series(["a", pd.NA], dtype="string")],
)
def test_a_missing_group_is_refused_with_its_count(column):
    with pytest.raises(MeasureError, match=r"Race: 1 of 2 rows hold no value; give missing"):
        encode(column, "Race")


def test_mixed_types_are_refused():
    with pytest.raises(MeasureError, match="mixed or unknown types"):
        encode(np.array([1, "a"], dtype=object), "Race")


@pytest.mark.parametrize(
    ("codes", "declared"),
    [
        (np.array([2, 1, 9], dtype=np.int8), (9, 1, 2)),
        (np.array([-5, 70_000, 0]), (0, 70_000, -5)),
        (np.array([2.0, 1.0, 9.0]), (9, 1, 2)),
        (np.array(["z", "y", "x"]), ("x", "y", "z")),
        (np.array([True, False]), (False, True)),
    ],
)
def test_positions_find_codes_of_every_type(codes, declared):
    found = positions(codes, declared, "Z")
    assert [declared[i] for i in found] == codes.tolist()


@pytest.mark.parametrize(
    ("codes", "shown"),
    [
        (np.array([1, 3]), "3"),
        (np.array([1, -1]), "-1"),
        (np.array([1.0, np.nan]), "missing"),
        (np.array([1, 1_000_000]), "1000000"),
        (np.array(["1", "a"]), "'a'"),
    ],
)
def test_an_undeclared_code_is_named(codes, shown):
    with pytest.raises(MeasureError, match=r"attribute SEX: [12] rows hold") as error:
        positions(codes, (1, 2), "SEX")
    assert shown in str(error.value)
    assert "expected 1, 2" in str(error.value)
