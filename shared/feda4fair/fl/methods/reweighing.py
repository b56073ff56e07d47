"""Reweighing: rows of a group and label that independence would make more frequent weigh more.

A row of group s and label y weighs ``n_s n_y / (n n_sy)``. The loss of a batch is the sum of
weight times cross-entropy over its rows, divided by the number of its rows; the weights of all
rows of a client (or of the federation) add up to their number, so that the mean weight is 1.
A cell without a row has no weight, and nothing is divided by it.

References
----------
Kamiran and Calders (2012), Data preprocessing techniques for classification without
discrimination. Abay et al. (2020), Mitigating bias in federated learning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from feda4fair.errors import RecipeError
from feda4fair.fl.methods import Batch, Objective, Option, counts

__all__ = ["Method", "weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Reweighing.

    Parameters
    ----------
    scope : {"local", "global"}
        Whether a client's weights come from its own counts or from those of all clients.
    """

    scope: str = "local"

    def __post_init__(self) -> None:
        """Refuse another scope."""
        if self.scope not in ("local", "global"):
            raise RecipeError(f"reweighing: scope {self.scope!r}; it is 'local' or 'global'.")

    def begin(self, train: Batch, pooled: Tensor) -> Objective:
        """Return the weighted cross-entropy of a client."""
        found = counts(train) if self.scope == "local" else pooled
        return _Weighted(weights(found.sum(2)))

    def search(self, trial: Any) -> dict[str, Option]:
        """Return no option: the scope is a choice of the method, not a parameter."""
        return {"scope": self.scope}


def weights(rows: Tensor) -> Tensor:
    """Return the weight of every group and label.

    Parameters
    ----------
    rows : Tensor of int64, shape (groups, 2)
        Numbers of rows.

    Returns
    -------
    Tensor of float32, shape (groups, 2)
        0 where there is no row.

    Examples
    --------
    >>> [[round(w, 3) for w in row] for row in weights(torch.tensor([[30, 10], [10, 0]])).tolist()]
    [[1.067, 0.8], [0.8, 0.0]]
    """
    exact = rows.double()
    expected = exact.sum(1, keepdim=True) * exact.sum(0, keepdim=True) / exact.sum().clamp(min=1)
    return torch.where(rows > 0, expected / exact.clamp(min=1), 0.0).float()


class _Weighted:
    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def loss(self, batch: Batch) -> Tensor:
        each = cross_entropy(batch.logits, batch.label, reduction="none")
        return (each * self.weight[batch.group, batch.label]).mean()

    def after(self, batch: Batch) -> None:
        pass

    def figures(self) -> dict[str, float]:
        return {}
