"""The methods against figures worked out by hand, and against finite differences."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (extra fl)")
pytest.importorskip("flwr", reason="flwr is not installed (extra fl)")

from feda4fair.errors import RecipeError  # noqa: E402
from feda4fair.fl.methods import Batch, counts, open_method  # noqa: E402
from feda4fair.fl.methods.puffle import disparity  # noqa: E402
from feda4fair.fl.methods.reweighing import weights  # noqa: E402

UNKNOWN = torch.full((2, 2), torch.nan)


def batch(chance: list[float], group: list[int], label: list[int], groups: int = 2) -> Batch:
    """Return rows whose probability of 1 is known."""
    one = torch.tensor(chance, dtype=torch.float64)
    logits = torch.stack((torch.zeros_like(one), (one / (1 - one)).log()), 1)
    return Batch(
        logits=logits, label=torch.tensor(label), group=torch.tensor(group), groups=groups
    )


# Two rows of group 0, three of group 1. Predicted 1 are those above one half.
SMALL = batch([0.8, 0.4, 0.7, 0.3, 0.9], [0, 0, 1, 1, 1], [1, 0, 1, 0, 0])


def test_reweighing_weights_by_hand() -> None:
    # n = 100, n_s = 60 and 40, n_y = 70 and 30
    found = weights(torch.tensor([[50, 10], [20, 20]]))
    by_hand = [[60 * 70 / (100 * 50), 60 * 30 / (100 * 10)], [40 * 70 / 2000, 40 * 30 / 2000]]
    assert found.tolist() == [[pytest.approx(each) for each in row] for row in by_hand]


def test_reweighing_weights_add_up_to_the_rows_where_no_cell_is_empty() -> None:
    rows = torch.tensor([[5, 1], [2, 9], [7, 3]])
    assert float((weights(rows) * rows).sum()) == pytest.approx(int(rows.sum()))


@pytest.mark.parametrize(
    "rows",
    [[[0, 0], [0, 0]], [[4, 0], [0, 0]], [[0, 3], [0, 5]], [[2, 2], [0, 0]], [[1, 0], [0, 1]]],
)
def test_empty_cells_have_no_weight_and_the_others_a_finite_one(rows: list[list[int]]) -> None:
    table = torch.tensor(rows)
    found = weights(table)
    assert torch.isfinite(found).all()
    assert ((found > 0) == (table > 0)).all()


def test_reweighing_loss_by_hand() -> None:
    objective = open_method("reweighing", {}).begin(SMALL, counts(SMALL))
    # group 0: one row of each label; group 1: two rows of label 0, one of label 1
    weight = {(0, 1): 2 * 2 / 5, (0, 0): 2 * 3 / 5, (1, 1): 3 * 2 / 5, (1, 0): 3 * 3 / (5 * 2)}
    losses = [
        weight[0, 1] * -np.log(0.8),
        weight[0, 0] * -np.log(0.6),
        weight[1, 1] * -np.log(0.7),
        weight[1, 0] * -np.log(0.7),
        weight[1, 0] * -np.log(0.1),
    ]
    assert float(objective.loss(SMALL)) == pytest.approx(np.mean(losses))


def test_global_weights_come_from_all_clients() -> None:
    pooled = torch.tensor([[[9, 1], [5, 5]], [[1, 1], [9, 9]]])
    objective: Any = open_method("reweighing", {"scope": "global"}).begin(SMALL, pooled)
    assert torch.equal(objective.weight, weights(torch.tensor([[10, 10], [2, 18]])))


def test_puffle_loss_by_hand() -> None:
    # predicted 1: N(1,0)/2 = .8/2, N(1,1)/3 = 1.6/3; predicted 0: .6/2 and .7/3
    by_hand = max(abs(0.4 - 1.6 / 3), abs(0.3 - 0.7 / 3))
    assert float(disparity(SMALL, UNKNOWN)) == pytest.approx(by_hand)
    plain = -np.mean(np.log([0.8, 0.6, 0.7, 0.7, 0.1]))
    objective = open_method("puffle", {"weight": 0.3}).begin(SMALL, counts(SMALL))
    assert float(objective.loss(SMALL)) == pytest.approx(0.7 * plain + 0.3 * by_hand)


def test_a_group_alone_is_held_against_the_pooled_share() -> None:
    alone = batch([0.8, 0.6, 0.3], [1, 1, 1], [1, 0, 0])
    # of the other group's 10 rows the federation predicts 4 as 0 and 6 as 1
    pooled = torch.tensor([[[3, 3], [1, 3]], [[9, 9], [9, 9]]])
    objective: Any = open_method("puffle", {"weight": 1.0}).begin(alone, pooled)
    assert objective.other[1].tolist() == [pytest.approx(0.4), pytest.approx(0.6)]
    by_hand = max(abs(0.7 / 3 - 0.4), abs(1.4 / 3 - 0.6))
    assert float(objective.loss(alone)) == pytest.approx(by_hand)


def test_no_other_row_anywhere_is_no_disparity_and_no_nan() -> None:
    alone = batch([0.8, 0.6], [1, 1], [1, 0])
    logits = alone.logits.requires_grad_()
    objective = open_method("puffle", {"weight": 1.0}).begin(alone, torch.zeros(2, 2, 2).long())
    loss = objective.loss(alone)
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def brute(rows: Batch) -> float:
    """Return the largest gap of any group and prediction, row by row."""
    chance = rows.logits.softmax(1).detach().numpy()
    guess = chance.argmax(1)
    group = rows.group.numpy()
    gaps = []
    for value, outcome in product(np.unique(group), (0, 1)):
        inside = group == value
        soft = np.where(guess == outcome, chance[:, outcome], 0.0)
        gaps.append(abs(soft[inside].mean() - soft[~inside].mean()))
    return max(gaps)


def drawn(groups: int, rows: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(
        logits=torch.tensor(rng.normal(size=(rows, 2))),
        label=torch.tensor(rng.integers(0, 2, rows)),
        group=torch.tensor(rng.integers(0, groups, rows)),
        groups=groups + 1,  # one value that no row has
    )


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_any_number_of_groups(groups: int) -> None:
    rows = drawn(groups, 40, groups)
    unknown = torch.full((groups + 1, 2), torch.nan)
    assert float(disparity(rows, unknown)) == pytest.approx(brute(rows))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("method", ["fedavg", "puffle", "reweighing"])
def test_gradients_are_those_of_finite_differences(method: str, groups: int) -> None:
    rows = drawn(groups, 30, 7)
    pooled = torch.arange((groups + 1) * 4).reshape(groups + 1, 2, 2) + 1
    objective = open_method(method, {}).begin(rows, pooled)
    logits = rows.logits.clone().requires_grad_()

    def loss(values: Any) -> Any:
        return objective.loss(
            Batch(logits=values, label=rows.label, group=rows.group, groups=rows.groups)
        )

    loss(logits).backward()
    assert logits.grad is not None
    step = 1e-6
    for row, column in product(range(len(logits)), (0, 1)):
        nudge = torch.zeros_like(logits)
        nudge[row, column] = step
        with torch.no_grad():
            slope = (loss(logits + nudge) - loss(logits - nudge)).item() / (2 * step)
        assert float(logits.grad[row, column]) == pytest.approx(slope, abs=1e-6)


def test_tunable_weight_by_hand() -> None:
    gap = float(disparity(SMALL, UNKNOWN))
    options = {"weight": "tunable", "target": 0.05, "step": 0.1, "momentum": 0.5}
    objective: Any = open_method("puffle", options).begin(SMALL, counts(SMALL))
    begun = (gap - 0.05) / 0.95
    assert objective.weight == pytest.approx(begun)
    delta = 0.05 - gap
    objective.after(SMALL)
    assert objective.weight == pytest.approx(begun - 0.1 * delta)
    objective.after(SMALL)
    assert objective.weight == pytest.approx(begun - 0.1 * delta - 0.1 * (0.5 * delta + delta))
    for _ in range(1000):
        objective.after(SMALL)
    assert objective.weight == 1.0
    assert objective.figures() == {"weight": 1.0}


def test_tunable_weight_is_0_where_the_target_holds() -> None:
    options = {"weight": "tunable", "target": 0.5}
    objective: Any = open_method("puffle", options).begin(SMALL, counts(SMALL))
    assert objective.weight == 0.0


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("scaffold", {}, "there are fedavg, puffle, reweighing"),
        ("fedavg", {"weight": 0.5}, "no option weight; it has none"),
        ("puffle", {"weight": 1.5}, "from 0 to 1, or 'tunable'"),
        ("puffle", {"weight": "high"}, "from 0 to 1, or 'tunable'"),
        ("puffle", {"target": 1.0}, "target 1.0"),
        ("puffle", {"momentum": "much"}, "momentum 'much'"),
        ("reweighing", {"scope": "regional"}, "'local' or 'global'"),
    ],
)
def test_what_no_method_takes_is_refused(method: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        open_method(method, options)
