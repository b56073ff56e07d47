"""How much clients disagree: the formulas of the heterogeneity figures.

Each takes the counts of all clients and returns numbers; :mod:`feda4fair.heterogeneity` puts them
beside their nulls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feda4fair.rates import Rates
from feda4fair.uncertainty import Contrast

__all__ = [
    "agreement",
    "attribute_conflict",
    "gap_spread",
    "kitagawa",
    "skew",
    "value_conflict",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def gap_spread(part: Rates) -> tuple[Floats, Floats]:
    r"""Return tau and I2 of each value's signed gap across clients.

    With weights :math:`w_k = 1 / v_k`, :math:`Q = \sum w_k (g_k - \bar g_w)^2` and
    :math:`c = \sum w_k - \sum w_k^2 / \sum w_k`,

    .. math:: \tau^2 = \max(0, (Q - (K - 1)) / c), \qquad I^2 = \max(0, (Q - (K - 1)) / Q)

    where :math:`v_k` is the binomial variance of the gap with half a success and half a failure
    added to each rate, so that a rate of 0 or 1 is not taken for certain.

    Parameters
    ----------
    part : Rates
        Rates of all clients.

    Returns
    -------
    tau, i2 : ndarray of float64, shape (V,)
        NaN for a value with a gap in fewer than two clients.

    References
    ----------
    DerSimonian and Laird (1986), Meta-analysis in clinical trials. Higgins and Thompson (2002),
    Quantifying heterogeneity in a meta-analysis.
    """
    gap, defined = part.gap(), part.defined
    rest = part.total - part.support
    variance = _variance(part.positives, part.support) + _variance(
        part.total_positives - part.positives, rest
    )
    weight = np.where(defined, 1 / variance, 0.0)
    gap = np.where(defined, gap, 0.0)
    clients = defined.sum(axis=0)
    total = np.maximum(weight.sum(axis=0), np.finfo(float).tiny)
    center = (weight * gap).sum(axis=0) / total
    q = (weight * np.square(gap - center)).sum(axis=0)
    excess = np.maximum(0, q - (clients - 1))
    scale = total - np.square(weight).sum(axis=0) / total
    enough = clients >= 2
    tau = np.sqrt(_ratio(excess, scale, enough))
    return tau, np.where(enough, _ratio(excess, q, enough & (q > 0), otherwise=0.0), np.nan)


def value_conflict(part: Rates) -> float:
    r"""Return the chance that two random clients differ in their worst value.

    .. math:: C = 1 - \sum_v \pi_v^2

    with :math:`\pi_v` the share of clients whose lowest signed gap is that of v; tied values
    share a client.

    Parameters
    ----------
    part : Rates
        Rates of all clients; those without a gap are left out.

    Returns
    -------
    float
        NaN without any client.

    References
    ----------
    Simpson (1949), Measurement of diversity.
    """
    worst = part.worst()
    some = worst[worst.any(axis=1)]
    if not len(some):
        return float("nan")
    share = (some / some.sum(axis=1, keepdims=True)).mean(axis=0)
    return float(1 - np.square(share).sum())


def attribute_conflict(found: Contrast) -> tuple[float, float]:
    """Return the chance that two decided clients differ in their dominant attribute.

    Parameters
    ----------
    found : Contrast
        Dominant attributes; see :func:`feda4fair.uncertainty.contrast`.

    Returns
    -------
    conflict : float
        ``1 - sum pi_a^2`` over the decided clients; NaN when none is.
    mean_contrast : float
        Mean lead ``|D|`` over all clients that have one.
    """
    leads = found.difference[~np.isnan(found.difference)]
    mean = float(leads.mean()) if len(leads) else float("nan")
    leaders = found.leader[found.decided]
    if not len(leaders):
        return float("nan"), mean
    share = np.bincount(leaders) / len(leaders)
    return float(1 - np.square(share).sum()), mean


def kitagawa(part: Rates) -> tuple[Floats, Floats, Floats, Floats]:
    r"""Decompose each value's pooled gap into what happens within and between clients.

    With :math:`w_{kz} = n_{kz} / n_z` the share of the value's rows that client k holds,
    :math:`w_{kr}` the same of the rest, and :math:`\omega_k = (w_{kz} + w_{kr}) / 2`,

    .. math::
        gap = \sum_k \omega_k g_k + \sum_k (w_{kz} - w_{kr}) (r_{kz} + r_{kr}) / 2, \qquad
        cancellation = 1 - |\sum_k \omega_k g_k| / \sum_k \omega_k |g_k|

    Cancellation near 1 is the illusion of fairness: clients are biased, the federation is not.
    It is 0 when all clients' gaps have one sign, as in every configuration of the paper with
    binary attributes. A client without rows on one side counts as having the other side's rate.

    Parameters
    ----------
    part : Rates
        Rates of all clients.

    Returns
    -------
    gap, within, between, cancellation : ndarray of float64, shape (V,)
        NaN for a value without rows, or without any other row, in the whole federation.

    References
    ----------
    Kitagawa (1955), Components of a difference between two rates.
    """
    n, a = part.support, part.positives
    m, b = part.total - n, part.total_positives - a
    n_all, m_all = n.sum(axis=0), m.sum(axis=0)
    known = (n_all > 0) & (m_all > 0)
    inside, outside = _ratio(a, n, n > 0), _ratio(b, m, m > 0)
    inside = np.where(n > 0, inside, np.where(m > 0, outside, 0.0))
    outside = np.where(m > 0, outside, inside)
    w_in, w_out = n / np.maximum(n_all, 1), m / np.maximum(m_all, 1)
    parts = (w_in + w_out) / 2 * (inside - outside)
    within = np.where(known, parts.sum(axis=0), np.nan)
    shift = ((w_in - w_out) * (inside + outside) / 2).sum(axis=0)
    between = np.where(known, shift, np.nan)
    size = np.abs(parts).sum(axis=0)
    cancellation = 1 - _ratio(np.abs(within), size, known & (size > 0))
    return within + between, within, between, cancellation


def agreement(part: Rates) -> float:
    r"""Return the mean pairwise cosine of the clients' signed gap vectors.

    .. math:: (|\sum_k u_k|^2 - K) / (K (K - 1)), \qquad u_k = g_k / |g_k|

    1 when all clients disadvantage the same values alike, -1 for two opposed clients. A value
    that a client lacks counts as 0; clients without any gap are left out.

    Parameters
    ----------
    part : Rates
        Rates of all clients.

    Returns
    -------
    float
        NaN with fewer than two clients.
    """
    gap = np.nan_to_num(part.gap(), nan=0.0)
    length = np.sqrt(np.square(gap).sum(axis=1, keepdims=True))
    unit = gap[length[:, 0] > 0] / length[length[:, 0] > 0]
    clients = len(unit)
    if clients < 2:
        return float("nan")
    return float((np.square(unit.sum(axis=0)).sum() - clients) / (clients * (clients - 1)))


def skew(counts: Ints) -> float:
    r"""Return the mean Jensen-Shannon distance of the clients from the pooled rows.

    With P a client's distribution over cells, Q the pooled one and M their mean,
    :math:`\sqrt{(KL(P, M) + KL(Q, M)) / 2}` in bits: 0 for equal, 1 for disjoint distributions.

    Parameters
    ----------
    counts : ndarray of int64, shape (K, C)
        Rows of each client in each cell; clients without rows are left out.

    Returns
    -------
    float
        NaN without rows.

    References
    ----------
    Lin (1991), Divergence measures based on the Shannon entropy.
    """
    rows = counts.sum(axis=1, keepdims=True)
    own = counts[rows[:, 0] > 0] / rows[rows[:, 0] > 0]
    if not len(own):
        return float("nan")
    pooled = (counts.sum(axis=0) / rows.sum())[None, :]
    middle = (own + pooled) / 2
    divergence = _entropy(middle) - (_entropy(own) + _entropy(pooled)) / 2
    return float(np.sqrt(np.maximum(0, divergence)).mean())


def _variance(positives: Ints, support: Ints) -> Floats:
    rate = (positives + 0.5) / (support + 1)
    return rate * (1 - rate) / np.maximum(support, 1)


def _ratio(
    top: NDArray[Any], bottom: NDArray[Any], where: NDArray[np.bool_], otherwise: float = np.nan
) -> Floats:
    result: Floats = np.full(np.shape(top), otherwise)
    np.divide(top, bottom, out=result, where=where)
    return result


def _entropy(share: Floats) -> Floats:
    logs = np.log2(share, out=np.zeros_like(share), where=share > 0)
    total: Floats = -(share * logs).sum(axis=1)
    return total
