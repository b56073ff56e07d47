"""Tuning by Bayesian optimization, in a study on disk that can be stopped and continued.

The score of a trial is the pooled accuracy on validation rows. A method with an option ``target``
(PUFFLE) must keep the pooled disparity on them below it: a trial that does not scores minus its
excess, so that every trial that keeps it is better.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from feda4fair import seeds
from feda4fair.errors import MeasureError, MissingExtraError, OutputError
from feda4fair.fl.experiment import Place, train_rounds
from feda4fair.fl.history import History
from feda4fair.fl.methods import open_method
from feda4fair.fl.settings import Settings
from feda4fair.fl.steps import OPTIMIZERS
from feda4fair.harm import figures

try:
    import optuna
except ImportError:
    raise MissingExtraError(
        "tuning needs optuna, which is not installed; run pip install 'feda4fair[tune]'."
    ) from None

__all__ = ["STUDY", "objective", "tune"]

STUDY = "study.db"
"""Name of the study's file in its folder."""

BATCHES = (16, 32, 64, 128, 256, 512)


def tune(
    place: Place, settings: Settings, folder: Path, *, trials: int, workers: int = 1
) -> tuple[Settings, float]:
    """Search settings until a number of trials is finished.

    Parameters
    ----------
    place : Place
        What to train on; needs validation rows.
    settings : Settings
        Method, attribute, rounds and seed; learning rate, batch size, optimizer, epochs and the
        method's options are searched.
    folder : Path
        Where the study lies; a study that is there goes on. The same seed gives the same trials,
        however often it was stopped.
    trials : int
        Number of finished trials after which the search ends.
    workers : int, default 1
        Processes.

    Returns
    -------
    Settings, float
        The best settings and their score.

    Raises
    ------
    MeasureError
        If there are no validation rows.
    OutputError
        If the study in the folder is another one.
    """
    if not place.rows().count("validation").any():
        raise MeasureError(
            f"{place.rows().federation}: no client has validation rows, so nothing can be tuned; "
            "give the split a share of validation rows, or folds."
        )
    folder.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(logging.WARNING)
    study = _open(place, settings, folder)
    for stale in study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
        study.tell(stale.number, state=optuna.trial.TrialState.FAIL)
    with tqdm(total=trials, desc=f"tuning {settings.method}", disable=None) as bar:
        while (done := len(_finished(study))) < trials:
            bar.update(done - bar.n)
            # A sampler for each trial, keyed by their number: a stop leaves no trace.
            key = seeds.key(settings.seed, "tune", done) % 2**32
            study.sampler = optuna.samplers.TPESampler(
                seed=key, n_startup_trials=min(10, trials // 3 + 1)
            )
            trial = study.ask()
            wanted = _suggest(trial, settings)
            trial.set_user_attr("settings", wanted.plain())
            history = train_rounds(place, wanted, None, workers=workers, progress=False)
            value, accuracy, disparity = objective(history, wanted)
            trial.set_user_attr("validation", {"accuracy": accuracy, "disparity": disparity})
            study.tell(trial, value)
        bar.update(trials - bar.n)
    best = max(_finished(study), key=lambda trial: (trial.value, -trial.number))
    return Settings(**best.user_attrs["settings"]), float(best.value)


def objective(history: History, settings: Settings) -> tuple[float, float, float]:
    """Return the score of a finished run, its validation accuracy and its disparity.

    The disparity is the pooled demographic disparity of the mitigated attribute on the
    validation rows.
    """
    found = figures(history.cube("validation").pooled(), "rest")
    accuracy = float(found["accuracy", ""][0])
    disparity = float(found["DD", settings.mitigate][0])
    target = getattr(open_method(settings.method, settings.options), "target", None)
    if target is not None and not disparity < target:
        return target - disparity, accuracy, disparity
    return accuracy, accuracy, disparity


def _suggest(trial: Any, settings: Settings) -> Settings:
    method = open_method(settings.method, settings.options)
    return replace(
        settings,
        rate=trial.suggest_float("rate", 1e-3, 0.3, log=True),
        batch=trial.suggest_categorical("batch", BATCHES),
        optimizer=trial.suggest_categorical("optimizer", OPTIMIZERS),
        epochs=trial.suggest_int("epochs", 1, 3),
        options=method.search(trial),
    )


def _open(place: Place, settings: Settings, folder: Path) -> Any:
    """Open or begin the study; refuse one of another run."""
    searched = ("rate", "batch", "optimizer", "epochs")
    plain = {name: value for name, value in settings.plain().items() if name not in searched}
    identity = {**asdict(place), "build": place.rows().federation, **plain}
    study = optuna.create_study(
        storage=f"sqlite:///{(folder / STUDY).resolve()}",
        study_name="tune",
        direction="maximize",
        load_if_exists=True,
    )
    known = study.user_attrs.get("run")
    if known is None:
        study.set_user_attr("run", identity)
    elif known != identity:
        changed = sorted(name for name in identity if known.get(name) != identity[name])
        raise OutputError(
            f"{folder / STUDY}: is the study of another run ({', '.join(changed)} differ); name "
            "another folder."
        )
    return study


def _finished(study: Any) -> list[Any]:
    done: list[Any] = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    return done
