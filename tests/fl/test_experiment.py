"""A run and its results folder, as scripts/experiment.py makes it, whole, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

pytest.importorskip("torch", reason="torch is not installed (extra fl)")
pytest.importorskip("flwr", reason="flwr is not installed (extra fl)")

from feda4fair.errors import MeasureError, OutputError, RecipeError
from feda4fair.fl.experiment import Place, run, train_rounds
from feda4fair.fl.history import History
from feda4fair.fl.settings import Settings
from feda4fair.score import Score, score

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "experiment.py"
RESULTS = (
    *("experiment.json", "score.json", "rounds.parquet", "counts.parquet"),
    *("predictions.parquet", "rounds.npz"),
)


def settings(**changes: Any) -> Settings:
    return Settings(**{"method": "fedavg", "mitigate": "sex", "rounds": 3, "batch": 32, **changes})


def place(built: Path, config: str = "attribute-silo") -> Place:
    return Place(build=built, config=config)


@pytest.fixture(scope="module")
def finished(built: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Score]:
    out = tmp_path_factory.mktemp("run")
    return out, run(place(built), settings(), out)


def test_results_are_complete(finished: tuple[Path, Score]) -> None:
    out, found = finished
    assert {path.name for path in out.iterdir()} == set(RESULTS)
    facts = json.loads((out / "experiment.json").read_text())
    assert facts["recipe_sha256"] == found.recipe_sha256
    assert facts["settings"]["rounds"] == 3
    assert facts["degenerate"] == {}
    assert {"flwr", "torch", "feda4fair"} <= set(facts["versions"])
    assert Score.from_json(out / "score.json").to_json() == found.to_json()
    assert found.protocols == ("injected", "restored")


def test_counts_that_travelled_are_the_figures_of_the_scorer(
    built: Path, finished: tuple[Path, Score]
) -> None:
    out, found = finished
    history = train_rounds(place(built), settings(), out)
    for protocol in found.protocols:
        report = found.marks(protocol).report
        assert history.cube(protocol) == report.cube
    table = pd.read_parquet(out / "rounds.parquet")
    last = table[(table["round"] == 3) & (table["view"] == "restored")]
    clients = found.clients("restored")
    for figure, attribute in (("DD", "sex"), ("EOD", "Marital_status"), ("accuracy", "")):
        chosen = last[(last["figure"] == figure) & (last["attribute"] == attribute)]
        wanted = clients[f"{figure} {attribute}".strip()]
        assert chosen.set_index("client_id")["value"].to_dict() == wanted.to_dict()


def test_counts_in_long_form_add_up_to_the_rows(finished: tuple[Path, Score]) -> None:
    out, found = finished
    counts = pd.read_parquet(out / "counts.parquet")
    rows = counts[(counts["round"] == 2) & (counts["view"] == "injected")]
    by_client = rows.groupby("client_id")["rows"].sum().to_dict()
    assert by_client == found.clients().drop(index="pooled")["rows"].to_dict()
    assert set(rows["sex"]) == {"Male", "Female"}


def test_predictions_score_alike_anywhere(built: Path, finished: tuple[Path, Score]) -> None:
    out, found = finished
    again = score(
        out / "predictions.parquet",
        built,
        "attribute-silo",
        method="fedavg",
        mitigated="sex",
        training_seed=0,
    )
    assert again.to_json() == found.to_json()


def test_training_changes_figures_round_by_round(finished: tuple[Path, Score]) -> None:
    table = pd.read_parquet(finished[0] / "rounds.parquet")
    chosen = table[(table["client_id"] == "pooled") & (table["figure"] == "accuracy")]
    course = chosen[chosen["view"] == "train"].sort_values("round")["value"].to_list()
    assert len(course) == 4
    assert course[3] > course[0]


def test_test_clients_do_not_train(built: Path) -> None:
    history = train_rounds(place(built, "attribute-device"), settings(rounds=1), None)
    trained = history.counts[0]["train"].sum(axis=(1, 2, 3)) > 0
    tested = history.counts[0]["injected"].sum(axis=(1, 2, 3)) > 0
    names = np.array(history.clients)
    assert names[tested].tolist() == ["c0", "c4", "c8"]
    assert not (trained & tested).any()


def test_a_full_folder_is_not_overwritten(built: Path, finished: tuple[Path, Score]) -> None:
    with pytest.raises(OutputError, match="holds a run already"):
        run(place(built), settings(), finished[0])


def test_another_run_is_not_resumed(built: Path, finished: tuple[Path, Score]) -> None:
    with pytest.raises(OutputError, match=r"another run \(rate differ\)"):
        run(place(built), settings(rate=0.5), finished[0], resume=True)


def test_a_damaged_checkpoint_is_told(built: Path, tmp_path: Path) -> None:
    (tmp_path / "rounds.npz").write_bytes(b"PK\x03\x04 half")
    with pytest.raises(OutputError, match="no checkpoint"):
        run(place(built), settings(), tmp_path, resume=True)


def test_what_cannot_be_trained_is_refused(built: Path, tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="has sex, Marital_status"):
        run(place(built), settings(mitigate="age"), tmp_path)
    for changes in ({"rounds": 0}, {"rate": 0.0}, {"optimizer": "lion"}, {"seed": -1}):
        with pytest.raises(RecipeError):
            settings(**changes)


@dataclass(frozen=True)
class Done:
    code: int
    err: str


Script = Callable[..., Done]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Script:
    """Run scripts/experiment.py in this process: importing torch anew takes seconds."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    command, experiment = (import_module(name) for name in ("_command", "experiment"))

    def called(*arguments: object) -> Done:
        capfd.readouterr()
        try:
            code = command.run(lambda: experiment.main([*map(str, arguments)]))
        except SystemExit as error:
            code = error.code
        return Done(code, capfd.readouterr().err)

    return called


KILLED = """
import os, signal, sys
sys.path.insert(0, {scripts!r})
import experiment
from feda4fair.fl import client_app

train = client_app.train

def train_until_killed(rows, client, *arguments, round_number, **keywords):
    if round_number == 6 and client == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return train(rows, client, *arguments, round_number=round_number, **keywords)

client_app.train = train_until_killed
experiment.main(sys.argv[1:])
"""


def test_killed_in_round_6_it_goes_on_to_the_same_result(
    built: Path, tmp_path: Path, script: Script
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    common = (
        *(built, "attribute-silo", "--method", "puffle", "--local", "--no-control"),
        *("--batch", 64, "--set", "weight=tunable", "--out"),
    )
    program = KILLED.format(scripts=str(SCRIPT.parent))
    ended = subprocess.run([sys.executable, "-c", program, *map(str, (*common, killed))])
    assert ended.returncode == -signal.SIGKILL
    # FedAvg is trained first, and is what the run was killed in.
    assert not (killed / "puffle").exists()
    with np.load(killed / "fedavg" / "rounds.npz") as stored:
        assert len(stored["count.train"]) == 6  # before the first round, and after five
    refused = script(*common, killed)
    assert (refused.code, "is not empty" in refused.err) == (1, True)
    for out, more in ((whole, []), (killed, ["--resume"])):
        done = script(*common, out, *more)
        assert done.code == 0, done.err
    for method in ("fedavg", "puffle"):
        for name in RESULTS:
            one, other = ((out / method / name).read_bytes() for out in (whole, killed))
            assert one == other, f"{method}/{name}"


def test_the_script_compares_with_local_models_fedavg_and_the_control(
    built: Path, tmp_path: Path, script: Script
) -> None:
    out = tmp_path / "out"
    arguments = ("--method", "reweighing", "--rounds", 2, "--batch", 64, "--out", out)
    done = script(built, "attribute-device", *arguments)
    assert done.code == 0, done.err
    table = pd.read_csv(out / "comparison.csv")
    assert table["method"].tolist() == ["local lr"] * 2 + ["fedavg"] * 3 + ["reweighing"] * 3
    assert table["trained on"].tolist() == ["injected"] * 4 + ["no rules"] + ["injected"] * 2 + [
        "no rules"
    ]
    harmed = [name for name in table.columns if name.startswith("harmed vs")]
    assert len(harmed) == 4  # two references, two attributes
    reweighed = table[(table["method"] == "reweighing") & (table["scored"] != "no rules")]
    assert reweighed[harmed].notna().all(axis=None)
    control = json.loads((out / "reweighing-no-rules" / "score.json").read_text())
    assert control["control"] == "none"
    predictions = pq.read_table(out / "reweighing" / "predictions.parquet")
    assert set(predictions["client_id"].to_pylist()) == {"c0", "c4", "c8"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["value-device", "--method", "fedavg"], 1, "no config 'value-device'"),
        (["attribute-silo", "--method", "fedavg", "--set", "weight=1"], 1, "no option of fedavg"),
        (["attribute-silo", "--method", "fedavg", "--rate", "-1"], 1, "learning rate"),
        (["attribute-silo", "--method", "magic"], 2, "invalid choice"),
        (["attribute-silo", "--method", "fedavg", "--set", "weight"], 2, "NAME=VALUE"),
        (["attribute-silo", "--method", "fedavg", "--workers", "0"], 2, "at least 1"),
    ],
)
def test_bad_input_gives_one_sentence(
    built: Path, tmp_path: Path, script: Script, arguments: list[str], code: int, said: str
) -> None:
    done = script(built, *arguments, "--out", tmp_path / "out")
    assert done.code == code
    assert said in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["experiment.py", "reproduce.py"])
def test_a_missing_extra_is_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch')")
    command = [sys.executable, SCRIPT.with_name(name), "--help"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: feda4fair.fl trains with torch and flwr")
    assert done.stderr.count("\n") == 1


def test_a_history_without_rows_of_a_view_says_so() -> None:
    empty = {"validation": np.zeros((1, 2, 2, 2), np.int64)}
    history = History(run={}, clients=("a",), attributes=(), counts=[empty])
    with pytest.raises(OutputError, match="no client has validation rows"):
        history.cube("validation")
