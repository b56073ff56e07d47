"""Tuning: the objective, and a study that is stopped and continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed (extra fl)")
pytest.importorskip("flwr", reason="flwr is not installed (extra fl)")
optuna = pytest.importorskip("optuna", reason="optuna is not installed (extra tune)")

from feda4fair.cube import Attribute  # noqa: E402
from feda4fair.errors import MeasureError, OutputError  # noqa: E402
from feda4fair.fl import tune as module  # noqa: E402
from feda4fair.fl.experiment import Place, train_rounds  # noqa: E402
from feda4fair.fl.history import History  # noqa: E402
from feda4fair.fl.settings import Settings  # noqa: E402
from feda4fair.fl.tune import STUDY, objective, tune  # noqa: E402

SEX = Attribute(name="sex", values=("Male", "Female"), codes=(1, 2))


def settings(method: str = "puffle", **changes: Any) -> Settings:
    return Settings(**{"method": method, "mitigate": "sex", "rounds": 1, **changes})


def place(built: Path, config: str = "attribute-silo") -> Place:
    return Place(build=built, config=config)


def trials(folder: Path) -> list[tuple[float, dict[str, Any]]]:
    study = optuna.load_study(study_name="tune", storage=f"sqlite:///{folder / STUDY}")
    done = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    return [(trial.value, trial.params) for trial in done]


def test_a_stopped_study_goes_on_to_the_same_trials(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    best, value = tune(place(built), settings(), whole, trials=6)
    calls = 0

    def stop(*arguments: Any, **keywords: Any) -> History:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return train_rounds(*arguments, **keywords)

    monkeypatch.setattr(module, "train_rounds", stop)
    with pytest.raises(KeyboardInterrupt):
        tune(place(built), settings(), stopped, trials=6)
    assert len(trials(stopped)) == 3
    assert tune(place(built), settings(), stopped, trials=6) == (best, value)
    assert trials(stopped) == trials(whole)
    assert calls == 7  # three, the stopped one, and three more
    tune(place(built), settings(), stopped, trials=6)
    assert calls == 7


def test_another_study_is_not_continued(built: Path, tmp_path: Path) -> None:
    tune(place(built), settings("fedavg"), tmp_path, trials=1)
    with pytest.raises(OutputError, match="seed differ"):
        tune(place(built), settings("fedavg", seed=1), tmp_path, trials=2)


def history(male: tuple[int, int], female: tuple[int, int], right: int) -> History:
    """Return a validation cube: (predicted 0, predicted 1) by group; labels as predicted."""
    cells = np.zeros((1, 2, 2, 2), np.int64)
    for group, (low, high) in enumerate((male, female)):
        cells[0, group, 0, 0], cells[0, group, 1, 1] = low, high
    wrong = int(cells.sum()) - right
    cells[0, 0, 0, 0] -= wrong
    cells[0, 0, 1, 0] += wrong
    return History(run={}, clients=("a",), attributes=(SEX,), counts=[{"validation": cells}])


@pytest.mark.parametrize(
    ("method", "female", "wanted"),
    [
        ("fedavg", (90, 10), 0.9),  # no target
        ("puffle", (52, 48), 0.9),  # disparity 0.02
        ("puffle", (90, 10), 0.05 - 0.4),
        ("puffle", (55, 45), 0.05 - 0.05),  # the target itself is not below it
    ],
)
def test_the_target_binds_where_a_method_has_one(
    method: str, female: tuple[int, int], wanted: float
) -> None:
    found = objective(history((50, 50), female, right=180), settings(method))
    assert found[0] == pytest.approx(wanted)
    assert found[1] == pytest.approx(0.9)
    assert found[2] == pytest.approx(abs(0.5 - female[1] / 100))


def test_no_validation_rows_no_tuning(built: Path, tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="no client has validation rows"):
        tune(place(built, "value-silo"), settings(), tmp_path / "none", trials=1)
    assert not (tmp_path / "none").exists()
