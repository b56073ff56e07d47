"""What a method of federated training is, and how one is found by name.

A method is one module of this package with a frozen dataclass ``Method`` whose fields are its
options. Nothing else lists methods: a new module is a new method.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Protocol

from torch import Tensor

from feda4fair.errors import RecipeError

__all__ = [
    "Batch",
    "Method",
    "Objective",
    "Option",
    "counts",
    "method_names",
    "open_method",
    "parse_option",
]

Option = str | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some training rows of a client.

    Parameters
    ----------
    logits : Tensor, shape (n, 2)
        What the model says of them.
    label : Tensor of int64, shape (n,)
    group : Tensor of int64, shape (n,)
        Value of the mitigated attribute, 0 to ``groups - 1``.
    groups : int
        Number of values.
    """

    logits: Tensor
    label: Tensor
    group: Tensor
    groups: int


class Objective(Protocol):
    """What one client minimizes in one round."""

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of a batch, a finite scalar with a gradient."""

    def after(self, batch: Batch) -> None:
        """Take note of a batch that was stepped on; its logits are those before the step."""

    def figures(self) -> dict[str, float]:
        """Return what the client reports of the round beside its counts."""


class Method(Protocol):
    """A method; frozen, so that one instance serves every client and round."""

    def begin(self, train: Batch, pooled: Tensor) -> Objective:
        """Return a client's objective for one round.

        Parameters
        ----------
        train : Batch
            All training rows of the client, with the logits of the global model.
        pooled : Tensor of int64, shape (groups, 2, 2)
            Training rows of all clients by group, label and the global model's prediction.
        """

    def search(self, trial: Any) -> dict[str, Option]:
        """Return the options of an Optuna trial."""


def counts(batch: Batch) -> Tensor:
    """Return a batch's counts by group, label and prediction, shape (groups, 2, 2)."""
    cell = (batch.group * 2 + batch.label) * 2 + batch.logits.argmax(1)
    return cell.bincount(minlength=batch.groups * 4).reshape(batch.groups, 2, 2)


def method_names() -> tuple[str, ...]:
    """Return the names of all methods.

    Examples
    --------
    >>> method_names()
    ('fedavg', 'puffle', 'reweighing')
    """
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def parse_option(text: str) -> tuple[str, Option]:
    """Return name and value of ``NAME=VALUE``.

    Raises
    ------
    RecipeError
        If it is something else.

    Examples
    --------
    >>> parse_option("weight=0.5"), parse_option("weight=tunable")
    (('weight', 0.5), ('weight', 'tunable'))
    """
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise RecipeError(f"option {text!r}: write NAME=VALUE, such as weight=0.6.")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def open_method(name: str, options: Mapping[str, Option]) -> Method:
    """Return a method with its options.

    Parameters
    ----------
    name : str
        One of :func:`method_names`.
    options : mapping
        Values of its fields.

    Raises
    ------
    RecipeError
        If there is no such method or option, or a value does not fit.
    """
    if name not in method_names():
        raise RecipeError(f"no method {name!r}; there are {', '.join(method_names())}.")
    kind = import_module(f"{__name__}.{name}").Method
    known = [field.name for field in fields(kind)]
    foreign = sorted(set(options) - set(known))
    if foreign:
        raise RecipeError(
            f"{name}: no option {', '.join(foreign)}; it has {', '.join(known) or 'none'}."
        )
    method: Method = kind(**options)
    return method
