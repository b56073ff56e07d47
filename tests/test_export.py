"""Exports read back: the same rows, types, names and bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from small_release import SILOS, small_release

from feda4fair import (
    BiasRule,
    ClientGroup,
    Coding,
    Column,
    Federation,
    Label,
    Natural,
    Recipe,
    RowSplit,
    Schema,
    federate_table,
)
from feda4fair import export as module
from feda4fair.build import federations
from feda4fair.errors import OutputError, SchemaError
from feda4fair.export import file_name, file_names, to_csv, to_datasets, to_pandas
from feda4fair.federation import concat
from feda4fair_acs import DATASET as ACS

SEX = Coding(names=((1, "male"), (2, "female")))
TEXTS = ["plain", 'quo"ted, with comma', "two\nlines", "", "Žluťoučký kůň", " blank "]
ROWS = 60


def picture(kind: str, shade: int) -> bytes:
    stream = BytesIO()
    Image.new("RGB", (4, 4), (shade, 0, 0)).save(stream, kind)
    return stream.getvalue()


def federation_of(*, images: bool = False, names: tuple[str, ...] = ("A/1", "b")) -> Federation:
    """Return clients with text, numbers that are hard to print, missing values and images."""
    rng = np.random.RandomState(0)
    half: list[float | None] = [*rng.rand(ROWS - 2), None, 1e-320]
    table = {
        "who": [names[i % len(names)] for i in range(ROWS)],
        "text": [TEXTS[i % len(TEXTS)] for i in range(ROWS)],
        "x": half,
        "n": [None if i % 7 == 0 else i for i in range(ROWS)],
        "yes": [i % 3 == 0 for i in range(ROWS)],
        "sex": rng.randint(1, 3, ROWS),
        "job": rng.randint(1, 4, ROWS),
        "y": rng.randint(0, 2, ROWS),
    }
    columns = [
        Column(name="text", dtype="string"),
        Column(name="x", dtype="float64"),
        Column(name="n", dtype="int16"),
        Column(name="yes", dtype="bool"),
        Column(name="sex", dtype="int8", role="sensitive", coding=SEX),
        Column(name="job", dtype="int8", coding=Coding(names=((1, "clerk"), (2, "smith")))),
    ]
    if images:
        columns.append(Column(name="image", dtype="image"))
        table["image"] = [
            {"bytes": picture("PNG" if i % 2 else "JPEG", i), "path": None} for i in range(ROWS)
        ]
    recipe = Recipe(
        dataset="demo",
        name="demo",
        schema=Schema(columns=tuple(columns), label=Label(column="y", names=("bad", "good"))),
        partition=Natural(column="who"),
        groups=(ClientGroup(name="g", rules=(BiasRule(where={"sex": "female"}, flip=0.3),)),),
        description="A test.",
    )
    return federate_table(pa.table(table), recipe)


@pytest.fixture(scope="module")
def plain() -> Federation:
    return federation_of()


# datasets


def test_datasets_hold_the_rows_and_features_of_the_built_folder(
    tmp_path: Path, sample_acs: tuple[Path, Federation]
) -> None:
    folder, federation = sample_acs
    ours = to_datasets(federation)
    theirs = datasets.load_dataset(str(folder), "attribute-silo", cache_dir=str(tmp_path))
    assert list(ours) == ["train", "validation", "test"]
    for split in ours:
        assert ours[split].features == theirs[split].features
        assert ours[split].data.table.equals(theirs[split].data.table.combine_chunks())


def test_a_saved_dataset_comes_back_whole(plain: Federation, tmp_path: Path) -> None:
    ours = to_datasets(plain)
    ours.save_to_disk(tmp_path / "saved")
    again = datasets.load_from_disk(tmp_path / "saved")
    for split, part in ours.items():
        assert again[split].features == part.features
        assert again[split][:] == part[:]
        assert again[split].split == split
        assert "sex: 1 = male, 2 = female." in again[split].info.description
    assert isinstance(again["train"].features["label"], datasets.ClassLabel)
    assert again["train"].features["label"].names == ["bad", "good"]


def test_splits_hold_every_row_once(plain: Federation) -> None:
    ours = to_datasets(plain)
    ids = [row for part in ours.values() for row in part["row_id"][:]]
    assert sorted(ids) == list(range(ROWS))
    for client in plain.clients:
        for split in ours:
            part = ours[split].filter(lambda row, name=client.name: row["client_id"] == name)
            expected = plain.client(client.name, split)["row_id"].to_pylist()
            assert part["row_id"][:] == expected


def test_names_take_the_place_of_codes(plain: Federation) -> None:
    train = to_datasets(plain, names=True)["train"]
    codes = to_datasets(plain)["train"]
    named = {1: "male", 2: "female"}
    assert train["sex"][:] == [named[code] for code in codes["sex"][:]]
    assert train["label"][:] == [("bad", "good")[code] for code in codes["label"][:]]
    job = {1: "clerk", 2: "smith", 3: "3"}  # a code without a name stays what it is
    assert train["job"][:] == [job[code] for code in codes["job"][:]]
    assert train.features["text"] == codes.features["text"]


def test_numbers_are_ready_for_arrays_and_tensors(plain: Federation) -> None:
    rows = to_datasets(plain)["train"].select_columns(["sex", "yes", "label"])
    assert rows.with_format("numpy")["label"][:].dtype == np.int64
    torch = pytest.importorskip("torch", reason="extra fl")
    tensors = rows.with_format("torch")
    assert tensors["label"][:].dtype == torch.int64
    assert tensors["sex"][:].tolist() == rows["sex"][:]


def test_images_stay_bytes_and_decode(tmp_path: Path) -> None:
    federation = federation_of(images=True)
    before = {
        row["row_id"]: row["image"]["bytes"]
        for row in federation.table.select(["row_id", "image"]).to_pylist()
    }
    for exported in (to_datasets(federation), to_datasets(federation, names=True)):
        exported.save_to_disk(tmp_path / "saved")
        again = datasets.load_from_disk(tmp_path / "saved")["train"]
        assert isinstance(again.features["image"], datasets.Image)
        assert again[0]["image"].size == (4, 4)
        raw = again.cast_column("image", datasets.Image(decode=False))
        for row in raw:
            assert row["image"]["bytes"] == before[row["row_id"]]


def test_images_that_are_attached_later(tmp_path: Path) -> None:
    bare = federation_of()
    columns = (*bare.recipe.schema.columns, Column(name="image", dtype="image"))
    schema = replace(bare.recipe.schema, columns=columns)
    federation = replace(bare, recipe=replace(bare.recipe, schema=schema))
    with pytest.raises(SchemaError, match=r"rows lack image; give attach=source\.attach"):
        to_datasets(federation)
    with pytest.raises(SchemaError, match="rows lack image"):
        to_csv(federation, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []

    def attach(rows: pa.Table) -> pa.Table:
        kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        made = [{"bytes": picture("PNG", i), "path": None} for i in rows["row_id"].to_pylist()]
        return rows.append_column("image", pa.array(made, kind))

    first = to_datasets(federation, attach=attach)["train"][0]
    assert first["image"].getpixel((0, 0)) == (first["row_id"], 0, 0)


# pandas


def test_pandas_holds_all_rows_with_split_and_names(plain: Federation) -> None:
    frame = to_pandas(plain)
    assert list(frame.columns) == [*plain.table.column_names, "split"]
    assert isinstance(frame.index, pd.RangeIndex)
    assert frame["row_id"].tolist() == plain.table["row_id"].to_pylist()
    assert [*frame["split"]] == [("train", "validation", "test")[code] for code in plain.split]
    assert frame.attrs["names"]["sex"] == {1: "male", 2: "female"}
    assert frame["sex"].dtype == np.int8
    assert frame["text"].tolist() == plain.table["text"].to_pylist()
    named = to_pandas(plain, names=True)
    assert named["sex"].map({"male": 1, "female": 2}).tolist() == frame["sex"].tolist()


# CSV


def read(path: Path, schema: pa.Schema) -> pa.Table:
    options = pacsv.ConvertOptions(
        column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return pacsv.read_csv(
        path, pacsv.ReadOptions(), pacsv.ParseOptions(newlines_in_values=True), options
    )


@pytest.mark.parametrize("provenance", [False, True])
def test_csv_files_come_back_to_the_last_bit(
    plain: Federation, tmp_path: Path, provenance: bool
) -> None:
    out = to_csv(plain, tmp_path / "out", provenance=provenance)
    index = pd.read_csv(out / "_clients.csv")
    assert sorted(path.name for path in out.iterdir()) == [
        *("A%2F1.csv", "_clients.csv", "_codes.csv", "b.csv")
    ]
    for client, row in zip(plain.clients, index.itertuples(), strict=True):
        assert (row.client_id, row.file) == (client.name, f"{file_name(client.name)}.csv")
        rows = plain.client(client.name)
        counts = np.bincount(plain.split_of(client), minlength=3).tolist()
        assert [row.train, row.validation, row.test] == counts
        written = read(out / row.file, rows.schema)
        left_out = {"client_id"} if provenance else {"client_id", "row_id", "flipped"}
        expected = [name for name in rows.column_names if name not in left_out]
        assert written.column_names == [*expected, *(["split"] if provenance else [])]
        assert written.select(expected).combine_chunks() == rows.select(expected).combine_chunks()


def test_csv_files_have_no_index_column_and_read_in_pandas(
    sample_acs: tuple[Path, Federation], tmp_path: Path
) -> None:
    _, federation = sample_acs
    out = to_csv(federation, tmp_path / "out")
    frame = pd.read_csv(out / "WY.csv")
    features = [column.name for column in federation.recipe.schema.columns]
    assert list(frame.columns) == [*features, "label"]
    rows = federation.client("WY")
    for name in frame.columns:
        assert frame[name].tolist() == rows[name].to_pylist()
    codes = pd.read_csv(out / "_codes.csv")
    sex = codes[codes["column"] == "SEX"]
    assert dict(zip(sex["code"], sex["name"], strict=True)) == {1: "Male", 2: "Female"}


def test_names_in_csv(plain: Federation, tmp_path: Path) -> None:
    frame = pd.read_csv(to_csv(plain, tmp_path / "out", names=True) / "b.csv")
    assert set(frame["sex"]) == {"male", "female"}
    assert set(frame["label"]) == {"bad", "good"}


def test_images_become_files_byte_for_byte(tmp_path: Path) -> None:
    federation = federation_of(images=True)
    out = to_csv(federation, tmp_path / "out", provenance=True)
    for client, rows in federation:
        frame = pd.read_csv(out / f"{file_name(client.name)}.csv")
        for row, path in zip(rows.to_pylist(), frame["image"], strict=True):
            assert (out / path).read_bytes() == row["image"]["bytes"]
            assert Path(path).suffix == (".png" if row["row_id"] % 2 else ".jpg")


HOSTILE = ("../up", "/etc/passwd", "..", ".", "a b", "x\0y", "CON", "con.x", "Name", "name",
           "_clients", "n" * 300, "n" * 299 + "m", "é", "tab\t", "%2E", "a.", "\n")  # fmt: skip


def test_hostile_names_stay_inside_and_apart(tmp_path: Path) -> None:
    out = to_csv(federation_of(names=HOSTILE), tmp_path / "deep" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    files = [path.name for path in out.iterdir()]
    assert len(files) == len(HOSTILE) + 2
    assert len({name.casefold() for name in files}) == len(files)
    index = pacsv.read_csv(
        out / "_clients.csv", parse_options=pacsv.ParseOptions(newlines_in_values=True)
    )
    assert sorted(index["client_id"].to_pylist()) == sorted(HOSTILE)
    assert {*index["file"].to_pylist(), "_clients.csv", "_codes.csv"} == set(files)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True))
def test_file_names_are_safe_and_different(clients: list[str]) -> None:
    names = file_names(clients)
    stems = [names[client] for client in clients]
    assert len({stem.casefold() for stem in stems}) == len(clients)
    for client, stem in zip(clients, stems, strict=True):
        assert set(stem) <= set(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~%"
        )
        assert stem[0] not in "._"
        assert 0 < len(stem) <= 120
        assert unquote(file_name(client)) == client


def test_a_full_folder_is_refused_and_an_empty_one_taken(
    plain: Federation, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert to_csv(plain, tmp_path / "empty").is_dir()
    before = sorted(path.name for path in (tmp_path / "empty").iterdir())
    with pytest.raises(OutputError, match="is not an empty folder; name another"):
        to_csv(plain, tmp_path / "empty")
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is not an empty folder"):
        to_csv(plain, tmp_path / "file")


def test_a_disk_that_fills_leaves_nothing(
    plain: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Callable[..., Any] = pacsv.write_csv
    done = []

    def fill(table: pa.Table, path: Path) -> None:
        if done:
            raise OSError(28, os.strerror(28))
        write(table, path)
        done.append(path)

    monkeypatch.setattr(module.pacsv, "write_csv", fill)
    with pytest.raises(OutputError, match=r"cannot be written \(the disk is full\)"):
        to_csv(plain, tmp_path / "out")
    assert done
    assert list(tmp_path.iterdir()) == []


def test_a_client_without_a_split_is_told(tmp_path: Path) -> None:
    federation = federation_of()
    only = replace(federation.recipe, split=RowSplit(validation=0.0, test=0.0))
    whole = federate_table(
        federation.table.drop_columns(["row_id", "flipped"]).rename_columns(
            ["who", *federation.table.column_names[2:-2], "y"]
        ),
        only,
    )
    assert list(to_datasets(whole)) == ["train"]
    index = pd.read_csv(to_csv(whole, tmp_path / "out") / "_clients.csv")
    assert (index[["validation", "test"]] == 0).all(axis=None)


@pytest.fixture(scope="module")
def sample_acs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Federation]:
    """Return a folder of two built states, and the same federation in memory."""
    folder = small_release(tmp_path_factory.mktemp("export") / "acs", ["attribute-silo"])
    recipe = ACS.recipe("attribute-silo")
    source = ACS.open_source(None, recipes=[recipe], clients=SILOS, sample=True)
    return folder, concat(federations(recipe, source, SILOS))


def blocks(page: str, heading: str) -> list[str]:
    text = (Path(__file__).resolve().parent.parent / "docs" / page).read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)


@pytest.mark.parametrize(("heading", "count"), [("Flower", 3), ("Export", 1)])
def test_the_lines_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heading: str, count: int
) -> None:
    if heading == "Flower":
        pytest.importorskip("flwr_datasets", reason="extra flower")
        monkeypatch.setattr("flwr_datasets.federated_dataset.event", lambda *_, **__: None)
    small_release(tmp_path / "build" / "acs")
    monkeypatch.chdir(tmp_path)
    found = blocks("federate.md", heading)
    assert len(found) == count
    for block in found:
        exec(compile(block, heading, "exec"), {})
