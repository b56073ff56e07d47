"""Rates and signed gaps of one attribute, client x value, as exact integer counts.

A rate without rows is undefined and NaN in an array; it never enters a maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from feda4fair.cube import Attribute, Cube
from feda4fair.errors import MeasureError

__all__ = ["Against", "Metric", "Outcome", "Rates", "rates", "strata"]

Against = Literal["rest", "pairs"]
Metric = Literal["DD", "TPR", "FPR"]
Outcome = Literal["label", "prediction"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_ROWS = {"DD": "rows", "TPR": "rows of label 1", "FPR": "rows of label 0"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rates:
    """Counts behind the rates of one attribute under one metric, for all clients at once.

    Parameters
    ----------
    metric : {"DD", "TPR", "FPR"}
        The stratum: all rows, label 1, or label 0.
    outcome : {"label", "prediction"}
        What is counted as positive.
    attribute : Attribute
        Its V values.
    support, positives : ndarray of int64, shape (K, V)
        Rows of each client and value in the stratum, and those with outcome 1.

    Notes
    -----
    NaN in a returned array marks what is undefined. Each gap is one division of two exact
    integers, so equal gaps compare equal and ties are exact.
    """

    metric: Metric
    outcome: Outcome
    attribute: Attribute
    support: Ints
    positives: Ints

    @property
    def total(self) -> Ints:
        """Rows of each client in the stratum, shape (K, 1)."""
        total: Ints = self.support.sum(axis=1, keepdims=True)
        return total

    @property
    def total_positives(self) -> Ints:
        """Positive rows of each client in the stratum, shape (K, 1)."""
        total: Ints = self.positives.sum(axis=1, keepdims=True)
        return total

    @property
    def one_class(self) -> Bools:
        """Clients whose labels are all the same, shape (K, 1); never true of predictions."""
        alike: Bools = (self.total_positives == 0) | (self.total_positives == self.total)
        return alike & (self.total > 0) & (self.outcome == "label")

    @property
    def defined(self) -> Bools:
        """Values that have a gap, shape (K, V)."""
        some: Bools = (self.support > 0) & (self.support < self.total)
        return some & ~self.one_class

    def rate(self) -> Floats:
        """``rate_z``, shape (K, V)."""
        return _divide(self.positives, self.support, self.support > 0)

    def rest_rate(self) -> Floats:
        """``rate_{not z}``, shape (K, V)."""
        rest: Ints = self.total - self.support
        return _divide(self.total_positives - self.positives, rest, rest > 0)

    def gap(self) -> Floats:
        """Signed ``gap_z = rate_z - rate_{not z}``, shape (K, V)."""
        rest: Ints = self.total - self.support
        difference = self.positives * self.total - self.total_positives * self.support
        return _divide(difference, self.support * rest, self.defined)

    def size(self, against: Against = "rest") -> Floats:
        """Disparity of each client, shape (K,)."""
        match against:
            case "rest":
                return _largest(np.abs(self.gap()))
            case "pairs":
                rows = np.arange(len(self.support))
                low = rows, self.lowest().argmax(axis=1)
                high = rows, self.highest().argmax(axis=1)
                a, n = self.positives, self.support
                some = np.asarray(self.defined.any(axis=1))
                return _divide(a[high] * n[low] - a[low] * n[high], n[low] * n[high], some)
            case _:
                assert_never(against)

    def attained(self, against: Against = "rest") -> Bools:
        """Values that attain the disparity, shape (K, V).

        Under ``rest`` those with the largest ``|gap|``; under ``pairs`` those with the lowest
        rate, the disadvantaged end of the pair.
        """
        match against:
            case "rest":
                return _at_largest(np.abs(self.gap()))
            case "pairs":
                return self.lowest()
            case _:
                assert_never(against)

    def worst(self) -> Bools:
        """Values with the lowest signed gap, shape (K, V): the disadvantaged ones, with ties."""
        return _at_largest(-self.gap())

    def lowest(self) -> Bools:
        """Values with the lowest rate, shape (K, V), with ties."""
        return _at_largest(np.where(self.defined, -self.rate(), np.nan))

    def highest(self) -> Bools:
        """Values with the highest rate, shape (K, V), with ties."""
        return _at_largest(np.where(self.defined, self.rate(), np.nan))

    def pair_gaps(self, client: int) -> Floats:
        """Rate of the row's value minus that of the column's, in one client, shape (V, V)."""
        rate = np.where(self.defined[client], self.rate()[client], np.nan)
        gaps: Floats = rate[:, None] - rate[None, :]
        return gaps

    def of_client(self, client: int) -> Rates:
        """Return the rates of one client, K = 1."""
        return Rates(
            metric=self.metric,
            outcome=self.outcome,
            attribute=self.attribute,
            support=self.support[client : client + 1],
            positives=self.positives[client : client + 1],
        )

    def reasons(self) -> NDArray[np.object_]:
        """Why a value has no gap, shape (K, V); None where it has one."""
        rows = _ROWS[self.metric]
        shape = self.support.shape
        every = np.where(self.total_positives > 0, 1, 0)
        cases: list[tuple[Bools, str]] = [
            (self.total == 0, f"the client has no {rows}"),
            (self.support == 0, f"no {rows} of this value"),
            (self.support == self.total, f"no {rows} of any other value"),
            (self.one_class & (every == 0), "one class: every label is 0"),
            (self.one_class & (every == 1), "one class: every label is 1"),
        ]
        reason = np.full(shape, None, dtype=np.object_)
        for where, text in reversed(cases):
            reason[np.broadcast_to(where, shape)] = text
        return reason


def rates(cube: Cube, metric: Metric = "DD", *, outcome: Outcome | None = None) -> Rates:
    """Take the counts of one metric out of a cube with one attribute.

    Parameters
    ----------
    cube : Cube
        From :meth:`Cube.on`, so with one attribute or one intersection.
    metric : {"DD", "TPR", "FPR"}
        Stratum; TPR and FPR need predictions.
    outcome : {"label", "prediction"}, optional
        What DD counts: predictions where the cube has them, else labels. TPR and FPR count
        predictions.

    Raises
    ------
    MeasureError
        When predictions are needed and the cube has none.
    """
    if len(cube.attributes) != 1:
        raise MeasureError("rates are taken of one attribute; choose it with cube.on(...).")
    kind = outcome or ("prediction" if cube.has_predictions or metric != "DD" else "label")
    if kind == "prediction" and not cube.has_predictions:
        raise MeasureError(
            f"{metric} of {cube.attributes[0].name} needs predictions, and the cube counts labels "
            "only; before training, only demographic disparity has a meaning."
        )
    support, positives = strata(cube.counts, metric, kind)
    return Rates(
        metric=metric,
        outcome=kind,
        attribute=cube.attributes[0],
        support=support,
        positives=positives,
    )


def strata(counts: Ints, metric: Metric, outcome: Outcome) -> tuple[Ints, Ints]:
    """Return the rows of a metric's stratum and the positive ones among them.

    Parameters
    ----------
    counts : ndarray of int64, shape (K, G, 2, P)
        Counts of a cube.
    metric : {"DD", "TPR", "FPR"}
        Stratum.
    outcome : {"label", "prediction"}
        What DD counts as positive.

    Returns
    -------
    support, positives : ndarray of int64, shape (K, G)
    """
    match metric:
        case "DD" if outcome == "label":
            return counts.sum(axis=(2, 3)), counts[:, :, 1].sum(axis=2)
        case "DD":
            return counts.sum(axis=(2, 3)), counts[..., 1].sum(axis=2)
        case "TPR" | "FPR":
            stratum = counts[:, :, int(metric == "TPR")]
            return stratum.sum(axis=2), stratum[..., 1]
        case _:
            assert_never(metric)


def _divide(top: Ints, bottom: Ints, where: Bools) -> Floats:
    result: Floats = np.full(np.broadcast_shapes(top.shape, bottom.shape, where.shape), np.nan)
    np.divide(top, bottom, out=result, where=where)
    return result


def _largest(values: Floats) -> Floats:
    known = ~np.isnan(values)
    largest = np.where(known, values, -np.inf).max(axis=1)
    return np.where(known.any(axis=1), largest, np.nan)


def _at_largest(values: Floats) -> Bools:
    at: Bools = values == _largest(values)[:, None]
    return at
