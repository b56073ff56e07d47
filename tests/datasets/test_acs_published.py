"""What the paper and its authors published about local models, from real rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feda4fair.build import federations
from feda4fair.errors import MeasureError
from feda4fair.evaluate import MODELS, Model, local_models
from feda4fair.federation import Federation, concat
from feda4fair.ownsplit import OWN_SPLIT
from feda4fair.report import FairnessReport
from feda4fair.score import score_rows
from feda4fair.scorecard import Score
from feda4fair_acs import DATASET
from feda4fair_acs.published import (
    OWN_SPLITS,
    PRINTED_COUNTS_3,
    TABLE_3,
    TABLE_3_EOD,
    TABLES,
    winners,
)
from feda4fair_acs.schema import STATES

CONFIGS = ("attribute-silo", "value-silo", "attribute-device", "value-device")
CLIENTS = {"attribute-silo": 49, "value-silo": 49, "attribute-device": 109, "value-device": 97}
"""Clients whose rows are available: all but those of California and Florida."""

# Dropped by Sex (PR, WY, TN) and by Race (DE), flips only (ME), neither (AK, SD).
HANDFUL = ("AK", "DE", "ME", "PR", "SD", "TN", "WY")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDA4FAIR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def expand(tools: Path, out: Path, *states: str) -> Path:
    maker = [sys.executable, str(tools / "make_pums.py"), "--out", str(out)]
    wanted = ["--states", *states] if states else []
    subprocess.run([*maker, *wanted], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def some(shared_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return expand(shared_tools, tmp_path_factory.mktemp("some"), *HANDFUL)


@pytest.fixture(scope="module")
def every(shared_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return expand(shared_tools, tmp_path_factory.mktemp("every"))


def federation_of(config: str, source: Path) -> Federation:
    recipe = DATASET.recipe(config)
    rows = DATASET.open_source(source, recipes=[recipe], allow_missing=True)
    return concat(federations(recipe, rows))


def scores(federation: Federation, *models: Model) -> list[Score]:
    """Return the scores of local models, trained as the published ones were."""
    if "xgb" in models:
        pytest.importorskip("xgboost", reason="needs the extra models")
    split = OWN_SPLITS.get(federation.recipe.name, OWN_SPLIT)
    local = [local_models(federation, model=m, leak=True, split=split) for m in models]
    return [
        score_rows(each.predictions, each.rows, against="pairs", method=each.method)
        for each in local
    ]


def published(shared_data: Path, model: Model) -> pd.Series:
    path = shared_data / "expected" / "acs_published_model_perf_attribute_silo.csv"
    read = pd.read_csv(path).fillna({"attribute": ""})
    read = read[read.model == MODELS[model]].drop_duplicates(["client_id", "metric", "attribute"])
    return read.set_index(["client_id", "metric", "attribute"])["value"]


def differences(score: Score, expected: pd.Series) -> pd.Series:
    """Return every figure of the clients minus the published one."""
    found = score.figures().query("protocol == 'injected' and client_id != 'pooled'")
    found = found.assign(metric=found.metric.replace({"DD": "DP", "EOD": "EO"}))
    values = found.set_index(["client_id", "metric", "attribute"])["value"]
    assert len(values) == 7 * len(score.injected.report.clients)
    return values - expected[values.index]


# The tables as data


def test_every_table_names_every_client_once() -> None:
    for config, (number, table) in TABLES.items():
        keep = DATASET.recipe(config).keep
        assert tuple(sorted(table)) == (STATES if keep is None else keep), number
    assert [len(table) for _, table in TABLES.values()] == [51, 51, 111, 100]


def test_table_3_counts_21_clients_for_sex_and_lists_22() -> None:
    listed = {name: len(text.split()) for name, text in TABLE_3.items()}
    assert PRINTED_COUNTS_3 == {"Sex": 21, "Race": 29}
    assert listed == {"Sex": 22, "Race": 29}
    assert sum(listed.values()) == len(STATES)
    eod = " ".join(TABLE_3_EOD.values()).split()
    assert len(eod) == 17
    assert set(eod) <= set(STATES)


def test_values_are_counted_as_table_4_prints() -> None:
    _, table = TABLES["value-silo"]
    counts = pd.Series(table).value_counts().to_dict()
    assert counts == {"Others": 24, "Alaska Native/American Indian": 16, "Black": 9, "Asian": 2}


def test_other_configs_have_no_table() -> None:
    with pytest.raises(MeasureError, match="mine: no table of the paper; it has attribute-silo"):
        winners("mine", [])


# Real rows: some states


def test_published_xgboost_is_met_exactly(some: Path, shared_data: Path) -> None:
    (score,) = scores(federation_of("attribute-silo", some), "xgb")
    assert differences(score, published(shared_data, "xgb")).abs().max() <= 1e-9


def test_published_logistic_regression_is_met(some: Path, shared_data: Path) -> None:
    (score,) = scores(federation_of("attribute-silo", some), "lr")
    assert differences(score, published(shared_data, "lr")).abs().max() <= 1e-3


def test_without_the_leak_figures_move(some: Path, shared_data: Path) -> None:
    federation = federation_of("attribute-silo", some)
    local = local_models(federation, model="lr")
    score = score_rows(local.predictions, local.rows, against="pairs")
    moved = differences(score, published(shared_data, "lr")).abs().groupby("client_id").max()
    assert (moved[["AK", "ME", "SD"]] <= 1e-3).all()
    assert (moved[["DE", "TN", "WY"]] > 1e-3).all()


@pytest.mark.parametrize("config", CONFIGS)
def test_winners_of_some_clients_are_the_papers(some: Path, config: str) -> None:
    found = winners(config, reports(federation_of(config, some)))
    assert len(found) >= 5
    assert [winner for winner in found if not winner.agrees] == []


def reports(federation: Federation) -> list[FairnessReport]:
    return [score.injected.report for score in scores(federation, "lr", "xgb")]


def test_ties_are_listed_and_the_paper_prints_the_lowest_code(some: Path) -> None:
    federation = federation_of("value-silo", some).only(["PR"])
    (score,) = scores(federation, "xgb")
    (found,) = winners("value-silo", [score.injected.report])
    assert found.found == ("Asian", "Alaska Native/American Indian")
    assert found.printed == "Asian"
    assert found.agrees


# Real rows: all clients


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
def test_winners_of_all_clients_are_the_papers(every: Path, config: str) -> None:
    found = winners(config, reports(federation_of(config, every)))
    wrong = [winner for winner in found if not winner.agrees]
    number = TABLES[config][0]
    sys.stdout.write(f"Table {number}: {len(found) - len(wrong)} of {len(found)}\n")
    assert wrong == []
    assert len(found) == CLIENTS[config]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "bound"), [("xgb", 1e-9), ("lr", 1e-3)])
def test_published_figures_of_all_states(
    every: Path, shared_data: Path, model: Model, bound: float
) -> None:
    (score,) = scores(federation_of("attribute-silo", every), model)
    off = differences(score, published(shared_data, model)).abs()
    states = off.groupby("client_id").max()
    sys.stdout.write(
        f"{MODELS[model]}: {len(off)} figures of {len(states)} states, largest difference "
        f"{off.max():.1e}, states that differ {states[states > 1e-9].round(5).to_dict()}\n"
    )
    assert len(states) == 49
    assert off.max() <= bound


@pytest.mark.slow
def test_the_leak_moves_disparities(every: Path) -> None:
    pytest.importorskip("xgboost", reason="needs the extra models")
    federation = federation_of("attribute-silo", every)
    plain, leaked = (
        score_rows(local.predictions, local.rows, against="pairs").clients()
        for local in (local_models(federation, model="xgb", leak=leak) for leak in (False, True))
    )
    columns = ["DD SEX", "DD RAC1P"]
    change = leaked[columns] - plain[columns]
    sys.stdout.write(f"largest changes of DD by the leak: {change.abs().max().to_dict()}\n")
    assert np.isfinite(change.to_numpy()).all()
    assert change.abs().to_numpy().max() > 0.03
    assert (change.loc[["AK", "ME", "MT", "SD"]] == 0).all(axis=None)  # nothing dropped
