"""How much the clients of a federation disagree, each figure beside its null.

H1
    Spread of the signed gaps between clients: tau and I2 of each value.
H2
    Value conflict: the chance that two clients differ in their worst value.
H3
    Attribute conflict: the same for the dominant attribute, among clients where it is decided.
H4
    Kitagawa's decomposition of the pooled gap, and how much of it cancels between clients.
H5
    Agreement: the mean pairwise cosine of the signed gap vectors.
skew
    Jensen-Shannon distance of the clients' Y, Z and (Y, Z) from the pooled one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feda4fair.cube import Cube
from feda4fair.disagreement import (
    agreement,
    attribute_conflict,
    gap_spread,
    kitagawa,
    skew,
    value_conflict,
)
from feda4fair.homogeneous import dealt_rows, homogeneous_draws
from feda4fair.rates import Metric, Outcome, Rates, rates, strata
from feda4fair.uncertainty import contrast

__all__ = ["Spread", "heterogeneity"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One heterogeneity figure beside its null.

    Parameters
    ----------
    figure : str
        ``"H1 tau"``, ``"H1 I2"``, ``"H2 value conflict"``, ``"H3 attribute conflict"``,
        ``"H3 mean contrast"``, ``"H4 pooled gap"``, ``"H4 within"``, ``"H4 between"``,
        ``"H4 cancellation"``, ``"H5 agreement"`` or ``"skew"``.
    attribute : str
        Attribute, or what the figure compares.
    value : str or None
        Value, for figures that have one of each.
    estimate : float or None
        The figure; None when undefined.
    null, null_low, null_high : float or None
        Mean and central 95 % of the figure in federations without heterogeneity.
    clients : int
        Clients that enter.
    """

    figure: str
    attribute: str
    value: str | None
    estimate: float | None
    null: float | None
    null_low: float | None
    null_high: float | None
    clients: int


def heterogeneity(
    cube: Cube, metric: Metric = "DD", *, compare: Sequence[str] = ()
) -> tuple[Spread, ...]:
    """Return H1 to H5 and the skew of a federation, each beside its null.

    The null of H1, H2, H4 and H5 redraws every client from a logit model with a client and a value
    effect; that of H3 from the same model over joint groups; that of the skew deals the pooled
    rows out at random. All are deterministic.

    Parameters
    ----------
    cube : Cube
        Joint counts.
    metric : {"DD", "TPR", "FPR"}
        Whose gaps.
    compare : sequence of str
        Attributes whose conflict is H3; all by default.

    Returns
    -------
    tuple of Spread
    """
    names = tuple(attribute.name for attribute in cube.attributes)
    contenders = tuple(compare) or names
    found: list[Spread] = []
    for name in names:
        found += _of_attribute(rates(cube.on(name), metric))
    if len(contenders) > 1:
        found += _of_contrast(cube, contenders, metric)
    return (*found, *_of_skew(cube, names))


def _of_attribute(part: Rates) -> list[Spread]:
    name, values = part.attribute.name, part.attribute.values
    draws = homogeneous_draws(part.support, part.positives, name, part.metric)
    nulls = [replace(part, positives=positives) for positives in draws]
    clients = part.defined.sum(axis=0)
    anywhere = int(part.defined.any(axis=1).sum())
    found: list[Spread] = []

    def each_value(
        figures: tuple[str, ...], function: Callable[[Rates], tuple[Floats, ...]]
    ) -> None:
        null = np.array([function(draw) for draw in nulls])
        for f, figure in enumerate(figures):
            estimates = function(part)[f]
            found.extend(
                _spread(figure, name, value, estimates[z], null[:, f, z], int(clients[z]))
                for z, value in enumerate(values)
            )

    each_value(("H1 tau", "H1 I2"), gap_spread)
    null = np.array([value_conflict(draw) for draw in nulls])
    found.append(_spread("H2 value conflict", name, None, value_conflict(part), null, anywhere))
    each_value(("H4 pooled gap", "H4 within", "H4 between", "H4 cancellation"), kitagawa)
    null = np.array([agreement(draw) for draw in nulls])
    return [*found, _spread("H5 agreement", name, None, agreement(part), null, anywhere)]


def _of_contrast(cube: Cube, names: tuple[str, ...], metric: Metric) -> list[Spread]:
    kind: Outcome = "prediction" if cube.has_predictions else "label"
    support, positives = strata(cube.counts, metric, kind)
    draws = homogeneous_draws(support, positives, *names, metric)
    observed = contrast(cube, names, metric)
    null = np.array(
        [attribute_conflict(contrast(_labeled(cube, support, d), names)) for d in draws]
    )
    label = " vs ".join(names)
    counted = (int(observed.decided.sum()), int((observed.leader >= 0).sum()))
    figures = ("H3 attribute conflict", "H3 mean contrast")
    return [
        _spread(figure, label, None, estimate, null[:, i], counted[i])
        for i, (figure, estimate) in enumerate(
            zip(figures, attribute_conflict(observed), strict=True)
        )
    ]


def _labeled(cube: Cube, support: Ints, positives: Ints) -> Cube:
    """Return a cube whose labels are the drawn outcomes, to measure it like an observed one."""
    counts = np.stack([support - positives, positives], axis=2)[..., None]
    return Cube(clients=cube.clients, attributes=cube.attributes, counts=counts)


def _of_skew(cube: Cube, names: tuple[str, ...]) -> list[Spread]:
    labels = cube.counts.sum(axis=(1, 3))
    found = [_skew_of(labels, "label")]
    for name in names:
        cells = cube.on(name).counts.sum(axis=3)
        found.append(_skew_of(cells.sum(axis=2), name))
        found.append(_skew_of(cells.reshape(len(cells), -1), f"(label, {name})"))
    return found


def _skew_of(counts: Ints, label: str) -> Spread:
    rows = counts.sum(axis=1)
    share = counts.sum(axis=0) / max(int(rows.sum()), 1)
    null = np.array([skew(draw) for draw in dealt_rows(rows, share, "skew", label)])
    return _spread("skew", label, None, skew(counts), null, int((rows > 0).sum()))


def _spread(
    figure: str, attribute: str, value: str | None, estimate: float, null: Floats, clients: int
) -> Spread:
    known = null[~np.isnan(null)]
    mean, low, high = (
        (known.mean(), *np.quantile(known, [0.025, 0.975])) if len(known) else (None, None, None)
    )

    def number(x: Any) -> float | None:
        return None if x is None or np.isnan(x) else float(x)

    return Spread(
        figure=figure,
        attribute=attribute,
        value=value,
        estimate=number(estimate),
        null=number(mean),
        null_low=number(low),
        null_high=number(high),
        clients=clients,
    )
