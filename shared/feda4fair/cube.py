"""The counts from which every fairness figure follows.

One integer cube, client x joint sensitive group x label x prediction, replaces the rows: every
rate, gap, test and interval is a function of it, cubes of several workers add up, and a report
can be rebuilt from it years later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feda4fair.codes import Code, binary, positions
from feda4fair.errors import MeasureError

__all__ = ["MAX_CELLS", "MAX_VALUES", "Attribute", "Cube", "concatenate"]

Ints = NDArray[np.int64]

MAX_CELLS = 2**25
"""Cells that one cube may hold: 256 MB of counts."""

MAX_VALUES = 10_000
"""Values, or cells of an intersection, that one attribute may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A sensitive attribute, or an intersection of several, with its declared values.

    Parameters
    ----------
    name : str
        Column name; an intersection is named ``"SEX & RAC1P"``.
    values : tuple of str
        Names of the values in a fixed order, whether or not a client has them.
    codes : tuple
        Source code of each value; of an intersection, the codes joined as text.
    """

    name: str
    values: tuple[str, ...]
    codes: tuple[Code, ...]

    def __post_init__(self) -> None:
        """Refuse attributes that cannot be told apart or are too wide."""
        if not self.values or len(self.values) != len(self.codes):
            raise MeasureError(
                f"attribute {self.name}: got {len(self.codes)} codes for {len(self.values)} "
                "value names, expected one name for each code and at least one."
            )
        if len(set(self.values)) < len(self.values):
            twice = sorted({v for v in self.values if self.values.count(v) > 1})
            raise MeasureError(
                f"attribute {self.name}: several codes share the name {twice[0]!r}; "
                "merge these codes or give each a name of its own."
            )

    def index(self, value: str) -> int:
        """Return the position of a value's name; raise MeasureError when it has none."""
        if value not in self.values:
            raise MeasureError(
                f"attribute {self.name}: no value {value!r}; it has {', '.join(self.values)}."
            )
        return self.values.index(value)

    @staticmethod
    def crossed(parts: Sequence[Attribute]) -> Attribute:
        """Return the intersection of several attributes as one, cells in row-major order."""
        if len(parts) == 1:
            return parts[0]
        name = " & ".join(part.name for part in parts)
        width = prod(len(part.values) for part in parts)
        if width > MAX_VALUES:
            raise MeasureError(
                f"intersection {name}: {width} cells, at most {MAX_VALUES} are measured; "
                "cross fewer attributes or merge values first."
            )
        return Attribute(
            name=name,
            values=tuple(" & ".join(cell) for cell in product(*(part.values for part in parts))),
            codes=tuple(
                " & ".join(map(str, cell)) for cell in product(*(part.codes for part in parts))
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cube:
    """Counts of rows: client x joint sensitive group x label x prediction.

    Parameters
    ----------
    clients : tuple of str
        Client names, K of them.
    attributes : tuple of Attribute
        Sensitive attributes; the joint groups are their product, G cells in row-major order.
    counts : ndarray of int64, shape (K, G, 2, P)
        Number of rows. The third axis is the label (0 unfavorable, 1 favorable), the last the
        prediction, with P = 1 when there are only labels. Read-only.
    """

    clients: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    counts: Ints

    def __post_init__(self) -> None:
        """Check the axes and freeze the counts."""
        groups = prod(len(attribute.values) for attribute in self.attributes)
        shape = (len(self.clients), groups, 2)
        if self.counts.shape not in {(*shape, 1), (*shape, 2)}:
            raise MeasureError(
                f"cube: counts of shape {self.counts.shape} do not fit {shape[0]} clients and "
                f"{groups} joint groups, expected {(*shape, 1)} or {(*shape, 2)}."
            )
        if len(set(self.clients)) < len(self.clients):
            twice = next(name for name in self.clients if self.clients.count(name) > 1)
            raise MeasureError(f"cube: client {twice!r} is named twice; client names are unique.")
        if self.counts.dtype != np.int64 or (self.counts.size and self.counts.min() < 0):
            raise MeasureError(
                f"cube: counts are {self.counts.dtype} with minimum {self.counts.min()}, expected "
                "int64 without negative numbers."
            )
        frozen = self.counts.view()
        frozen.setflags(write=False)
        object.__setattr__(self, "counts", frozen)

    @classmethod
    def count(
        cls,
        *,
        clients: NDArray[Any],
        client_names: Sequence[str],
        attributes: Mapping[str, tuple[Any, Mapping[Any, str]]],
        y_true: ArrayLike,
        y_pred: ArrayLike | None = None,
    ) -> Cube:
        """Count rows in one pass.

        Parameters
        ----------
        clients : ndarray of int, shape (n,)
            Position of each row's client in ``client_names``.
        client_names : sequence of str
            All clients; one without a row keeps its place, with zero counts.
        attributes : mapping of str to (codes, names)
            For each sensitive attribute its codes, shape (n,), and the name of every code.
            A declared code without a row keeps its place.
        y_true : array-like of bool or {0, 1}, shape (n,)
            Labels; 1 is the favorable outcome.
        y_pred : array-like of bool or {0, 1}, shape (n,), optional
            Hard predictions.

        Returns
        -------
        Cube

        Raises
        ------
        MeasureError
            For columns of unequal lengths, labels that are not binary, missing or undeclared
            codes, and cubes of more than ``MAX_CELLS`` cells.

        Examples
        --------
        >>> cube = Cube.count(
        ...     clients=np.array([0, 0, 0, 1]),
        ...     client_names=["WY", "VT"],
        ...     attributes={"SEX": (np.array([1, 2, 2, 2]), {1: "male", 2: "female"})},
        ...     y_true=np.array([1, 0, 1, 1]),
        ... )
        >>> cube.counts[..., 0].tolist()
        [[[0, 1], [1, 1]], [[0, 0], [0, 1]]]
        """
        axes = tuple(
            Attribute(name=name, values=tuple(names.values()), codes=tuple(names))
            for name, (_, names) in attributes.items()
        )
        outcomes = {"y_true": y_true} if y_pred is None else {"y_true": y_true, "y_pred": y_pred}
        _check_lengths(
            {"clients": clients, **{n: codes for n, (codes, _) in attributes.items()}, **outcomes}
        )
        groups = prod(len(axis.values) for axis in axes)
        shape = (len(client_names), groups, 2, len(outcomes))
        _check_cells(shape, axes)

        cell = _client_positions(clients, len(client_names))
        for axis, (codes, _) in zip(axes, attributes.values(), strict=True):
            cell *= len(axis.values)
            cell += positions(codes, axis.codes, axis.name)
        for name, outcome in outcomes.items():
            cell *= 2
            cell += binary(outcome, name)
        counts = np.bincount(cell, minlength=prod(shape)).reshape(shape)
        return cls(clients=tuple(client_names), attributes=axes, counts=counts)

    @property
    def has_predictions(self) -> bool:
        """Whether the cube counts predictions beside labels."""
        return bool(self.counts.shape[-1] == 2)

    def attribute(self, name: str) -> Attribute:
        """Return one attribute by name; raise MeasureError when there is none."""
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        names = ", ".join(attribute.name for attribute in self.attributes)
        raise MeasureError(f"no sensitive attribute {name!r}; the cube has {names}.")

    def client(self, name: str) -> int:
        """Return the position of a client; raise MeasureError when there is none."""
        if name not in self.clients:
            raise MeasureError(
                f"no client {name!r} among {len(self.clients)}, the first being "
                f"{', '.join(self.clients[:3])}."
            )
        return self.clients.index(name)

    def on(self, *names: str) -> Cube:
        """Return the cube of one attribute, or of the intersection of several.

        Parameters
        ----------
        *names : str
            Attribute names; two or more give one crossed attribute with named cells.

        Returns
        -------
        Cube
            With exactly one attribute.
        """
        if not names or len(set(names)) < len(names):
            raise MeasureError(f"cannot cross {names!r}; name one or more different attributes.")
        chosen = [self.attribute(name) for name in names]
        kept = [self.attributes.index(attribute) + 1 for attribute in chosen]
        sizes = [len(attribute.values) for attribute in self.attributes]
        full = self.counts.reshape(len(self.clients), *sizes, *self.counts.shape[2:])
        summed = tuple(axis for axis in range(1, len(sizes) + 1) if axis not in kept)
        order = np.argsort(np.argsort(kept)) + 1
        part = full.sum(axis=summed) if summed else full
        ends = (len(kept) + 1, len(kept) + 2)
        part = part.transpose(0, *order.tolist(), *ends)
        crossed = Attribute.crossed(chosen)
        counts = part.reshape(len(self.clients), len(crossed.values), *self.counts.shape[2:])
        return Cube(clients=self.clients, attributes=(crossed,), counts=counts.copy())

    def labels(self) -> Cube:
        """Return the cube of the labels alone, predictions summed out."""
        summed = self.counts.sum(axis=3, keepdims=True)
        return Cube(clients=self.clients, attributes=self.attributes, counts=summed)

    def pooled(self, name: str = "pooled") -> Cube:
        """Return the cube of all clients together, as a single client."""
        total = self.counts.sum(axis=0, keepdims=True)
        return Cube(clients=(name,), attributes=self.attributes, counts=total)

    def select(self, clients: Sequence[str]) -> Cube:
        """Return the cube of some clients, in the order given."""
        rows = [self.client(name) for name in clients]
        return Cube(
            clients=tuple(clients), attributes=self.attributes, counts=self.counts[rows].copy()
        )

    def rows(self) -> Ints:
        """Return the number of rows of each client, shape (K,)."""
        total: Ints = self.counts.sum(axis=(1, 2, 3))
        return total

    def accuracy(self) -> NDArray[np.float64]:
        """Return the share of right predictions of each client, shape (K,); NaN without rows."""
        if not self.has_predictions:
            raise MeasureError("accuracy needs predictions, and this cube counts labels only.")
        cells = self.counts.sum(axis=1)
        right = cells[:, 0, 0] + cells[:, 1, 1]
        rows = self.rows()
        share: NDArray[np.float64] = np.divide(
            right, rows, out=np.full(len(rows), np.nan), where=rows > 0
        )
        return share

    def __add__(self, other: Cube) -> Cube:
        """Add the counts of another part of the same federation, cell by cell."""
        if self.clients != other.clients:
            raise MeasureError(
                "cubes of different clients cannot be added; use concatenate to put them "
                "side by side."
            )
        _check_same_axes(self, other)
        return Cube(
            clients=self.clients, attributes=self.attributes, counts=self.counts + other.counts
        )

    def __eq__(self, other: object) -> bool:
        """Whether the axes and every count agree."""
        if not isinstance(other, Cube):
            return NotImplemented
        return (
            self.clients == other.clients
            and self.attributes == other.attributes
            and np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]


def concatenate(cubes: Iterable[Cube]) -> Cube:
    """Put the clients of several cubes side by side.

    Parameters
    ----------
    cubes : iterable of Cube
        At least one; same attributes, no client in two of them.

    Raises
    ------
    MeasureError
        For different attributes, a client in two cubes, or no cube at all.
    """
    parts = tuple(cubes)
    if not parts:
        raise MeasureError("no cube to concatenate; give at least one.")
    for part in parts[1:]:
        _check_same_axes(parts[0], part)
    return Cube(
        clients=tuple(name for part in parts for name in part.clients),
        attributes=parts[0].attributes,
        counts=np.concatenate([part.counts for part in parts]),
    )


def _check_lengths(columns: Mapping[str, Any]) -> None:
    shapes = {name: np.shape(column) for name, column in columns.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise MeasureError(f"got columns of shapes {listed}, expected one dimension, one length.")


def _check_cells(shape: tuple[int, ...], axes: tuple[Attribute, ...]) -> None:
    cells = prod(shape)
    if cells > MAX_CELLS:
        widths = " x ".join(f"{axis.name} ({len(axis.values)})" for axis in axes)
        raise MeasureError(
            f"{shape[0]} clients x {widths} need {cells} counts, at most {MAX_CELLS} are kept; "
            "measure fewer attributes together, merge values, or count clients in parts."
        )


def _check_same_axes(one: Cube, other: Cube) -> None:
    if one.attributes != other.attributes or one.has_predictions != other.has_predictions:
        raise MeasureError(
            "cubes of different attributes, values or outcomes cannot be combined; count both "
            "with the same declaration."
        )


def _client_positions(clients: NDArray[Any], size: int) -> Ints:
    codes = np.asarray(clients)
    if codes.dtype.kind not in "iu" or (len(codes) and not 0 <= codes.min() <= codes.max() < size):
        raise MeasureError(
            f"clients: expected integers from 0 to {size - 1}, one for each row, the position in "
            "client_names."
        )
    return codes.astype(np.int64)
