"""PUFFLE: cross-entropy and a penalty for demographic disparity, without differential privacy.

The loss of a batch is ``(1 - weight) * CE + weight * DPL``, where DPL is the largest
``|N(t, z) / n_z - N(t, not z) / n_not_z|`` over predictions t and groups z that the batch holds;
N(t, z) adds up the softmax probability of t over rows of z that are predicted t, and the gradient
flows through the softmax only.

Where the batch holds one group alone, the share of the other rows that are predicted t comes from
the counts of all clients, which the server pools. Where no client has other rows there is no
disparity, and the penalty is 0. The published fallback serves two groups; this one any number.

References
----------
Corbucci et al. (2024), PUFFLE: Balancing privacy, utility, and fairness in federated learning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from feda4fair.errors import RecipeError
from feda4fair.fl.methods import Batch, Objective, Option

__all__ = ["Method", "disparity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """PUFFLE.

    Parameters
    ----------
    weight : float or "tunable"
        Weight of the penalty (lambda in the paper), from 0 to 1. "tunable": each client begins
        a round with ``|d| / (1 - target)``, d being the target minus the penalty of the global
        model on its rows, or with 0 where d is positive, and after every batch moves it by
        ``step`` times a velocity, within 0 and 1.
    target : float
        Disparity to reach.
    step, momentum : float
        Step and memory of the tunable weight.
    """

    weight: float | str = 0.5
    target: float = 0.05
    step: float = 0.05
    momentum: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what is no weight, target, step or momentum."""
        if self.weight != "tunable" and not (
            isinstance(self.weight, float | int) and 0 <= self.weight <= 1
        ):
            raise RecipeError(
                f"puffle: weight {self.weight!r}; it is a number from 0 to 1, or 'tunable'."
            )
        for name in ("target", "step", "momentum"):
            value = getattr(self, name)
            if not isinstance(value, float | int) or not 0 <= value < 1:
                raise RecipeError(f"puffle: {name} {value!r}; it is a number from 0 to below 1.")

    def begin(self, train: Batch, pooled: Tensor) -> Objective:
        """Return the penalized loss of a client."""
        other = _others(pooled)
        if isinstance(self.weight, str):
            excess = float(disparity(train, other).detach()) - self.target
            return _Tunable(self, other, max(0.0, excess / (1 - self.target)))
        return _Penalized(self, other, float(self.weight))

    def search(self, trial: Any) -> dict[str, Option]:
        """Return a weight between 0.05 and 0.9, or "tunable" where that was chosen."""
        if isinstance(self.weight, str):
            return {
                "weight": "tunable",
                "target": self.target,
                "step": trial.suggest_float("step", 0.001, 0.2, log=True),
                "momentum": trial.suggest_float("momentum", 0.0, 0.9),
            }
        return {"weight": trial.suggest_float("weight", 0.05, 0.9), "target": self.target}


def disparity(batch: Batch, other: Tensor) -> Tensor:
    """Return the penalty (DPL) of a batch.

    Parameters
    ----------
    batch : Batch
        Rows of any number of groups; none gives 0.
    other : Tensor of float32, shape (groups, 2)
        Share of the federation's rows outside each group that are predicted 0 and 1, for batches
        of one group; NaN where it is not known.

    Returns
    -------
    Tensor
        A scalar from 0 to 1, with a gradient with respect to the logits.

    Examples
    --------
    >>> logits = torch.tensor([[0.0, 9.0], [0.0, 9.0], [9.0, 0.0]])
    >>> batch = Batch(
    ...     logits=logits, label=torch.tensor([1, 1, 0]), group=torch.tensor([0, 0, 1]), groups=2
    ... )
    >>> round(float(disparity(batch, torch.full((2, 2), torch.nan))), 3)
    1.0
    """
    chance = batch.logits.softmax(1)
    predicted = batch.logits.argmax(1)
    soft = torch.zeros_like(chance).scatter(
        1, predicted[:, None], chance.gather(1, predicted[:, None])
    )
    rows = batch.group.bincount(minlength=batch.groups)
    empty = torch.zeros(batch.groups, 2, dtype=soft.dtype)
    sums = empty.index_add(0, batch.group, soft)
    present = rows > 0
    rest = len(batch.group) - rows
    share = sums / rows.clamp(min=1)[:, None]
    others = (sums.sum(0) - sums) / rest.clamp(min=1)[:, None]
    alone = (rest == 0)[:, None]
    # An unknown share must not reach the graph: NaN times a gradient of 0 is NaN.
    gap = (share - torch.where(alone, other.nan_to_num(), others)).abs()
    known = present[:, None] & ~(alone & other.isnan())
    return gap[known].max() if known.any() else batch.logits.sum() * 0.0


def _others(pooled: Tensor) -> Tensor:
    """Return the share of predictions outside each group; NaN where there is no such row."""
    predicted = pooled.sum(1).float()
    outside = predicted.sum(0) - predicted
    return outside / outside.sum(1, keepdim=True)


class _Penalized:
    def __init__(self, method: Method, other: Tensor, weight: float) -> None:
        self.method, self.other, self.weight = method, other, weight

    def loss(self, batch: Batch) -> Tensor:
        plain = cross_entropy(batch.logits, batch.label)
        return (1 - self.weight) * plain + self.weight * disparity(batch, self.other)

    def after(self, batch: Batch) -> None:
        pass

    def figures(self) -> dict[str, float]:
        return {"weight": self.weight}


class _Tunable(_Penalized):
    velocity = 0.0

    def after(self, batch: Batch) -> None:
        delta = self.method.target - float(disparity(batch, self.other).detach())
        self.velocity = self.method.momentum * self.velocity + delta
        self.weight = min(1.0, max(0.0, self.weight - self.method.step * self.velocity))
