"""The network on drawn pictures, from a built folder to its results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed (extra fl)")
pytest.importorskip("flwr", reason="flwr is not installed (extra fl)")

from small_release import small_release

from feda4fair.fl.experiment import Place, run
from feda4fair.fl.rows import PIXELS
from feda4fair.fl.settings import Settings
from feda4fair_celeba import DATASET


def test_a_network_learns_from_drawn_pictures(tmp_path: Path) -> None:
    build = small_release(tmp_path / "celeba", ["attribute-silo"], dataset=DATASET)
    where = Place(build=build, config="attribute-silo")
    rows = where.rows()
    assert rows.encoding is None
    assert rows.pictures.shape == (len(rows.label), 3, PIXELS, PIXELS)
    # Dropped rows have their pictures too, and no two rows are mixed up: who is male wears no
    # earrings in these drawings, and a picture has two of them at the sides of the head.
    male = rows.marginal("Male")[rows.group] == 1
    edge = rows.pictures[:, :, 36:40, 13:18].astype(np.float64)
    gold = (np.abs(edge - np.array([212, 175, 55])[:, None, None]).sum(axis=1) < 60).any(
        axis=(1, 2)
    )
    assert np.array_equal(gold, ~male)
    chosen = Settings(method="puffle", mitigate="Male", rounds=2, batch=16, rate=0.003)
    score = run(where, chosen, tmp_path / "out")
    assert score.protocols == ("injected", "restored")
    assert score.restored is not None
    assert set(score.restored.report.clients) == {"c00", "c01"}
