"""Local models: what each client would get alone, the reference of every federated method.

Features are the schema's columns of role "feature"; sensitive attributes and provenance are never
among them. Where rows are split within clients, a client trains on train and validation and
predicts its test rows; where whole clients are test, every client splits its own rows.

The released ACS datasets need care, since models depend on the order of training rows: their rows
are taken in row_id order, put through the recipe's permutation, and then split. The published
figures were also trained with a leaked column, the position of a row in its source; ``leak``
adds it back to reproduce them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Literal, assert_never

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from feda4fair.errors import MeasureError, MissingExtraError
from feda4fair.federation import Federation
from feda4fair.heldout import HeldOut, held_out
from feda4fair.ownsplit import OWN_SPLIT, Cut, cuts
from feda4fair.recipe import ClientSplit, RowSplit
from feda4fair.score import Score

__all__ = ["MODELS", "LocalModels", "Model", "leak_changes", "leaky_clients", "local_models"]

Model = Literal["lr", "xgb"]
Matrix = NDArray[np.float64]
Labels = NDArray[np.int8]

MODELS: dict[Model, str] = {"lr": "LogisticRegression", "xgb": "XGBoost"}
"""Models by short name, with the name that results carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModels:
    """What the local models of all clients predict.

    Parameters
    ----------
    method : str
        Name for results.
    rows : HeldOut
        The rows that were predicted.
    predictions : pyarrow.Table
        ``client_id, row_id, prediction`` of these rows.
    notes : tuple of str
        What did not go as usual, a sentence each.
    """

    method: str
    rows: HeldOut
    predictions: pa.Table
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Task:
    """One client's model: training rows and their labels, and rows to predict."""

    client: str
    model: Model
    train: Matrix
    label: Labels
    predict: Matrix


def local_models(
    federation: Federation,
    *,
    model: Model,
    leak: bool = False,
    split: RowSplit = OWN_SPLIT,
    workers: int = 1,
) -> LocalModels:
    """Train one model for each client on its own rows, and predict its held-out rows.

    Parameters
    ----------
    federation : Federation
        With features; see :func:`feda4fair.readback.read_federation`.
    model : {"lr", "xgb"}
        ``LogisticRegression(max_iter=5000)`` on unscaled features, fitted to its optimum by
        Newton steps, or
        ``XGBClassifier(eval_metric="logloss")``, which needs the extra ``models``.
    leak : bool, default False
        Add the leaked column of the published figures, as the last feature, for clients that
        injection dropped rows from.
    split : RowSplit
        How clients split their own rows in a config split by client.
    workers : int, default 1
        Processes, one thread each; any number gives the same predictions.

    Returns
    -------
    LocalModels
        Rows that injection dropped from the held-out ones are predicted too. Score them with
        :func:`feda4fair.score.score_rows`.

    Raises
    ------
    MissingExtraError
        If xgboost 3 or newer is not installed.
    MeasureError
        If features are not numbers, or the leak is asked of a config that has none.

    References
    ----------
    Feda4Fair, section 5.1.
    """
    if model == "xgb":
        _check_xgboost()
    recipe = federation.recipe
    if leak and (recipe.sampler != "released" or recipe.control):
        raise MeasureError(
            f"{recipe}: no figures were published that its local models could reproduce, so there "
            "is no leaked column; leave paper-compat out."
        )
    leaky = leaky_clients(federation) if leak else frozenset()
    found = cuts(federation, split)
    trained = [cut for cut in found if len(cut.train) and len(cut.test)]
    if not trained:
        raise MeasureError(f"{recipe}: no client has rows both to train on and to predict.")
    tasks = _tasks(federation, model, trained, leaky)
    guesses, notes = [], []
    for guess, note in tqdm(
        _run(tasks, workers), f"fitting {MODELS[model]}", len(trained), leave=None, disable=None
    ):
        guesses.append(guess)
        notes += [note] if note else []
    notes += [cut.note for cut in trained if cut.note]
    left = [cut.client for cut in found if cut not in trained]
    if left:
        notes.append(f"{', '.join(left)}: too few rows for a model of their own; left out.")
    by_client = isinstance(recipe.split, ClientSplit)
    return LocalModels(
        method=MODELS[model] + (" (paper-compat)" if leak else ""),
        rows=held_out(
            federation,
            _mask(federation.table.num_rows, [cut.test for cut in trained]),
            _mask(federation.dropped.num_rows, [cut.gone for cut in trained]),
            what=f"{split.test:.0%} that each client holds out" if by_client else "test split",
        ),
        predictions=_predictions(federation, trained, guesses),
        notes=tuple(notes),
    )


def leaky_clients(federation: Federation) -> frozenset[str]:
    """Return the clients whose published models saw the leaked column.

    It was there wherever rows had been dropped, from the client or from the one it was cut of.
    """
    dropped = {entry.client for entry in federation.ledger if entry.dropped}
    return frozenset(client.name for client in federation.clients if client.parent in dropped)


def leak_changes(plain: Score, leaked: Score) -> Any:
    """Return what the leaked column changed: every figure with it minus without it.

    Returns
    -------
    pandas.DataFrame
        One row per client of ``leaked``, under the injected protocol.
    """
    columns = ["accuracy", *(c for c in plain.clients().columns if c.startswith(("DD", "EOD")))]
    with_it = leaked.clients().drop(index="pooled")[columns]
    return with_it - plain.clients().loc[with_it.index, columns]


def _check_xgboost() -> None:
    try:
        import xgboost
    except ImportError:
        raise MissingExtraError(
            "xgboost is not installed; install the extra that brings it: "
            "pip install 'feda4fair[models]'."
        ) from None
    if int(xgboost.__version__.split(".")[0]) < 3:
        raise MissingExtraError(
            f"xgboost {xgboost.__version__} grows other trees than 3.0 and newer; "
            "pip install --upgrade 'feda4fair[models]'."
        )


def _tasks(
    federation: Federation, model: Model, found: Sequence[Cut], leaky: frozenset[str]
) -> Iterator[_Task]:
    features = _features(federation)
    label = federation.table["label"].to_numpy()
    for cut in found:
        columns = [*features, "row_id"] if cut.client in leaky else features
        here = _matrix(federation.table, np.concatenate((cut.train, cut.test)), columns)
        gone = _matrix(federation.dropped, cut.gone, columns)
        if model == "lr" and (np.isnan(here).any() or np.isnan(gone).any()):
            raise MeasureError(
                f"{federation.recipe}: features of client {cut.client} have missing values, which "
                "logistic regression cannot take; fill them in the source or use xgb."
            )
        train = len(cut.train)
        yield _Task(
            client=cut.client,
            model=model,
            train=here[:train],
            label=label[cut.train].astype(np.int8),
            predict=np.concatenate((here[train:], gone)),
        )


def _features(federation: Federation) -> list[str]:
    recipe = federation.recipe
    columns = [c for c in recipe.schema.columns if c.role == "feature" and c.dtype != "image"]
    absent = [c.name for c in columns if c.name not in federation.table.column_names]
    if absent or not columns:
        raise MeasureError(
            f"{recipe}: no feature {', '.join(absent) or 'column but images'} to train a local "
            "model on; train your own and score its predictions."
        )
    for column in columns:
        kind = federation.table.schema.field(column.name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or kind == pa.bool_()):
            raise MeasureError(
                f"{recipe}: feature {column.name} is {kind}, and local models take numbers; give "
                "it a coding in the schema."
            )
    return [column.name for column in columns]


def _matrix(table: pa.Table, rows: NDArray[np.int64], columns: Sequence[str]) -> Matrix:
    part = table.select(columns).take(pa.array(rows))
    matrix = np.empty((len(rows), len(columns)), dtype=np.float64)
    for position, column in enumerate(part.columns):
        matrix[:, position] = column.cast(pa.float64()).to_numpy()
    return matrix


def _run(tasks: Iterator[_Task], workers: int) -> Iterator[tuple[Labels, str]]:
    if workers == 1:
        yield from map(_fit, tasks)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_fit, tasks)


def _fit(task: _Task) -> tuple[Labels, str]:
    """Train and predict in one thread; return predictions and what is to be said."""
    present = np.unique(task.label)
    if len(present) == 1:
        guess = np.full(len(task.predict), present[0], dtype=np.int8)
        return guess, f"{task.client}: every training label is {present[0]}, and so is the guess."
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier = _classifier(task.model)
        classifier.fit(task.train, task.label)
        guess = classifier.predict(task.predict).astype(np.int8)
    said = sorted({type_name for w in caught if (type_name := w.category.__name__)})
    return guess, f"{task.client}: {', '.join(said)} while fitting." if said else ""


def _classifier(model: Model) -> Any:
    match model:
        case "lr":
            from sklearn.linear_model import LogisticRegression

            # The default solver stops short of the optimum, at a point that depends on the
            # processor's linear algebra (one published EOD is missed by 0.003 on some); Newton
            # steps reach it, and with it 47 of 49 published states to the last row.
            return LogisticRegression(max_iter=5000, solver="newton-cholesky")
        case "xgb":
            from xgboost import XGBClassifier

            return XGBClassifier(eval_metric="logloss", n_jobs=1)
        case _:
            assert_never(model)


def _mask(size: int, parts: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    mask = np.zeros(size, dtype=np.bool_)
    mask[np.concatenate(parts)] = True
    return mask


def _predictions(
    federation: Federation, found: Sequence[Cut], guesses: Sequence[Labels]
) -> pa.Table:
    row_id, gone_id = (t["row_id"].to_numpy() for t in (federation.table, federation.dropped))
    ids = [np.concatenate((row_id[cut.test], gone_id[cut.gone])) for cut in found]
    names = pa.array([cut.client for cut in found])
    client = np.repeat(np.arange(len(found)), [len(part) for part in ids])
    return pa.table(
        {
            "client_id": names.take(pa.array(client)),
            "row_id": np.concatenate(ids),
            "prediction": np.concatenate(guesses),
        }
    )
