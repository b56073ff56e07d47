"""A small built folder that the tests of runs share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from feda4fair.build import build
from feda4fair.partition import Iid
from feda4fair.recipe import ClientSplit, RowSplit
from feda4fair_dutch import DATASET


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 6 silos, 9 devices of which 3 test, and 3 silos that do not validate."""
    folder = tmp_path_factory.mktemp("fl") / "dutch"
    recipes = (
        replace(DATASET.recipe("attribute-silo"), partition=Iid(clients=6)),
        replace(
            DATASET.recipe("attribute-device"),
            partition=Iid(clients=9),
            split=ClientSplit(test=("c0", "c4", "c8"), folds=3),
        ),
        replace(
            DATASET.recipe("value-silo"),
            partition=Iid(clients=3),
            split=RowSplit(validation=0.0, test=0.3),
        ),
    )
    source = DATASET.open_source(None, recipes=recipes, sample=True)
    build(DATASET, recipes, source, folder)
    return folder
