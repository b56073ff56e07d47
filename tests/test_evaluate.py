"""Local models, the rows they train on, and scripts/evaluate.py as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from feda4fair.assign import pieces
from feda4fair.build import build, federations
from feda4fair.columns import Coding, Column, Label
from feda4fair.errors import MeasureError, MissingExtraError
from feda4fair.evaluate import leak_changes, leaky_clients, local_models
from feda4fair.federation import Federation, concat
from feda4fair.ownsplit import cuts
from feda4fair.partition import Natural
from feda4fair.recipe import BiasRule, ClientGroup, ClientSplit, Recipe, RowSplit
from feda4fair.schema import Schema
from feda4fair.score import score, score_rows, scored_rows
from feda4fair.scorecard import Score
from feda4fair.steps import federate_table
from feda4fair_acs import DATASET
from feda4fair_acs.source import SampleSource

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "evaluate.py"
SOURCE = SampleSource(parts=("AK", "AL", "KY", "OR", "SD", "TN"))
OWN = RowSplit(validation=0.0, test=0.2)


def federation_of(config: str, source: Any = SOURCE, **changes: Any) -> Federation:
    return concat(federations(replace(DATASET.recipe(config), **changes), source))


@pytest.fixture(scope="module")
def silo() -> Federation:
    return federation_of("attribute-silo")


def small(
    columns: dict[str, Any], dtypes: dict[str, str], split: Any = None, **changes: Any
) -> Federation:
    """Return two clients of 60 rows whose label follows x, with the given features."""
    rng = np.random.RandomState(0)
    n = 120
    x = rng.rand(n)
    table = pa.table(
        {
            "who": np.repeat(["a", "b"], n // 2),
            "g": rng.randint(1, 3, n),
            "x": x,
            "y": (x + 0.3 * rng.rand(n) > 0.6).astype(int),
        }
        | columns
    )
    recipe = Recipe(
        dataset="demo",
        name="demo",
        schema=Schema(
            columns=(
                Column(name="x", dtype="float64"),
                Column(name="g", dtype="int8", role="sensitive", coding=GROUP),
                *(Column(name=name, dtype=dtype) for name, dtype in dtypes.items()),
            ),
            label=Label(column="y"),
        ),
        partition=Natural(column="who"),
        split=split or RowSplit(),
        **changes,
    )
    return federate_table(table, recipe)


GROUP = Coding(names=((1, "one"), (2, "two")))
RULES = (ClientGroup(name="all", rules=(BiasRule(where={"g": "two"}, drop=0.5, flip=0.2),)),)


# Which rows


def test_a_silo_trains_on_train_and_validation_in_the_released_order(silo: Federation) -> None:
    for client, cut in zip(silo.clients, cuts(silo), strict=True):
        frame = silo.client(client.name).to_pandas().sort_values("row_id")
        shuffled = frame.iloc[np.random.default_rng(42).permutation(len(frame))]
        train, test = train_test_split(
            shuffled, test_size=0.2, random_state=42, stratify=shuffled[["SEX", "RAC1P"]]
        )
        ids = silo.table["row_id"].to_numpy()
        assert ids[cut.train].tolist() == train.row_id.tolist()
        assert sorted(ids[cut.test]) == sorted(test.row_id)
        gone = silo.dropped.take(pa.array(cut.gone)).to_pandas()
        dropped = silo.dropped_of(client.name).to_pandas()
        assert gone.row_id.tolist() == dropped[dropped.split == "test"].row_id.tolist()


@pytest.mark.parametrize("config", ["attribute-device", "value-device"])
def test_a_device_splits_its_piece_of_the_released_order(config: str) -> None:
    federation = federation_of(config)
    whole = federation_of(config.replace("device", "silo"))
    recipe = federation.recipe
    assert recipe.subdivide is not None
    split = replace(OWN, stratify=("SEX", "RAC1P") if config.startswith("attribute") else ())
    ids = federation.table["row_id"].to_numpy()
    for client, cut in zip(federation.clients, cuts(federation, split), strict=True):
        frame = whole.client(client.parent).to_pandas().sort_values("row_id")
        shuffled = frame.iloc[np.random.default_rng(42).permutation(len(frame))]
        code = pieces(len(frame), recipe.subdivide.parts, recipe.subdivide.cut)
        piece = shuffled[code == int(client.name[-1])]
        strata = piece[list(split.stratify)] if split.stratify else None
        train, test = train_test_split(piece, test_size=0.2, random_state=42, stratify=strata)
        assert ids[cut.train].tolist() == train.row_id.tolist()
        assert sorted(ids[cut.test]) == sorted(test.row_id)


def test_a_piece_too_small_for_its_strata_is_split_plainly_and_says_so() -> None:
    federation = federation_of("value-device").only(["SD_1"])
    (cut,) = cuts(federation, replace(OWN, stratify=("MAR", "SEX", "RAC1P")))
    (plain,) = cuts(federation, OWN)
    assert cut.note == "SD_1: too few rows to split by MAR, SEX, RAC1P."
    assert np.array_equal(cut.train, plain.train)


def test_rows_that_are_not_the_released_ones_are_refused(silo: Federation) -> None:
    turned = replace(silo, split=np.where(silo.split == 2, 0, 2 * (silo.split == 0)))
    with pytest.raises(MeasureError, match="test rows of AK are not those of the released"):
        cuts(turned)
    device = federation_of("value-device")
    ids = device.table["row_id"].to_numpy().copy()
    ids[0], ids[1] = ids[0] + 10**6, ids[1] + 10**6
    wrong = replace(device, table=device.table.set_column(1, "row_id", pa.array(ids)))
    with pytest.raises(MeasureError, match="rows of AK_0 are no piece of a released AK"):
        cuts(wrong)


@pytest.mark.parametrize("split", [RowSplit(), ClientSplit(test=("a",), folds=0)])
def test_own_recipes_hold_out_a_fifth_before_injection(split: Any) -> None:
    federation = small({}, {}, split, groups=RULES)
    assert federation.dropped.num_rows > 5
    for client, cut in zip(federation.clients, cuts(federation), strict=True):
        every = np.concatenate((cut.train, cut.test))
        assert sorted(every) == list(range(client.start, client.stop))
        assert len(cut.test) + len(cut.gone) == 12
        assert set(federation.dropped["client_id"].take(pa.array(cut.gone)).to_pylist()) <= {
            client.name
        }


@pytest.mark.parametrize("config", ["attribute-silo", "value-device"])
def test_a_control_is_cut_too(config: str) -> None:
    federation = federation_of(config, SampleSource(parts=("OR", "SD", "TN")), control="none")
    assert federation.dropped.num_rows == 0
    for client, cut in zip(federation.clients, cuts(federation), strict=True):
        assert len(cut.train) + len(cut.test) == client.rows
        assert len(cut.test) == pytest.approx(client.rows / 5, abs=0.05 * client.rows)


# Models


def test_logistic_regression_is_the_plain_one_on_plain_features(silo: Federation) -> None:
    one = silo.only(["OR"])
    local = local_models(one, model="lr")
    (cut,) = cuts(one)
    features = ["AGEP", "COW", "SCHL", "OCCP", "POBP", "RELP", "WKHP"]
    frame = one.table.to_pandas()
    model = LogisticRegression(max_iter=5000).fit(
        frame[features].iloc[cut.train].to_numpy(float), frame["label"].iloc[cut.train]
    )
    wanted = model.predict(frame[features].iloc[cut.test].to_numpy(float))
    found = local.predictions["prediction"].to_numpy()[: len(cut.test)]
    assert (found == wanted).mean() > 0.99  # the default solver stops near the optimum
    assert local.predictions.num_rows == len(cut.test) + len(cut.gone)
    assert local.notes == ()


def test_models_never_see_sensitive_attributes_or_provenance() -> None:
    federation = federation_of("value-silo").only(["SD", "TN"])
    before = local_models(federation, model="lr").predictions
    table = federation.table
    for name in ("SEX", "MAR", "RAC1P"):
        codes = pa.array(np.ones(table.num_rows), table[name].type)
        table = table.set_column(table.column_names.index(name), name, codes)
    flipped = pa.array(np.ones(table.num_rows, np.bool_))
    table = table.set_column(table.column_names.index("flipped"), "flipped", flipped)
    after = local_models(replace(federation, table=table), model="lr").predictions
    assert after == before


def test_any_number_of_workers_gives_the_same(silo: Federation, untouched_random: None) -> None:
    one = local_models(silo, model="lr")
    assert local_models(silo, model="lr", workers=2).predictions == one.predictions
    alone = local_models(silo.only(["OR"]), model="lr").predictions
    every = one.predictions.to_pandas()
    assert alone.to_pandas().equals(every[every.client_id == "OR"].reset_index(drop=True))


def test_xgboost_gives_the_same_in_any_number_of_workers(silo: Federation) -> None:
    pytest.importorskip("xgboost", reason="needs the extra models")
    one = silo.only(["OR", "SD"])
    first = local_models(one, model="xgb")
    assert first.method == "XGBoost"
    assert local_models(one, model="xgb", workers=2).predictions == first.predictions
    assert score_rows(first.predictions, first.rows).clients()["accuracy"].min() > 0.6


def test_local_predictions_are_scored_as_any_others(silo: Federation) -> None:
    local = local_models(silo, model="lr")
    result = score_rows(local.predictions, local.rows, method=local.method)
    assert result == score(local.predictions, silo, method="LogisticRegression")
    assert result.protocols == ("injected", "restored")
    assert local.rows.names == scored_rows(silo).names


def test_local_models_of_devices_are_compared_on_the_rows_in_common() -> None:
    federation = federation_of("value-device")
    local = local_models(federation, model="lr")
    assert set(local.rows.names) == {client.name for client in federation.clients}
    assert local.rows.what == "20% that each client holds out"
    rows = scored_rows(federation)
    names = np.array(rows.names)[rows.client]
    ones = {"client_id": names, "row_id": rows.row_id, "prediction": np.ones(len(names), int)}
    result = score(ones, federation, local=local.predictions)
    (accuracy, *_) = result.injected.harms
    for name, shared in zip(accuracy.clients, accuracy.rows, strict=True):
        assert shared == pytest.approx(federation.find(name).rows / 5, abs=1)


def test_the_leak_is_a_column_of_clients_with_dropped_rows_only(silo: Federation) -> None:
    assert leaky_clients(silo) == {"AL", "KY", "OR", "TN"}
    assert leaky_clients(federation_of("attribute-device")) == {
        client.name for client in federation_of("attribute-device").clients
        if client.parent in ("AL", "KY", "OR", "TN")
    }  # fmt: skip
    plain, leaked = (local_models(silo, model="lr", leak=leak) for leak in (False, True))
    differ = pd.DataFrame(
        {
            "client": plain.predictions["client_id"].to_pandas(),
            "moved": plain.predictions["prediction"].to_numpy()
            != leaked.predictions["prediction"].to_numpy(),
        }
    )
    moved = set(differ[differ.moved].client)
    assert moved
    assert moved <= leaky_clients(silo)
    assert leaked.method == "LogisticRegression (paper-compat)"
    scores = [score_rows(each.predictions, each.rows) for each in (plain, leaked)]
    changes = leak_changes(*scores)
    assert set(changes.index) == {client.name for client in silo.clients}
    assert (changes.loc[["AK", "SD"]] == 0).all(axis=None)
    assert changes.abs().to_numpy().max() > 0


def test_a_config_without_published_figures_has_no_leak(silo: Federation) -> None:
    for other in (small({}, {}), federation_of("attribute-silo", control="none")):
        with pytest.raises(MeasureError, match="leave paper-compat out"):
            local_models(other, model="lr", leak=True)


def test_a_client_of_one_class_predicts_it_and_says_so() -> None:
    federation = small({"y": np.repeat([1, 0, 1], [60, 30, 30])}, {})
    local = local_models(federation, model="lr")
    frame = local.predictions.to_pandas()
    assert (frame[frame.client_id == "a"].prediction == 1).all()
    assert local.notes == ("a: every training label is 1, and so is the guess.",)


def test_a_client_too_small_for_a_model_is_left_out_and_named() -> None:
    rows = np.repeat(["a", "b"], [1, 119])
    federation = small({"who": rows}, {})
    local = local_models(federation, model="lr")
    assert local.rows.names == ("b",)
    assert local.notes == ("a: too few rows for a model of their own; left out.",)
    with pytest.raises(MeasureError, match="no client has rows both to train on and to predict"):
        local_models(federation.only(["a"]), model="lr")


def test_features_that_are_no_numbers_are_refused() -> None:
    text = small({"t": ["u", "v"] * 60}, {"t": "string"})
    with pytest.raises(MeasureError, match="feature t is string, and local models take numbers"):
        local_models(text, model="lr")
    holes = small({"z": [None, 1.0] * 60}, {"z": "float32"})
    with pytest.raises(MeasureError, match="client a have missing values"):
        local_models(holes, model="lr")
    labels = holes.table.select(["client_id", "row_id", "g", "label", "flipped"])
    with pytest.raises(MeasureError, match="no feature x, z to train a local model on"):
        local_models(replace(holes, table=labels), model="lr")


def test_missing_xgboost_names_the_extra(
    silo: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'feda4fair\[models\]'"):
        local_models(silo, model="xgb")


# The script


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)],
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "acs"
    build(DATASET, DATASET.recipes[:2], SOURCE, out, notes=("a part of the sample.",))
    return out


def test_the_script_trains_saves_and_scores(folder: Path, tmp_path: Path) -> None:
    words = ("--model", "lr", "--save-predictions", "p.parquet", "--out", "lr.json")
    done = run(folder, "attribute-silo", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("Clients, injected", "Clients, restored", "pooled", "Summary"):
        assert part in done.stdout
    assert "What the column that leaked into the published LogisticRegression" in done.stdout
    assert "largest change of a disparity: " in done.stdout
    result = Score.from_json(tmp_path / "lr.json")
    assert result.method == "LogisticRegression"

    again = ("--predictions", "p.parquet", "--local", "p.parquet", "--out", "mine.csv")
    done = run(folder, "attribute-silo", *again, "--mitigated", "SEX", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Harm" in done.stdout
    figures = pd.read_csv(tmp_path / "mine.csv", keep_default_na=False)
    wanted = result.figures().assign(model="predictions").reset_index(drop=True)
    pd.testing.assert_frame_equal(figures, wanted, check_dtype=False, rtol=0, atol=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("lr.json", "mine.csv", "p.parquet")
    ]


def test_the_script_compares_both_models_with_the_papers_table(
    folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("xgboost", reason="needs the extra models")
    words = ("--model", "lr", "xgb", "--paper-compat", "--clients", "OR", "SD")
    done = run(folder, "attribute-silo", *words, "--out", "both.csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "(pairs; recipe" in done.stdout
    assert "Table 3 of the paper (DD columns): " in done.stdout
    assert "the table counts 21 clients for Sex and lists 22" in done.stdout
    assert "What the column that leaked" not in done.stdout
    figures = pd.read_csv(tmp_path / "both.csv")
    assert sorted(figures.model.unique()) == [
        "LogisticRegression (paper-compat)",
        "XGBoost (paper-compat)",
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["attribute-silo"], 2, "one of the arguments --model --predictions is required"),
        (["attribute-silo", "--model", "svm"], 2, "invalid choice: 'svm'"),
        (["attribute-silo", "--model", "lr", "--workers", "0"], 2, "at least one process"),
        (["attribute-silo", "--model", "lr", "--out", "x.txt"], 2, "end the name in .json or"),
        (["attribute-silo", "--model", "lr", "xgb", "--out", "x.json"], 2, "one model's result"),
        (
            ["attribute-silo", "--predictions", "p.csv", "--paper-compat"],
            2,
            "--paper-compat goes with --model",
        ),
        (["attribute", "--model", "lr"], 1, "no config 'attribute'; it has attribute-silo"),
        (["attribute-silo", "--model", "lr", "--clients", "XX"], 1, "no client 'XX'"),
        (["attribute-silo", "--model", "lr", "--out", "no/x.json"], 1, "does not exist"),
        (["attribute-silo", "--model", "lr", "--mitigated", "AGEP"], 1, "has MAR, SEX, RAC1P"),
        (["attribute-silo", "--model", "lr", "--local", "p.csv"], 1, "local: cannot be read"),
        (["attribute-silo", "--predictions", "p.csv"], 1, "predictions: cannot be read"),
    ],
)
def test_the_script_fails_with_one_sentence(
    folder: Path, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    done = run(folder, *words, cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ""
    if code == 1:
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_script_names_a_folder_that_is_no_build(tmp_path: Path) -> None:
    done = run(tmp_path, "attribute-silo", "--model", "lr", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "manifest.json: No such file or directory" in done.stderr


def test_help_has_examples(tmp_path: Path) -> None:
    done = run("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "examples:\n  evaluate.py build/acs value-silo --model xgb" in done.stdout


def test_a_prediction_file_of_another_config_is_refused(folder: Path, tmp_path: Path) -> None:
    done = run(folder, "value-silo", "--model", "lr", "--clients", "SD",
               "--save-predictions", "p.parquet", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0
    assert pq.read_table(tmp_path / "p.parquet").column_names == [
        *("client_id", "row_id", "prediction")
    ]
    done = run(folder, "attribute-silo", "--predictions", "p.parquet", cwd=tmp_path)
    assert done.returncode == 1
    assert "predictions: made for the recipe" in done.stderr
