from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from feda4fair.cube import Attribute
from feda4fair.exact import hypergeometric_midp, tarone_holm
from feda4fair.intervals import (
    family_size,
    gap_intervals,
    minimum_detectable_gap,
    wilson,
    worst_set,
)
from feda4fair.rates import Rates


def counts(support, positives, outcome="label"):
    support, positives = np.atleast_2d(support), np.atleast_2d(positives)
    names = tuple("ABCDEFGHI"[: support.shape[1]])
    return Rates(
        metric="DD",
        outcome=outcome,
        attribute=Attribute(name="Z", values=names, codes=tuple(range(len(names)))),
        support=support.astype(np.int64),
        positives=positives.astype(np.int64),
    )


@st.composite
def tables(draw, clients=3, most=6):
    values = draw(st.integers(2, most))
    cell = st.integers(0, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
    rows = draw(
        st.lists(
            st.lists(cell, min_size=values, max_size=values), min_size=clients, max_size=clients
        )
    )
    table = np.array(rows)
    return counts(table[..., 0], table[..., 1])


@settings(deadline=None)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_scipy(drawn):
    a, n = drawn
    low, high = wilson(np.array(a), np.array(n), norm.ppf(0.975))
    theirs = binomtest(a, n).proportion_ci(method="wilson")
    assert low == pytest.approx(theirs.low, abs=1e-12)
    assert high == pytest.approx(theirs.high, abs=1e-12)


def test_wilson_without_rows_knows_nothing():
    low, high = wilson(np.array(0), np.array(0), 1.96)
    assert (low, high) == (0, 1)


def test_newcombe_reproduces_his_first_example():
    part = counts([70, 80], [56, 48])
    low, high = gap_intervals(part, np.array([0.05]))
    assert low[0, 0] == pytest.approx(0.0524, abs=5e-5)
    assert high[0, 0] == pytest.approx(0.3339, abs=5e-5)
    assert (low[0, 1], high[0, 1]) == pytest.approx((-high[0, 0], -low[0, 0]))


@settings(deadline=None)
@given(tables())
def test_an_interval_holds_its_gap_and_widens_with_its_level(part):
    low, high = gap_intervals(part, np.full(3, 0.05))
    wide_low, wide_high = gap_intervals(part, np.full(3, 0.001))
    gap = part.gap()
    known = ~np.isnan(gap)
    assert (known == ~np.isnan(low)).all()
    assert ((low <= gap + 1e-12) & (gap <= high + 1e-12))[known].all()
    assert ((wide_low <= low) & (high <= wide_high))[known].all()
    assert (low[known] >= -1 - 1e-12).all()
    assert (high[known] <= 1 + 1e-12).all()


def worst_set_by_hand(n, r, low, high):
    """Write the contrasts out, coefficient by coefficient."""
    total, values = n.sum(), [z for z in range(len(n)) if 0 < n[z] < n.sum()]

    def coefficients(t):
        return np.array([1 if u == t else -n[u] / (total - n[t]) for u in range(len(n))])

    gaps = {z: coefficients(z) @ r for z in values}
    v = min(values, key=lambda z: gaps[z])
    chosen = {v}
    for w in values:
        c = coefficients(w) - coefficients(v)
        spread = np.where(c > 0, c * (r - low), c * (r - high))
        if c @ r - np.sqrt((spread**2).sum()) <= 1e-12:
            chosen.add(w)
    return chosen


@settings(deadline=None)
@given(tables())
def test_worst_set_is_its_contrast_written_out(part):
    chosen = worst_set(part)
    for k in range(3):
        if not part.defined[k].any():
            assert not chosen[k].any()
            continue
        n = part.support[k].astype(float)
        rate = part.positives[k] / np.maximum(n, 1)
        low, high = wilson(part.positives[k], part.support[k], 1.96)
        expected = worst_set_by_hand(n, rate, low, high)
        assert set(np.flatnonzero(chosen[k])) == expected
        assert chosen[k][part.worst()[k]].all()


def test_worst_set_names_one_value_only_when_it_is_told_apart():
    clear = counts([1000, 1000, 1000], [500, 500, 200])
    assert worst_set(clear).tolist() == [[False, False, True]]
    close = counts([1000, 1000, 1000], [500, 210, 200])
    assert worst_set(close).tolist() == [[False, True, True]]
    tiny = counts([1000, 1000, 3], [500, 300, 0])
    assert worst_set(tiny).tolist() == [[False, True, True]]


def test_two_values_are_one_test():
    assert family_size(counts([5, 5, 0], [1, 2, 0])).tolist() == [[1]]
    assert family_size(counts([5, 5, 5], [1, 2, 3])).tolist() == [[3]]
    assert family_size(counts([5, 0, 0], [1, 0, 0])).tolist() == [[1]]


def test_minimum_detectable_gap_is_found_with_the_power_it_claims():
    n, m, share = 200, 800, 0.4
    part = counts([n, m], [int(n * share), int(m * share)])
    gap = minimum_detectable_gap(part, np.ones((1, 2), bool))[0, 0]
    rng = np.random.RandomState(5)
    base = share - gap * n / (n + m)
    a, b = rng.binomial(n, base + gap, 4000), rng.binomial(m, base, 4000)
    total = np.full(4000, n + m)
    p, _ = hypergeometric_midp(total, a + b, np.full(4000, n), a)
    assert (p <= 0.05).mean() == pytest.approx(0.8, abs=0.03)


def test_a_value_too_small_to_test_has_no_detectable_gap():
    part = counts([3, 50, 400], [0, 20, 160])
    total, ones, drawn, hits = (
        np.broadcast_to(x, (1, 3)).ravel()
        for x in (part.total, part.total_positives, part.support, part.positives)
    )
    p, least = hypergeometric_midp(total, ones, drawn, hits)
    _, testable = tarone_holm(p[None], least[None])
    gap = minimum_detectable_gap(part, testable)
    assert testable.tolist() == [[False, True, True]]
    assert np.isnan(gap[0, 0])
    assert gap[0, 1] > gap[0, 2] > 0
