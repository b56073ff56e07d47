"""Counts and rates that give a group a wanted label disparity, without search.

Of a group's ``n`` rows ``a`` carry the favorable label. Dropping ``k`` of these and flipping ``f``
of the ``a - k`` left gives the rate ``(a - k - f) / (n - k)``, while all other rates stay. With
``t`` the rate that the wanted gap leaves to the group,

- flip alone: ``f = a - t n``;
- drop alone: ``k = (a - t n) / (1 - t)``;
- drop beside a flip rate ``q``: ``k = (a (1 - q) - t n) / (1 - q - t)``.

Rows are whole and gaps are floors: the weakest counts are taken that give at least the wanted gap.

A rule fixes the gap of its own group. The disparity of the attribute may be that of another value,
and what is dropped or flipped also moves attributes that the rule does not name; both are told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from feda4fair.columns import Value
from feda4fair.cube import Attribute, Cube
from feda4fair.errors import MeasureError
from feda4fair.rates import Against
from feda4fair.recipe import BiasRule

__all__ = ["By", "LabelPlan", "Shift", "Where", "plan_labels", "short_rate"]

By = Literal["drop", "flip"]
Where = Sequence[tuple[str, Value]]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SLACK = 1e-12
"""What rounding may do to a difference of two rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """Signed label gap of one value before and after a rule; NaN where undefined.

    ``exact`` is true for attributes that the rule names. For others the gap depends on which rows
    are drawn, and ``after`` is the gap of the expected counts.
    """

    attribute: str
    value: str
    before: float
    after: float
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan:
    """A rule that gives a group of one client a wanted label gap.

    Parameters
    ----------
    client : str
    rule : BiasRule
        With rates that come to exactly ``dropped`` and ``flipped`` rows.
    rows, positives : int
        Rows of the group, and those with the favorable label, before the rule.
    dropped, flipped : int
    against : {"rest", "pairs"}
    wanted, before, gap : float
        How far the group's rate was to lie, lay, and lies below that of all other rows (rest) or
        below the highest other rate (pairs).
    shifts : tuple of Shift
        Every value of the ruled attribute (or intersection), then of the others.
    compare : tuple of str
        Attributes that compete for the largest disparity; empty means all.
    """

    client: str
    rule: BiasRule
    rows: int
    positives: int
    dropped: int
    flipped: int
    against: Against
    wanted: float
    before: float
    gap: float
    shifts: tuple[Shift, ...]
    compare: tuple[str, ...] = ()

    @property
    def dominant(self) -> Shift:
        """The value with the largest disparity after the rule, a disadvantaged one on a tie."""
        ruled = self.shifts[0].attribute
        among = {*self.compare, ruled} if self.compare else {s.attribute for s in self.shifts}
        return max(
            (shift for shift in self.shifts if shift.attribute in among),
            key=lambda shift: (round(_size(shift.after, self.against), 12), -shift.after),
        )

    @property
    def note(self) -> str:
        """One sentence where a value other than the ruled one dominates; else empty."""
        found = self.dominant
        if _size(found.after, self.against) <= self.gap + SLACK:
            return ""
        sure = "a gap" if found.exact else "an expected gap"
        return (
            f"{self.client}: {found.attribute}={found.value} dominates with {sure} of "
            f"{found.after:+.3f}, larger than the {-self.gap:+.3f} of {self.rule.name}."
        )


def plan_labels(
    labels: Cube,
    client: str,
    where: Where,
    *,
    gap: float,
    by: By = "drop",
    beside: float = 0.0,
    against: Against = "rest",
    compare: Sequence[str] = (),
) -> LabelPlan:
    """Return the weakest rule that gives a group at least a wanted label gap.

    Parameters
    ----------
    labels : Cube
        Labels of all rows before injection, from :func:`feda4fair.measurement.count_labels`.
    client : str
    where : sequence of (attribute, value)
        The group; two entries name an intersection.
    gap : float in (0, 1]
        Wanted difference of rates: the group's below the other's.
    by : {"drop", "flip"}
        What is solved for.
    beside : float in [0, 1], default 0
        Rate of the other operation, held within one row. Drops come first, flips act on the
        survivors.
    against : {"rest", "pairs"}
        Below the rate of all other rows, or below the highest rate of another value. With pairs
        the gap is the disparity itself.
    compare : sequence of str, optional
        Attributes that compete for the largest disparity; all by default.

    Returns
    -------
    LabelPlan

    Raises
    ------
    MeasureError
        If no count of rows gives the gap; the sentence tells what can be reached.

    Examples
    --------
    >>> sex = np.repeat([1, 2], [100, 50])
    >>> income = np.r_[np.arange(100) < 60, np.arange(50) < 25]
    >>> labels = Cube.count(
    ...     clients=np.zeros(150, int),
    ...     client_names=["WY"],
    ...     attributes={"SEX": (sex, {1: "male", 2: "female"})},
    ...     y_true=income,
    ... )
    >>> plan = plan_labels(labels, "WY", [("SEX", "female")], gap=0.2)
    >>> plan.rule.drop, plan.dropped, round(plan.gap, 3)
    (0.38, 9, 0.21)
    """
    if not (0 < gap <= 1 and 0 <= beside <= 1):
        raise MeasureError(
            f"gap {gap} and beside {beside}: the gap must lie in (0, 1], the other rate in [0, 1]."
        )
    group = _Group.of(labels.select([client]), where)
    base, least = group.base(against)
    _check_reach(group, base, least, gap, by, beside)
    dropped, flipped = _solve(group, base - gap, by, beside)
    return LabelPlan(
        client=client,
        rule=BiasRule(
            where=tuple(where),
            drop=short_rate(dropped, group.positives),
            flip=short_rate(flipped, group.positives - dropped),
        ),
        rows=group.rows,
        positives=group.positives,
        dropped=dropped,
        flipped=flipped,
        against=against,
        wanted=gap,
        before=base - group.rate(0, 0),
        gap=base - group.rate(dropped, flipped),
        shifts=_shifts(labels.select([client]), group, dropped, flipped, against),
        compare=tuple(compare),
    )


def short_rate(count: int, size: int) -> float:
    """Return the shortest decimal rate with ``int(size * rate) == count``.

    ``count / size`` itself misses the count at times, since it may round down.

    Examples
    --------
    >>> int(22 * (15 / 22)), short_rate(15, 22)
    (14, 0.7)
    """
    if count in (0, size):
        return float(count > 0)
    middle = (count + 0.5) / size
    for digits in range(1, 17):
        rate = round(middle, digits)
        if int(size * rate) == count:
            return rate
    return middle


@dataclass(frozen=True, slots=True)
class _Group:
    """The ruled group: its cells in the joint counts, and its attribute with all values."""

    client: str
    attribute: Attribute
    value: int
    names: tuple[str, ...]
    cells: Bools
    support: Ints
    favorable: Ints

    @classmethod
    def of(cls, labels: Cube, where: Where) -> _Group:
        names = tuple(name for name, _ in where)
        part = labels.on(*names)
        attribute = part.attributes[0]
        place, size = 0, 1
        for name, value in reversed(list(where)):
            axis = labels.attribute(name)
            known = [*axis.values, *axis.codes]
            if value not in known:
                raise MeasureError(
                    f"{name}={value}: no such value; {name} has {', '.join(axis.values)}."
                )
            place += size * (known.index(value) % len(axis.values))
            size *= len(axis.values)
        counts = part.counts[0, :, :, 0]
        group = cls(
            labels.clients[0],
            attribute,
            place,
            names,
            _cells(labels, where),
            counts.sum(axis=1),
            counts[:, 1],
        )
        if not group.rows or group.rows == group.support.sum():
            missing = "other row" if group.rows else "row of this group"
            raise MeasureError(
                f"{group.client}, {group.name}: no gap can be had, since there is no {missing}."
            )
        return group

    @property
    def name(self) -> str:
        return f"{self.attribute.name}={self.attribute.values[self.value]}"

    @property
    def rows(self) -> int:
        return int(self.support[self.value])

    @property
    def positives(self) -> int:
        return int(self.favorable[self.value])

    def rate(self, dropped: int, flipped: int) -> float:
        return (self.positives - dropped - flipped) / (self.rows - dropped)

    def base(self, against: Against) -> tuple[float, float]:
        """Return the rate to lie below, and the smallest gap that is the one meant."""
        others = np.arange(len(self.support)) != self.value
        if against == "rest":
            return float(self.favorable[others].sum() / self.support[others].sum()), 0.0
        some = others & (self.support > 0)
        rates = self.favorable[some] / self.support[some]
        return float(rates.max()), float(rates.max() - rates.min())


def _solve(group: _Group, target: float, by: By, beside: float) -> tuple[int, int]:
    """Return drops and flips of the weakest rule that leaves at most the target rate.

    A flip rate beside drops is held within one row, since its own rounding moves the gap too.
    """
    rows, positives = group.rows, group.positives
    if by == "flip":
        dropped = int(positives * beside)
        exact = positives - dropped - target * (rows - dropped)
        tried = [(dropped, f) for f in _around(exact, positives - dropped)]
    else:
        left = 1 - beside - target
        exact = (positives * (1 - beside) - target * rows) / left if left > 0 else 0.0
        tried = [
            (k, f)
            for k in _around(exact, min(positives, rows - 1))
            for f in {int((positives - k) * beside), math.ceil((positives - k) * beside)}
        ]
    fit = [counts for counts in tried if group.rate(*counts) <= target + SLACK]
    return max(fit, key=lambda counts: (group.rate(*counts), counts))


def _around(exact: float, most: int) -> range:
    """Return the whole numbers about a count that is cut to 0 and the most there can be."""
    near = min(max(exact, 0.0), float(most))
    return range(max(0, math.floor(near) - 1), min(most, math.ceil(near) + 1) + 1)


def _check_reach(
    group: _Group, base: float, least: float, gap: float, by: By, beside: float
) -> None:
    """Refuse a gap that no counts give, and tell which ones there are."""
    positives = group.positives
    if by == "flip":
        dropped = int(positives * beside)
        weak, strong = (dropped, 0), (dropped, positives - dropped)
    else:
        most = min(positives, group.rows - 1)
        weak, strong = ((k, int((positives - k) * beside)) for k in (0, most))
    lowest, highest = base - group.rate(*weak), base - group.rate(*strong)
    beside_it = f" beside a {'drop' if by == 'flip' else 'flip'} rate of {beside:g}"
    how = f"{by}{beside_it if beside else ''}"
    if gap > highest + SLACK:
        raise MeasureError(
            f"{group.client}, {group.name}: a label gap of {gap:.3f} is out of reach, {how} gives "
            f"{max(highest, 0.0):.3f} at most."
        )
    if gap < lowest - SLACK:
        raise MeasureError(
            f"{group.client}, {group.name}: a label gap of {gap:.3f} is out of reach, {how} gives "
            f"{lowest:.3f} at least, since bias is only added."
        )
    if gap < least - SLACK:
        raise MeasureError(
            f"{group.client}, {group.name}: a label gap of {gap:.3f} is not the disparity of "
            f"{group.attribute.name}, since other values lie {least:.3f} apart; ask for more."
        )


def _cells(labels: Cube, where: Where) -> Bools:
    """Return which joint groups of a cube belong to a group."""
    sizes = [len(attribute.values) for attribute in labels.attributes]
    mask = np.ones(sizes, dtype=np.bool_)
    for name, value in where:
        axis = labels.attribute(name)
        place = [*axis.values, *axis.codes].index(value) % len(axis.values)
        along = labels.attributes.index(axis)
        shape = [1] * len(sizes)
        shape[along] = sizes[along]
        mask &= (np.arange(sizes[along]) == place).reshape(shape)
    return mask.reshape(-1)


def _shifts(
    labels: Cube, group: _Group, dropped: int, flipped: int, against: Against
) -> tuple[Shift, ...]:
    """Return the gaps of all values, from the counts as they are and as they are expected."""
    before = labels.counts[0, :, :, 0].astype(np.float64)
    after = before.copy()
    share = np.where(group.cells, before[:, 1], 0.0) / max(1, group.positives)
    after[:, 1] -= (dropped + flipped) * share
    after[:, 0] += flipped * share
    sizes = [len(attribute.values) for attribute in labels.attributes]
    order = [group.names, *((a.name,) for a in labels.attributes if (a.name,) != group.names)]
    shifts = []
    for names in order:
        axes = [labels.attributes.index(labels.attribute(name)) for name in names]
        attribute = Attribute.crossed([labels.attribute(name) for name in names])
        gaps = [_gaps(_onto(counts, sizes, axes), against) for counts in (before, after)]
        shifts += [
            Shift(
                attribute=attribute.name,
                value=value,
                before=float(old),
                after=float(new),
                exact=set(names) <= set(group.names),
            )
            for value, old, new in zip(attribute.values, *gaps, strict=True)
        ]
    return tuple(shifts)


def _onto(counts: Floats, sizes: list[int], axes: list[int]) -> Floats:
    """Sum joint counts of shape (G, 2) onto some attributes, crossed in the order given."""
    full = counts.reshape(*sizes, 2)
    moved = np.moveaxis(full, axes, range(len(axes)))
    summed: Floats = moved.sum(axis=tuple(range(len(axes), len(sizes))))
    return summed.reshape(-1, 2)


def _gaps(counts: Floats, against: Against) -> Floats:
    """Return each value's rate minus that of the rest, or minus the highest of the others."""
    rows, favorable = counts.sum(axis=1), counts[:, 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = favorable / rows
        if against == "rest":
            gaps: Floats = rates - (favorable.sum() - favorable) / (rows.sum() - rows)
            return gaps
    others = np.where(np.eye(len(rates), dtype=np.bool_) | (rows == 0), -np.inf, rates)
    highest = others.max(axis=1)
    return np.where(np.isfinite(highest), rates - highest, np.nan)


def _size(gap: float, against: Against) -> float:
    """Return the disparity that a signed gap stands for; of pairs only the lower end counts."""
    if math.isnan(gap):
        return -1.0
    return abs(gap) if against == "rest" else -gap
