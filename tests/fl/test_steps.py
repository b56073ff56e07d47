"""Our steps against those of torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (extra fl)")
pytest.importorskip("flwr", reason="flwr is not installed (extra fl)")

from feda4fair.fl.steps import Optimizer, stepper  # noqa: E402


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_steps_are_those_of_torch(optimizer: Optimizer) -> None:
    draw = torch.Generator().manual_seed(0)
    start = [torch.randn(5, 2, generator=draw), torch.randn(3, generator=draw)]
    ours = [each.clone().requires_grad_() for each in start]
    theirs = [each.clone().requires_grad_() for each in start]
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    reference = kind(theirs, lr=0.05)
    step = stepper(optimizer, ours, 0.05)
    for _ in range(20):
        gradients = [torch.randn(each.shape, generator=draw) for each in start]
        step(gradients)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        reference.step()
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-7)
