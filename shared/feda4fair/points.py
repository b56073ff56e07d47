"""What one point of a figure stands for: a client's gap, its interval, and what is earned.

Numbers and words only, without a drawing library: :mod:`feda4fair.plots` draws them.
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

__all__ = [
    "ALPHA",
    "FIGURES",
    "Level",
    "Points",
    "Sign",
    "change",
    "describe",
    "leaders",
    "outcome",
    "pair_gaps",
    "points",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Level = Literal["attribute", "value"]
Sign = Literal["told", "untold", "small", "undetermined", "undefined"]

ALPHA = 0.05
"""Error of the intervals over a client's values, as in :func:`feda4fair.uncertainty.assess`."""

FIGURES: dict[Figure, str] = {
    "DD": "demographic disparity",
    "EOD": "equalized odds difference",
}
"""Figures in words."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """One attribute in K clients: the gap of one value of each, and what is known of it.

    Parameters
    ----------
    attribute : Attribute
        Its values.
    value : ndarray of int64, shape (K,)
        Position of the value that the point shows; -1 where no gap is defined.
    size, low, high : ndarray of float64, shape (K,)
        Size of its gap, in [0, 1], and the simultaneous interval of that size; NaN without a gap.
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
    disparity: Floats
    signs: tuple[Sign, ...]


def points(report: FairnessReport, attribute: str, figure: Figure, *, level: Level) -> Points:
    """Take the points of one attribute out of a report.

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
    report.finding(report.clients[0], attribute, figure)  # names what the report does not have
    strata = [report.assessments[attribute, metric] for metric in PARTS[figure]]
    first, *others = [_of_stratum(found, report.against, level) for found in strata]
    for other in others:
        first = _larger(first, other)
    return first


def _larger(one: Points, other: Points) -> Points:
    """Return of each client the points of the stratum with the larger figure."""
    second = np.nan_to_num(other.disparity, nan=-1) > np.nan_to_num(one.disparity, nan=-1)
    return Points(
        attribute=one.attribute,
        value=np.where(second, other.value, one.value),
        size=np.where(second, other.size, one.size),
        low=np.where(second, other.low, one.low),
        high=np.where(second, other.high, one.high),
        disparity=np.where(second, other.disparity, one.disparity),
        signs=tuple(
            b if later else a for a, b, later in zip(one.signs, other.signs, second, strict=True)
        ),
    )


def _of_stratum(found: Assessment, against: Against, level: Level) -> Points:
    part = found.part
    gap, rows = part.gap(), np.arange(len(part.support))
    known = part.defined.any(axis=1)
    shown = part.attained(against) if level == "attribute" else _disadvantaged(found, against)
    value = np.where(shown & part.defined, gap, np.inf).argmin(axis=1)
    match against:
        case "rest":
            sign = np.where(gap[rows, value] > 0, 1.0, -1.0)
            size = sign * gap[rows, value]
            ends = sign * np.stack([found.low[rows, value], found.high[rows, value]])
        case "pairs":
            _, *bounds = pair_gaps(found, part.highest().argmax(axis=1), value)
            size, ends = part.size("pairs"), np.stack(bounds)
        case _:
            assert_never(against)
    return Points(
        attribute=part.attribute,
        value=np.where(known, value, -1),
        size=np.where(known, size, np.nan),
        low=np.where(known, np.maximum(ends.min(axis=0), 0), np.nan),
        high=np.where(known, np.minimum(ends.max(axis=0), 1), np.nan),
        disparity=part.size(against),
        signs=tuple(
            _sign(verdict, shown=bool(found.worst[row, value[row]]))
            for row, verdict in enumerate(found.verdicts)
        ),
    )


def _disadvantaged(found: Assessment, against: Against) -> NDArray[np.bool_]:
    match against:
        case "rest":
            return found.part.worst()
        case "pairs":
            return found.part.lowest()
        case _:
            assert_never(against)


def _sign(verdict: Verdict, *, shown: bool) -> Sign:
    """Return what is known, given whether the value shown is in the worst set."""
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
    z = np.round(-ndtri(alpha / (2 * pairs)), 10)
    rate = np.where(part.defined, part.rate(), np.nan)
    first, second = rate[rows, one], rate[rows, other]
    low_1, high_1 = wilson(part.positives[rows, one], part.support[rows, one], z)
    low_2, high_2 = wilson(part.positives[rows, other], part.support[rows, other], z)
    gap = first - second
    low = gap - np.hypot(first - low_1, high_2 - second)
    high = gap + np.hypot(high_1 - first, second - low_2)
    return gap, low, high


def leaders(report: FairnessReport, figure: Figure) -> tuple[Ints, tuple[Sign, ...]]:
    """Return the contender with each client's largest disparity, and whether that is decided.

    Returns
    -------
    leader : ndarray of int64, shape (K,)
        Position among ``report.contenders``; -1 without a figure.
    signs : tuple of str, K
        ``told``: detected, and the attribute dominates significantly (or has no rival);
        ``untold``: detected, but which attribute dominates is undecided; else the verdict.
    """
    found = [report.worst(client, figure) for client in report.clients]
    leader = [
        -1 if one.verdict == "undefined" else report.contenders.index(one.attribute)
        for one in found
    ]
    signs = (
        _sign("toward", shown=one.dominant in (one.attribute, None))
        if one.verdict in ("toward", "disparity")
        else _sign(one.verdict, shown=True)
        for one in found
    )
    return np.array(leader), tuple(signs)


def change(
    before: FairnessReport, after: FairnessReport, attribute: str, figure: Figure
) -> tuple[Floats, Floats, Floats]:
    r"""Return ``before - after`` of each client's disparity with an interval.

    The two intervals are combined as if the figures were independent (MOVER):

    .. math::
        L = d - \sqrt{(x - l_x)^2 + (u_y - y)^2}, \quad U = d + \sqrt{(u_x - x)^2 + (y - l_y)^2}

    Figures of two models on the same rows go together, which makes the true interval narrower.

    Parameters
    ----------
    before, after : FairnessReport
        Of the same clients.
    attribute : str
        Attribute level.
    figure : {"DD", "EOD"}
        Figure.

    Returns
    -------
    difference, low, high : ndarray of float64, shape (K,)
        NaN where a figure is undefined.

    Raises
    ------
    MeasureError
        For reports of different clients, or an attribute or a figure that one does not have.

    References
    ----------
    Zou and Donner (2008), Construction of confidence limits about effect measures.
    """
    x, y = both(before, after, attribute, figure)
    difference = x.size - y.size
    low = difference - np.hypot(x.size - x.low, y.high - y.size)
    high = difference + np.hypot(x.high - x.size, y.size - y.low)
    return difference, low, high


def both(
    before: FairnessReport,
    after: FairnessReport,
    attribute: str,
    figure: Figure,
    level: Level = "attribute",
) -> tuple[Points, Points]:
    """Return the points of two reports; raise MeasureError unless their clients are the same."""
    if before.clients != after.clients:
        pairs = zip(before.clients, after.clients, strict=False)
        counts = f"{len(before.clients)} clients meet {len(after.clients)}"
        unlike = next((f"{one} meets {other}" for one, other in pairs if one != other), counts)
        raise MeasureError(
            f"two reports are compared client by client, but {unlike}; measure both on the same "
            "clients in the same order."
        )
    one, other = (points(report, attribute, figure, level=level) for report in (before, after))
    if one.attribute.values != other.attribute.values:
        raise MeasureError(
            f"attribute {attribute}: the two reports have the values "
            f"{', '.join(one.attribute.values)} and {', '.join(other.attribute.values)}; measure "
            "both with the same coding."
        )
    return one, other


def outcome(report: FairnessReport) -> str:
    """Return what a report counts, in a word."""
    return "predictions" if report.cube.has_predictions else "labels"


_VERDICTS: dict[Verdict, str] = {
    "toward": "biased toward one value",
    "disparity": "biased, which value is not told",
    "small": "small",
    "undetermined": "undetermined",
    "undefined": "without a figure",
}


def describe(report: FairnessReport, figure: Figure = "DD") -> str:
    """Return what the figures of a report show in a few sentences, for who cannot see them.

    Parameters
    ----------
    report : FairnessReport
        What was measured.
    figure : {"DD", "EOD"}
        EOD needs predictions.

    Examples
    --------
    >>> from feda4fair.cube import Cube
    >>> from feda4fair.report import measure_cube
    >>> cube = Cube.count(
    ...     clients=np.zeros(4, dtype=int),
    ...     client_names=["WY"],
    ...     attributes={"SEX": (np.array([1, 1, 2, 2]), {1: "male", 2: "female"})},
    ...     y_true=np.array([1, 1, 0, 1]),
    ... )
    >>> print(describe(measure_cube(cube)))
    Demographic disparity of labels by SEX in 1 client: median 0.500, from 0.500 (WY) to
    0.500 (WY). Of the clients, 1 undetermined.
    """
    found = [report.worst(client, figure) for client in report.clients]
    known = {f.client: f.disparity.size for f in found if f.disparity.size is not None}
    count = f"{len(found)} client{'' if len(found) == 1 else 's'}"
    head = (
        f"{FIGURES[figure].capitalize()} of {outcome(report)} by "
        f"{' and '.join(report.contenders)} in {count}"
    )
    if not known:
        return f"{head}: without a figure in all of them."
    ends = [pick(known, key=known.__getitem__) for pick in (min, max)]
    low, high = (f"{known[client]:.3f} ({client})" for client in ends)
    lead = [
        f"{sum(f.attribute == name for f in found if f.client in known)} by {name}"
        for name in report.contenders
    ]
    largest = f"; largest in {', in '.join(lead)}" if len(lead) > 1 else ""
    verdicts = [f.verdict for f in found]
    said = [f"{verdicts.count(v)} {text}" for v, text in _VERDICTS.items() if v in verdicts]
    return (
        f"{head}: median {np.median(list(known.values())):.3f}, from {low} to {high}{largest}. "
        f"Of the clients, {'; '.join(said)}."
    )
