"""What experiment.py and reproduce.py share: defaults by dataset, one config's runs, a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feda4fair.cube import Cube
from feda4fair.errors import MeasureError, RecipeError
from feda4fair.evaluate import MODELS, Model, local_models
from feda4fair.federation import Federation
from feda4fair.fl.experiment import Backend, Place, run
from feda4fair.fl.methods import Option
from feda4fair.fl.settings import Settings
from feda4fair.heldout import HeldOut, read_predictions, write_predictions
from feda4fair.measurement import contenders
from feda4fair.ownsplit import OWN_SPLIT
from feda4fair.readback import read_federation, recipe_sha256
from feda4fair.recipe import RowSplit
from feda4fair.report import FairnessReport, measure_cube
from feda4fair.score import Protocol, Score, score_rows, scored_rows

__all__ = ["DEFAULT_LOCAL", "SEX", "Run", "Study", "comparison", "own_split", "paired"]

DEFAULT_LOCAL: Model = "lr"

SEX = {"acs": "SEX", "dutch": "sex", "celeba": "Male"}
"""The attribute that the paper mitigates, by dataset."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "acs": {"batch": 512, "rate": 1.0, "optimizer": "sgd"},
    "dutch": {"batch": 32, "rate": 0.01},
    "celeba": {"batch": 16, "rate": 0.003, "rounds": 40},
}
"""Settings that differ from those of :class:`Settings`."""

DEFAULT_OPTIONS: dict[str, dict[str, Option]] = {"dutch": {"puffle.weight": 0.75}}
"""Options of methods that differ from their own defaults, by dataset."""

Run = tuple[str, str]
"""A method and a control."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """All runs of one config.

    Parameters
    ----------
    build, config, out
        What is trained on, and the folder of the results.
    mitigate : str or None
        Attribute; None for the one of the paper.
    changes : mapping
        Settings that differ from the defaults.
    options : mapping
        Options of methods, by ``NAME`` or ``METHOD.NAME``.
    trials : int
        Trials of tuning for each method; 0 for none.
    controls : bool
        Whether the no-rules control is trained too.
    backend, workers
        Where clients run.
    """

    build: Path
    config: str
    out: Path
    mitigate: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Option] = field(default_factory=dict)
    trials: int = 0
    controls: bool = True
    backend: Backend = "local"
    workers: int = 1

    @cached_property
    def federation(self) -> Federation:
        """The federation, with features."""
        return read_federation(self.build, self.config)

    def settings(self, methods: Sequence[str]) -> list[Settings]:
        """Return the settings of some methods, before tuning; refuse options of none of them."""
        recipe = self.federation.recipe
        mitigate = self.mitigate or SEX.get(recipe.dataset, recipe.schema.sensitive[0])
        values = {**DEFAULTS.get(recipe.dataset, {}), **self.changes}
        found, used = [], set()
        for method in methods:
            kind = import_module(f"feda4fair.fl.methods.{method}").Method
            names = [each.name for each in fields(kind)]
            options: dict[str, Option] = {}
            given = {**DEFAULT_OPTIONS.get(recipe.dataset, {}), **self.options}
            for key, value in given.items():
                owner, _, name = key.rpartition(".")
                if owner == method or (not owner and name in names):
                    options[name] = value
                    used.add(key)
            found.append(Settings(method=method, mitigate=mitigate, options=options, **values))
        unused = sorted(set(self.options) - used)
        if unused:
            raise RecipeError(f"--set {', '.join(unused)}: no option of {', '.join(methods)}.")
        return found

    def scores(self, methods: Sequence[str], locals_: Sequence[Model]) -> dict[Run, Score]:
        """Train what is not there yet, and score everything.

        Parameters
        ----------
        methods : sequence of str
            FedAvg first; the others are compared with it.
        locals_ : sequence of {"lr", "xgb"}
            Local models; methods are compared with each.

        Returns
        -------
        dict of (str, str) to Score
            By method, or short name of a local model, and control.
        """
        wanted = self.settings(methods)
        self.out.mkdir(parents=True, exist_ok=True)
        scores: dict[Run, Score] = {}
        for model in locals_:
            scores[model, ""] = self._local(model)
        for settings in wanted:
            tuned = self._tuned(settings)
            for control in ("", "none") if self.controls else ("",):
                references: dict[str, Any] = {}
                if not control:
                    references |= {MODELS[m]: self.out / f"local-{m}.parquet" for m in locals_}
                if settings.method != "fedavg":
                    references["fedavg"] = self.folder("fedavg", control) / "predictions.parquet"
                scores[settings.method, control] = run(
                    Place(build=self.build, config=self.config, control=control),
                    tuned,
                    self.folder(settings.method, control),
                    resume=True,
                    workers=self.workers,
                    backend=self.backend,
                    references=references,
                )
        return scores

    def folder(self, method: str, control: str) -> Path:
        """Return the results folder of one run."""
        return self.out / (method + ("-no-rules" if control else ""))

    def _tuned(self, settings: Settings) -> Settings:
        if not self.trials:
            return settings
        from feda4fair.fl.tune import tune

        best, value = tune(
            Place(build=self.build, config=self.config),
            settings,
            self.out / f"tune-{settings.method}",
            trials=self.trials,
            workers=self.workers,
        )
        print(
            f"{settings.method}: best of {self.trials} trials, validation score {value:.4f}: "
            f"rate {best.rate:.4g}, batch {best.batch}, {best.optimizer}, epochs {best.epochs}"
            + "".join(f", {name} {option}" for name, option in best.options.items())
        )
        return best

    def _local(self, model: Model) -> Score:
        """Train local models, unless their predictions are there, and score them."""
        federation = self.federation
        path, saved = (self.out / f"local-{model}.{end}" for end in ("parquet", "json"))
        sha256 = recipe_sha256(federation.recipe)
        if path.exists() and saved.exists():
            score = Score.from_json(saved)
            if score.recipe_sha256 == sha256:
                return score
            raise MeasureError(f"{saved}: belongs to another recipe; name another folder.")
        local = local_models(
            federation, model=model, split=own_split(federation), workers=self.workers
        )
        score = score_rows(local.predictions, local.rows, method=f"local {model}")
        write_predictions(local.predictions, path, recipe_sha256=sha256)
        saved.write_text(score.to_json(), "utf-8")
        return score


def own_split(federation: Federation) -> RowSplit:
    """Return how device clients split their own rows: for ACS as the paper's models did."""
    if federation.recipe.dataset != "acs":
        return OWN_SPLIT
    from feda4fair_acs.published import OWN_SPLITS

    return OWN_SPLITS.get(federation.recipe.name, OWN_SPLIT)


def paired(
    federation: Federation, files: Mapping[str, Path]
) -> dict[Protocol, dict[str, FairnessReport]]:
    """Measure several sets of predictions on the test rows that they all have.

    Parameters
    ----------
    federation : Federation
    files : mapping of str to Path
        Predictions by name.

    Returns
    -------
    dict of protocol to dict of str to FairnessReport
        Clients without common rows are left out.
    """
    rows = scored_rows(federation)
    guesses = {
        name: rows.align(read_predictions(path, name), name, partial=True)
        for name, path in files.items()
    }
    both = np.all([guess >= 0 for guess in guesses.values()], axis=0)
    clean = replace(rows, label=(rows.label ^ rows.flipped).astype(np.int8))
    views: tuple[tuple[Protocol, HeldOut, NDArray[np.bool_]], ...] = (
        ("injected", rows, both & ~rows.dropped),
        ("restored", clean, both),
    )
    return {
        protocol: {name: _report(view.take(mask), guess[mask]) for name, guess in guesses.items()}
        for protocol, view, mask in views
    }


def _report(rows: HeldOut, guess: NDArray[np.int8]) -> FairnessReport:
    cube = Cube.count(
        clients=rows.client,
        client_names=rows.names,
        attributes={
            each.name: (rows.codes[each.name], dict(zip(each.codes, each.values, strict=True)))
            for each in rows.attributes
        },
        y_true=rows.label,
        y_pred=guess,
    )
    held = [name for name, n in zip(rows.names, cube.rows(), strict=True) if n]
    return measure_cube(cube.select(held), compare=contenders(rows.recipe))


def comparison(scores: Mapping[Run, Score]) -> pd.DataFrame:
    """Return one row for each run and protocol.

    Returns
    -------
    pandas.DataFrame
        Pooled accuracy, pooled disparity of every attribute, mean disparity over the clients, and
        the share of clients harmed against each reference in the mitigated attribute, or in the
        first where none is.
    """
    rows = []
    protocols: tuple[Protocol, ...] = ("injected", "restored")
    for (method, control), score in scores.items():
        for protocol in protocols:
            if control and protocol == "restored":
                continue  # without injection both are the same
            table = score.summary()
            table = table[(table["protocol"] == protocol) & (table["figure"] == "DD")]
            harm = score.harm()
            row: dict[str, Any] = {
                "method": f"local {method}" if method in MODELS else method,
                "trained on": "no rules" if control else "injected",
                "scored": "no rules" if control else protocol,
                "accuracy": table["accuracy"].iloc[0],
            }
            for each in table.itertuples():
                row[f"DD {each.attribute}"] = each.pooled
            for each in table.itertuples():
                row[f"mean DD {each.attribute}"] = each.mean
            if len(harm) and score.mitigated:
                chosen = harm[(harm["protocol"] == protocol) & harm["figure"].str.startswith("DD")]
                for reference, figure, share in zip(
                    chosen["against"], chosen["figure"], chosen["harmed"], strict=True
                ):
                    row[f"harmed vs {reference}, {figure}"] = share
            rows.append(row)
    return pd.DataFrame(rows)
