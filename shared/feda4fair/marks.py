"""What one mark of a figure stands for: a client's gap, its interval, and what is earned.

Numbers only, without a drawing library: :mod:`feda4fair.plots` draws them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from feda4fair.cube import Attribute
from feda4fair.disparity import PARTS, Figure
from feda4fair.errors import MeasureError
from feda4fair.intervals import wilson
from feda4fair.rates import Against
from feda4fair.report import FairnessReport
from feda4fair.uncertainty import Assessment, Verdict

__all__ = ["ALPHA", "Level", "Marks", "Sign", "change", "leaders", "marks", "pair_gaps"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Level = Literal["attribute", "value"]
Sign = Literal["told", "untold", "small", "undetermined", "undefined"]

ALPHA = 0.05
"""Error of the intervals over a client's values, as in :func:`feda4fair.uncertainty.assess`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marks:
    """One attribute in K clients: the gap of one value of each, and what is known of it.

    Parameters
    ----------
    attribute : Attribute
        Its values.
    value : ndarray of int64, shape (K,)
        Position of the value that the mark shows; -1 where no gap is defined.
    size, low, high : ndarray of float64, shape (K,)
        Size of its gap, in [0, 1], and the simultaneous interval of that size; NaN without a gap.
    support : ndarray of int64, shape (K,)
        Rows of the value in the stratum.
    disparity : ndarray of float64, shape (K,)
        The report's figure; larger than ``size`` where a favored value attains it.
    signs : tuple of str, K
        ``told``: biased toward the value shown, by the report's verdict; ``untold``: detected, but
        not that it is this value; ``small``, ``undetermined``, ``undefined``: the verdict.
    """

    attribute: Attribute
    value: Ints
    size: Floats
    low: Floats
    high: Floats
    support: Ints
    disparity: Floats
    signs: tuple[Sign, ...]


def marks(report: FairnessReport, attribute: str, figure: Figure, *, level: Level) -> Marks:
    """Take the marks of one attribute out of a report.

    Parameters
    ----------
    report : FairnessReport
        What was measured.
    attribute : str
        A sensitive attribute or an intersection of the report.
    figure : {"DD", "EOD"}
        Figure; of EOD the stratum (TPR or FPR) with the larger figure is shown in each client.
    level : {"attribute", "value"}
        ``attribute`` shows the value that attains the figure, the disadvantaged one on a tie;
        ``value`` the disadvantaged value: the lowest signed gap, or under ``pairs`` the lowest
        rate.

    Raises
    ------
    MeasureError
        For an attribute or a figure that the report does not have.
    """
    report.finding(report.clients[0], attribute, figure)
    strata = [report.assessments[attribute, metric] for metric in PARTS[figure]]
    parts = [_of_stratum(found, report.against, level) for found in strata]
    if len(parts) == 1:
        return parts[0]
    figures = np.stack([np.nan_to_num(part.disparity, nan=-1.0) for part in parts])
    chosen = figures.argmax(axis=0)
    rows = np.arange(len(chosen))

    def pick(name: str) -> NDArray[np.generic]:
        return np.stack([getattr(part, name) for part in parts])[chosen, rows]

    fields = ("value", "size", "low", "high", "support", "disparity")
    signs = tuple(parts[stratum].signs[row] for row, stratum in enumerate(chosen))
    return Marks(
        attribute=parts[0].attribute, signs=signs, **{name: pick(name) for name in fields}
    )


def _of_stratum(found: Assessment, against: Against, level: Level) -> Marks:
    part = found.part
    gap, rows = part.gap(), np.arange(len(part.support))
    known = part.defined.any(axis=1)
    match level, against:
        case "attribute", _:
            candidates = part.attained(against)
        case "value", "rest":
            candidates = part.worst()
        case "value", "pairs":
            candidates = part.lowest()
        case _:
            assert_never(level)
    value = np.where(candidates & part.defined, gap, np.inf).argmin(axis=1)
    match against:
        case "rest":
            sign = np.where(gap[rows, value] > 0, 1.0, -1.0)
            size = sign * gap[rows, value]
            ends = sign * np.stack([found.low[rows, value], found.high[rows, value]])
        case "pairs":
            size, *bounds = pair_gaps(found, part.highest().argmax(axis=1), value)
            ends = np.stack(bounds)
        case _:
            assert_never(against)
    return Marks(
        attribute=part.attribute,
        value=np.where(known, value, -1),
        size=np.where(known, size, np.nan),
        low=np.where(known, np.maximum(ends.min(axis=0), 0), np.nan),
        high=np.where(known, np.minimum(ends.max(axis=0), 1), np.nan),
        support=part.support[rows, value],
        disparity=part.size(against),
        signs=tuple(
            _sign(verdict, bool(found.worst[row, value[row]]))
            for row, verdict in enumerate(found.verdicts)
        ),
    )


def _sign(verdict: Verdict, shown: bool) -> Sign:
    """Return what is known, given whether the value shown is (in) the worst set."""
    match verdict:
        case "toward":
            return "told" if shown else "untold"
        case "disparity":
            return "untold"
        case "small" | "undetermined" | "undefined":
            return verdict
        case _:
            assert_never(verdict)


def pair_gaps(found: Assessment, one: Ints, other: Ints) -> tuple[Floats, Floats, Floats]:
    r"""Return ``rate_one - rate_other`` of each client with its interval.

    Newcombe's hybrid score interval at level :math:`1 - \alpha_k / \binom{m_k}{2}`, so that the
    intervals of all pairs of a client's m values hold together; :math:`\alpha_k` is that of the
    report's own intervals (:func:`feda4fair.uncertainty.assess`).

    Parameters
    ----------
    found : Assessment
        Rates of K clients.
    one, other : ndarray of int64, shape (K,) or ()
        Positions of the two values.

    Returns
    -------
    gap, low, high : ndarray of float64, shape (K,)
        NaN where a rate is undefined.

    References
    ----------
    Newcombe (1998), Interval estimation for the difference between independent proportions,
    method 10.
    """
    part, rows = found.part, np.arange(len(found.detected))
    count = part.defined.sum(axis=1)
    pairs = np.maximum(count * (count - 1) // 2, 1)
    alpha = np.where(found.detected, found.level, ALPHA)
    z = -ndtri(alpha / (2 * pairs))
    rate = np.where(part.defined, part.rate(), np.nan)
    first, second = rate[rows, one], rate[rows, other]
    low_1, high_1 = wilson(part.positives[rows, one], part.support[rows, one], z)
    low_2, high_2 = wilson(part.positives[rows, other], part.support[rows, other], z)
    gap = first - second
    low = gap - np.hypot(first - low_1, high_2 - second)
    high = gap + np.hypot(high_1 - first, second - low_2)
    return gap, low, high


def leaders(report: FairnessReport, figure: Figure) -> tuple[Ints, tuple[Sign, ...]]:
    """Return the contender with each client's largest disparity, and whether it is decided.

    Returns
    -------
    leader : ndarray of int64, shape (K,)
        Position among ``report.contenders``; -1 without a figure.
    signs : tuple of str, K
        ``told``: detected, and the attribute dominates significantly (or has no rival);
        ``untold``: detected, but which attribute dominates is undecided; else the verdict.
    """
    found = [report.worst(client, figure) for client in report.clients]
    leader = np.array(
        [
            -1 if one.verdict == "undefined" else report.contenders.index(one.attribute)
            for one in found
        ]
    )
    signs: list[Sign] = []
    for one in found:
        match one.verdict:
            case "toward" | "disparity":
                signs.append("told" if one.dominant in (one.attribute, None) else "untold")
            case verdict:
                signs.append(verdict)
    return leader, tuple(signs)


def change(before: Marks, after: Marks) -> tuple[Floats, Floats, Floats]:
    r"""Return ``before.disparity - after.disparity`` of each client with an interval.

    The two intervals are combined as if the figures were independent (MOVER):

    .. math:: L = d - \sqrt{(x - l_x)^2 + (u_y - y)^2}, \quad U = d + \sqrt{(u_x - x)^2 + (y - l_y)^2}

    Figures of two models on the same rows go together, which makes the true interval narrower.

    Parameters
    ----------
    before, after : Marks
        At attribute level, of the same clients.

    Returns
    -------
    difference, low, high : ndarray of float64, shape (K,)

    References
    ----------
    Zou and Donner (2008), Construction of confidence limits about effect measures.
    """
    x, y = before.size, after.size
    low = x - y - np.hypot(x - before.low, after.high - y)
    high = x - y + np.hypot(before.high - x, y - after.low)
    return x - y, low, high


def same_clients(one: FairnessReport, other: FairnessReport) -> None:
    """Raise MeasureError unless two reports have the same clients in the same order."""
    if one.clients != other.clients:
        unlike = next(
            (pair for pair in zip(one.clients, other.clients, strict=False) if pair[0] != pair[1]),
            (f"{len(one.clients)} clients", f"{len(other.clients)} clients"),
        )
        raise MeasureError(
            f"two reports are compared client by client, and {unlike[0]} meets {unlike[1]}; "
            "measure both on the same clients in the same order."
        )
