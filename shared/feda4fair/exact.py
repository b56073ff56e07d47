"""Exact tests of a gap, and the corrections that many tests need.

Nothing here is simulated, so nothing has a seed; probabilities are sums and products of ratios in
a fixed order, without special functions, so that they come out the same on every platform.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["benjamini_hochberg", "hypergeometric_midp", "tarone_holm"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

TINY = 1e-300
"""Smallest p-value that is told apart from zero."""

# A hypergeometric weight this many standard deviations from the mode is below TINY.
_REACH = 38
_BLOCK = 1 << 21


def hypergeometric_midp(
    total: NDArray[Any], ones: NDArray[Any], drawn: NDArray[Any], hits: NDArray[Any]
) -> tuple[Floats, Floats]:
    r"""Return two-sided mid-p values, and the smallest that could have come out.

    Under no disparity, given the margins, :math:`X \sim \text{Hypergeometric}(N, A, n)` and

    .. math:: p = \min(1, 2 \min(P(X < a) + P(X = a) / 2, P(X > a) + P(X = a) / 2))

    Parameters
    ----------
    total, ones : ndarray of int, shape (t,)
        Rows N of a client, and the positive ones A among them.
    drawn, hits : ndarray of int, shape (t,)
        Rows n of one value, and the positive ones a among them.

    Returns
    -------
    p : ndarray of float64, shape (t,)
        Mid-p values, not below 1e-300.
    least : ndarray of float64, shape (t,)
        Smallest attainable p given the margins: the probability of the less likely end.

    References
    ----------
    Lancaster (1961), Significance tests in discrete distributions. Agresti (2001), Exact
    inference for categorical data.

    Examples
    --------
    >>> p, least = hypergeometric_midp(*np.array([[8], [4], [4], [4]]))
    >>> p.round(6).tolist(), least.round(6).tolist()
    ([0.014286], [0.014286])
    """
    margins = np.array([total, ones, drawn, hits], dtype=np.float64)
    n_all, n_ones, n_drawn, _ = margins
    share = n_ones / n_all
    spread = np.sqrt(n_drawn * share * (1 - share) * (n_all - n_drawn) / np.maximum(n_all - 1, 1))
    width = np.minimum(n_drawn, n_ones) - np.maximum(0, n_drawn + n_ones - n_all)
    reach = np.minimum(np.ceil(_REACH * spread) + 60, width + 1).astype(np.int64)

    p, least = np.ones(len(reach)), np.ones(len(reach))
    order = np.argsort(reach, kind="stable")
    start = 0
    while start < len(order):
        # Reaches ascend, so a block is as wide as its last test.
        sizes = reach[order[start:]] * np.arange(1, len(order) - start + 1)
        stop = start + max(1, int(np.searchsorted(sizes, _BLOCK, side="right")))
        block = order[start:stop]
        p[block], least[block] = _midp_block(margins[:, block], int(reach[block[-1]]))
        start = stop
    return p, least


def _midp_block(margins: Floats, reach: int) -> tuple[Floats, Floats]:
    n_all, n_ones, n_drawn, hits = margins
    low = np.maximum(0, n_drawn + n_ones - n_all)
    high = np.minimum(n_drawn, n_ones)
    mode = np.floor((n_drawn + 1) * (n_ones + 1) / (n_all + 2))
    step = np.arange(reach)[None, :]
    ones, drawn, mode_ = n_ones[:, None], n_drawn[:, None], mode[:, None]
    rest = (n_all - n_ones - n_drawn)[:, None]

    x = mode_ - step
    below = np.cumprod(x * (rest + x) / ((ones - x + 1) * (drawn - x + 1)), axis=1)
    x = mode_ + step
    above = np.cumprod((ones - x) * (drawn - x) / ((x + 1) * (rest + x + 1)), axis=1)
    beyond_below, beyond_above = _tails(below), _tails(above)
    whole = 1 + beyond_below[:, 0] + beyond_above[:, 0]

    down = hits < mode
    distance = np.abs(hits - mode)
    weight = np.where(down, _pick(below, distance), _pick(above, distance))
    tail = np.where(
        down, _pick(beyond_below, distance + 1, 0), _pick(beyond_above, distance + 1, 0)
    )
    near = (tail + weight / 2) / whole
    p = np.minimum(1, 2 * np.minimum(near, 1 - near))
    ends = np.minimum(_pick(below, mode - low), _pick(above, high - mode)) / whole
    return np.maximum(p, TINY), np.maximum(ends, TINY)


def _tails(weights: Floats) -> Floats:
    """Return at column j the sum of columns j and beyond, added from the smallest."""
    return np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]


def _pick(weights: Floats, distance: Floats, at_mode: float = 1.0) -> Floats:
    """Return the weight at a distance from the mode; columns start at distance 1."""
    steps = distance.astype(np.int64)
    column = np.clip(steps - 1, 0, weights.shape[1] - 1)
    picked = weights[np.arange(len(weights)), column]
    return np.where(steps == 0, at_mode, np.where(steps > weights.shape[1], 0.0, picked))


def tarone_holm(p: Floats, least: Floats, *, alpha: float = 0.05) -> tuple[Floats, Bools]:
    r"""Return p-values adjusted over the values of each client that could be significant.

    With :math:`p^*_z` the smallest attainable p, m is the smallest integer with
    :math:`\#\{z: p^*_z \le \alpha / m\} \le m`; these values are kept, and Holm's step-down runs
    over them. A value too small to ever reach significance costs the others nothing, which
    replaces a minimum group size. Two values are two views of one test and count once.

    Parameters
    ----------
    p, least : ndarray of float64, shape (K, V)
        From :func:`hypergeometric_midp`; NaN where a value has no gap.
    alpha : float
        Level for which values are kept.

    Returns
    -------
    adjusted : ndarray of float64, shape (K, V)
        1 for values that are not kept, NaN where there is no gap.
    kept : ndarray of bool, shape (K, V)
        Values that could be significant.

    References
    ----------
    Tarone (1990), A modified Bonferroni method for discrete data. Holm (1979), A simple
    sequentially rejective multiple test procedure.
    """
    known = ~np.isnan(p)
    two = known.sum(axis=1) == 2
    family = known.copy()
    rows = np.arange(len(p))
    last = p.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    family[rows[two], last[two]] = False

    reachable = np.where(family, least, np.inf)
    m = np.zeros(len(p), dtype=np.int64)
    for size in range(1, p.shape[1] + 1):
        fits = (reachable <= alpha / size).sum(axis=1) <= size
        m[(m == 0) & fits] = size
    kept: Bools = reachable <= alpha / np.maximum(m, 1)[:, None]

    order = np.argsort(np.where(kept, p, np.inf), axis=1, kind="stable")
    ranked = np.take_along_axis(np.where(kept, p, 1.0), order, axis=1)
    left = np.maximum(kept.sum(axis=1)[:, None] - np.arange(p.shape[1]), 1)
    stepped = np.maximum.accumulate(np.minimum(1, ranked * left), axis=1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, stepped, axis=1)
    adjusted = np.where(kept, adjusted, 1.0)

    first = known.argmax(axis=1)
    for target in (adjusted, kept):
        target[rows[two], last[two]] = target[rows[two], first[two]]
    return np.where(known, adjusted, np.nan), kept


def benjamini_hochberg(p: Floats, *, q: float = 0.05) -> tuple[Bools, float]:
    """Return which clients are detected at false discovery rate q, and the level inside them.

    Parameters
    ----------
    p : ndarray of float64, shape (K,)
        One p-value for each client; NaN where nothing could be tested, which leaves the family.
    q : float
        False discovery rate over clients.

    Returns
    -------
    detected : ndarray of bool, shape (K,)
    level : float
        ``R q / K`` with R detected among K tested clients: the level at which the values inside
        a detected client are tested. 0 when no client is detected.

    References
    ----------
    Benjamini and Hochberg (1995), Controlling the false discovery rate. Benjamini and Bogomolov
    (2014), Selective inference on multiple families of hypotheses.

    Examples
    --------
    >>> detected, level = benjamini_hochberg(np.array([0.001, 0.02, 0.8, np.nan]))
    >>> detected.tolist(), round(level, 6)
    ([True, True, False, False], 0.033333)
    """
    tested = np.sort(p[~np.isnan(p)])
    if not len(tested):
        return np.zeros(len(p), dtype=np.bool_), 0.0
    below = np.flatnonzero(tested <= q * np.arange(1, len(tested) + 1) / len(tested))
    found = int(below[-1]) + 1 if len(below) else 0
    level = q * found / len(tested)
    detected: Bools = p <= level
    return detected & (found > 0), level
