from __future__ import annotations

import numpy as np
import pytest

from feda4fair.homogeneous import additive_logit, dealt_rows, draw_count, homogeneous_draws


def test_additive_logit_meets_its_margins_and_has_no_interaction():
    rng = np.random.RandomState(0)
    support = rng.randint(0, 300, (30, 4))
    positives = rng.binomial(support, rng.uniform(0.1, 0.9, (30, 4)))
    rate = additive_logit(support, positives)
    fitted = support * rate
    np.testing.assert_allclose(fitted.sum(axis=0), positives.sum(axis=0), rtol=1e-4)
    np.testing.assert_allclose(fitted.sum(axis=1), positives.sum(axis=1), rtol=1e-3, atol=1e-3)
    logit = np.log(rate / (1 - rate))
    interaction = logit - logit[:1] - logit[:, :1] + logit[0, 0]
    np.testing.assert_allclose(interaction, 0, atol=1e-9)


def test_additive_logit_survives_clients_and_values_of_one_class():
    support = np.array([[10, 10, 5], [10, 10, 5], [0, 0, 0]])
    rate = additive_logit(support, np.array([[0, 0, 0], [5, 10, 5], [0, 0, 0]]))
    assert np.isfinite(rate).all()
    assert rate[0].max() < 1e-6
    assert rate[1, 2] > 1 - 1e-6


def test_draws_are_repeatable_and_centered_on_the_model():
    rng = np.random.RandomState(1)
    support = rng.randint(20, 300, (10, 3))
    positives = rng.binomial(support, 0.4)
    draws = homogeneous_draws(support, positives, "RAC1P", "DD")
    again = homogeneous_draws(support, positives, "RAC1P", "DD")
    other = homogeneous_draws(support, positives, "SEX", "DD")
    assert draws.shape == (200, 10, 3)
    assert (draws == again).all()
    assert (draws != other).any()
    assert ((draws >= 0) & (draws <= support)).all()
    rate = additive_logit(support, positives)
    error = np.sqrt(support * rate * (1 - rate) / 200)
    assert (np.abs(draws.mean(axis=0) - support * rate) < 4.5 * error).all()


def test_global_random_state_is_neither_read_nor_moved():
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    homogeneous_draws(np.array([[5, 5]]), np.array([[2, 3]]), "Z")
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_dealt_rows_keep_every_client_its_size():
    rows = np.array([100, 0, 40])
    share = np.array([0.5, 0.0, 0.2, 0.3])
    dealt = dealt_rows(rows, share, "skew")
    assert (dealt.sum(axis=2) == rows).all()
    assert (dealt[:, :, 1] == 0).all()
    assert dealt[:, 0].mean(axis=0) == pytest.approx([50, 0, 20, 30], abs=1.5)


def test_many_cells_are_drawn_less_often_but_never_rarely():
    assert draw_count(10) == 200
    assert draw_count(4000) == 100
    assert draw_count(10**6) == 20
