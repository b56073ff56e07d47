from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from feda4fair.cube import Attribute
from feda4fair.disagreement import (
    agreement,
    attribute_conflict,
    gap_spread,
    kitagawa,
    skew,
    value_conflict,
)
from feda4fair.rates import Rates
from feda4fair.uncertainty import Contrast


def counts(support, positives, outcome="prediction"):
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
def federations(draw):
    values, clients = draw(st.integers(2, 4)), draw(st.integers(1, 8))
    cell = st.integers(0, 50).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
    row = st.lists(cell, min_size=values, max_size=values)
    table = np.array(draw(st.lists(row, min_size=clients, max_size=clients)))
    return counts(table[..., 0], table[..., 1])


@settings(deadline=None)
@given(federations())
def test_kitagawa_adds_up_to_the_pooled_gap(part):
    gap, within, between, cancellation = kitagawa(part)
    pooled = counts(part.support.sum(axis=0), part.positives.sum(axis=0)).gap()[0]
    np.testing.assert_allclose(gap, pooled, atol=1e-12)
    np.testing.assert_allclose(within + between, pooled, atol=1e-12)
    known = cancellation[~np.isnan(cancellation)]
    assert ((known >= -1e-12) & (known <= 1 + 1e-12)).all()


def test_kitagawa_weights_are_the_mean_of_two_shares():
    part = counts([[100, 50], [20, 80]], [[40, 40], [10, 20]])
    _, within, _, _ = kitagawa(part)
    weight = [(100 / 120 + 50 / 130) / 2, (20 / 120 + 80 / 130) / 2]
    assert within[0] == pytest.approx(weight[0] * (0.4 - 0.8) + weight[1] * (0.5 - 0.25))


def test_opposed_clients_cancel_and_agreeing_ones_do_not():
    opposed = counts([[100, 100], [100, 100]], [[30, 60], [60, 30]])
    gap, _, _, cancellation = kitagawa(opposed)
    assert gap.tolist() == [0, 0]
    assert cancellation.tolist() == [1, 1]
    alike = counts([[100, 100], [100, 100]], [[30, 60], [40, 50]])
    assert kitagawa(alike)[3].tolist() == pytest.approx([0, 0])


def test_a_client_without_a_value_moves_the_gap_only_between_clients():
    part = counts([[100, 100], [0, 100]], [[50, 50], [0, 0]])
    gap, within, between, _ = kitagawa(part)
    assert within[0] == 0
    assert gap[0] == between[0] == pytest.approx(0.25)


def test_agreement_of_two_clients_is_their_cosine():
    alike = counts([[50, 50, 50]] * 2, [[10, 20, 30]] * 2)
    assert agreement(alike) == pytest.approx(1)
    opposed = counts([[50, 50], [50, 50]], [[10, 20], [20, 10]])
    assert agreement(opposed) == pytest.approx(-1)
    mixed = counts([[50, 50, 50], [50, 50, 50]], [[10, 20, 30], [30, 20, 5]])
    a, b = mixed.gap()
    assert agreement(mixed) == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert np.isnan(agreement(counts([50, 50], [10, 20])))


@settings(deadline=None)
@given(federations())
def test_agreement_is_the_mean_over_pairs(part):
    gap = np.nan_to_num(part.gap())
    unit = [g / np.linalg.norm(g) for g in gap if np.linalg.norm(g) > 0]
    cosines = [u @ v for i, u in enumerate(unit) for v in unit[:i]]
    if cosines:
        assert agreement(part) == pytest.approx(np.mean(cosines), abs=1e-9)
    else:
        assert np.isnan(agreement(part))


def test_value_conflict_counts_worst_values_and_shares_ties():
    three = counts([[50, 50]] * 4, [[10, 20], [10, 20], [20, 10], [10, 20]])
    assert value_conflict(three) == pytest.approx(1 - (0.75**2 + 0.25**2))
    tied = counts([[50, 50, 50]], [[10, 10, 30]])
    assert value_conflict(tied) == pytest.approx(0.5)
    assert np.isnan(value_conflict(counts([50, 0], [10, 0])))


def leads(leader, decided, difference):
    count = len(leader)
    return Contrast(
        attributes=("SEX", "RAC1P"),
        size=np.ones((count, 2)),
        leader=np.array(leader),
        difference=np.array(difference),
        error=np.ones(count),
        p=np.ones(count),
        decided=np.array(decided),
    )


def test_attribute_conflict_is_over_decided_clients():
    found = leads([0, 0, 1, 1, -1], [True, True, True, False, False], [0.1, 0.2, 0.3, 0.0, np.nan])
    conflict, mean = attribute_conflict(found)
    assert conflict == pytest.approx(1 - (4 + 1) / 9)
    assert mean == pytest.approx(0.15)
    assert np.isnan(attribute_conflict(leads([0], [False], [0.1]))[0])


def test_spread_is_der_simonian_and_laird():
    part = counts([[200, 300], [150, 250], [400, 100]], [[80, 150], [20, 125], [240, 30]])
    gap = part.gap()[:, 0]

    def variance(a, n):
        rate = (a + 0.5) / (n + 1)
        return rate * (1 - rate) / n

    v = np.array(
        [
            variance(80, 200) + variance(150, 300),
            variance(20, 150) + variance(125, 250),
            variance(240, 400) + variance(30, 100),
        ]
    )
    w = 1 / v
    q = (w * (gap - (w * gap).sum() / w.sum()) ** 2).sum()
    tau, i2 = gap_spread(part)
    assert tau[0] == pytest.approx(np.sqrt((q - 2) / (w.sum() - (w**2).sum() / w.sum())))
    assert i2[0] == pytest.approx((q - 2) / q)


def test_spread_of_equal_clients_is_zero_and_of_one_client_unknown():
    tau, i2 = gap_spread(counts([[50, 50]] * 3, [[10, 20]] * 3))
    assert (tau == 0).all()
    assert (i2 == 0).all()
    tau, i2 = gap_spread(counts([[50, 50, 5], [50, 50, 0]], [[10, 20, 2], [10, 20, 0]]))
    assert np.isnan([tau[2], i2[2]]).all()
    assert not np.isnan(tau[:2]).any()


def test_skew_is_the_mean_jensen_shannon_distance_from_the_pooled_rows():
    rows = np.array([[30, 10, 0], [5, 5, 40], [0, 0, 0]])
    pooled = rows.sum(axis=0)
    expected = np.mean([jensenshannon(row, pooled, base=2) for row in rows[:2]])
    assert skew(rows) == pytest.approx(expected)
    assert skew(np.array([[10, 20], [100, 200]])) == pytest.approx(0, abs=1e-7)
    assert np.isnan(skew(np.zeros((2, 3), int)))
