"""A recipe as the Python lines that make it."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Final

from feda4fair.recipe import Recipe

__all__ = ["changed", "changes", "imports", "python"]

WIDTH: Final = 88
"""Longest line, unless a single text is longer."""


def python(value: Any, indent: int = 0) -> str:
    """Return a Python expression that gives a recipe, or a part of one, again.

    Parameters
    ----------
    value : dataclass, tuple or scalar
        A recipe or what it is made of; what equals its default is left out.
    indent : int, default 0
        Columns that stand before the expression's later lines.

    Returns
    -------
    str
        One line, or several where one would be too long.

    Examples
    --------
    >>> from feda4fair import BiasRule, Dirichlet
    >>> python(Dirichlet(5, alpha=0.3))
    'Dirichlet(clients=5, alpha=0.3)'
    >>> python(BiasRule(where={"sex": "f"}, drop=0.5))
    'BiasRule(where=(("sex", "f"),), drop=0.5)'
    """
    if is_dataclass(value) and not isinstance(value, type):
        head, tail = f"{type(value).__name__}(", ")"
        items = [
            (f"{field.name}=", getattr(value, field.name))
            for field in fields(value)
            if field.compare and getattr(value, field.name) != _default(field)
        ]
    elif isinstance(value, tuple):
        head, tail = "(", ",)" if len(value) == 1 else ")"
        items = [("", item) for item in value]
    else:
        return _scalar(value)
    line = head + ", ".join(name + python(item) for name, item in items) + tail
    if not items or (len(line) + indent <= WIDTH and "\n" not in line):
        return line
    inner = " " * (indent + 4)
    lines = [f"{inner}{name}{python(item, indent + 4)}," for name, item in items]
    return "\n".join([head, *lines, " " * indent + ")"])


def changed(name: str, base: Recipe, recipe: Recipe) -> str:
    """Return a Python expression that makes a recipe of another one.

    Parameters
    ----------
    name : str
        Expression of the other one.
    base, recipe : Recipe
        The other one, and what it becomes.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from feda4fair import Column, Iid, Schema
    >>> sex = Column(name="sex", dtype="int8", role="sensitive")
    >>> base = Recipe(dataset="demo", name="demo", schema=Schema(columns=(sex,)), partition=Iid(2))
    >>> changed("base", base, replace(base, partition=Iid(3), seed=7))
    'replace(base, partition=Iid(clients=3), seed=7)'
    """
    parts = [f"{field}={python(value, 4)}" for field, value in changes(base, recipe).items()]
    line = f"replace({', '.join([name, *parts])})"
    if not parts or (len(line) <= WIDTH and "\n" not in line):
        return line if parts else name
    return "\n".join(["replace(", *(f"    {part}," for part in (name, *parts)), ")"])


def changes(base: Recipe, recipe: Recipe) -> dict[str, Any]:
    """Return the fields in which a recipe differs from another one."""
    return {
        field.name: getattr(recipe, field.name)
        for field in fields(recipe)
        if getattr(recipe, field.name) != getattr(base, field.name)
    }


def imports(value: Any, *names: str) -> str:
    """Return the import line of everything that the expression of a recipe names.

    Parameters
    ----------
    value : Recipe, or tuple of parts of one
        What is written by :func:`python`.
    names : str
        What else is imported from ``feda4fair``.

    Examples
    --------
    >>> from feda4fair import Column, Iid, Schema
    >>> sex = Column(name="sex", dtype="int8", role="sensitive")
    >>> recipe = Recipe(
    ...     dataset="demo", name="demo", schema=Schema(columns=(sex,)), partition=Iid(2)
    ... )
    >>> imports(recipe, "federate")
    'from feda4fair import Column, Iid, Recipe, Schema, federate'
    """
    wanted = sorted({*_kinds(value), *names})
    line = f"from feda4fair import {', '.join(wanted)}"
    if len(line) <= WIDTH:
        return line
    return "\n".join(["from feda4fair import (", *(f"    {name}," for name in wanted), ")"])


def _kinds(value: Any) -> set[str]:
    """Return the names of the classes that an expression of a value calls."""
    if isinstance(value, tuple):
        return {kind for item in value for kind in _kinds(item)}
    if not is_dataclass(value) or isinstance(value, type):
        return set()
    parts = (
        getattr(value, field.name)
        for field in fields(value)
        if field.compare and getattr(value, field.name) != _default(field)
    )
    return {type(value).__name__, *(kind for part in parts for kind in _kinds(part))}


def _scalar(value: Any) -> str:
    """Return a number, a text or None as Python, texts in double quotes where they can be."""
    text = repr(value)
    if isinstance(value, str) and text[0] == "'" and '"' not in text:
        return f'"{text[1:-1]}"'
    return text


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default
