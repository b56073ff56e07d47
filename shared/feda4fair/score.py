"""The one scorer: predictions in, the standard result out, for any method and any config.

Two protocols. ``injected`` scores the test rows as they are, labels changed by injection
included, as the paper does. ``restored`` undoes injection in the test rows: labels are the
source's, and the rows that injection dropped are back. Most of the disparity of a model may sit
in the test rows, so that neither figure replaces the other.

There is no single rank: accuracy stands beside every disparity, since a constant prediction has
disparity 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from feda4fair.cube import Cube
from feda4fair.errors import MeasureError, RecipeError
from feda4fair.federation import Federation
from feda4fair.harm import Harm, compare
from feda4fair.heldout import HeldOut, Predictions, held_out, read_predictions
from feda4fair.measurement import contenders
from feda4fair.rates import Against
from feda4fair.readback import read_federation, recipe_sha256
from feda4fair.report import measure_cube
from feda4fair.scorecard import Marks, Protocol, Score
from feda4fair.split import SPLITS

__all__ = ["Marks", "Protocol", "Score", "open_config", "score", "score_rows", "scored_rows"]


def score(
    predictions: Predictions,
    where: Path | str | Federation,
    config: str | None = None,
    *,
    local: Predictions | None = None,
    baseline: Predictions | None = None,
    against: Against = "rest",
    method: str = "predictions",
    mitigated: str | None = None,
    training_seed: int | None = None,
) -> Score:
    """Score predictions of the test split of a config.

    Parameters
    ----------
    predictions : table or path
        ``client_id, row_id, prediction`` (0 or 1), one row for each row of the test split. The
        rows of that split which injection dropped are predicted too, or all left out; without
        them the restored protocol is not scored. See :data:`feda4fair.heldout.Predictions`.
    where : Path or Federation
        A built folder, or a federation.
    config : str, optional
        Config of the folder.
    local, baseline : table or path, optional
        Predictions of each client's local model, and of a method to compare with (FedAvg). They
        may cover fewer rows; clients are compared on the rows in common.
    against : {"rest", "pairs"}
        Definition of the disparities.
    method : str
        Name of the method.
    mitigated : str, optional
        Attribute that the method was to be fair to.
    training_seed : int, optional
        Seed of the method, recorded.

    Returns
    -------
    Score

    Raises
    ------
    MeasureError
        If rows are missing, doubled or foreign, or predictions are not 0 or 1.
    OutputError
        If the folder cannot be read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from feda4fair import Column, Label, Natural, Recipe, Schema, federate_table
    >>> sex = Column(name="sex", dtype="int8", role="sensitive")
    >>> recipe = Recipe(
    ...     dataset="demo",
    ...     name="demo",
    ...     schema=Schema(columns=(sex,), label=Label(column="y")),
    ...     partition=Natural(column="who"),
    ... )
    >>> rows = {"who": ["a"] * 20 + ["b"] * 20, "sex": [1, 2] * 20, "y": [1, 0, 1, 1] * 10}
    >>> federation = federate_table(pa.table(rows), recipe)
    >>> test = federation.table.filter(pa.array(federation.split == 2))
    >>> guess = test.select(["client_id", "row_id"]).append_column("prediction", test["sex"])
    >>> score(guess, federation)
    Traceback (most recent call last):
    feda4fair.errors.MeasureError: predictions: prediction: got the labels 1, 2, expected 0 and 1
    (or bool) with 1 the favorable outcome; name the favorable one with pos_label, or reduce to
    two classes.
    >>> right = guess.set_column(2, "prediction", test["label"])
    >>> score(right, federation).clients()["accuracy"].to_dict()
    {'a': 1.0, 'b': 1.0, 'pooled': 1.0}
    """
    federation = open_config(where, config)
    return score_rows(
        predictions,
        scored_rows(federation),
        references={"local": local, "baseline": baseline},
        against=against,
        method=method,
        mitigated=mitigated,
        training_seed=training_seed,
    )


def open_config(
    where: Path | str | Federation, config: str | None, *, features: bool = False
) -> Federation:
    """Return a federation as it is, or read a config of a folder, features only when wanted."""
    if isinstance(where, Federation):
        return where
    if config is None:
        raise RecipeError(f"{where}: name one of its configs, such as 'value-silo'.")
    return read_federation(Path(where), config, features=features)


def scored_rows(federation: Federation) -> HeldOut:
    """Return the rows of the test split, with those that injection dropped from it."""
    kept = federation.split == SPLITS.index("test")
    gone = pc.equal(federation.dropped["split"], "test").to_numpy()
    return held_out(federation, kept, np.asarray(gone), what="test split")


def score_rows(
    predictions: Predictions,
    rows: HeldOut,
    *,
    references: Mapping[str, Predictions | None] | None = None,
    against: Against = "rest",
    method: str = "predictions",
    mitigated: str | None = None,
    training_seed: int | None = None,
) -> Score:
    """Score predictions of any held-out rows; :func:`score` does so for the test split.

    Parameters
    ----------
    predictions, against, method, mitigated, training_seed
        As in :func:`score`.
    rows : HeldOut
        The rows.
    references : mapping of str to predictions, optional
        Further predictions to compare with, by name.
    """
    recipe = rows.recipe
    known = [attribute.name for attribute in rows.attributes]
    if mitigated is not None and mitigated not in known:
        raise MeasureError(
            f"mitigated attribute {mitigated!r}: {recipe} has {', '.join(known)}; name one."
        )
    sha256 = recipe_sha256(recipe)
    guess = rows.align(read_predictions(predictions, method, recipe_sha256=sha256), method)
    others = {
        name: rows.align(read_predictions(table, name, recipe_sha256=sha256), name, partial=True)
        for name, table in (references or {}).items()
        if table is not None
    }
    here = ~rows.dropped
    whole = bool((guess >= 0).all())
    clean = replace(rows, label=(rows.label ^ rows.flipped).astype(np.int8))

    def marks(part: HeldOut, mask: NDArray[np.bool_]) -> Marks:
        chosen = {name: table[mask] for name, table in others.items()}
        return _measure(part.take(mask), guess[mask], chosen, against)

    return Score(
        dataset=recipe.dataset,
        config=recipe.name,
        control=recipe.control,
        recipe_sha256=sha256,
        injection_seed=recipe.seed,
        training_seed=training_seed,
        method=method,
        mitigated=mitigated,
        rows=rows.what,
        injected=marks(rows, here),
        restored=marks(clean, np.ones(len(here), np.bool_)) if whole else None,
    )


def _measure(
    rows: HeldOut,
    guess: NDArray[np.int8],
    others: Mapping[str, NDArray[np.int8]],
    against: Against,
) -> Marks:
    cube = _count(rows, guess)
    harms: list[Harm] = []
    for name, other in others.items():
        common = other >= 0
        counts = np.stack(
            [
                _count(
                    rows.take(common & (other == value)), guess[common & (other == value)]
                ).counts
                for value in (0, 1)
            ],
            axis=-1,
        )
        harms += compare(
            counts,
            clients=rows.names,
            attributes=rows.attributes,
            reference=name,
            against=against,
            seed=rows.recipe.seed,
            scope=rows.recipe.name,
        )
    report = measure_cube(cube, against=against, compare=contenders(rows.recipe))
    return Marks(report=report, harms=tuple(harms))


def _count(rows: HeldOut, guess: NDArray[np.int8]) -> Cube:
    return Cube.count(
        clients=rows.client,
        client_names=rows.names,
        attributes={
            attribute.name: (
                rows.codes[attribute.name],
                dict(zip(attribute.codes, attribute.values, strict=True)),
            )
            for attribute in rows.attributes
        },
        y_true=rows.label,
        y_pred=guess,
    )
