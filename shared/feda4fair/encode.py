"""Bring a source table into the form that every later step relies on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feda4fair.columns import Coding, Column, Label, Value
from feda4fair.errors import SchemaError
from feda4fair.schema import MOST_VALUES, Schema

__all__ = ["as_numpy", "encode", "plain", "ranked"]

MOST_ROWS = 2**40
"""Bound of row ids: draws are numbered by them."""


def encode(table: pa.Table, schema: Schema) -> pa.Table:
    """Bring a source table into the form that every later step relies on.

    Parameters
    ----------
    table : pyarrow.Table, n rows
        Source rows; ``row_id`` (int64) is added as the position where it is absent.
    schema : Schema
        Columns to keep, their codes, and the favorable label.

    Returns
    -------
    pyarrow.Table, n rows
        ``row_id``, the schema's columns recoded and cast, ``label`` as int8 with 1 = favorable. An
        image column may be absent: images can be attached when rows are written.

    Raises
    ------
    SchemaError
        If a column is missing, a sensitive value is missing or has no name, a value does not
        fit its type, or the label is missing somewhere.
    """
    present = [c for c in schema.columns if c.dtype != "image" or c.name in table.column_names]
    missing = [c.name for c in present if c.name not in table.column_names]
    if schema.label.column not in table.column_names:
        missing.append(schema.label.column)
    if missing:
        raise SchemaError(
            f"table: column {', '.join(missing)} is missing among "
            f"{', '.join(table.column_names)}; check the source or the schema."
        )
    needed = {"row_id", schema.label.column, *(column.name for column in present)}
    twice = sorted(name for name in needed if table.column_names.count(name) > 1)
    if twice:
        raise SchemaError(f"table: column {', '.join(twice)} stands twice; keep one of each.")
    columns: dict[str, pa.Array | pa.ChunkedArray] = {"row_id": _row_ids(table)}
    for column in present:
        columns[column.name] = _encode_column(plain(table[column.name]), column)
    columns["label"] = _encode_label(plain(table[schema.label.column]), schema.label)
    return pa.table(columns)


def _row_ids(table: pa.Table) -> pa.Array | pa.ChunkedArray:
    """Return the row ids of a table, or its positions where it has none."""
    if "row_id" not in table.column_names:
        return pa.array(np.arange(table.num_rows, dtype=np.int64))
    ids = table["row_id"]
    if not pa.types.is_integer(ids.type) or ids.null_count:
        raise SchemaError(
            f"row_id: type {ids.type} with {ids.null_count} missing, expected whole numbers; "
            "rename the column and positions are used."
        )
    low, high = pc.min_max(ids).values() if table.num_rows else (pa.scalar(0), pa.scalar(0))
    if low.as_py() < 0 or high.as_py() >= MOST_ROWS:
        raise SchemaError(
            f"row_id: {low.as_py()} to {high.as_py()}, expected 0 to {MOST_ROWS - 1}; rename the "
            "column and positions are used."
        )
    steps = np.diff(ids.to_numpy())
    if not (steps > 0).all() and pc.count_distinct(ids).as_py() < table.num_rows:
        raise SchemaError("row_id: an id stands twice; rename the column and positions are used.")
    return ids.cast(pa.int64())


def plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode a dictionary column, and turn NaN into missing."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    return values


def as_numpy(values: pa.ChunkedArray) -> NDArray[Any]:
    """Return values for NumPy; a text that comes again is the same object, not one more."""
    if not pa.types.is_string(values.type):
        array: NDArray[Any] = values.to_numpy()
        return array
    levels, codes = ranked(values)
    return np.array(levels, dtype=object)[codes]


def ranked(values: pa.Array | pa.ChunkedArray) -> tuple[list[Any], NDArray[np.int32]]:
    """Return the levels of values, sorted, and the position of each value among them.

    This is ``np.unique`` with ``return_inverse``, by hashing and not by sorting Python objects.

    Examples
    --------
    >>> levels, codes = ranked(pa.array(["m", "f", "m"]))
    >>> levels, codes.tolist()
    (['f', 'm'], [1, 0, 1])
    """
    encoded = values.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    found = encoded.dictionary.to_pylist()
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.empty(len(found), dtype=np.int32)
    rank[order] = np.arange(len(found), dtype=np.int32)
    return [found[i] for i in order], rank[encoded.indices.to_numpy()]


def _encode_column(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    if column.role == "sensitive" and values.null_count:
        raise SchemaError(
            f"{column.name}: {values.null_count} of {len(values)} sensitive values are missing; "
            "give them a value of their own or leave the rows out."
        )
    if column.role == "sensitive" and column.coding is None:
        found = pc.count_distinct(values).as_py()
        if found > MOST_VALUES:
            raise SchemaError(
                f"{column.name}: {found} values are too many for a sensitive attribute without a "
                f"coding (at most {MOST_VALUES}); merge them into groups first."
            )
    if column.coding is not None and (column.role == "sensitive" or column.coding.recode):
        values = _recode(values, column.name, column.coding)
    if column.dtype == "image":
        return values
    try:
        return values.cast(pa.type_for_alias(column.dtype))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise SchemaError(
            f"{column.name}: values of type {values.type} do not fit dtype {column.dtype} "
            f"({str(error).splitlines()[0]}); correct the schema."
        ) from None


def _recode(values: pa.ChunkedArray, name: str, coding: Coding) -> pa.ChunkedArray:
    mapping: Mapping[Value, Value] = dict(coding.recode) or {
        code: code for code, _ in coding.names
    }
    present = pc.unique(values).to_pylist()
    unknown = sorted((v for v in present if v not in mapping), key=str)
    if unknown:
        raise SchemaError(
            f"{name}: the table holds {', '.join(map(str, unknown[:5]))}, which the coding does "
            f"not know; it has {', '.join(map(str, mapping))}."
        )
    if not coding.recode:
        return values
    integers: dict[int, int] = dict(coding.recode)
    low, high = min(integers), max(integers)
    lookup = np.zeros(high - low + 1, dtype=np.min_scalar_type(-max(map(abs, integers.values()))))
    for source, code in integers.items():
        lookup[source - low] = code
    codes = values.cast(pa.int64()).to_numpy()
    return pa.chunked_array([pa.array(lookup[codes - low])])


def _encode_label(values: pa.ChunkedArray, label: Label) -> pa.ChunkedArray:
    if values.null_count:
        raise SchemaError(
            f"{label.column}: {values.null_count} of {len(values)} labels are missing; leave "
            "those rows out first."
        )
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    try:
        favorable = pa.array(label.favorable, values.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        raise SchemaError(
            f"{label.column}: favorable value {label.favorable!r} is not of the column's type "
            f"{values.type}; declare it as the column holds it."
        ) from None
    return pc.is_in(values, favorable).cast(pa.int8())
