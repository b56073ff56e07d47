"""One fairness figure with its definition, what attains it, and the counts behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from feda4fair.errors import MeasureError
from feda4fair.rates import Against, Metric, Outcome, Rates

__all__ = ["PARTS", "Disparity", "Figure", "Group", "Witness", "disparity"]

Figure = Literal["DD", "EOD"]

PARTS: Mapping[Figure, tuple[Metric, ...]] = {"DD": ("DD",), "EOD": ("TPR", "FPR")}
"""The metrics whose maximum a figure is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One value of a sensitive attribute under one metric.

    Parameters
    ----------
    metric : {"DD", "TPR", "FPR"}
        What the rate is: of all rows, of rows of label 1, or of rows of label 0.
    value : str
        Name of the value.
    support, positives : int
        Rows that the rate is taken over, and those of them with outcome 1.
    rest_support, rest_positives : int
        The same over all other values.
    rate, rest_rate, gap : float or None
        ``positives / support``, the same of the rest, and their difference; None when undefined.
    reason : str or None
        Why the gap is undefined.
    """

    metric: Metric
    value: str
    support: int
    positives: int
    rest_support: int
    rest_positives: int
    rate: float | None
    rest_rate: float | None
    gap: float | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What attains a maximum.

    Parameters
    ----------
    metric : {"DD", "TPR", "FPR"}
        The metric in which it is attained.
    value : str
        The value (``rest``), or the value with the lower rate (``pairs``).
    other : str or None
        None for the rest, or the value with the higher rate (``pairs``).
    gap : float
        Signed gap, ``value`` minus ``other``; negative when ``value`` is disadvantaged.
    """

    metric: Metric
    value: str
    other: str | None
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Disparity:
    """One figure with its definition, what attains it, and the counts behind it.

    Parameters
    ----------
    figure : {"DD", "EOD"}
        Demographic disparity or equalized odds difference.
    attribute : str
        Sensitive attribute, or intersection.
    outcome : {"label", "prediction"}
        What the rates count.
    against : {"rest", "pairs"}
        Definition (see the module).
    size : float or None
        The figure, in [0, 1]; None when no gap is defined.
    attained : tuple of Witness
        Every value or pair with exactly this size, in declared order; ties are all here.
    groups : tuple of Group
        All declared values, one for each metric of the figure.
    """

    figure: Figure
    attribute: str
    outcome: Outcome
    against: Against
    size: float | None
    attained: tuple[Witness, ...]
    groups: tuple[Group, ...]

    def __float__(self) -> float:
        """Return the size; raise MeasureError, with the reasons, when it is undefined."""
        if self.size is None:
            raise MeasureError(f"{self.figure} of {self.attribute} is undefined: {self.reason}.")
        return self.size

    @property
    def reason(self) -> str | None:
        """Why values are left out of the maximum, or None when none is."""
        why = [f"{g.metric} of {g.value}: {g.reason}" for g in self.groups if g.reason]
        return "; ".join(why) or None

    @property
    def names(self) -> tuple[str, ...]:
        """What attains the figure, as text: values, or pairs; with the metric under EOD."""
        return tuple(
            ("" if self.figure == "DD" else f"{w.metric} ")
            + w.value
            + (f" vs {w.other}" if w.other else "")
            for w in self.attained
        )

    def __str__(self) -> str:
        """Return the figure in one line."""
        head = f"{self.figure} of {self.attribute} ({self.outcome}s, {self.against})"
        if self.size is None:
            return f"{head}: undefined, {self.reason}"
        gaps = (f"{name} {w.gap:+.4f}" for name, w in zip(self.names, self.attained, strict=True))
        ties = ", ".join(gaps)
        return f"{head}: {self.size:.4f} [{ties}]"


def disparity(figure: Figure, parts: Sequence[Rates], client: int, against: Against) -> Disparity:
    """Return one client's figure from the rates of its metrics.

    Parameters
    ----------
    figure : {"DD", "EOD"}
        What to name it.
    parts : sequence of Rates
        One for DD, the TPR and FPR ones for EOD.
    client : int
        Position of the client.
    against : {"rest", "pairs"}
        Definition.
    """
    one = [part.of_client(client) for part in parts]
    sizes = [float(part.size(against)[0]) for part in one]
    known = [size for size in sizes if not np.isnan(size)]
    size = max(known) if known else None
    attained = tuple(
        witness
        for part, part_size in zip(one, sizes, strict=True)
        if part_size == size
        for witness in _witnesses(part, against)
    )
    return Disparity(
        figure=figure,
        attribute=one[0].attribute.name,
        outcome=one[0].outcome,
        against=against,
        size=size,
        attained=attained,
        groups=tuple(group for part in one for group in _groups(part)),
    )


def _witnesses(part: Rates, against: Against) -> list[Witness]:
    values = part.attribute.values
    low = np.flatnonzero(part.attained(against)[0])
    if against == "rest":
        gap = part.gap()[0]
        return [
            Witness(metric=part.metric, value=values[z], other=None, gap=float(gap[z]))
            for z in low
        ]
    high = np.flatnonzero(part.highest()[0])
    gap_of_pair = -float(part.size("pairs")[0])
    return [
        Witness(metric=part.metric, value=values[z], other=values[w], gap=gap_of_pair)
        for z in low
        for w in high
        if z != w
    ]


def _groups(part: Rates) -> list[Group]:
    rate, rest_rate, gap = part.rate()[0], part.rest_rate()[0], part.gap()[0]
    total, ones = int(part.total[0, 0]), int(part.total_positives[0, 0])
    return [
        Group(
            metric=part.metric,
            value=value,
            support=int(part.support[0, z]),
            positives=int(part.positives[0, z]),
            rest_support=total - int(part.support[0, z]),
            rest_positives=ones - int(part.positives[0, z]),
            rate=_or_none(rate[z]),
            rest_rate=_or_none(rest_rate[z]),
            gap=_or_none(gap[z]),
            reason=reason,
        )
        for z, (value, reason) in enumerate(
            zip(part.attribute.values, part.reasons()[0], strict=True)
        )
    ]


def _or_none(number: float) -> float | None:
    return None if np.isnan(number) else float(number)
