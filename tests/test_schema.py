"""Codes, roles and the favorable label; every misfit is one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feda4fair.columns import PROVENANCE, Coding, Column, Label
from feda4fair.encode import as_numpy, encode, ranked
from feda4fair.errors import SchemaError
from feda4fair.schema import Schema

SEX = Coding(names=((1, "Male"), (2, "Female")))
# 3 -> 2 and 2 -> 1: a chain would send 3 to 1.
RACE = Coding(names=((1, "White"), (2, "Others")), recode=((1, 1), (2, 1), (3, 2), (6, 2)))
SCHEMA = Schema(
    columns=(
        Column(name="age", dtype="int8"),
        Column(name="sex", dtype="int8", role="sensitive", coding=SEX),
        Column(name="race", dtype="int16", role="sensitive", coding=RACE),
    ),
    label=Label(column="income", favorable=(">50K",), names=("<=50K", ">50K")),
)


def table(**columns: object) -> pa.Table:
    rows = {
        "sex": [1, 2, 2, 1],
        "income": [">50K", "<=50K", ">50K", "<=50K"],
        "age": [30, 40, 50, 60],
        "race": [1, 2, 3, 6],
        "other": [0, 0, 0, 0],
    }
    return pa.table(rows | columns)


def refusal(act: Callable[[], object]) -> str:
    """Return the message of the error that an act must raise: one sentence."""
    with pytest.raises(SchemaError) as caught:
        act()
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


def with_label(values: object, *favorable: int | str) -> list[int]:
    schema = replace(SCHEMA, label=Label(column="income", favorable=favorable))
    return encode(table(income=values), schema)["label"].to_pylist()


# What encode returns


def test_columns_are_those_of_the_schema_in_its_order() -> None:
    encoded = encode(table(), SCHEMA)
    assert encoded.schema == pa.schema(
        {
            "row_id": pa.int64(),
            "age": pa.int8(),
            "sex": pa.int8(),
            "race": pa.int16(),
            "label": pa.int8(),
        }
    )
    assert encoded.to_pydict() == {
        "row_id": [0, 1, 2, 3],
        "age": [30, 40, 50, 60],
        "sex": [1, 2, 2, 1],
        "race": [1, 1, 2, 2],
        "label": [1, 0, 1, 0],
    }


def test_row_ids_of_the_source_are_kept() -> None:
    assert encode(table(row_id=[9, 7, 5, 3]), SCHEMA)["row_id"].to_pylist() == [9, 7, 5, 3]


@pytest.mark.parametrize("dtype", [pa.int8(), pa.uint16(), pa.int64(), pa.float64()])
def test_codes_of_every_numeric_type_are_recoded(dtype: pa.DataType) -> None:
    # folktables gives every column as float64.
    race = pa.array([1, 2, 3, 6]).cast(dtype)
    assert encode(table(race=race), SCHEMA)["race"].to_pylist() == [1, 1, 2, 2]


def test_chunks_do_not_matter() -> None:
    whole = table()
    parts = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 2), whole.slice(3)])
    assert encode(parts, SCHEMA).to_pydict() == encode(whole, SCHEMA).to_pydict()


def test_a_feature_is_recoded_too() -> None:
    schema = replace(SCHEMA, columns=(Column(name="race", dtype="int8", coding=RACE),))
    assert encode(table(), schema)["race"].to_pylist() == [1, 1, 2, 2]


def test_categories_are_read_as_their_values() -> None:
    frame = pd.DataFrame({"sex": [1, 2], "income": [">50K", "<=50K"], "age": [1, 2]})
    frame["income"] = frame["income"].astype("category")
    source = pa.Table.from_pandas(frame).append_column("race", pa.array([1, 2]))
    assert encode(source, SCHEMA)["label"].to_pylist() == [1, 0]


@pytest.mark.parametrize(
    ("favorable", "unfavorable"),
    [(">50K", "<=50K"), (1, 2), (2, 1), (1, -1), (True, False), (1.0, 0.0)],
)
def test_the_favorable_value_decides_whatever_the_labels_are(
    favorable: object, unfavorable: object
) -> None:
    values = [favorable, unfavorable, favorable, favorable]
    assert with_label(values, favorable) == [1, 0, 1, 1]  # type: ignore[arg-type]
    assert with_label(values, unfavorable) == [0, 1, 0, 0]  # type: ignore[arg-type]


def test_several_values_may_be_favorable() -> None:
    assert with_label([1, 2, 3, 4], 2, 4) == [0, 1, 0, 1]


def test_a_part_of_the_source_may_lack_a_favorable_value() -> None:
    assert with_label([1, 2, 2, 1], 2, 4) == [0, 1, 1, 0]
    assert with_label([1, 1, 1, 1], 2) == [0, 0, 0, 0]


@given(st.lists(st.sampled_from([1, 2, 3, 6]), min_size=1, max_size=20))
def test_recoding_is_a_lookup(codes: list[int]) -> None:
    rows = len(codes)
    source = pa.table(
        {"age": [1] * rows, "sex": [1] * rows, "race": codes, "income": [">50K"] * rows}
    )
    assert encode(source, SCHEMA)["race"].to_pylist() == [dict(RACE.recode)[c] for c in codes]


@given(
    values=st.lists(st.text(max_size=3)) | st.lists(st.integers(-(2**63), 2**63 - 1)),
    cut=st.integers(0, 9),
)
def test_ranks_are_those_of_a_sorted_list(values: list[Any], cut: int) -> None:
    column = pa.chunked_array([values[:cut], values[cut:]], pa.array(values[:1] or [""]).type)
    levels, codes = ranked(column)
    assert levels == sorted(set(values))
    assert [levels[code] for code in codes.tolist()] == values
    assert as_numpy(column).tolist() == values


def test_equal_texts_are_one_object() -> None:
    first, _, again = as_numpy(pa.chunked_array([["a long text", "b"], ["a long text"]]))
    assert first is again


def test_names_and_codes_stand_for_a_code() -> None:
    assert SCHEMA.code("race", "Others") == SCHEMA.code("race", 2) == 2
    assert SCHEMA.code("age", 17) == 17
    assert SCHEMA.sensitive == ("sex", "race")


# What is refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"race": [1, 2, 3, 9]}, "race: the table holds 9"),
        ({"race": [1.0, 2.0, 3.5, 6.0]}, "race: the table holds 3.5"),
        ({"race": [1.0, 2.0, math.nan, 6.0]}, "race"),
        ({"sex": ["1", "2", "1", "2"]}, "sex: the table holds 1, 2"),
        ({"sex": [1, None, 2, 1]}, "sex: 1 of 4 sensitive values are missing"),
        ({"age": [30, 40, 50, 300]}, "age: values of type int64 do not fit dtype int8"),
        ({"age": [30.5, 40, 50, 60]}, "age: values of type double do not fit dtype int8"),
        ({"age": ["x", "y", "z", "w"]}, "age"),
        ({"income": [None, ">50K", "<=50K", ">50K"]}, "income: 1 of 4 labels are missing"),
        ({"income": [1, 0, 1, 0]}, "favorable value ('>50K',) is not of the column's type int64"),
    ],
)
def test_a_table_that_does_not_fit(change: dict[str, object], words: str) -> None:
    assert words in refusal(lambda: encode(table(**change), SCHEMA))


def test_a_label_that_is_not_a_number_is_missing() -> None:
    assert "missing" in refusal(lambda: with_label([1.0, math.nan, 0.0, 1.0], 1))


def test_a_favorable_value_of_another_type_is_named() -> None:
    assert "income" in refusal(lambda: with_label([1, 0, 1, 0], "1"))


@pytest.mark.parametrize("column", ["age", "sex", "race", "income"])
def test_a_missing_column_is_named(column: str) -> None:
    source = table().drop_columns([column])
    assert f"column {column} is missing" in refusal(lambda: encode(source, SCHEMA))


@pytest.mark.parametrize("name", [*PROVENANCE, "label", "rule", "split"])
def test_names_of_our_own_columns_are_reserved(name: str) -> None:
    assert name in refusal(lambda: Column(name=name, dtype="int8"))


MANY = Schema(columns=(Column(name="a", dtype="int8", role="sensitive"),))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Coding(names=((1, "a"), (1, "b"))), "stands twice"),
        (lambda: Coding(names=((1, "a"), (2, "a"))), "stands twice"),
        (lambda: Coding(names=((1, "a"),), recode=((1, 1), (2, 3))), "recode yields [3]"),
        (lambda: Schema(columns=(Column(name="a", dtype="int8"),) * 2), "a declared twice"),
        (lambda: Label(favorable=()), "no favorable value"),
        (lambda: Column(name="a", dtype="foo"), "foo"),
        (lambda: Column(name="a", dtype="large_string"), "dtype 'large_string'"),
        (lambda: Column(name="a", dtype="string_view"), "dtype 'string_view'"),
        (lambda: Column(name="a", dtype="null"), "dtype 'null'"),
        (lambda: Column(name="a", dtype="halffloat"), "dtype 'halffloat'"),
        (lambda: Column(name="a", dtype="month_day_nano_interval"), "dtype 'month_day"),
        (lambda: Label(names=("a", "a")), "two different names"),
        (lambda: Column(name="a", dtype="date32", role="sensitive"), "make no groups"),
        (lambda: Column(name="a", dtype="image", role="sensitive"), "make no groups"),
        (lambda: encode(pa.table({"a": range(51), "label": [0, 1, 1] * 17}), MANY), "51 values"),
        (lambda: SCHEMA["SEX"], "SEX: no such column; the schema has age, sex, race"),
        (lambda: SCHEMA.code("sex", "Femal"), "sex=Femal: no such value; sex has Male, Female"),
        (lambda: SCHEMA.code("sex", 3), "sex=3: no such value"),
    ],
)
def test_a_schema_that_contradicts_itself(make: Callable[[], object], words: str) -> None:
    assert words in refusal(make)


def test_a_schema_is_frozen_and_leaves_the_table_alone(untouched_random: None) -> None:
    source = table()
    before = source.to_pydict()
    encode(source, SCHEMA)
    assert source.to_pydict() == before
    assert hash(SCHEMA) == hash(replace(SCHEMA))
    assert encode(table(age=np.array([1, 2, 3, 4], np.int8)), SCHEMA).num_rows == 4
