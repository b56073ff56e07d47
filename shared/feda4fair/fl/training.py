"""What a client does: train on its rows, and count how its rows are predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from feda4fair.fl.methods import Batch, open_method
from feda4fair.fl.models import Arrays, arrays, build, features, generator, load
from feda4fair.fl.rows import Part, Rows
from feda4fair.fl.settings import Settings
from feda4fair.fl.steps import stepper

__all__ = ["VIEWS", "count", "predict", "train"]

Ints = NDArray[np.int64]

VIEWS: dict[str, tuple[tuple[Part, bool], ...]] = {
    "train": (("train", False),),
    "validation": (("validation", False),),
    "injected": (("test", False),),
    "restored": (("test", True), ("gone", True)),
}
"""What is counted: parts of a client, and whether labels are those before injection."""

CHUNK = 8192
"""Rows that are predicted at once."""


def train(
    rows: Rows,
    client: int,
    start: Sequence[NDArray[Any]],
    settings: Settings,
    *,
    round_number: int,
    pooled: Ints,
) -> tuple[Arrays, dict[str, float]]:
    """Train the global model on the training rows of one client.

    Parameters
    ----------
    rows : Rows
    client : int
        Position of the client.
    start : sequence of ndarray
        Parameters of the global model.
    settings : Settings
        Method, optimizer, batch size, epochs, seed.
    round_number : int
        From 1; with seed and client it keys the order of the rows.
    pooled : ndarray of int64, shape (joint groups, 2, 2)
        Training rows of all clients by joint group, label and prediction of the global model.

    Returns
    -------
    list of ndarray, dict
        Parameters after training, and what the objective reports. A client without rows gives
        the parameters back.
    """
    own = rows.part(client, "train")
    size = own.stop - own.start
    model = build(rows, settings.seed)
    load(model, start)
    if not size:
        return arrays(model), {}
    marginal = rows.marginal(settings.mitigate)
    values = int(marginal.max()) + 1
    label = torch.from_numpy(rows.label[own])
    group = torch.from_numpy(marginal[rows.group[own]])
    taken = features(rows, own)
    with _one_thread():
        whole = Batch(logits=_logits(model, taken), label=label, group=group, groups=values)
        table = np.zeros((values, 2, 2), dtype=np.int64)
        np.add.at(table, marginal, pooled)
        method = open_method(settings.method, settings.options)
        objective = method.begin(whole, torch.from_numpy(table))
        parameters = [*model.parameters()]
        step = stepper(settings.optimizer, parameters, settings.rate)
        draw = generator(settings.seed, "rows", rows.clients[client], round_number)
        for _ in range(settings.epochs):
            order = torch.randperm(size, generator=draw)
            for chosen in order.split(settings.batch):
                logits = model(*(each[chosen] for each in taken))
                batch = Batch(
                    logits=logits, label=label[chosen], group=group[chosen], groups=values
                )
                step(torch.autograd.grad(objective.loss(batch), parameters))
                objective.after(batch)
    return arrays(model), objective.figures()


def count(rows: Rows, client: int, values: Sequence[NDArray[Any]]) -> dict[str, Ints]:
    """Count how a model predicts the rows of one client.

    Parameters
    ----------
    rows : Rows
    client : int
        Position of the client.
    values : sequence of ndarray
        Parameters of the model.

    Returns
    -------
    dict of str to ndarray of int64, shape (joint groups, 2, 2)
        By view (:data:`VIEWS`): rows by joint group, label and prediction.
    """
    first = rows.part(client, "train").start
    last = rows.part(client, "gone").stop
    guess = predict(rows, slice(first, last), values)
    counted = {}
    for view, parts in VIEWS.items():
        table = np.zeros(rows.groups * 4, dtype=np.int64)
        for part, restored in parts:
            where = rows.part(client, part)
            label = rows.label[where] ^ (rows.flipped[where] if restored else 0)
            mine = guess[where.start - first : where.stop - first]
            cell = (rows.group[where] * 2 + label) * 2 + mine
            table += np.bincount(cell, minlength=len(table))
        counted[view] = table.reshape(rows.groups, 2, 2)
    return counted


def predict(rows: Rows, where: slice, values: Sequence[NDArray[Any]]) -> NDArray[np.int8]:
    """Return the prediction, 0 or 1, of some rows."""
    model = build(rows, 0)
    load(model, values)
    with _one_thread():
        logits = _logits(model, features(rows, where))
    guess: NDArray[np.int8] = logits.argmax(1).numpy().astype(np.int8)
    return guess


def _logits(model: nn.Module, taken: tuple[Tensor, ...]) -> Tensor:
    with torch.inference_mode():
        parts = [
            model(*(each[first : first + CHUNK] for each in taken))
            for first in range(0, len(taken[0]), CHUNK)
        ]
    return torch.cat(parts) if parts else torch.zeros(0, 2)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread: sums in several depend on how many, and clients share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
