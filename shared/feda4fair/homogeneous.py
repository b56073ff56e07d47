"""What a federation without heterogeneity would look like: fitted, then redrawn.

Small clients differ by chance alone. Each heterogeneity figure is therefore shown beside the same
figure of federations drawn from a model in which every client treats every value alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from feda4fair import seeds

__all__ = ["additive_logit", "dealt_rows", "draw_count", "homogeneous_draws"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SEED = 0
_BUDGET = 400_000
_FARTHEST = 30.0


def draw_count(cells: int) -> int:
    """Return how many federations to draw: 200, fewer where there are many cells, at least 20."""
    return max(20, min(200, _BUDGET // max(cells, 1)))


def additive_logit(support: Ints, positives: Ints) -> Floats:
    r"""Fit :math:`\text{logit} P(y = 1) = \alpha_k + \beta_z` and return the fitted rates.

    Parameters
    ----------
    support, positives : ndarray of int64, shape (K, V)
        Rows of client k and value z, and the positive ones.

    Returns
    -------
    ndarray of float64, shape (K, V)
        Maximum-likelihood rates. A client or value of one class gets its rate, 0 or 1, to 1e-12.

    Notes
    -----
    Newton steps alternate between the clients and the values, which both have a diagonal Hessian;
    no step is longer than 2.
    """
    client, value = np.zeros((len(support), 1)), np.zeros((1, support.shape[1]))
    tolerance = 1e-7 * max(1, int(support.sum()))
    rate = expit(client + value)
    for _ in range(500):
        score = 0.0
        for axis, effect in ((1, client), (0, value)):
            residual = (positives - support * rate).sum(axis=axis, keepdims=True)
            weight = (support * rate * (1 - rate)).sum(axis=axis, keepdims=True)
            step = np.clip(residual / np.maximum(weight, 1e-9), -2, 2)
            effect[...] = np.clip(effect + step, -_FARTHEST, _FARTHEST)
            rate = expit(client + value)
            score += float(np.abs(residual).sum())
        if score < tolerance:
            break
    return rate


def homogeneous_draws(support: Ints, positives: Ints, *names: str) -> Ints:
    """Draw positives of federations in which every client treats every value alike.

    A parametric bootstrap: the additive logit model is fitted, and each cell redrawn as a
    binomial with its rows held fixed, by the inverse CDF on the stream of the names.

    Parameters
    ----------
    support, positives : ndarray of int64, shape (K, V)
        Observed counts.
    *names : str
        Key of the stream, such as the attribute and the metric.

    Returns
    -------
    ndarray of int64, shape (B, K, V)
        B from :func:`draw_count`.

    References
    ----------
    Efron and Tibshirani (1993), An introduction to the bootstrap, chapter 6.
    """
    rate = additive_logit(support, positives)
    shape = (draw_count(support.size), *support.shape)
    return _binomials(support, rate, shape, *names)


def dealt_rows(rows: Ints, share: Floats, *names: str) -> Ints:
    """Draw clients whose rows are dealt from the pooled distribution.

    Parameters
    ----------
    rows : ndarray of int64, shape (K,)
        Rows of each client.
    share : ndarray of float64, shape (C,)
        Pooled distribution over C cells.
    *names : str
        Key of the stream.

    Returns
    -------
    ndarray of int64, shape (B, K, C)
        Multinomial counts, drawn one conditional binomial after another.
    """
    draws = draw_count(len(rows) * len(share))
    left = np.broadcast_to(rows, (draws, len(rows))).copy()
    after = np.cumsum(share[::-1])[::-1]
    counts = np.empty((draws, len(rows), len(share)), dtype=np.int64)
    for cell, (own, remaining) in enumerate(zip(share, after, strict=True)):
        chance = np.array(min(1.0, own / remaining) if remaining > 0 else 0.0)
        last = cell == len(share) - 1
        drawn = left if last else _binomials(left, chance, left.shape, *names, str(cell))
        counts[:, :, cell] = drawn
        left = left - drawn
    return counts


def _binomials(trials: Ints, rate: Floats, shape: tuple[int, ...], *names: str) -> Ints:
    from scipy.stats import binom  # here, because it takes half a second to load

    uniform = seeds.uniforms(_SEED, "homogeneous", *names, size=int(np.prod(shape)))
    # The inverse CDF at exactly 0 is -1; half a cell of the 53-bit grid is safely inside.
    drawn = binom.ppf(uniform.reshape(shape) + 2.0**-54, trials, rate)
    return np.asarray(drawn, dtype=np.int64)
