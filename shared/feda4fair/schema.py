"""What the columns of a table mean: declared, or proposed by looking at the table."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from feda4fair.columns import RESERVED, Coding, Column, Label, Role, Value
from feda4fair.errors import SchemaError
from feda4fair.tables import read_table

__all__ = ["MOST_VALUES", "Schema"]

MOST_VALUES: Final = 50
"""Most values of a sensitive attribute that is found or declared without a coding."""

_SENSITIVE: Final = re.compile(
    r"(^|[^a-z])(sex|gender|race|ethnic\w*|religion|marital|nationality|citizen\w*|disab\w*)",
    re.IGNORECASE,
)
_LABELS: Final = ("label", "target", "class", "y", "outcome")
_NUMBERED: Final = re.compile(r"(^$|unnamed|index|idx|uuid|(^|_)id$|^id)", re.IGNORECASE)
_IMAGE: Final = pa.struct({"bytes": pa.binary(), "path": pa.string()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The columns of a federation in the order they are written, and its label.

    Parameters
    ----------
    columns : tuple of Column
        Features, sensitive attributes and provenance.
    label : Label
        The label and its favorable value.
    guesses : tuple of str
        Sentences on what :meth:`infer` took for granted; not part of a recipe.
    """

    columns: tuple[Column, ...]
    label: Label = field(default_factory=Label)
    guesses: tuple[str, ...] = field(default=(), compare=False)

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

    @classmethod
    def infer(
        cls,
        data: Any,
        *,
        label: str | None = None,
        favorable: Value | bool | Sequence[Value] | None = None,
        sensitive: str | Sequence[str] | None = None,
        names: Mapping[str, Mapping[Value, str]] | None = None,
    ) -> Schema:
        """Propose a schema for a table, and list what was guessed.

        Parameters
        ----------
        data : pyarrow.Table, pandas.DataFrame, datasets.Dataset, path or Hub id
            Rows, or where they are; see :func:`feda4fair.tables.read_table`. Hub features are
            used.
        label : str, optional
            Label column; found by its name if there is no doubt.
        favorable : value or sequence of values, optional
            What counts as the favorable outcome. It is never guessed, except for a label of 0 and
            1 or of truth values, where it is 1.
        sensitive : str or sequence of str, optional
            Sensitive attributes; found by their names if not given.
        names : mapping of str to mapping, optional
            Names of codes, by column.

        Returns
        -------
        Schema
            Its ``guesses`` say what to check; columns without a fitting type are left out.

        Raises
        ------
        SchemaError
            If there is no label, no favorable value or no sensitive attribute to be found.
        SourceError
            If the rows cannot be read.

        Examples
        --------
        >>> table = pa.table({"sex": ["f", "m"], "hours": [40, 38], "income": ["low", "high"]})
        >>> schema = Schema.infer(table, label="income", favorable="high")
        >>> schema.sensitive, schema.label.names
        (('sex',), ('low', 'high'))
        >>> schema.guesses
        ('sensitive attribute sex, by its name',)
        """
        table = read_table(data)
        guesses: list[str] = []
        _check_names(table, names or {})
        known = {**_hub_names(table), **{k: dict(v) for k, v in (names or {}).items()}}
        target = _label(table, label, favorable, known, guesses)
        wanted = _sensitive(table, sensitive, target.column, guesses)
        columns = []
        for name in table.column_names:
            if name == target.column:
                continue
            problem = _left_out(name, table.schema.field(name).type)
            if problem and name in wanted:
                raise SchemaError(f"{name}: {problem}, so it cannot be a sensitive attribute.")
            if problem:
                guesses.append(f"column {name!r} left out: {problem}")
                continue
            role: Role = "sensitive" if name in wanted else "feature"
            if role == "feature" and _is_number_of_row(name, table[name]):
                role = "provenance"
                guesses.append(f"column {name!r} is provenance: it numbers the rows")
            columns.append(_column(name, table[name], role, known.get(name)))
        return cls(columns=tuple(columns), label=target, guesses=tuple(guesses))


def _check_names(table: pa.Table, names: Mapping[str, Mapping[Value, str]]) -> None:
    """Make sure that every column stands once, and that names are given for columns there are."""
    counts = Counter(table.column_names)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise SchemaError(f"column {', '.join(twice)} stands twice; rename or leave out one.")
    for name, texts in names.items():
        if name not in counts or not isinstance(texts, Mapping):
            raise SchemaError(
                f"names of {name!r}: expected a mapping of codes to names for a column among "
                f"{', '.join(counts)}."
            )


def _hub_names(table: pa.Table) -> dict[str, dict[Value, str]]:
    """Return the names of ClassLabel columns, from the Hub features in the table's metadata.

    Metadata come from files of others: what does not have the Hub's form says nothing.
    """
    try:
        data: Any = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
        features = data.get("info", {}).get("features", {})
        return {
            name: dict(enumerate(map(str, feature["names"])))
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return {}


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column but for missing ones, sorted."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return sorted(pc.unique(column).drop_null().to_pylist())


def _is_countable(dtype: pa.DataType) -> bool:
    """Tell whether values of a type can be codes."""
    inner = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    kinds = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    return any(is_kind(inner) for is_kind in kinds)


def _label(
    table: pa.Table,
    label: str | None,
    favorable: Value | bool | Sequence[Value] | None,
    known: dict[str, dict[Value, str]],
    guesses: list[str],
) -> Label:
    if label is None:
        found = [name for name in table.column_names if name.lower() in _LABELS]
        if len(found) != 1:
            raise SchemaError(
                f"label: {'several columns' if found else 'no column'} may be it "
                f"({', '.join(found or table.column_names)}); name it with label=."
            )
        label = found[0]
        guesses.append(f"label {label}, by its name")
    if label not in table.column_names:
        raise SchemaError(
            f"label {label!r}: no such column among {', '.join(table.column_names)}."
        )
    if not _is_countable(table.schema.field(label).type):
        raise SchemaError(
            f"{label}: values of type {table.schema.field(label).type} are no labels; make two "
            "classes of them first."
        )
    values = _values(table[label])
    names = known.get(label, {})
    if favorable is None:
        if values not in ([0, 1], [False, True]):
            shown = ", ".join(str(names.get(value, value)) for value in values[:10])
            raise SchemaError(
                f"{label}: which outcome is favorable cannot be told from {shown}; name it with "
                "favorable=."
            )
        favorable = 1
        guesses.append(f"favorable outcome {label}={names.get(1, 1)}")
    several = isinstance(favorable, Iterable) and not isinstance(favorable, str | bytes)
    wanted = list(cast(Iterable[Any], favorable)) if several else [favorable]
    codes = {name: code for code, name in names.items()}
    wanted = [codes.get(value, value) if isinstance(value, str) else value for value in wanted]
    foreign = [str(value) for value in wanted if value not in values]
    if foreign or not values:
        raise SchemaError(
            f"{label}: no row has the favorable value {', '.join(foreign)}; it holds "
            f"{', '.join(map(str, values[:10])) or 'none'}."
        )
    texts = {value: str(names.get(value, value)) for value in values}
    if not names and not isinstance(values[0], str):
        texts = {value: f"{label}={value}" for value in values}
    good = " or ".join(texts[value] for value in wanted)
    others = [value for value in values if value not in wanted]
    bad = texts[others[0]] if len(others) == 1 else f"not {good}"
    return Label(column=label, favorable=tuple(cast(list[Value], wanted)), names=(bad, good))


def _sensitive(
    table: pa.Table, sensitive: str | Sequence[str] | None, label: str, guesses: list[str]
) -> tuple[str, ...]:
    if sensitive is not None:
        several = isinstance(sensitive, Iterable) and not isinstance(sensitive, str)
        wanted = tuple(map(str, cast(Any, sensitive))) if several else (str(sensitive),)
        foreign = [name for name in wanted if name not in table.column_names or name == label]
        if foreign or not wanted:
            raise SchemaError(
                f"sensitive attribute {', '.join(foreign) or '()'}: name columns among "
                f"{', '.join(name for name in table.column_names if name != label)}."
            )
        return wanted
    few = [
        name
        for name in table.column_names
        if name != label
        and _is_countable(table.schema.field(name).type)
        and 2 <= len(_values(table[name])) <= MOST_VALUES
    ]
    found = tuple(name for name in few if _SENSITIVE.search(name))
    if not found:
        raise SchemaError(
            "sensitive attribute: no column's name tells it; name one or more with sensitive=, "
            f"for example of {', '.join(few[:10]) or ', '.join(table.column_names[:10])}."
        )
    guesses += [f"sensitive attribute {name}, by its name" for name in found]
    return found


def _left_out(name: str, dtype: pa.DataType) -> str:
    """Say why a column cannot be carried along; empty if it can."""
    if name in RESERVED:
        return "the name is reserved for provenance; rename it"
    if not name:
        return "it has no name, as an index has"
    if _alias(dtype) is None:
        return f"values of type {dtype} are not carried along"
    return ""


def _alias(dtype: pa.DataType) -> str | None:
    """Return the name of a type as a column declares it, None for types that are not carried."""
    inner = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    if inner == _IMAGE:
        return "image"
    if pa.types.is_large_string(inner) or pa.types.is_string_view(inner):
        return "string"
    if pa.types.is_date(inner):
        return "date32"
    plain = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
    )
    if not any(is_kind(inner) for is_kind in plain):
        return None
    return {"float": "float32", "double": "float64", "halffloat": "float16"}.get(
        str(inner), str(inner)
    )


def _is_number_of_row(name: str, column: pa.ChunkedArray) -> bool:
    """Tell whether a column with the name of an index has another value in every row."""
    if not _NUMBERED.search(name) or len(column) < 2 or not _is_countable(column.type):
        return False
    return bool(pc.count_distinct(column).as_py() == len(column))


def _column(
    name: str, values: pa.ChunkedArray, role: Role, names: Mapping[Value, str] | None
) -> Column:
    dtype = _alias(values.type)
    assert dtype is not None, "columns of other types are left out before"
    if role != "sensitive":
        coding = Coding(names=tuple(names.items())) if names else None
        return Column(name=name, dtype=dtype, role=role, coding=coding)
    if not _is_countable(values.type):
        raise SchemaError(
            f"{name}: values of type {values.type} make no groups; cut them into ranges with "
            "names first."
        )
    found = _values(values)
    if len(found) > MOST_VALUES:
        raise SchemaError(
            f"{name}: {len(found)} values are too many for a sensitive attribute (at most "
            f"{MOST_VALUES}); merge them into groups first."
        )
    texts = names or {}
    pairs = tuple((int(v) if isinstance(v, bool) else v, str(texts.get(v, v))) for v in found)
    return Column(name=name, dtype=dtype, role=role, coding=Coding(names=pairs))
