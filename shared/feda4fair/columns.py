"""What single columns mean: their role, their codes and names, and the favorable label."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from feda4fair.errors import SchemaError

__all__ = [
    "PROVENANCE",
    "Coding",
    "Column",
    "Label",
    "Role",
    "Value",
]

Role = Literal["feature", "sensitive", "provenance"]
Value = int | str

PROVENANCE = ("client_id", "row_id", "flipped")
"""Columns that say where a row comes from; a model must never see them."""

MOST_CODES = 2**20
"""Bound of recoded codes: they index a table."""

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


_GROUPS = r"u?int(8|16|32|64)|bool|string|str|utf8|float|double|float(16|32|64)"
"""Types whose values a report can name."""


def _is_written(dtype: str) -> bool:
    """Tell whether columns of a type can be written and loaded by the Hub."""
    try:
        found = pa.type_for_alias(dtype)
    except ValueError:
        return False
    if dtype == "halffloat" or pa.types.is_interval(found):
        return False
    return bool(
        pa.types.is_string(found) or pa.types.is_binary(found) or pa.types.is_primitive(found)
    )


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
        if self.dtype != "image" and not _is_written(self.dtype):
            raise SchemaError(
                f"column {self.name!r}: dtype {self.dtype!r} is not an Arrow type such as int8, "
                "float32, string, bool, date32, nor image."
            )
        if self.role == "sensitive" and not re.fullmatch(_GROUPS, self.dtype):
            raise SchemaError(
                f"column {self.name!r}: values of dtype {self.dtype} make no groups; a sensitive "
                "attribute holds whole numbers, truth values, text or numbers."
            )


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
        if len(self.names) != 2 or self.names[0] == self.names[1]:
            raise SchemaError(
                f"label {self.column!r}: names {self.names!r}, expected two different names, for "
                "0 and for 1."
            )
