"""Parquet in Hub layout: one row group a client, the Hub's schema, the same bytes every time."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from feda4fair import shards
from feda4fair.columns import Coding, Column, Label
from feda4fair.federation import Federation
from feda4fair.parquet import ConfigFiles, ConfigWriter, arrow_schema, complete, hub_features
from feda4fair.partition import Natural
from feda4fair.recipe import (
    BiasRule,
    ClientGroup,
    ClientSplit,
    Recipe,
    RowSplit,
    Split,
)
from feda4fair.schema import Schema
from feda4fair.steps import federate_table

pytestmark = pytest.mark.usefixtures("untouched_random")

SCHEMA = Schema(
    columns=(
        Column(name="age", dtype="int8"),
        Column(name="height", dtype="float32"),
        Column(name="town", dtype="string"),
        Column(name="owner", dtype="bool"),
        Column(name="a.b", dtype="int64"),
        Column(
            name="sex",
            dtype="int8",
            role="sensitive",
            coding=Coding(names=((1, "Male"), (2, "Female"))),
        ),
        Column(name="weight", dtype="float64", role="provenance"),
    ),
    label=Label(column="y", names=("no", "yes")),
)
CLIENTS = ("a", "b", "c", "d")
ROWS = 200


def source() -> pa.Table:
    rows = np.arange(ROWS)
    return pa.table(
        {
            "who": pa.array(np.array(CLIENTS)[rows // 7 % 4]),
            "age": rows % 90,
            "height": rows / 7,
            "town": [f"town {row % 5}" for row in rows],
            "owner": rows % 3 == 0,
            "a.b": rows * 10**12,
            "sex": rows % 5 % 2 + 1,
            "weight": rows / 3,
            "y": rows // 3 % 2,
        }
    )


def recipe(split: Split) -> Recipe:
    return Recipe(
        dataset="toy",
        name="demo-1",
        schema=SCHEMA,
        partition=Natural(column="who"),
        groups=(
            ClientGroup(
                name="g",
                clients=("a", "c"),
                rules=(BiasRule(where={"sex": "Female"}, drop=0.5, flip=0.5),),
            ),
        ),
        split=split,
    )


SILO, DEVICE = recipe(RowSplit()), recipe(ClientSplit(test=("b",)))


def as_it_is(table: pa.Table) -> pa.Table:
    return table


def written(folder: Path, fed: Federation) -> ConfigFiles:
    with ConfigWriter(folder, fed.recipe, attach=as_it_is, client_names={"a": "Alpha"}) as writer:
        writer.add(fed)
        return writer.finish()


def every_file(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def silo() -> Federation:
    return federate_table(source(), SILO)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, silo: Federation) -> Path:
    out = tmp_path_factory.mktemp("write")
    written(out, silo)
    return out


def data_file(folder: Path, split: str) -> pq.ParquetFile:
    return pq.ParquetFile(folder / "data" / "demo-1" / f"{split}-00000-of-00001.parquet")


# The Hub's schema


def test_features_and_schema_are_those_of_datasets() -> None:
    values = {"age": "int8", "height": "float32", "town": "string", "owner": "bool"}
    values |= {"a.b": "int64", "sex": "int8", "weight": "float64"}
    features = datasets.Features(
        {
            "client_id": datasets.Value("string"),
            "row_id": datasets.Value("int64"),
            **{name: datasets.Value(dtype) for name, dtype in values.items()},
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "flipped": datasets.Value("bool"),
        }
    )
    assert hub_features(SCHEMA) == features.to_dict()
    assert datasets.Features.from_dict(hub_features(SCHEMA)) == features
    ours, theirs = arrow_schema(SCHEMA), features.arrow_schema
    assert ours.equals(theirs, check_metadata=False)
    assert json.loads(ours.metadata[b"huggingface"]) == json.loads(theirs.metadata[b"huggingface"])


def test_images_are_those_of_datasets() -> None:
    schema = Schema(columns=(Column(name="image", dtype="image"),))
    features = datasets.Features.from_dict(hub_features(schema))
    assert features["image"] == datasets.Image()
    assert arrow_schema(schema).equals(features.arrow_schema, check_metadata=False)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_schema_is_in_every_file(folder: Path, split: str) -> None:
    stored = data_file(folder, split).schema_arrow
    assert stored.equals(arrow_schema(SCHEMA), check_metadata=True)
    assert stored.names[0] == "client_id"
    assert b"pandas" not in stored.metadata
    ours = json.loads(stored.metadata[b"feda4fair"])
    assert ours["roles"]["sex"] == "sensitive"
    assert ours["names"]["sex"] == {"1": "Male", "2": "Female"}


# Row groups, shards, index


def index_of(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder / "clients" / "demo-1.parquet").to_pylist()


def test_one_row_group_holds_one_client_and_split(folder: Path, silo: Federation) -> None:
    index = index_of(folder)
    assert len(index) == 12
    for entry in index:
        stored = pq.ParquetFile(folder / entry["file"]).read_row_group(entry["row_group"])
        expected = silo.client(entry["client_id"], entry["split"])
        assert stored.equals(expected.cast(arrow_schema(SCHEMA)))
    for split in ("train", "validation", "test"):
        assert data_file(folder, split).num_row_groups == 4


def test_the_index_counts_what_is_there(folder: Path, silo: Federation) -> None:
    for entry in index_of(folder):
        rows = silo.client(entry["client_id"], entry["split"])
        gone = silo.dropped_of(entry["client_id"])
        assert entry["rows"] == rows.num_rows
        assert entry["positives"] == pc.sum(rows["label"]).as_py()
        assert entry["flipped"] == pc.sum(rows["flipped"]).as_py()
        assert entry["dropped"] == gone["split"].to_pylist().count(entry["split"])
        assert entry["name"] == {"a": "Alpha"}.get(entry["client_id"], entry["client_id"])
        own = [e for e in silo.ledger if e.client == entry["client_id"]]
        assert entry["rules"] == [e.rule for e in own]
        assert entry["drop"] == [e.drop for e in own]
        assert entry["flip"] == [e.flip for e in own]
        assert entry["fold"] is None


def test_device_clients_lie_in_one_split_and_have_a_fold(tmp_path: Path) -> None:
    fed = federate_table(source(), DEVICE)
    files = written(tmp_path, fed)
    index = index_of(tmp_path)
    assert {e["client_id"]: e["split"] for e in index} == dict.fromkeys("acd", "train") | {
        "b": "test"
    }
    assert {e["client_id"]: e["fold"] for e in index} == {c.name: c.fold for c in fed.clients}
    assert list(files.splits) == ["train", "test"]


def test_removed_rows_are_kept_aside(folder: Path, silo: Federation) -> None:
    stored = pq.ParquetFile(folder / "dropped" / "demo-1.parquet")
    assert (
        stored.read()
        .select(silo.dropped.column_names)
        .cast(silo.dropped.schema)
        .equals(silo.dropped)
    )
    assert stored.num_row_groups == 1
    assert silo.dropped.num_rows > 0


def test_shards_end_at_clients_and_large_clients_are_cut(
    tmp_path: Path, silo: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 4000)
    monkeypatch.setattr(shards, "ROW_GROUP_BYTES", 1000)
    files = written(tmp_path, silo)
    names = files.splits["train"]["files"]
    assert len(names) > 1
    assert names == [f"train-{i:05d}-of-{len(names):05d}.parquet" for i in range(len(names))]
    held = [pq.read_table(tmp_path / "data" / "demo-1" / name) for name in names]
    owners = [set(table["client_id"].to_pylist()) for table in held]
    assert not [one & other for one, other in itertools.combinations(owners, 2) if one & other]
    groups = [pq.ParquetFile(tmp_path / "data" / "demo-1" / name).num_row_groups for name in names]
    assert sum(groups) > 4
    for entry in index_of(tmp_path):
        stored = pq.ParquetFile(tmp_path / entry["file"])
        first = stored.read_row_group(entry["row_group"])
        assert first["client_id"][0].as_py() == entry["client_id"]
        before = silo.client(entry["client_id"], entry["split"])
        assert first["row_id"].to_pylist() == before["row_id"].to_pylist()[: first.num_rows]
    assert not list(tmp_path.rglob("*-00000.parquet"))


# Settings and bytes


def test_writer_settings_are_fixed(folder: Path) -> None:
    stored = data_file(folder, "train")
    assert stored.metadata.format_version == "2.6"
    for group in range(stored.num_row_groups):
        for position in range(stored.metadata.num_columns):
            column = stored.metadata.row_group(group).column(position)
            assert column.compression == "ZSTD"
            assert column.has_offset_index
            assert column.has_column_index
            assert column.is_stats_set
            encoding = {"row_id": "DELTA_BINARY_PACKED", "owner": "PLAIN", "flipped": "PLAIN"}
            assert encoding.get(column.path_in_schema, "RLE_DICTIONARY") in column.encodings


def test_images_are_stored_as_they_are(tmp_path: Path) -> None:
    schema = Schema(
        columns=(
            Column(name="image", dtype="image"),
            Column(name="sex", dtype="int8", role="sensitive"),
        )
    )
    jpeg = b"\xff\xd8" + bytes(range(256)) * 50
    made = Recipe(dataset="toy", name="demo-1", schema=schema, partition=Natural(column="who"))
    table = pa.table({"who": ["a"] * 9, "sex": [1] * 9, "label": [0, 1, 1] * 3})

    def attach(rows: pa.Table) -> pa.Table:
        images = [{"bytes": jpeg + bytes([i]), "path": f"{i}.jpg"} for i in range(len(rows))]
        return rows.append_column("image", pa.array(images))

    with ConfigWriter(tmp_path, made, attach=attach) as writer:
        writer.add(federate_table(table, made))
        writer.finish()
    stored = data_file(tmp_path, "train")
    first = stored.read()["image"][0].as_py()
    assert first == {"bytes": jpeg + b"\x00", "path": "0.jpg"}
    column = next(
        column
        for column in map(stored.metadata.row_group(0).column, range(stored.metadata.num_columns))
        if column.path_in_schema == "image.bytes"
    )
    assert column.compression == "UNCOMPRESSED"
    assert "RLE_DICTIONARY" not in column.encodings


def test_the_same_rows_are_the_same_bytes(folder: Path, tmp_path: Path, silo: Federation) -> None:
    written(tmp_path, silo)
    assert every_file(tmp_path) == every_file(folder)


def test_chunks_of_the_source_do_not_matter(folder: Path, tmp_path: Path) -> None:
    table = source()
    chunked = pa.concat_tables([table.slice(0, 3), table.slice(3, 100), table.slice(103)])
    written(tmp_path, federate_table(chunked, SILO))
    assert every_file(tmp_path) == every_file(folder)


def test_parts_one_by_one_are_the_same_bytes(
    folder: Path, tmp_path: Path, silo: Federation
) -> None:
    with ConfigWriter(tmp_path, SILO, attach=as_it_is, client_names={"a": "Alpha"}) as writer:
        for client in silo.clients:
            writer.add(silo.only([client.name]))
        writer.finish()
    assert every_file(tmp_path) == every_file(folder)


def chunk_bytes(path: Path, group: int) -> bytes:
    """Return the raw bytes of a row group's column chunks."""
    group_data = pq.ParquetFile(path).metadata.row_group(group)
    columns = [group_data.column(i) for i in range(group_data.num_columns)]
    content = path.read_bytes()
    spans = [
        (column.dictionary_page_offset or column.data_page_offset, column.total_compressed_size)
        for column in columns
    ]
    return b"".join(content[start : start + size] for start, size in spans)


def test_a_client_alone_has_the_same_bytes_in_its_row_group(
    folder: Path, tmp_path: Path, silo: Federation
) -> None:
    for name in CLIENTS:
        written(tmp_path / name, silo.only([name]))
        whole = {(e["client_id"], e["split"]): e for e in index_of(folder)}
        for entry in index_of(tmp_path / name):
            other = whole[entry["client_id"], entry["split"]]
            assert chunk_bytes(tmp_path / name / entry["file"], 0) == chunk_bytes(
                folder / other["file"], other["row_group"]
            )


# Counts and hashes


def test_the_summary_is_that_of_the_rows(tmp_path: Path, silo: Federation) -> None:
    files = written(tmp_path, silo)
    assert (files.clients, files.rows) == (4, silo.table.num_rows)
    assert files.positives == pc.sum(silo.table["label"]).as_py()
    assert files.flipped == pc.sum(silo.table["flipped"]).as_py() > 0
    assert files.dropped == silo.dropped.num_rows
    assert files.source_rows == ROWS == files.rows + files.dropped + files.left_out
    assert files.ledger == silo.ledger
    assert files.example == {"split": "train", "client": "a"}


def test_the_content_hash_does_not_depend_on_the_file_format(
    tmp_path: Path, silo: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = written(tmp_path / "one", silo)
    monkeypatch.setattr(shards, "ROW_GROUP_BYTES", 1000)
    second = written(tmp_path / "two", silo)
    assert first.content_sha256 == second.content_sha256
    assert first.dropped_sha256 == second.dropped_sha256
    different = next((tmp_path / "one").rglob("train*")).read_bytes()
    assert different != next((tmp_path / "two").rglob("train*")).read_bytes()


def test_the_content_hash_covers_every_row_client_and_split(
    tmp_path: Path, silo: Federation
) -> None:
    table = silo.table
    older = table.set_column(2, "age", pc.add(table["age"], pa.scalar(1, pa.int8())))
    names = pc.replace_substring(table["client_id"], "d", "e")
    variants = {
        "same": silo,
        "split": federate_table(source(), recipe(RowSplit(test=0.3))),
        "value": replace(silo, table=older),
        "client": replace(
            silo,
            table=table.set_column(0, "client_id", names),
            clients=(*silo.clients[:3], replace(silo.clients[3], name="e")),
        ),
        "fewer": silo.only(["a", "b", "c"]),
    }
    hashes = {name: written(tmp_path / name, fed).content_sha256 for name, fed in variants.items()}
    assert len(set(hashes.values())) == len(variants)
    assert hashes["same"] == written(tmp_path / "again", silo).content_sha256


def test_cells_that_only_test_holds_are_listed(tmp_path: Path) -> None:
    rows = 40
    table = pa.table(
        {
            name: source()[name].slice(0, rows)
            for name in ("age", "height", "town", "owner", "a.b", "weight")
        }
    )
    table = table.append_column("who", pa.array(["a"] * rows))
    table = table.append_column("sex", pa.array([2, *[1] * (rows - 1)]))
    table = table.append_column("y", pa.array([1, *[0, 1] * (rows // 2 - 1), 0]))
    made = Recipe(
        dataset="toy", name="demo-1", schema=SCHEMA, partition=Natural(column="who"), seed=0
    )
    drawn = (federate_table(table, replace(made, seed=seed)) for seed in range(100))
    fed = next(fed for fed in drawn if 0 in fed.client("a", "test")["row_id"].to_pylist())
    assert written(tmp_path, fed).empty_cells == (("a", "sex", "Female", "yes"),)


def test_complete_brings_rows_into_their_written_form(silo: Federation) -> None:
    table = complete(silo.client("a"), arrow_schema(SCHEMA), as_it_is)
    assert table.schema.equals(arrow_schema(SCHEMA), check_metadata=True)
