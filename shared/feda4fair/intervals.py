"""Score intervals of rates, of their differences, and of the difference of two gaps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from feda4fair.rates import Rates

__all__ = ["gap_intervals", "minimum_detectable_gap", "wilson", "worst_set"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def wilson(positives: Ints, support: Ints, z: Floats | float) -> tuple[Floats, Floats]:
    r"""Return Wilson's score interval of a rate.

    .. math::
        \frac{a + z^2 / 2 \pm z \sqrt{a (n - a) / n + z^2 / 4}}{n + z^2}

    Parameters
    ----------
    positives, support : ndarray of int
        a and n; without rows the interval is [0, 1].
    z : ndarray of float64 or float
        Normal quantile of the level, broadcast against them.

    Returns
    -------
    low, high : ndarray of float64

    References
    ----------
    Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    n = np.asarray(support, dtype=np.float64)
    a = np.asarray(positives, dtype=np.float64)
    squared = np.square(z)
    half = z * np.sqrt(a * (n - a) / np.maximum(n, 1) + squared / 4)
    center, scale = a + squared / 2, n + squared
    return np.maximum(0, (center - half) / scale), np.minimum(1, (center + half) / scale)


def gap_intervals(part: Rates, alpha: Floats) -> tuple[Floats, Floats]:
    r"""Return intervals of the signed gaps that hold for all values of a client together.

    Newcombe's hybrid score interval of ``rate - rest_rate`` at level
    :math:`1 - \alpha_k / m_k`, where :math:`m_k` is the number of values of client k that have a
    gap (two values count once):

    .. math::
        L = d - \sqrt{(r - l_r)^2 + (u_s - s)^2}, \quad U = d + \sqrt{(u_r - r)^2 + (s - l_s)^2}

    Parameters
    ----------
    part : Rates
        Rates r of the values and s of their rests.
    alpha : ndarray of float64, shape (K,)
        Simultaneous error of each client.

    Returns
    -------
    low, high : ndarray of float64, shape (K, V)
        NaN where there is no gap.

    References
    ----------
    Newcombe (1998), Interval estimation for the difference between independent proportions,
    method 10. Benjamini and Yekutieli (2005), False discovery rate-adjusted multiple confidence
    intervals.
    """
    z = _quantile(alpha[:, None] / (2 * family_size(part)))
    rate, rest, gap = part.rate(), part.rest_rate(), part.gap()
    low_r, high_r = wilson(part.positives, part.support, z)
    low_s, high_s = wilson(part.total_positives - part.positives, part.total - part.support, z)
    low = gap - np.sqrt(np.square(rate - low_r) + np.square(high_s - rest))
    high = gap + np.sqrt(np.square(high_r - rate) + np.square(rest - low_s))
    return low, high


def _quantile(tail: Floats) -> Floats:
    """Return the upper normal quantile, rounded so that platforms agree on every figure."""
    upper: Floats = np.round(-ndtri(tail), 10)
    return upper


def family_size(part: Rates) -> Ints:
    """Return how many different tests each client's values make, shape (K, 1), at least 1."""
    count = part.defined.sum(axis=1, keepdims=True)
    return np.where(count == 2, 1, np.maximum(count, 1))


def worst_set(part: Rates, z: float = 1.96) -> Bools:
    r"""Return the values that cannot be told from the worst one.

    V is the value with the lowest signed gap. For another value W,
    :math:`D = gap_W - gap_V = \sum_u c_u r_u` is a contrast of all rates: in :math:`gap_t`,
    :math:`c_t = 1` and :math:`c_u = -n_u / (N - n_t)`. W is in the set when the lower bound

    .. math::
        D - \sqrt{\sum_u \begin{cases} c_u^2 (r_u - l_u)^2 & c_u > 0 \\
                                       c_u^2 (u_u - r_u)^2 & c_u < 0 \end{cases}}

    with Wilson limits :math:`l_u, u_u` is not above 0. V alone is named only when it is worse
    than every other value, an intersection-union test that needs no further correction.

    Parameters
    ----------
    part : Rates
        Rates of the values.
    z : float
        Normal quantile of the Wilson limits.

    Returns
    -------
    ndarray of bool, shape (K, V)
        Contains V; empty for a client without a gap.

    References
    ----------
    Zou and Donner (2008), Construction of confidence limits about effect measures (MOVER). Berger
    (1982), Multiparameter hypothesis testing and acceptance sampling.
    """
    gap, defined = part.gap(), part.defined
    rate = np.where(part.support > 0, part.rate(), 0.0)
    low, high = wilson(part.positives, part.support, z)
    rows = np.arange(len(gap))
    v = rows, np.where(defined, gap, np.inf).argmin(axis=1)

    rest = np.where(defined, part.total - part.support, 1).astype(np.float64)
    rest_v = rest[v][:, None]
    own = (1 + part.support / rest_v) * (rate - low)
    other = (1 + part.support[v][:, None] / rest) * (high - rate)[v][:, None]
    # Every third value u enters with c_u = n_u (1 / rest_v - 1 / rest_w): one sign for all u.
    factor = 1 / rest_v - 1 / rest
    thirds = np.where(
        factor > 0,
        _sum_of_others(part.support * (rate - low), v),
        _sum_of_others(part.support * (high - rate), v),
    )
    bound = gap - gap[v][:, None] - np.sqrt(own**2 + other**2 + factor**2 * thirds)
    chosen: Bools = defined & ~(bound > 0)
    chosen[v] = defined[v]
    return chosen


def _sum_of_others(terms: Floats, v: tuple[Ints, Ints]) -> Floats:
    """Return the sum of squares over all values but V and the column's own."""
    squares = terms**2
    total = squares.sum(axis=1, keepdims=True)
    others: Floats = total - squares - squares[v][:, None]
    return np.maximum(0, others)


def minimum_detectable_gap(
    part: Rates, testable: Bools, *, alpha: float = 0.05, power: float = 0.8
) -> Floats:
    r"""Return the gap that the test of a value would find with a given power.

    .. math::
        (z_{1 - \alpha / 2m} + z_{power}) \sqrt{\bar p (1 - \bar p) (1 / n_z + 1 / (N - n_z))}

    with :math:`\bar p` the client's rate. A normal approximation: it says what a client is too
    small to show, not what it shows.

    Parameters
    ----------
    part : Rates
        Rates of the values.
    testable : ndarray of bool, shape (K, V)
        Values that could be significant at all.
    alpha, power : float
        Error over the client's m values, and power.

    Returns
    -------
    ndarray of float64, shape (K, V)
        NaN where no gap up to 1 would be found.

    References
    ----------
    Bloom (1995), Minimum detectable effects.
    """
    n, total = part.support, np.maximum(part.total, 1)
    share = part.total_positives / total
    quantile = _quantile(alpha / (2 * family_size(part))) + _quantile(np.array(1 - power))
    where = part.defined & testable
    variance = (
        share * (1 - share) * (1 / np.where(where, n, 1) + 1 / np.where(where, total - n, 1))
    )
    gap = quantile * np.sqrt(variance)
    return np.where(where & (gap <= 1), gap, np.nan)
