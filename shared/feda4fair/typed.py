"""Frozen data classes as JSON: every field is held to its annotated type, both ways.

Data only: a class is chosen by the annotation, or by its name among those that the annotation
allows, and nothing that is read is executed.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from reprlib import Repr
from typing import Any, Literal, TypeVar

from feda4fair.errors import RecipeError, SchemaError

__all__ = ["check_fields", "to_plain", "typed"]

_SHORT = Repr()
"""Shows values in errors, however large what was read is."""
_SHORT.maxstring = _SHORT.maxother = 100


def to_plain(value: Any, tagged: frozenset[type]) -> Any:
    """Return a data class as JSON data: the fields that make two of them differ.

    Parameters
    ----------
    value : dataclass, tuple or scalar
        What is written.
    tagged : frozenset of type
        Classes that share a field with others; their name is written beside their values as
        ``kind``.
    """
    if is_dataclass(value) and not isinstance(value, type):
        data = {
            f.name: to_plain(getattr(value, f.name), tagged) for f in fields(value) if f.compare
        }
        kind = type(value)
        return {"kind": kind.__name__, **data} if kind in tagged else data
    if isinstance(value, tuple):
        return [to_plain(item, tagged) for item in value]
    return value


T = TypeVar("T")


def check_fields(instance: Any) -> None:
    """Hold every field to its annotated type; a list becomes a tuple, a whole number a float."""
    name = type(instance).__name__
    for field_name, kind in _hints(type(instance)).items():
        value = typed(kind, getattr(instance, field_name), f"{name}.{field_name}")
        object.__setattr__(instance, field_name, value)


def _hints(kind: Any) -> dict[str, Any]:
    """Return the annotated type of every field, the marker of keyword-only fields left out."""
    hints = _annotations(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


_annotations: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)


def typed(kind: Any, data: Any, where: str) -> Any:
    """Return data as a value of an annotated type; JSON objects and lists are rebuilt."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _typed_union(arguments, data, where)
    if origin is Literal:
        if data in arguments:
            return data
        raise RecipeError(
            f"{where}: {_SHORT.repr(data)} is not one of {', '.join(map(repr, arguments))}."
        )
    if origin is tuple:
        return _typed_tuple(arguments, data, where)
    if is_dataclass(kind) and isinstance(kind, type):
        if isinstance(data, kind):
            return data
        return _typed_dataclass(kind, data, where)
    if kind is float and isinstance(data, Real) and not isinstance(data, bool):
        with suppress(OverflowError):
            return float(data)
    if kind is int and isinstance(data, Integral) and not isinstance(data, bool):
        return int(data)
    if type(data) is kind:
        return data
    raise RecipeError(
        f"{where}: {_SHORT.repr(data)} is not of type {getattr(kind, '__name__', kind)}."
    )


def _typed_union(arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if isinstance(data, dict) and "kind" in data:
        kinds = {a.__name__: a for a in arguments if isinstance(a, type) and is_dataclass(a)}
        if not isinstance(data["kind"], str) or data["kind"] not in kinds:
            known = ", ".join(kinds)
            raise RecipeError(
                f"{where}: kind {_SHORT.repr(data['kind'])} is unknown; known are {known}."
            )
        rest = {key: value for key, value in data.items() if key != "kind"}
        return typed(kinds[data["kind"]], rest, where)
    error = RecipeError(f"{where}: {_SHORT.repr(data)} fits none of the types allowed here.")
    for argument in arguments:
        if argument is type(None):
            if data is None:
                return None
            continue
        if argument is int and isinstance(data, float):
            continue
        try:
            return typed(argument, data, where)
        except (RecipeError, SchemaError) as caught:
            if isinstance(data, dict) == is_dataclass(argument):
                error = RecipeError(str(caught))
    raise error


def _typed_tuple(arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, list | tuple):
        raise RecipeError(f"{where}: {_SHORT.repr(data)} is not a list.")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(typed(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if len(arguments) != len(data):
        raise RecipeError(f"{where}: {len(data)} entries where {len(arguments)} are expected.")
    return tuple(
        typed(argument, item, f"{where}[{i}]")
        for i, (argument, item) in enumerate(zip(arguments, data, strict=True))
    )


def _typed_dataclass(kind: type[T], data: Any, where: str) -> T:
    if not isinstance(data, dict):
        raise RecipeError(
            f"{where}: {_SHORT.repr(data)} is not an object with the fields of {kind.__name__}."
        )
    hints = _hints(kind)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise RecipeError(
            f"{where}: {kind.__name__} has no field {', '.join(unknown)}; it has "
            f"{', '.join(hints)}."
        )
    values = {name: typed(hints[name], value, f"{where}.{name}") for name, value in data.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise RecipeError(f"{where}: {kind.__name__} is incomplete ({error}).") from None
