from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import false_discovery_control, hypergeom

from feda4fair.exact import TINY, benjamini_hochberg, hypergeometric_midp, tarone_holm


@st.composite
def margins(draw, most=3000):
    total = draw(st.integers(1, most))
    ones, drawn = draw(st.integers(0, total)), draw(st.integers(0, total))
    low, high = max(0, ones + drawn - total), min(ones, drawn)
    return total, ones, drawn, draw(st.integers(low, high))


@settings(deadline=None)
@given(st.lists(margins(), min_size=1, max_size=20))
def test_midp_is_its_definition(tests):
    total, ones, drawn, hits = np.array(tests).T
    p, least = hypergeometric_midp(total, ones, drawn, hits)
    law = hypergeom(total, ones, drawn)
    half = law.pmf(hits) / 2
    expected = np.minimum(1, 2 * np.minimum(law.cdf(hits - 1) + half, law.sf(hits) + half))
    seen = expected > 1e-250
    np.testing.assert_allclose(p[seen], expected[seen], rtol=1e-9)
    assert (p[~seen] <= 1e-249).all()

    ends = np.minimum(
        law.pmf(np.maximum(0, ones + drawn - total)), law.pmf(np.minimum(ones, drawn))
    )
    seen = ends > 1e-250
    np.testing.assert_allclose(least[seen], ends[seen], rtol=1e-9)
    assert (p >= least * (1 - 1e-12)).all()


@settings(deadline=None)
@given(st.lists(margins(most=60), min_size=1, max_size=5))
def test_least_is_the_smallest_p_over_all_outcomes(tests):
    for total, ones, drawn, _ in tests:
        every = np.arange(max(0, ones + drawn - total), min(ones, drawn) + 1)
        same = np.full(len(every), 1)
        p, least = hypergeometric_midp(total * same, ones * same, drawn * same, every)
        assert least[0] == pytest.approx(p.min(), rel=1e-12)


@settings(deadline=None)
@given(margins())
def test_a_value_and_its_rest_are_one_test(test):
    total, ones, drawn, hits = test
    p, least = hypergeometric_midp(
        *np.array([[total, total], [ones, ones], [drawn, total - drawn], [hits, ones - hits]])
    )
    assert p[0] == pytest.approx(p[1], rel=1e-9)
    assert least[0] == pytest.approx(least[1], rel=1e-9)


def test_a_whole_country_is_tested_without_overflow():
    p, least = hypergeometric_midp(
        *np.array([[1_600_000] * 2, [600_000] * 2, [800_000] * 2, [320_000, 300_000]])
    )
    assert p[0] == TINY
    assert p[1] == pytest.approx(1, abs=1e-9)
    assert (least == TINY).all()


def test_a_block_gives_the_same_p_as_a_single_test():
    rng = np.random.RandomState(3)
    total = rng.randint(2, 4000, 200)
    ones, drawn = (total * rng.rand(200)).astype(int), (total * rng.rand(200)).astype(int)
    hits = np.array(
        [
            rng.randint(max(0, a + n - t), min(a, n) + 1)
            for t, a, n in zip(total, ones, drawn, strict=True)
        ]
    )
    together = hypergeometric_midp(total, ones, drawn, hits)[0]
    alone = [
        hypergeometric_midp(*(x[i : i + 1] for x in (total, ones, drawn, hits)))[0][0]
        for i in range(200)
    ]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def tarone_holm_by_hand(p, least, alpha=0.05):
    values = [z for z in range(len(p)) if not np.isnan(p[z])]
    if len(values) == 2:
        own = p[values[0]] if least[values[0]] <= alpha else 1.0
        return dict.fromkeys(values, own)
    m = next(m for m in range(1, len(p) + 2) if sum(least[z] <= alpha / m for z in values) <= m)
    kept = sorted((z for z in values if least[z] <= alpha / m), key=lambda z: p[z])
    adjusted, most = dict.fromkeys(values, 1.0), 0.0
    for rank, z in enumerate(kept):
        most = max(most, min(1.0, p[z] * (len(kept) - rank)))
        adjusted[z] = most
    return adjusted


@settings(deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda v: st.tuples(
            arrays(
                float, (4, v), elements=st.sampled_from([1e-6, 0.004, 0.01, 0.02, 0.03, 0.2, 1.0])
            ),
            arrays(float, (4, v), elements=st.sampled_from([1e-7, 0.004, 0.012, 0.02, 0.04, 0.3])),
            arrays(bool, (4, v)),
        )
    )
)
def test_tarone_holm_is_the_textbook_loop(drawn):
    p, least, absent = drawn
    p = np.where(absent, np.nan, np.maximum(p, least))
    least = np.where(absent, np.nan, least)
    known = (~absent).sum(axis=1)
    # Two values are one test: give both the same numbers, as the test does.
    for k in np.flatnonzero(known == 2):
        first, second = np.flatnonzero(~absent[k])
        p[k, second], least[k, second] = p[k, first], least[k, first]
    adjusted, kept = tarone_holm(p, least)
    for k in range(len(p)):
        for z, expected in tarone_holm_by_hand(p[k], least[k]).items():
            assert adjusted[k, z] == pytest.approx(expected)
        assert np.isnan(adjusted[k][absent[k]]).all()
        assert not kept[k][absent[k]].any()


def test_a_group_too_small_to_be_significant_costs_the_others_nothing():
    p = np.array([[0.02, 0.02, 0.5]])
    least = np.array([[1e-9, 1e-9, 0.3]])
    assert tarone_holm(p, least)[0].tolist() == [[0.04, 0.04, 1.0]]
    assert tarone_holm(p, np.full((1, 3), 1e-9))[0].tolist() == [[0.06, 0.06, 0.5]]


@settings(deadline=None)
@given(arrays(float, st.integers(1, 40), elements=st.floats(1e-9, 1)))
def test_benjamini_hochberg_agrees_with_scipy(p):
    detected, level = benjamini_hochberg(p, q=0.05)
    assert (detected == (false_discovery_control(p) <= 0.05 * (1 + 1e-12))).all()
    assert level == pytest.approx(0.05 * detected.sum() / len(p))


def test_a_client_without_a_test_leaves_the_family():
    p = np.array([0.02, np.nan, 0.04, np.nan])
    detected, level = benjamini_hochberg(p)
    assert detected.tolist() == [True, False, True, False]
    assert level == 0.05
    nothing, level = benjamini_hochberg(np.array([np.nan]))
    assert not nothing.any()
    assert level == 0.0
