"""FedAvg: every client minimizes its own cross-entropy.

References
----------
McMahan et al. (2017), Communication-efficient learning of deep networks from decentralized data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn.functional import cross_entropy

from feda4fair.fl.methods import Batch, Objective, Option

__all__ = ["Method"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """No mitigation, no option."""

    def begin(self, train: Batch, pooled: Tensor) -> Objective:
        """Return the same objective for every client."""
        return _Plain()

    def search(self, trial: Any) -> dict[str, Option]:
        """Return no option: there is none to tune."""
        return {}


class _Plain:
    def loss(self, batch: Batch) -> Tensor:
        return cross_entropy(batch.logits, batch.label)

    def after(self, batch: Batch) -> None:
        pass

    def figures(self) -> dict[str, float]:
        return {}
