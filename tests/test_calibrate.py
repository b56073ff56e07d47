"""Calibrated rates against models trained here, and scripts/calibrate.py as a user calls it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression

from feda4fair import (
    BiasRule,
    ClientGroup,
    Coding,
    Column,
    Federation,
    Gaussian,
    Iid,
    Label,
    Natural,
    Recipe,
    Schema,
    Subdivide,
    federate_table,
    measure,
)
from feda4fair.build import federations
from feda4fair.calibrate import calibrate, calibrate_labels, select_clients
from feda4fair.errors import MeasureError, RecipeError
from feda4fair.evaluate import local_models
from feda4fair.federation import concat
from feda4fair.report import FairnessReport
from feda4fair.score import score_rows
from feda4fair_acs import DATASET
from feda4fair_acs.source import SampleSource

REPOSITORY = Path(__file__).resolve().parent.parent
SCRIPT = REPOSITORY / "scripts" / "calibrate.py"
SEX = Coding(names=((1, "male"), (2, "female")))
RACE = Coding(names=((1, "white"), (2, "black"), (3, "asian")))
FEMALE = BiasRule(where={"sex": "female"}, drop=0.5)


def people(rows: int = 3_000) -> pa.Table:
    """Return rows of clients a, b and c, whose label follows x; x is lower for black people.

    The rows that the label favors come first, so that their position gives it away.
    """
    rng = np.random.RandomState(5)
    race = rng.choice([1, 2, 3], rows, p=[0.6, 0.3, 0.1])
    x = rng.rand(rows) - 0.05 * (race == 2)
    label = (x + 0.4 * rng.rand(rows) > 0.7).astype(int)
    sex = rng.randint(1, 3, rows)
    order = np.argsort(-label, kind="stable")
    columns = {"sex": sex, "race": race, "x": x, "hint": x * (sex == 2), "y": label}
    table = {name: values[order] for name, values in columns.items()}
    return pa.table({"who": np.array(["a", "b", "c"])[np.arange(rows) % 3], **table})


def recipe_of(*groups: ClientGroup, **changes: Any) -> Recipe:
    columns = (
        Column(name="x", dtype="float64"),
        Column(name="hint", dtype="float64"),
        Column(name="sex", dtype="int8", role="sensitive", coding=SEX),
        Column(name="race", dtype="int8", role="sensitive", coding=RACE),
    )
    schema = Schema(columns=columns, label=Label(column="y"))
    partition = changes.pop("partition", Natural(column="who"))
    return Recipe(
        dataset="demo", name="demo", schema=schema, partition=partition, groups=groups, **changes
    )


def own_disparity(federation: Federation, client: str, attribute: str, codes: list[int]) -> float:
    """Return DD (pairs) of a model trained here on features alone, on the client's test rows."""
    train = pa.concat_tables([federation.client(client, part) for part in ("train", "validation")])
    test = federation.client(client, "test")
    x = [np.column_stack([t["x"].to_numpy(), t["hint"].to_numpy()]) for t in (train, test)]
    model = LogisticRegression(max_iter=5000, solver="newton-cholesky")
    guess = model.fit(x[0], train["label"].to_numpy()).predict(x[1])
    value = test[attribute].to_numpy()
    rates = [guess[value == code].mean() for code in codes]
    return float(max(rates) - min(rates))


ALL = ClientGroup(name="all", rules=(FEMALE,))


@pytest.mark.usefixtures("untouched_random")
def test_the_first_step_that_exceeds_the_floor_is_taken() -> None:
    recipe = recipe_of(ALL)
    found = calibrate(people(), recipe, floor=0.15, step=0.1)
    assert list(found.table["client"]) == ["a", "b", "c"]
    assert (found.table["rate"] > 0).all()
    for row in found.table.itertuples():
        for rate, above in ((row.rate, True), (row.rate - 0.1, False)):
            rule = replace(FEMALE, drop=round(rate, 9))
            biased = federate_table(people(), recipe_of(ClientGroup(name="g", rules=(rule,))))
            size = own_disparity(biased, row.client, "sex", [1, 2])
            assert (size > 0.15) == above
            if above:
                assert size == pytest.approx(row.DD, abs=1e-12)
    given = federate_table(people(), recipe)
    assert found.table["DD given"].to_list() == pytest.approx(
        [own_disparity(given, client, "sex", [1, 2]) for client in "abc"], abs=1e-12
    )
    assert list(found.table["given drop"]) == [0.5] * 3


def test_the_recipe_found_gives_what_the_table_says() -> None:
    found = calibrate(people(), recipe_of(ALL), floor=0.15)
    assert [group.name for group in found.groups] == ["a", "b", "c"]
    assert Recipe.from_json(found.recipe.to_json()) == found.recipe
    biased = federate_table(people(), found.recipe)
    local = local_models(biased, model="lr")
    report = score_rows(local.predictions, local.rows).injected.report
    sizes = [report.finding(client, "sex").disparity.size for client in "abc"]
    assert sizes == pytest.approx(list(found.table["DD"]), abs=1e-12)
    assert select_clients([report], floor=0.15) == ("a", "b", "c")


def test_a_larger_rate_drops_a_superset() -> None:
    gone = []
    for rate in (0.2, 0.5):
        rule = replace(FEMALE, drop=rate)
        biased = federate_table(people(), recipe_of(ClientGroup(name="g", rules=(rule,))))
        gone.append(set(biased.dropped["row_id"].to_pylist()))
    assert gone[0] < gone[1]


def test_flips_beside_drops_and_the_flip_rate_itself() -> None:
    flips = calibrate(people(), recipe_of(ALL), floor=0.15, by="flip")
    both = calibrate(people(), recipe_of(ALL), floor=0.15, beside=0.3)
    for group in flips.groups:
        assert group.rules[0].drop == 0.0
        assert float(group.rules[0].flip) > 0  # type: ignore[arg-type]
    assert {group.rules[0].flip for group in both.groups} == {0.3}
    drops = calibrate(people(), recipe_of(ALL), floor=0.15)
    assert (both.table["rate"] < drops.table["rate"]).all()


def test_clients_without_a_rule_get_one_only_where_they_need_it() -> None:
    recipe = recipe_of(ClientGroup(name="g", clients=("a",), rules=(FEMALE,)))
    plain = calibrate(people(), replace(recipe, groups=()), floor=0.02)
    assert plain.groups == ()
    assert list(plain.table["rule"]) == [""] * 3
    assert plain.notes == ()
    needy = calibrate(people(), replace(recipe, groups=()), floor=0.3)
    assert {rule.where[0][0] for rule in needy.recipe.rules} <= {"sex", "race"}
    assert len(needy.groups) == 3
    among = calibrate(people(), recipe, floor=0.3)  # only sex competes where only sex is ruled
    assert {rule.where[0][0] for rule in among.recipe.rules} == {"sex"}


def test_shares_and_gaussians_are_resolved() -> None:
    rule = replace(FEMALE, drop=Gaussian(mean=0.5, std=0.05))
    groups = (ClientGroup(name="half", clients=0.5, rules=(rule,)),)
    recipe = recipe_of(*groups, partition=Iid(clients=4))
    found = calibrate(people(), recipe, floor=0.1, clients=["c1"])
    (row,) = found.table.itertuples()
    drawn = {e.client: e.drop for e in federate_table(people(), recipe).ledger}
    assert found.table.loc[0, "given drop"] == drawn["c1"]
    rules = {group.name: group.rules[0] for group in found.groups}
    assert rules["c0"] == rule
    assert rules["c1"].drop == row.rate
    assert set(rules) == {"c0", "c1"}


def test_other_rules_stay_and_intersections_are_measured_as_such() -> None:
    first = BiasRule(where={"sex": "female", "race": "white"}, drop=0.1)
    other = BiasRule(where={"race": "asian"}, flip=0.2)
    recipe = recipe_of(ClientGroup(name="g", clients=("a",), rules=(first, other)))
    found = calibrate(people(), recipe, floor=0.4, against="pairs", clients=["a"])
    (group,) = found.groups
    assert group.rules[1] == other
    assert group.rules[0].drop == found.table.loc[0, "rate"]
    assert found.table.loc[0, "DD"] > 0.4


def test_what_no_rate_reaches_is_said_and_left_without_a_rule() -> None:
    found = calibrate(people(), recipe_of(ALL), floor=0.95)
    assert found.groups == ()
    assert found.table["rate"].isna().all()
    assert len(found.notes) == 3
    assert found.notes[0].startswith(
        "a: no drop rate of sex=female brings the disparity of its local model above 0.95; the "
        "largest is 0."
    )
    assert str(found).endswith("\n".join(found.notes))


def test_a_client_whose_test_rows_lack_the_group_is_said() -> None:
    table = people()
    male = pa.array(np.where(np.array(table["who"]) == "b", 1, table["sex"].to_numpy()))
    table = table.set_column(table.column_names.index("sex"), "sex", male)
    found = calibrate(table, recipe_of(ALL), floor=0.15)
    assert found.notes == (
        "b: its test rows give no disparity of sex=female, so that no rate helps.",
    )
    assert [group.name for group in found.groups] == ["a", "c"]


def test_sources_are_read_part_by_part_and_absent_clients_keep_their_rules() -> None:
    source = SampleSource(parts=("AK", "AL", "WY"))
    recipe = DATASET.recipe("attribute-silo")
    found = calibrate(source, recipe, floor=0.09)
    assert list(found.table["client"]) == ["AK", "AL", "WY"]
    absent = {group.name: group for group in recipe.groups if group.name not in ("AL", "WY")}
    assert {g.name: g for g in found.groups if g.name in absent} == absent
    biased = concat(federations(found.recipe, source))
    local = local_models(biased, model="lr")
    report = score_rows(local.predictions, local.rows).injected.report
    for row in found.table.itertuples():
        if row.rule and row.rate == row.rate:
            attribute = row.rule.partition("=")[0]
            assert report.finding(row.client, attribute).disparity.size == pytest.approx(row.DD)


def test_every_model_must_exceed_the_floor() -> None:
    pytest.importorskip("xgboost", reason="extra models")
    single = [calibrate(people(), recipe_of(ALL), floor=0.15, models=[m]) for m in ("lr", "xgb")]
    both = calibrate(people(), recipe_of(ALL), floor=0.15, models=["lr", "xgb"])
    lowest = np.minimum(single[0].table["DD at 0"], single[1].table["DD at 0"])
    assert both.table["DD at 0"].to_list() == pytest.approx(lowest.to_list())
    assert (
        both.table["rate"] >= np.maximum(single[0].table["rate"], single[1].table["rate"])
    ).all()


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"subdivide": Subdivide(parts=3)}, {}, "calibrate the recipe without subdivide"),
        ({"control": "none"}, {}, "is the control 'none'"),
        ({}, {"floor": 1.5}, "floor 1.5, step 0.1"),
        ({}, {"step": 0.0}, "step 0.0"),
        ({}, {"models": []}, "0 models"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(
    changes: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(RecipeError, match=said):
        calibrate(people(), recipe_of(ALL, **changes), **({"floor": 0.1} | options))


# Labels


def test_labels_are_calibrated_for_every_ruled_client() -> None:
    recipe = recipe_of(ALL)
    federation = federate_table(people(), recipe)
    found = calibrate_labels(federation, gap=0.2)
    assert list(found.table["client"]) == ["a", "b", "c"]
    biased = federate_table(people(), found.recipe)
    report = measure(biased)
    for row in found.table.itertuples():
        size = report.finding(row.client, "sex").disparity.size
        assert size == pytest.approx(row.gap, abs=1e-12)
        assert 0.2 <= row.gap < 0.2 + 1 / (row.rows - row.dropped)
    # the federation's own rules changed nothing: its rows before injection count
    clean = federate_table(people(), replace(recipe, groups=()))
    groups = {client: [("sex", "female")] for client in "abc"}
    again = calibrate_labels(clean, gap=0.2, groups=groups)
    assert again.table.equals(found.table)


def test_labels_out_of_reach_are_said() -> None:
    federation = federate_table(people(), recipe_of(ALL))
    found = calibrate_labels(federation, gap=0.9)
    assert found.groups == ()
    assert len(found.table) == 0
    assert str(found).startswith("a, sex=female: a label gap of 0.900 is out of reach, drop gives")
    with pytest.raises(RecipeError, match="no client has a rule; name a group"):
        calibrate_labels(federate_table(people(), recipe_of()), gap=0.1)


# Selection


def reports() -> list[FairnessReport]:
    groups = [ClientGroup(name="g", clients=(client,), rules=(FEMALE,)) for client in "ac"]
    return [measure(federate_table(people(), recipe_of(group))) for group in groups]


def test_clients_above_the_floor_under_any_model_are_kept() -> None:
    first, second = reports()
    assert select_clients([first], floor=0.1) == ("a",)
    assert select_clients([first, second], floor=0.1) == ("a", "c")


def test_a_selection_of_nobody_is_an_error() -> None:
    first, second = reports()
    with pytest.raises(MeasureError, match=r"none of 3 clients exceeds 0.9; the largest .* of a"):
        select_clients([first], floor=0.9)
    with pytest.raises(MeasureError, match="one report for each model"):
        select_clients([], floor=0.1)
    part = replace(second, cube=second.cube.select(["a"]))
    with pytest.raises(MeasureError, match="all of the same clients"):
        select_clients([first, part], floor=0.1)


# Real rows


@pytest.mark.slow
def test_the_floor_is_reached_wherever_the_released_rates_reach_it(
    shared_tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = [sys.executable, str(shared_tools / "make_pums.py"), "--out", str(tmp_path / "pums")]
    subprocess.run(maker, check=True, capture_output=True)
    monkeypatch.setenv("FEDA4FAIR_CACHE", str(tmp_path / "cache"))
    recipe = DATASET.recipe("attribute-silo")
    source = DATASET.open_source(tmp_path / "pums", recipes=[recipe], allow_missing=True)
    table = calibrate(source, recipe, floor=0.09).table
    ruled = table[table["given drop"].notna()]
    assert len(ruled) == 30
    released = ruled[ruled["DD given"] > 0.09]
    assert (released["DD"] > 0.09).all()
    assert list(ruled[ruled["rate"].isna()]["client"]) == ["PR"]
    same = ruled[np.isclose(ruled["rate"], ruled["given drop"])]
    assert len(same) >= 15


# The script


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def test_the_script_shows_both_rates_and_writes_the_recipe(tmp_path: Path) -> None:
    done = run("acs", "attribute-silo", "--floor", "0.09", "--sample", "--clients", "AL", "WY",
               "--out", "found.json", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == [
        *("client", "rule", "DD", "at", "0", "rate", "DD", "given", "drop", "given", "flip"),
        *("DD", "given"),
    ]
    found = Recipe.from_json(tmp_path / "found.json")
    assert found.name == "attribute-silo"
    source = SampleSource(parts=("AL", "WY"))
    again = calibrate(source, DATASET.recipe("attribute-silo"), floor=0.09, clients=["AL", "WY"])
    assert {g.name: g.rules for g in found.groups} == {g.name: g.rules for g in again.groups}


def test_the_script_calibrates_labels(tmp_path: Path) -> None:
    done = run("acs", "value-silo", "--labels", "--floor", "0.2", "--sample", "--clients", "PR",
               "AR", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "AR RAC1P=Alaska Native/American Indian" in done.stdout
    assert "PR, RAC1P=Alaska Native/American Indian: a label gap of 0.200 is out of" in done.stdout


def test_the_script_selects_pieces(tmp_path: Path) -> None:
    done = run("acs", "value-device", "--floor", "0.2", "--sample", "--clients", "AL_0", "AL_1",
               "AL_2", "--out", "kept.json", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    *names, last = done.stdout.splitlines()
    kept = " ".join(names).split()
    assert last.startswith(f"{len(kept)} of 3 clients exceed 0.2")
    assert Recipe.from_json(tmp_path / "kept.json").keep == tuple(kept)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["acs", "silo", "--floor", "0.1", "--sample"], 1, "no config 'silo'"),
        (["acs", "value-silo", "--floor", "2", "--sample", "--clients", "WY"], 1, "floor 2.0"),
        (["acs", "value-silo", "--floor", "0.1", "--sample", "--clients", "XX"], 1, "XX"),
        (["acs", "value-device", "--labels", "--floor", "0.1", "--sample"], 1, "share their"),
        (["acs", "value-silo", "--floor", "0.1", "--sample", "--out", "no/x.json"], 1, "folder"),
        (["acs", "value-silo", "--sample"], 2, "--floor"),
        (["acs", "value-silo", "--floor", "0.1", "--labels", "--model", "lr"], 2, "not allowed"),
    ],
)
def test_the_script_fails_with_one_sentence(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    done = run(*words, cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ""
    if code == 1:
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_has_examples(tmp_path: Path) -> None:
    done = run("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "examples:\n  calibrate.py acs attribute-silo --floor 0.09" in done.stdout


def test_the_lines_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (REPOSITORY / "docs" / "calibration.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == 3
    scope: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "calibration.md", "exec"), scope)
    assert (
        "PR, RAC1P=Alaska Native/American Indian: a label gap of 0.200" in capsys.readouterr().out
    )
