"""The content hash: what it must see, and what it must not see."""

from __future__ import annotations

import datetime as dt
import hashlib
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feda4fair.content import SourceFile, content_sha256
from feda4fair.errors import SchemaError

VALUES = [
    ([1, 2, None, 4], pa.int8()),
    ([1, 2, 3, 4], pa.uint16()),
    ([2**62, None, -1, 0], pa.int64()),
    ([1.5, None, 2.0, -0.0], pa.float32()),
    ([True, None, False, True], pa.bool_()),
    (["a", None, "", "bc"], pa.string()),
    (["a", None, "", "bc"], pa.string_view()),
    ([b"a", None, b"", b"bc"], pa.binary()),
    (["a", "b", None, "a"], pa.dictionary(pa.int8(), pa.string())),
    ([dt.date(2020, 1, 1), None, dt.date(2020, 1, 2), None], pa.date32()),
    ([1, None, 3, 4], pa.timestamp("us")),
    ([[1], None, [], [2, 3]], pa.list_(pa.int8())),
    ([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int8(), 2)),
    (
        [{"bytes": b"x", "path": None}, None, {"bytes": b"", "path": "q"}, {"bytes": b"x"}],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    ),
    ([None] * 4, pa.null()),
]


def column(values: list[object], dtype: pa.DataType) -> pa.Table:
    return pa.table({"c": pa.array(values, dtype)})


@pytest.mark.parametrize(("values", "dtype"), VALUES, ids=lambda value: str(value)[:20])
def test_chunks_and_offsets_do_not_count(values: list[object], dtype: pa.DataType) -> None:
    whole = column(values, dtype)
    parts = pa.concat_tables([whole.slice(0, 1), whole.slice(1, 0), whole.slice(1)])
    assert content_sha256(parts) == content_sha256(whole)
    assert content_sha256(parts.slice(1)) == content_sha256(column(values[1:], dtype))


@pytest.mark.parametrize(("values", "dtype"), VALUES[:-1], ids=lambda value: str(value)[:20])
def test_order_and_nulls_count(values: list[object], dtype: pa.DataType) -> None:
    digests = [
        content_sha256(column(variant, dtype))
        for variant in (values, values[::-1], [None, *values[1:]], values[:-1])
    ]
    assert len(set(digests)) == 4


def test_written_layout_is_fixed() -> None:
    """The bytes that are hashed, spelled out, so that a change of layout cannot pass unseen."""
    table = pa.table({"n": pa.array([1, None, 3], pa.int16()), "s": pa.array(["ab", "", "c"])})
    said = b"feda4fair content 1\n3 2\n"
    said += b"1 n int16 3 1\n\x01\x00\x01" + np.array([1, 0, 3], "<i2").tobytes()
    said += b"1 s string 3 0\n" + np.array([2, 0, 1], "<i8").tobytes() + b"abc"
    assert content_sha256(table) == hashlib.sha256(said).hexdigest()


def test_a_type_that_only_stores_counts_as_what_it_stores() -> None:
    identifiers = pa.array([b"x" * 16], pa.binary(16))
    stored = [
        (pa.array([Decimal("1.50"), None]), pa.array(["1.50", None])),
        (pa.array([b"ab", None], pa.binary(2)), pa.array([b"ab", None])),
        (pa.ExtensionArray.from_storage(pa.uuid(), identifiers), pa.array([b"x" * 16])),
    ]
    for column, plain in stored:
        assert content_sha256(pa.table({"a": column})) == content_sha256(pa.table({"a": plain}))


def test_name_type_and_column_order_count() -> None:
    table = pa.table({"a": pa.array([1], pa.int8()), "b": pa.array([2], pa.int8())})
    variants = [
        table,
        table.rename_columns(["a", "c"]),
        table.select(["b", "a"]),
        table.set_column(0, "a", pa.array([1], pa.int16())),
        table.set_column(0, "a", pa.array([1], pa.uint8())),
    ]
    assert len({content_sha256(variant) for variant in variants}) == len(variants)


def test_value_under_a_null_does_not_count() -> None:
    validity = pa.py_buffer(b"\x05")
    numbers = [
        pa.Array.from_buffers(pa.int8(), 3, [validity, pa.py_buffer(bytes([1, under, 3]))])
        for under in (7, 9)
    ]
    assert content_sha256(pa.table({"n": numbers[0]})) == content_sha256(
        pa.table({"n": numbers[1]})
    )


def test_metadata_and_string_width_do_not_count(tmp_path: Path) -> None:
    table = pa.table({"s": ["x", None, "yz"], "n": pa.array([1, 2, 3], pa.int8())})
    expected = content_sha256(table)
    assert content_sha256(table.replace_schema_metadata({"k": "v"})) == expected
    wide = table.set_column(0, "s", table["s"].cast(pa.large_string()))
    assert content_sha256(wide) == expected
    coded = table.set_column(0, "s", table["s"].dictionary_encode())
    assert content_sha256(coded) == expected
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1)
    assert content_sha256(pq.read_table(tmp_path / "t.parquet")) == expected


@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.integers(-128, 127), st.none() | st.text(max_size=3), st.booleans()
        ),
        max_size=8,
    ),
    cut=st.integers(0, 8),
)
def test_equal_content_has_equal_hash(rows: list[tuple[object, ...]], cut: int) -> None:
    schema = pa.schema([("n", pa.int8()), ("s", pa.string()), ("b", pa.bool_())])
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    table = pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)
    parts = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert content_sha256(table) == content_sha256(parts)
    assert content_sha256(table.slice(0, 0)) == content_sha256(schema.empty_table())


def test_type_without_hash_is_named() -> None:
    with pytest.raises(SchemaError, match=r"column 'c' has type map<int8, int8>"):
        content_sha256(column([[(1, 1)]], pa.map_(pa.int8(), pa.int8())))


def test_source_file_is_a_value() -> None:
    record = SourceFile(name="a.csv", part="A", rows_read=3, rows_kept=2, content_sha256="0" * 64)
    assert hash(record) == hash(record)
    assert record.unknown_codes == ()
