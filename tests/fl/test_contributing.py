"""The method that CONTRIBUTING.md shows is a method: nothing but its module is added."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed (extra fl)")
pytest.importorskip("flwr", reason="flwr is not installed (extra fl)")

from feda4fair.fl import methods
from feda4fair.fl.experiment import Place, train_rounds
from feda4fair.fl.settings import Settings

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def test_the_example_of_a_method_trains(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8").partition("## Add a federated")[2]
    (code,) = re.findall(r"```python\n(.*?)```", text.partition("\n## ")[0], re.S)
    (tmp_path / "balanced.py").write_text(code, "utf-8")
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    try:
        assert "balanced" in methods.method_names()
        chosen = Settings(
            method="balanced", mitigate="sex", options={"power": 0.5}, rounds=1, batch=32
        )
        history = train_rounds(Place(build=built, config="attribute-silo"), chosen, None)
        assert all(np.isfinite(array).all() for array in history.arrays)
    finally:
        sys.modules.pop("feda4fair.fl.methods.balanced", None)
