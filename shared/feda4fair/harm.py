"""Which clients a method harms: two sets of predictions compared on the same rows.

Counts suffice here too. Rows of one client with the same group, label and two predictions are
alike, so resampling rows means resampling the counts of such cells. In the Poisson bootstrap each
row is drawn a Poisson(1) number of times, which makes a cell of n rows Poisson(n), independently
of all others: the cost does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from feda4fair import seeds
from feda4fair.cube import Attribute, Cube
from feda4fair.rates import Against, rates

__all__ = ["DRAWS", "Harm", "Key", "compare", "figures"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Measure = Literal["accuracy", "DD", "EOD"]
Key = tuple[Measure, str]

DRAWS = 1000
"""Resamples of a client's rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """One figure of a method minus that of a reference, client by client, on the same rows.

    Parameters
    ----------
    reference : str
        What the method is compared with, e.g. ``local`` or ``baseline``.
    figure : {"accuracy", "DD", "EOD"}
        What is compared.
    attribute : str
        Sensitive attribute; empty for accuracy.
    clients : tuple of str
        K names.
    rows : tuple of int
        Rows that both sets of predictions cover; 0 where they share none.
    difference, low, high : tuple of float or None
        Method minus reference, and the central 95 % of the paired bootstrap; None where the
        figure is undefined.
    """

    reference: str
    figure: Measure
    attribute: str
    clients: tuple[str, ...]
    rows: tuple[int, ...]
    difference: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]

    @property
    def verdicts(self) -> tuple[str, ...]:
        """What is said of each client: "harmed", "helped", "undecided" or "undefined".

        Harmed means more disparity, or less accuracy, both in the figure itself and over the
        whole interval; of clients without a true difference at most about 2.5 % are called
        harmed.
        """
        sign = -1 if self.figure == "accuracy" else 1

        def verdict(difference: float | None, low: float | None, high: float | None) -> str:
            if difference is None or low is None or high is None:
                return "undefined"
            least, most = sorted((sign * low, sign * high))
            if sign * difference > 0 and least > 0:
                return "harmed"
            return "helped" if sign * difference < 0 and most < 0 else "undecided"

        return tuple(map(verdict, self.difference, self.low, self.high))

    def share(self, verdict: str) -> float:
        """Return the share of clients of a verdict, among those that have the figure."""
        known = [found for found in self.verdicts if found != "undefined"]
        return known.count(verdict) / len(known) if known else float("nan")


def figures(cube: Cube, against: Against) -> dict[Key, Floats]:
    """Return accuracy, DD and EOD of every client of a cube with predictions.

    Returns
    -------
    dict of (figure, attribute) to ndarray of float64, shape (K,)
        NaN where a figure is undefined; the attribute of accuracy is "".
    """
    found: dict[Key, Floats] = {("accuracy", ""): cube.accuracy()}
    for attribute in cube.attributes:
        part = cube.on(attribute.name)
        sizes = {metric: rates(part, metric).size(against) for metric in ("DD", "TPR", "FPR")}
        found["DD", attribute.name] = sizes["DD"]
        found["EOD", attribute.name] = np.fmax(sizes["TPR"], sizes["FPR"])
    return found


def compare(
    counts: Ints,
    *,
    clients: Sequence[str],
    attributes: Sequence[Attribute],
    reference: str,
    against: Against,
    seed: int,
    scope: str,
) -> tuple[Harm, ...]:
    """Compare a method with a reference in every client.

    Parameters
    ----------
    counts : ndarray of int64, shape (K, G, 2, 2, 2)
        Rows by client, joint sensitive group, label, prediction of the method, prediction of the
        reference.
    clients : sequence of str, K names
    attributes : sequence of Attribute
        Their product, in row-major order, is the second axis.
    reference : str
        Name of the reference.
    against : {"rest", "pairs"}
        Definition of the disparities.
    seed : int
        Seed of the recipe; with ``scope`` (the config) and the client's name it keys the
        resamples, so that adding a client moves no other one.

    Returns
    -------
    tuple of Harm
        Accuracy first, then DD and EOD of each attribute.

    References
    ----------
    Efron and Tibshirani (1993), An introduction to the bootstrap. Hanley and MacGibbon (2006),
    Creating non-parametric bootstrap samples using Poisson frequencies.
    """
    axes = tuple(attributes)
    observed = _difference(counts, tuple(clients), axes, against)
    bounds: dict[Key, list[tuple[float, float]]] = {key: [] for key in observed}
    for name, cells in zip(clients, counts, strict=True):
        draws = _resample(cells, seed, scope, name)
        spread = _difference(draws, tuple(map(str, range(DRAWS))), axes, against)
        for key, values in spread.items():
            bounds[key].append(_central(values))
    rows = tuple(counts.sum(axis=(1, 2, 3, 4)).tolist())
    return tuple(
        Harm(
            reference=reference,
            figure=key[0],
            attribute=key[1],
            clients=tuple(clients),
            rows=rows,
            difference=_known(values),
            low=_known(np.array([low for low, _ in bounds[key]])),
            high=_known(np.array([high for _, high in bounds[key]])),
        )
        for key, values in observed.items()
    )


def _difference(
    counts: Ints, names: tuple[str, ...], attributes: tuple[Attribute, ...], against: Against
) -> Mapping[Key, Floats]:
    """Return every figure of the method minus that of the reference."""
    # Adding two slices is much faster than a sum over an axis of length two.
    method, reference = (
        figures(Cube(clients=names, attributes=attributes, counts=summed), against)
        for summed in (counts[..., 0] + counts[..., 1], counts[..., 0, :] + counts[..., 1, :])
    )
    return {key: method[key] - reference[key] for key in method}


def _resample(cells: Ints, seed: int, scope: str, client: str) -> Ints:
    """Return Poisson resamples of one client's cells, shape (DRAWS, G, 2, 2, 2)."""
    flat = cells.ravel()
    unit = seeds.uniforms(seed, "harm", scope, client, size=flat.size * DRAWS)
    drawn = np.zeros((flat.size, DRAWS), dtype=np.int64)
    for cell in np.flatnonzero(flat):
        first, table = _cumulative(int(flat[cell]))
        part = unit[cell * DRAWS : (cell + 1) * DRAWS]
        drawn[cell] = first + np.searchsorted(table, part, side="right")
    return np.ascontiguousarray(drawn.T).reshape(DRAWS, *cells.shape)


@lru_cache(maxsize=1024)
def _cumulative(mean: int) -> tuple[int, Floats]:
    """Return the first count of a table, and P(count <= first, first + 1, ...) from there on.

    What lies beyond ten standard deviations is never drawn.
    """
    reach = int(10 * np.sqrt(mean)) + 10
    first = max(0, mean - reach)
    table = np.asarray(pdtr(np.arange(first, mean + reach), float(mean)), dtype=np.float64)
    return first, table


def _central(values: Floats) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, (0.025, 0.975))
    return float(low), float(high)


def _known(values: Floats) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(value) else float(value) for value in values)
