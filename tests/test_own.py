"""Any dataset: federated, measured, written, loaded, and rebuilt from its recipe byte for byte."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import datasets
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import REPOSITORY, shared_folder
from datasets import load_dataset

from feda4fair import (
    BiasRule,
    ClientGroup,
    ClientSplit,
    Dirichlet,
    Federation,
    Iid,
    Natural,
    Recipe,
    Schema,
    Shards,
    Subdivide,
    federate,
    measure,
    write,
)
from feda4fair.errors import Feda4FairError, OutputError, RecipeError, SchemaError, SourceError
from feda4fair.scenarios import homogeneous, value_bias

pytestmark = pytest.mark.usefixtures("untouched_random")


def people(count: int = 600) -> pa.Table:
    """Return rows of two sensitive attributes, a text, a number and a label."""
    position = np.arange(count)
    return pa.table(
        {
            "person_id": position + 5_000,
            "town": np.array(["x", "y", "z"])[position % 3],
            "sex": np.array(["f", "m"])[position % 2],
            "race": np.array(["a", "b", "c"])[position // 2 % 3],
            "note": [f"note {i}, of {i * i}" for i in position],
            "hours": position % 40 + 0.5,
            "income": np.array(["low", "high"])[position // 6 % 2],
        }
    )


SCHEMA = Schema.infer(people(), label="income", favorable="high")


def same_files(one: Path, other: Path) -> bool:
    """Tell whether two folders hold the same files with the same bytes."""
    first, second = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        for top in (one, other)
    )
    return first == second


def build_script() -> ModuleType:
    """Return scripts/build.py as a module."""
    path = REPOSITORY / "scripts"
    sys.path.insert(0, str(path))
    try:
        spec = importlib.util.spec_from_file_location("build_script", path / "build.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(path))


def script(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, REPOSITORY / "scripts" / f"{name}.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


SIX = (
    ClientGroup(
        name="women",
        clients=0.5,
        rules=(BiasRule(where={"sex": "f"}, drop=0.4), BiasRule(where={"race": "b"}, flip=0.5)),
    ),
    ClientGroup(
        name="an intersection",
        clients=0.5,
        rules=(BiasRule(where={"sex": "m", "race": "a"}, drop=0.3, flip=0.3),),
    ),
)


@pytest.mark.parametrize(
    "choices",
    [
        {"partition": Iid(4), "groups": SIX},
        {"partition": Iid(3), "groups": homogeneous({"sex": "f"}, drop=0.5), "seed": 9},
        {"partition": Dirichlet(4, by=("label", "sex"), alpha=1.0), "groups": SIX},
        {"partition": Shards(4, by="race"), "groups": SIX},
        {
            "partition": Natural("town"),
            "groups": [
                ClientGroup(
                    name="x", clients=("x",), rules=(BiasRule(where={"sex": "f"}, drop=0.9),)
                ),
                ClientGroup(
                    name="yz", clients=("y", "z"), rules=(BiasRule(where={"sex": "m"}, flip=0.9),)
                ),
            ],
            "subdivide": Subdivide(rows=60),
        },
        {
            "partition": Iid(6),
            "groups": value_bias("race", ["a", "b"], drop=0.5),
            "split": ClientSplit(test=("c1", "c4"), folds=2),
            "keep": ["c1", "c2", "c4", "c5"],
            "select": {"sex": ["f"]},
        },
    ],
    ids=["groups", "homogeneous", "dirichlet", "shards", "natural", "device"],
)
def test_recipe_and_source_rebuild_the_folder_byte_for_byte(
    tmp_path: Path, choices: dict[str, Any]
) -> None:
    source = tmp_path / "people.parquet"
    pq.write_table(people(), source)
    made = federate(source, schema=SCHEMA, dataset="people", name="demo", **choices)
    assert len(made.table) + len(made.dropped) + made.left_out == made.source_rows == 600
    write(made, tmp_path / "a")
    recipe = tmp_path / "a" / "recipes" / "demo.json"
    again = federate(source, recipe=Recipe.from_json(recipe))
    assert again.recipe == made.recipe
    assert again.table.equals(made.table)
    out = tmp_path / "b"
    build_script().main(["--recipe", str(recipe), "--source", str(source), "--out", str(out)])
    assert same_files(tmp_path / "a", out)


def test_build_and_verify_of_a_recipe_from_the_command_line(tmp_path: Path) -> None:
    source, recipe = tmp_path / "people.parquet", tmp_path / "r.json"
    pq.write_table(people(), source)
    made = federate(source, schema=SCHEMA, partition=Iid(4), groups=SIX)
    recipe.write_text(made.recipe.to_json(), "utf-8")
    prose = tmp_path / "prose.toml"
    prose.write_text('title = "People"\nlicense = "cc0-1.0"\n', "utf-8")
    arguments = ("--recipe", recipe, "--source", source, "--prose", prose)
    done = script("build", *arguments, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    done = script("verify", tmp_path / "out", "--rebuild", "--source", source)
    assert done.returncode == 0, done.stdout
    assert "byte for byte" in done.stdout
    other = people().slice(1)
    pq.write_table(other, source)
    done = script("verify", tmp_path / "out", "--rebuild", "--source", source)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    write(made, tmp_path / "same", prose={"title": "People", "license": "cc0-1.0"})
    assert same_files(tmp_path / "out", tmp_path / "same")


def test_a_written_federation_loads_like_a_built_in_one(tmp_path: Path) -> None:
    made = federate(people(), schema=SCHEMA, partition=Iid(4), groups=SIX)
    write(made, tmp_path / "own", prose={"title": "People", "license": "cc0-1.0"})
    loaded = load_dataset(str(tmp_path / "own"), "default")
    assert {split: len(rows) for split, rows in loaded.items()} == {
        split: int((made.split == code).sum())
        for code, split in enumerate(("train", "validation", "test"))
    }
    rows = loaded["test"].to_pandas().sort_values(["client_id", "row_id"])
    for name, client in rows.groupby("client_id"):
        own = made.client(name, "test").to_pandas()
        assert client["row_id"].tolist() == own["row_id"].tolist()
        assert client["note"].tolist() == own["note"].tolist()
    page = (tmp_path / "own" / "README.md").read_text("utf-8")
    assert "# People" in page
    assert "build.py --recipe recipes/default.json --source table" in page
    sheet = (tmp_path / "own" / "datasheets" / "default.md").read_text("utf-8")
    assert "- Can others extend it, and how?" in sheet


def test_rows_of_an_earlier_folder_of_that_name_are_never_shown(tmp_path: Path) -> None:
    for count, place in ((60, "a"), (120, "b"), (180, "a")):
        made = federate(people(count), schema=SCHEMA, partition=Iid(2))
        (tmp_path / place).mkdir(exist_ok=True)
        write(made, tmp_path / place / "own", overwrite=True)
        cache = str(tmp_path / "cache")
        loaded = load_dataset(str(tmp_path / place / "own"), "default", cache_dir=cache)
        assert sum(loaded.num_rows.values()) == count


def test_rows_are_conserved_and_only_ruled_rows_change() -> None:
    table = people()
    made = federate(table, schema=SCHEMA, partition=Iid(4), groups=SIX)
    source = table.to_pandas()
    kept, gone = made.table.to_pandas(), made.dropped.to_pandas()
    assert sorted([*kept["row_id"], *gone["row_id"]]) == list(range(600))
    before = source.loc[kept["row_id"]].reset_index(drop=True)
    for column in ("town", "sex", "race", "note", "hours"):
        assert kept[column].tolist() == before[column].tolist()
    changed = kept["label"] != (before["income"] == "high")
    assert changed.tolist() == kept["flipped"].tolist()
    first, second = kept["client_id"].isin(["c0", "c1"]), kept["client_id"].isin(["c2", "c3"])
    assert set(kept[first & changed]["race"]) == {"b"}
    assert set(kept[second & changed]["sex"]) == {"m"}
    dropped_second = gone[gone["client_id"].isin(["c2", "c3"])]
    assert set(zip(dropped_second["sex"], dropped_second["race"], strict=True)) == {("m", "a")}
    assert (gone["label"] == 1).all()


def test_declared_label_values_decide_what_is_hit() -> None:
    table = people()
    swapped = Schema.infer(table, label="income", favorable="low")
    for schema, hit in ((SCHEMA, "high"), (swapped, "low")):
        made = federate(table, schema=schema, partition=Iid(2), groups=SIX[:1])
        outcome = table["income"].to_pandas()[made.dropped["row_id"].to_pylist()]
        assert set(outcome) == {hit}


@pytest.mark.parametrize(
    ("values", "favorable"),
    [(["<=50K", ">50K"], ">50K"), ([2, 1], 1), ([-1, 1], 1), ([False, True], True)],
)
def test_every_way_to_write_a_label_gives_the_same_disparity(
    values: list[Any], favorable: Any
) -> None:
    table = people()
    label = pa.array(
        [values[1] if income == "high" else values[0] for income in table["income"].to_pylist()]
    )
    other = table.set_column(table.column_names.index("income"), "income", label)
    schema = Schema.infer(other, label="income", favorable=favorable)
    groups = homogeneous({"sex": "f"}, drop=0.5)
    one = measure(federate(other, schema=schema, partition=Iid(2), groups=groups))
    two = measure(federate(table, schema=SCHEMA, partition=Iid(2), groups=groups))
    assert one.to_frame().equals(two.to_frame())


def test_three_classes_are_made_two_by_declaring_the_favorable_ones() -> None:
    table = people().append_column("grade", pa.array(["a", "b", "c"] * 200))
    schema = Schema.infer(table.drop_columns(["income"]), label="grade", favorable=["a", "b"])
    assert schema.label.names == ("c", "a or b")
    made = federate(table, schema=schema, partition=Iid(2))
    assert sum(made.table["label"].to_pylist()) == 400


def test_the_card_states_the_skew_beside_alpha(tmp_path: Path) -> None:
    skews = []
    for alpha in (0.1, 1_000.0):
        made = federate(people(6_000), schema=SCHEMA, partition=Dirichlet(5, alpha=alpha))
        write(made, tmp_path / f"{alpha}")
        page = (tmp_path / f"{alpha}" / "README.md").read_text("utf-8")
        assert f"with alpha {alpha:g} (the smaller, the more skewed)" in page
        stated = re.search(r"clients' labels lie (\S+) from the pooled ones", page)
        assert stated is not None
        frame = measure(made).heterogeneity()
        measured = frame[(frame["figure"] == "skew") & (frame["attribute"] == "label")]
        assert float(stated[1]) == pytest.approx(measured["estimate"].item(), abs=0.005)
        skews.append(float(stated[1]))
    assert skews[0] > 0.3 > 0.05 > skews[1]


def test_rows_and_builds_on_a_remote_file_system(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    with system.open("/rows/people.parquet", "wb") as file:
        pq.write_table(people(), file)
    made = federate("memory://rows/people.parquet", schema=SCHEMA, partition=Iid(4), groups=SIX)
    write(made, "memory://builds/people")
    write(made, tmp_path / "local")
    for path in (tmp_path / "local").rglob("*"):
        if path.is_file():
            name = path.relative_to(tmp_path / "local").as_posix()
            assert system.cat(f"/builds/people/{name}") == path.read_bytes(), name
    with pytest.raises(OutputError, match="replace it with --overwrite"):
        write(made, "memory://builds/people")
    system.pipe("/builds/people/data/default/stale.parquet", b"old")
    write(made, "memory://builds/people", overwrite=True)
    assert not system.exists("/builds/people/data/default/stale.parquet")
    system.pipe("/mine/notes.txt", b"mine")
    with pytest.raises(OutputError, match="name another place"):
        write(made, "memory://mine", overwrite=True)
    with pytest.raises(OutputError, match=r"use publish\.py"):
        write(made, "hf://datasets/me/people")
    with pytest.raises(OutputError, match="cannot be written"):
        write(made, "nosuch://bucket/people")
    with pytest.raises(SourceError, match="no Parquet file is there"):
        federate("memory://nowhere", schema=SCHEMA, partition=Iid(4))


# Schema.infer


def test_what_is_guessed_is_listed() -> None:
    assert SCHEMA.sensitive == ("sex", "race")
    assert SCHEMA["person_id"].role == "provenance"
    assert SCHEMA.guesses == (
        "sensitive attribute sex, by its name",
        "sensitive attribute race, by its name",
        "column 'person_id' is provenance: it numbers the rows",
    )
    odd = pa.table({"": [0, 1], "gender": ["f", "m"], "tags": [["a"], []], "label": [True, False]})
    schema = Schema.infer(odd)
    assert [c.name for c in schema.columns] == ["gender"]
    assert schema.guesses == (
        "label label, by its name",
        "favorable outcome label=1",
        "sensitive attribute gender, by its name",
        "column '' left out: it has no name, as an index has",
        "column 'tags' left out: values of type list<item: string> are not carried along",
    )


def test_names_come_from_the_hub_features() -> None:
    features = datasets.Features(
        {
            "sex": datasets.ClassLabel(names=["f", "m"]),
            "label": datasets.ClassLabel(names=["bad", "good"]),
        }
    )
    rows = datasets.Dataset.from_dict({"sex": [0, 1] * 50, "label": [1, 0, 1, 1] * 25}, features)
    made = federate(rows, partition=Iid(2), groups=homogeneous({"sex": "f"}, drop=0.5))
    assert made.recipe.schema.label.names == ("bad", "good")
    assert made.ledger[0].rule == "sex=f"
    assert made.ledger[0].eligible > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "label: no column may be it"),
        ({"label": "incom"}, "no such column among"),
        ({"label": "hours"}, "are no labels"),
        ({"label": "income"}, "which outcome is favorable cannot be told from high, low"),
        ({"label": "income", "favorable": "High"}, "no row has the favorable value High"),
        ({"label": "income", "favorable": "high", "sensitive": "age"}, "name columns among"),
        ({"label": "income", "favorable": "high", "sensitive": "hours"}, "make no groups"),
        ({"label": "income", "favorable": "high", "sensitive": "note"}, "600 values are too many"),
        ({"label": "income", "favorable": 0.5}, "no row has the favorable value 0.5"),
        ({"label": "income", "favorable": "high", "sensitive": 3}, "sensitive attribute 3"),
        ({"label": "income", "favorable": "high", "names": {"sexx": {}}}, "names of 'sexx'"),
        ({"label": "income", "favorable": "high", "names": {"sex": ["F"]}}, "names of 'sex'"),
    ],
)
def test_what_cannot_be_guessed_is_asked_for(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        Schema.infer(people(), **arguments)


def test_a_favorable_value_may_come_from_numpy() -> None:
    table = pa.table({"sex": ["f", "m"], "label": [3, 4]})
    assert Schema.infer(table, favorable=np.int64(4)).label.favorable == (4,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "metadata",
    [
        b"junk",
        b"\xff",
        b"[]",
        b'{"info": null}',
        b'{"info": {"features": null}}',
        b'{"info": {"features": {"sex": {"_type": "ClassLabel"}}}}',
        b'{"info": {"features": {"sex": {"_type": "ClassLabel", "names": 5}}}}',
        b"[" * 100_000,
    ],
    ids=lambda metadata: metadata[:60].decode("latin-1"),
)
def test_metadata_of_a_file_that_say_nothing_are_no_names(metadata: bytes) -> None:
    table = pa.table({"sex": ["f", "m"], "label": [0, 1]})
    found = Schema.infer(table.replace_schema_metadata({"huggingface": metadata}))
    assert found == Schema.infer(table)


@pytest.mark.parametrize("names", [["sex", "sex", "label"], ["sex", "label", "label"]])
def test_a_column_that_stands_twice_is_a_sentence(names: list[str]) -> None:
    table = pa.table([pa.array([0, 1])] * 3, names=names)
    with pytest.raises(SchemaError, match="stands twice"):
        Schema.infer(table, label="label")


def test_one_choice_need_not_be_a_list() -> None:
    rule = BiasRule(where={"sex": "f"}, drop=0.5)
    group = ClientGroup(name="g", rules=(rule,))
    one = federate(people(), schema=SCHEMA, partition=Iid(3), groups=group, keep="c1")
    several = federate(people(), schema=SCHEMA, partition=Iid(3), groups=[group], keep=["c1"])
    assert one.recipe == several.recipe
    one = federate(people(), schema=SCHEMA, partition=Iid(3), select={"sex": "f"})
    assert one.recipe.select == (("sex", ("f",)),)


# Refusals


def test_refusals(tmp_path: Path) -> None:
    made = federate(people(), schema=SCHEMA, partition=Iid(2))
    with pytest.raises(RecipeError, match="no partition is named"):
        federate(people(), schema=SCHEMA)
    with pytest.raises(RecipeError, match="the recipe holds all choices"):
        federate(people(), recipe=made.recipe, partition=Iid(3))
    with pytest.raises(RecipeError, match="expected columns and their values"):
        federate(people(), schema=SCHEMA, partition=Iid(2), select=["sex"])  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="partition by names hours"):
        federate(people(), schema=SCHEMA, partition=Dirichlet(2, by="hours"))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="never overwritten"):
        write(made, tmp_path / "x", overwrite=True)
    assert (tmp_path / "x" / "mine.txt").read_text() == "mine"
    with pytest.raises(OutputError, match=r"make it with feda4fair\.federate\.$"):
        write(made.only(["c0"]).__class__(**{**vars(made), "origin": None}), tmp_path / "y")


@pytest.mark.parametrize(
    ("prose", "words"),
    [
        (["Loans"], "prose: list, expected a mapping"),
        ({"title": 5}, "title is of type int, expected a text in quotes"),
        ({"license": ["mit"]}, "license is of type list"),
        ({"published": dt.date(2024, 1, 1)}, "published is of type date, expected a text"),
        ({"title": "\ud800"}, "title is of type str"),
        ({"tags": "fairness"}, "tags is of type str, expected a list of texts"),
        ({"tags": [1]}, "tags is of type list, expected a list of texts"),
        ({"datasheet": "none"}, "datasheet is of type str, expected a table of texts"),
    ],
)
def test_a_text_that_is_none_is_a_sentence(tmp_path: Path, prose: Any, words: str) -> None:
    made = federate(people(), schema=SCHEMA, partition=Iid(2))
    with pytest.raises(SourceError, match=words):
        write(made, tmp_path / "out", prose=prose)
    assert not list(tmp_path.iterdir())


def test_a_path_that_is_none_is_a_sentence() -> None:
    made = federate(people(), schema=SCHEMA, partition=Iid(2))
    with pytest.raises(OutputError, match="is no path"):
        write(made, "a\0b")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recipe", "{r}"], "name its rows with --source"),
        (["acs", "--recipe", "{r}", "--source", "{s}"], "leave out acs"),
        (["--recipe", "{r}", "{r}", "--source", "{s}"], "name different configs"),
        (["--recipe", "{r}", "--source", "{s}", "--year", "2018"], "--year: not an option"),
        (["--recipe", "{r}", "--source", "nowhere.csv"], "no such"),
        (["--recipe", "nowhere.json", "--source", "{s}"], "not readable"),
        (["--recipe", "{r}", "--source", "{s}", "--prose", "{r}"], "cannot be read as TOML"),
        ([], "nothing to build"),
    ],
)
def test_build_refuses_with_a_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    source, recipe = tmp_path / "p.parquet", tmp_path / "r.json"
    pq.write_table(people(), source)
    recipe.write_text(federate(source, schema=SCHEMA, partition=Iid(2)).recipe.to_json(), "utf-8")
    given = [argument.format(r=recipe, s=source) for argument in arguments]
    with pytest.raises(Feda4FairError, match=re.escape(words)):
        build_script().main([*given, "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


# Real rows


def real(*names: str) -> Path:
    path = shared_folder().joinpath("data", *names)
    if not path.exists():
        pytest.skip(f"internal test data {'/'.join(names)} is not here")
    return path


def check_round_trip(made: Federation, folder: Path) -> pd.DataFrame:
    """Write, load, and return all rows; every client must be measured and equal its slice."""
    write(made, folder)
    assert len(measure(made).clients) == len(made.clients)
    loaded = load_dataset(str(folder), made.recipe.name)
    rows = pd.concat([split.to_pandas() for split in loaded.values()])
    for client in made.clients:
        own = rows[rows["client_id"] == client.name].sort_values("row_id")
        expected = made.client(client.name).to_pandas().sort_values("row_id")
        assert own["row_id"].tolist() == expected["row_id"].tolist()
        assert own["label"].tolist() == expected["label"].tolist()
    return rows


def test_real_text(tmp_path: Path) -> None:
    """CrowS-Pairs: the sentences arrive as they are."""
    path = real("hub_samples", "text", "crows_pairs_anonymized.csv.gz")
    made = federate(
        path,
        schema=Schema.infer(
            path,
            label="stereo_antistereo",
            favorable="antistereo",
            sensitive="bias_type",
        ),
        partition=Dirichlet(5, by="bias_type", alpha=1.0),
        groups=homogeneous({"bias_type": "race-color"}, drop=0.5),
    )
    rows = check_round_trip(made, tmp_path / "text")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        source = list(csv.DictReader(stream))
    for row_id, text in zip(rows["row_id"], rows["sent_more"], strict=True):
        assert text == source[row_id]["sent_more"]


def test_real_images(tmp_path: Path) -> None:
    """Cats and dogs: the bytes of every picture arrive as they are."""
    folder = tmp_path / "pictures"
    with zipfile.ZipFile(real("hub_samples", "image", "cats_vs_dogs_dummy.zip")) as archive:
        archive.extractall(tmp_path / "zip")
    lines = []
    for number, path in enumerate(sorted((tmp_path / "zip").rglob("PetImages/*/*.jpg"))):
        if "__MACOSX" in path.parts:
            continue
        name = f"{path.parent.name}-{path.name}"
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder / name)
        lines.append({"file_name": name, "sex": "fm"[number % 2], "label": number % 3 % 2})
    text = "\n".join(json.dumps(line) for line in lines)
    (folder / "metadata.jsonl").write_text(text, "utf-8")
    made = federate(folder, partition=Iid(2), groups=homogeneous({"sex": "f"}, flip=1.0))
    assert sum(entry.flipped for entry in made.ledger) > 0
    check_round_trip(made, tmp_path / "image")
    contents = {(folder / line["file_name"]).read_bytes() for line in lines}
    assert {row["bytes"] for row in made.table["image"].to_pylist()} == contents
    loaded = load_dataset(str(tmp_path / "image"), split="train")
    assert loaded[0]["image"].size[0] > 0


def test_real_dutch_equivalent(tmp_path: Path) -> None:
    """The Hub's Dutch data, whose label 1 is the lower occupation."""
    path = real("dutch", "dutch_hub_equivalent.parquet")
    schema = Schema.infer(
        path,
        label="occupation_binary",
        favorable=0,
        sensitive=["sex_binary", "Marital_status"],
        names={"sex_binary": {0: "Female", 1: "Male"}},
    )
    made = federate(
        path,
        schema=schema,
        partition=Iid(50),
        groups=homogeneous({"sex_binary": "Female"}, drop=0.5, flip=0.4),
    )
    report = measure(made)
    assert (report.attribute("sex_binary")["toward"] == "Female").all()
    rows = check_round_trip(made, tmp_path / "dutch")
    assert len(rows) + len(made.dropped) == 60_420
