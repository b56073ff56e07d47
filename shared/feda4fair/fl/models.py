"""The models: linear for tables, a small convolutional network for pictures.

Parameters are drawn from a generator of their own, so that torch's global state is neither read
nor moved, and travel as a list of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from feda4fair import seeds
from feda4fair.fl.rows import PIXELS, Rows

__all__ = ["Cnn", "Linear", "arrays", "build", "features", "generator", "load"]

Arrays = list[NDArray[np.float32]]


class Linear(nn.Module):
    """Two logits: a weight for each one-hot column and each quantity, and a constant.

    All weights begin at 0: the loss is convex, and no seed is needed.
    """

    def __init__(self, width: int, quantities: int) -> None:
        super().__init__()
        self.category = nn.Parameter(torch.zeros(width, 2))
        self.quantity = nn.Parameter(torch.zeros(quantities, 2))
        self.constant = nn.Parameter(torch.zeros(2))

    def forward(self, codes: Tensor, scaled: Tensor) -> Tensor:
        """Return logits, shape (n, 2), of one-hot columns (n, categories) and quantities."""
        logits = self.constant.expand(len(codes), 2)
        if codes.shape[1]:
            logits = logits + functional.embedding_bag(
                codes, self.category, mode="sum", padding_idx=0
            )
        return logits + scaled @ self.quantity


class Cnn(nn.Module):
    """Three blocks of convolution, ReLU and 2 x 2 pooling, then two logits: 10,130 parameters."""

    def __init__(self) -> None:
        super().__init__()
        channels = (3, 8, 16, 32)
        blocks = [
            (nn.Conv2d(taken, given, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
            for taken, given in pairwise(channels)
        ]
        self.blocks = nn.Sequential(*(layer for block in blocks for layer in block))
        self.head = nn.Linear(channels[-1] * (PIXELS // 8) ** 2, 2)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return logits, shape (n, 2), of pictures with bytes, shape (n, 3, PIXELS, PIXELS)."""
        found: Tensor = self.blocks(pictures.float() / 127.5 - 1.0)
        logits: Tensor = self.head(found.flatten(1))
        return logits


def build(rows: Rows, seed: int) -> nn.Module:
    """Return the model of some rows, before training.

    Parameters
    ----------
    rows : Rows
        Pictures give a `Cnn`, all else a `Linear` model.
    seed : int
        Seed of the first weights, uniform within one over the root of the number of inputs.
    """
    if rows.encoding is not None:
        return Linear(rows.encoding.width, len(rows.encoding.quantities))
    with torch.device("meta"):
        empty = Cnn()
    model = empty.to_empty(device="cpu")
    draw = generator(seed, "weights")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.zero_()
            else:
                bound = parameter[0].numel() ** -0.5
                parameter.uniform_(-bound, bound, generator=draw)
    return model


def features(rows: Rows, where: slice | NDArray[np.int64]) -> tuple[Tensor, ...]:
    """Return what the model of these rows takes."""
    if rows.encoding is None:
        return (torch.from_numpy(rows.pictures[where]),)
    return torch.from_numpy(rows.codes[where]), torch.from_numpy(rows.scaled[where])


def generator(seed: int, *names: str | int) -> torch.Generator:
    """Return a stream of torch keyed by names, as in :mod:`feda4fair.seeds`."""
    return torch.Generator().manual_seed(seeds.key(seed, *names) % 2**63)


def arrays(model: nn.Module) -> Arrays:
    """Return copies of the parameters of a model."""
    return [parameter.detach().numpy().copy() for parameter in model.parameters()]


def load(model: nn.Module, values: Sequence[NDArray[Any]]) -> None:
    """Put arrays into the parameters of a model."""
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(torch.from_numpy(np.asarray(value, dtype=np.float32)))
