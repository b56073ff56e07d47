"""A small built folder that the tests of runs share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from feda4fair.build import build
from feda4fair.recipe import ClientSplit, Iid
from feda4fair_dutch import DATASET


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a build of 6 silos and of 9 devices, 3 of them test, from the Dutch sample."""
    folder = tmp_path_factory.mktemp("fl") / "dutch"
    recipes = (
        replace(DATASET.recipe("attribute-silo"), partition=Iid(clients=6)),
        replace(
            DATASET.recipe("attribute-device"),
            partition=Iid(clients=9),
            split=ClientSplit(test=("c0", "c4", "c8"), folds=3),
        ),
    )
    source = DATASET.open_source(None, recipes=recipes, sample=True)
    build(DATASET, recipes, source, folder)
    return folder
