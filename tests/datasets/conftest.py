"""Builds from the built-in samples, made once a session."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from filelock import FileLock

from feda4fair.build import build


@pytest.fixture(scope="session")
def sample_build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the folder of all configs of a dataset, e.g. ``acs``, built from its sample."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # workers share it

    def built(name: str) -> Path:
        out = folder / "samples" / name
        with FileLock(folder / f"sample-{name}.lock"):
            if not out.is_dir():
                dataset = import_module(f"feda4fair_{name}").DATASET
                source = dataset.open_source(None, recipes=dataset.recipes, sample=True)
                build(dataset, dataset.recipes, source, out)
        return out

    return built
