"""One experiment: train, predict, score, and write the results folder.

::

    experiment.json      what ran: settings, seeds, recipe hash, versions, degenerate clients
    rounds.parquet       every figure of every client and of all, after every round
    counts.parquet       the counts behind them
    predictions.parquet  predictions of the test rows, dropped ones too
    score.json           the standard result, both protocols (feda4fair.score)
    rounds.npz           checkpoint: the model and the counts after the last round
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from feda4fair import __version__
from feda4fair.errors import MeasureError, OutputError
from feda4fair.federation import Federation
from feda4fair.fl.history import History
from feda4fair.fl.local_grid import run_local
from feda4fair.fl.rows import Rows, clean, load_rows
from feda4fair.fl.server_app import CHECKPOINT, Finish
from feda4fair.fl.settings import Settings
from feda4fair.fl.training import predict
from feda4fair.heldout import Predictions, write_predictions
from feda4fair.rates import Against
from feda4fair.readback import read_federation, recipe_sha256
from feda4fair.recipe import RowSplit
from feda4fair.score import Score, score_rows, scored_rows

__all__ = [
    "BACKENDS",
    "Backend",
    "Place",
    "degenerate",
    "predictions",
    "run",
    "train_rounds",
    "write_results",
]

Backend = Literal["local", "ray"]

BACKENDS: tuple[Backend, ...] = get_args(Backend)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is trained on: a config of a built folder, as it is or as its no-rules control."""

    build: Path
    config: str
    control: Literal["", "none"] = ""

    def rows(self) -> Rows:
        """Return the rows of the clients."""
        return load_rows(str(self.build), self.config, self.control)

    def federation(self) -> Federation:
        """Return the federation, without features."""
        federation = read_federation(self.build, self.config, features=False)
        return clean(federation) if self.control else federation

    def flat(self) -> dict[str, str]:
        """Return the place as Flower's run config takes it."""
        return {"build": str(self.build), "config": self.config, "control": self.control}


def run(
    place: Place,
    settings: Settings,
    out: Path,
    *,
    resume: bool = False,
    workers: int = 1,
    backend: Backend = "local",
    references: Mapping[str, Predictions | None] | None = None,
    against: Against = "rest",
) -> Score:
    """Train, and write the results folder.

    Parameters
    ----------
    place : Place
        What to train on.
    settings : Settings
        How.
    out : Path
        The results folder; made where it does not exist.
    resume : bool, default False
        Go on from the checkpoint in ``out``, if there is one.
    workers : int, default 1
        Processes of the local backend; any number gives the same figures.
    backend : {"local", "ray"}
        Where clients run.
    references : mapping of str to predictions, optional
        Predictions to compare with, client by client: ``local`` models, FedAvg's as
        ``baseline``.
    against : {"rest", "pairs"}
        Definition of the disparities.

    Returns
    -------
    Score
        Of the last round's model, both protocols.

    Raises
    ------
    MeasureError
        If the config cannot be trained on, or lacks the attribute to mitigate.
    OutputError
        If the folder holds another run, or cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out}: cannot be made ({error.strerror}); name another.") from None
    if (out / CHECKPOINT).exists() and not resume:
        raise OutputError(
            f"{out}: holds a run already; --resume goes on with it, or name another folder."
        )
    history = train_rounds(place, settings, out, workers=workers, backend=backend)
    return write_results(place, settings, history, out, references=references, against=against)


def train_rounds(
    place: Place,
    settings: Settings,
    out: Path | None,
    *,
    workers: int = 1,
    backend: Backend = "local",
    progress: bool = True,
) -> History:
    """Train all rounds, from the checkpoint in ``out`` if it holds one.

    Parameters
    ----------
    out : Path or None
        Folder of the checkpoint; None for none.
    progress : bool, default True
        Show a bar where there is a terminal.
    place, settings, workers, backend
        As in :func:`run`.
    """
    rows = place.rows()
    _check(rows, settings)
    finished: list[History] = []
    title = f"{settings.method} on {place.config}" + (" (no rules)" if place.control else "")
    with tqdm(total=settings.rounds, desc=title, disable=None if progress else True) as bar:

        def finish(history: History) -> None:
            finished[:] = [history]
            bar.update(history.rounds - bar.n)

        config = {
            **place.flat(),
            **settings.flat(),
            "out": "" if out is None else str(out),
            "resume": True,
        }
        _start(rows, config, finish, workers, backend)
    return finished[0]


def _start(
    rows: Rows, config: dict[str, Any], finish: Finish, workers: int, backend: Backend
) -> None:
    if backend == "ray":
        from feda4fair.fl.simulation import run_ray

        run_ray(len(rows.clients), config, finish=finish)
    else:
        run_local(load_rows, len(rows.clients), config, finish=finish, workers=workers)


def _check(rows: Rows, settings: Settings) -> None:
    known = [attribute.name for attribute in rows.attributes]
    if settings.mitigate not in known:
        raise MeasureError(
            f"mitigated attribute {settings.mitigate!r}: {rows.federation} has "
            f"{', '.join(known)}; name one."
        )
    for part in ("train", "test"):
        if not rows.count(part).any():
            raise MeasureError(f"{rows.federation}: no client has {part} rows; choose others.")


def write_results(
    place: Place,
    settings: Settings,
    history: History,
    out: Path,
    *,
    references: Mapping[str, Predictions | None] | None = None,
    against: Against = "rest",
) -> Score:
    """Write the results of a finished run, and return its score; see :func:`run`."""
    rows, federation = place.rows(), place.federation()
    guessed = predictions(rows, history)
    sha256 = recipe_sha256(federation.recipe)
    score = score_rows(
        guessed,
        scored_rows(federation),
        references=references,
        against=against,
        method=settings.method,
        mitigated=settings.mitigate,
        training_seed=settings.seed,
    )
    facts = {
        "dataset": federation.recipe.dataset,
        "config": federation.recipe.name,
        "control": federation.recipe.control,
        "recipe_sha256": sha256,
        "injection_seed": federation.recipe.seed,
        "settings": settings.plain(),
        "versions": _versions(),
        "rows": {part: int(rows.count(part).sum()) for part in ("train", "validation", "test")},
        "degenerate": degenerate(history, federation, settings.mitigate),
    }
    try:
        (out / "experiment.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
        (out / "score.json").write_text(score.to_json(), "utf-8")
        history.table(against).to_parquet(out / "rounds.parquet", index=False)
        _counts(history).to_parquet(out / "counts.parquet", index=False)
    except OSError as error:
        raise OutputError(f"{out}: cannot be written ({error.strerror}); name another.") from None
    write_predictions(guessed, out / "predictions.parquet", recipe_sha256=sha256)
    return score


def predictions(rows: Rows, history: History) -> pa.Table:
    """Return the final model's predictions of all test rows, those that were dropped too."""
    guess = predict(rows, slice(0, len(rows.label)), history.arrays)
    chosen, owner = [], []
    for client in range(len(rows.clients)):
        first, last = rows.part(client, "test").start, rows.part(client, "gone").stop
        chosen.append(np.arange(first, last))
        owner.append(np.full(last - first, client))
    where: NDArray[np.int64] = np.concatenate(chosen)
    return pa.table(
        {
            "client_id": pa.array(rows.clients).take(pa.array(np.concatenate(owner))),
            "row_id": rows.row_id[where],
            "prediction": guess[where],
        }
    )


def degenerate(history: History, federation: Federation, mitigate: str) -> dict[str, list[str]]:
    """Return clients whose training rows are no full problem, by what they lack.

    They train like all others, with finite weights, and count by their rows.
    """
    cells = history.counts[0]["train"]
    shape = [len(attribute.values) for attribute in history.attributes]
    axis = [attribute.name for attribute in history.attributes].index(mitigate)
    full = cells.sum(axis=3).reshape(len(cells), *shape, 2)
    others = tuple(i + 1 for i in range(len(shape)) if i != axis)
    table = full.sum(axis=others)  # clients, groups, labels
    rows = table.sum(axis=(1, 2))
    found = {
        "one class": (rows > 0) & ((table.sum(axis=1) > 0).sum(axis=1) == 1),
        f"one value of {mitigate}": (rows > 0) & ((table.sum(axis=2) > 0).sum(axis=1) == 1),
    }
    if isinstance(federation.recipe.split, RowSplit):
        found["no training rows"] = rows == 0
    return {
        what: [name for name, here in zip(history.clients, mask, strict=True) if here]
        for what, mask in found.items()
        if mask.any()
    }


def _counts(history: History) -> pd.DataFrame:
    """Return all counts above 0 in long form, with the names of the values."""
    shape = [len(attribute.values) for attribute in history.attributes]
    names = [np.array(attribute.values, dtype=object) for attribute in history.attributes]
    clients = np.array(history.clients, dtype=object)
    blocks = []
    for round_number, counts in enumerate(history.counts):
        for view, table in counts.items():
            client, group, label, guess = np.nonzero(table)
            cells = np.unravel_index(group, shape)
            values = {
                attribute.name: each[cell]
                for attribute, each, cell in zip(history.attributes, names, cells, strict=True)
            }
            blocks.append(
                pd.DataFrame(
                    {
                        "round": round_number,
                        "view": view,
                        "client_id": clients[client],
                        **values,
                        "label": label,
                        "prediction": guess,
                        "rows": table[client, group, label, guess],
                    }
                )
            )
    return pd.concat(blocks, ignore_index=True)


def _versions() -> dict[str, str]:
    named = {name: metadata.version(name) for name in ("flwr", "torch", "numpy", "pyarrow")}
    return {"python": platform.python_version(), "feda4fair": __version__, **named}
