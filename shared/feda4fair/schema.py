"""What the columns of a table mean: roles, codes and their names, and the favorable label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feda4fair.errors import SchemaError

__all__ = [
    "PROVENANCE",
    "Coding",
    "Column",
    "Label",
    "Role",
    "Schema",
    "Value",
    "encode",
    "plain",
]

Role = Literal["feature", "sensitive", "provenance"]
Value = int | str

PROVENANCE = ("client_id", "row_id", "flipped")
"""Columns that say where a row comes from; a model must never see them."""

MOST_CODES = 2**20
"""Bound of recoded codes: they index a table."""

MOST_ROWS = 2**40
"""Bound of row ids: draws are numbered by them."""

RESERVED = frozenset({*PROVENANCE, "label", "rule", "split"})


def _scalar(value: Any) -> Any:
    """Return a NumPy number or a bool as the whole number or text that it stands for."""
    if isinstance(value, np.generic):
        value = value.item()
    return int(value) if isinstance(value, bool) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """Codes of a column, their names, and the source codes that were merged into them.

    Parameters
    ----------
    names : tuple of (int or str, str)
        Every code that the encoded column may hold, with its name.
    recode : tuple of (int, int), optional
        Source code and code, applied at once and not in a chain; empty keeps the source codes.

    Examples
    --------
    >>> race = Coding(names=((1, "White"), (2, "Others")), recode=((1, 1), (2, 2), (3, 2)))
    >>> race.code("Others", "RAC1P")
    2
    """

    names: tuple[tuple[Value, str], ...]
    recode: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        pairs = self.names.items() if isinstance(self.names, Mapping) else self.names
        object.__setattr__(self, "names", tuple((_scalar(c), str(n)) for c, n in pairs))
        recode = self.recode.items() if isinstance(self.recode, Mapping) else self.recode
        object.__setattr__(self, "recode", tuple((int(a), int(b)) for a, b in recode))
        if len(dict(self.recode)) < len(self.recode) or any(
            abs(code) >= MOST_CODES for pair in self.recode for code in pair
        ):
            raise SchemaError(
                f"coding {self.recode!r}: a source code stands twice or is larger than "
                f"{MOST_CODES - 1}; give each once."
            )
        codes, names = [c for c, _ in self.names], [n for _, n in self.names]
        if len(set(codes)) < len(codes) or len(set(names)) < len(names):
            raise SchemaError(
                f"coding {self.names!r}: a code or a name stands twice; give each exactly once."
            )
        unnamed = sorted({code for _, code in self.recode} - set(codes), key=str)
        if unnamed:
            raise SchemaError(
                f"coding of {', '.join(names)}: recode yields {unnamed}, which have no name; "
                "add them to names."
            )

    def code(self, value: Value, column: str) -> Value:
        """Return the code that a value's name (or the code itself) stands for."""
        for code, name in self.names:
            if value in (name, code):
                return code
        known = ", ".join(name for _, name in self.names)
        raise SchemaError(f"{column}={value}: no such value; {column} has {known}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its role, the dtype it is written in, and its codes if it has any.

    ``dtype`` is an Arrow type name ("int8", "int64", "float32", "string", "bool") or "image".
    """

    name: str
    dtype: str
    role: Role = "feature"
    coding: Coding | None = None
    description: str = ""

    def __post_init__(self) -> None:
        if self.name in RESERVED:
            raise SchemaError(
                f"column {self.name!r}: the name is reserved for provenance; rename the column."
            )
        if self.role not in get_args(Role):
            raise SchemaError(
                f"column {self.name!r}: role {self.role!r} is not one of "
                f"{', '.join(get_args(Role))}."
            )
        if self.dtype != "image":
            try:
                pa.type_for_alias(self.dtype)
            except ValueError:
                raise SchemaError(
                    f"column {self.name!r}: dtype {self.dtype!r} is not an Arrow type such as "
                    "int8, float32, string, bool, nor image."
                ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The label: the source column, the values that are favorable, and names for 0 and 1.

    The written column is always ``label``, an integer with 1 = favorable outcome.
    """

    column: str = "label"
    favorable: tuple[Value, ...] = (1,)
    names: tuple[str, str] = ("unfavorable", "favorable")
    description: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.favorable, str | bytes) or not isinstance(self.favorable, Sequence):
            raise SchemaError(
                f"label {self.column!r}: favorable is {self.favorable!r}, expected a tuple of "
                "values."
            )
        object.__setattr__(self, "favorable", tuple(_scalar(value) for value in self.favorable))
        object.__setattr__(self, "names", tuple(self.names))
        if not self.favorable:
            raise SchemaError(
                f"label {self.column!r}: no favorable value is declared; name the value or values "
                "that are the good outcome."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The columns of a federation in the order they are written, and its label."""

    columns: tuple[Column, ...]
    label: Label = field(default_factory=Label)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SchemaError(f"schema: {', '.join(twice)} declared twice; keep one of each.")

    @property
    def sensitive(self) -> tuple[str, ...]:
        """Names of the sensitive attributes, in column order."""
        return tuple(c.name for c in self.columns if c.role == "sensitive")

    def __getitem__(self, name: str) -> Column:
        """Return a column by name.

        Raises
        ------
        SchemaError
            If no column has that name.
        """
        for column in self.columns:
            if column.name == name:
                return column
        known = ", ".join(column.name for column in self.columns)
        raise SchemaError(f"{name}: no such column; the schema has {known}.")

    def code(self, column: str, value: Value) -> Value:
        """Return the code of a value of a column, given by name or by code."""
        coding = self[column].coding
        return value if coding is None else coding.code(value, column)


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


def _encode_column(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    if column.role == "sensitive" and values.null_count:
        raise SchemaError(
            f"{column.name}: {values.null_count} of {len(values)} sensitive values are missing; "
            "give them a value of their own or leave the rows out."
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
