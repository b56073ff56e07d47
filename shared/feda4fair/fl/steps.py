"""Steps of gradient descent, as :mod:`torch.optim` takes them.

Importing an optimizer of torch also imports its compiler, which takes longer than most clients
train; these few lines give the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

__all__ = ["OPTIMIZERS", "Optimizer", "stepper"]

Optimizer = Literal["sgd", "adam"]

OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)


def stepper(
    optimizer: Optimizer, parameters: Sequence[Tensor], rate: float
) -> Callable[[Sequence[Tensor]], None]:
    """Return a function that takes gradients and moves the parameters.

    Parameters
    ----------
    optimizer : {"sgd", "adam"}
        Plain gradient descent, or Adam with decays 0.9 and 0.999 and epsilon 1e-8.
    parameters : sequence of Tensor
        Moved in place.
    rate : float
        Learning rate.

    References
    ----------
    Kingma and Ba (2015), Adam: A method for stochastic optimization.
    """
    if optimizer == "sgd":

        def descend(gradients: Sequence[Tensor]) -> None:
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.sub_(gradient, alpha=rate)

        return descend
    first = [torch.zeros_like(parameter) for parameter in parameters]
    second = [torch.zeros_like(parameter) for parameter in parameters]
    steps = 0

    def adapt(gradients: Sequence[Tensor]) -> None:
        nonlocal steps
        steps += 1
        size = rate / (1 - 0.9**steps)
        root = (1 - 0.999**steps) ** 0.5
        with torch.no_grad():
            for parameter, gradient, mean, square in zip(
                parameters, gradients, first, second, strict=True
            ):
                mean.lerp_(gradient, 1 - 0.9)
                square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
                parameter.addcdiv_(mean, (square.sqrt() / root).add_(1e-8), value=-size)

    return adapt
