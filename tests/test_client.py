"""One client alone: the same rows as by the plain way, and no byte of the others."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, load_dataset
from hub_emulator import Entry, HubEmulator, Repo, git_oid
from hypothesis import given
from hypothesis import strategies as st
from small_release import Warm, small_release

from feda4fair import shards
from feda4fair.client import load_client, row_groups
from feda4fair.columns import Column, Label
from feda4fair.errors import OutputError
from feda4fair.parquet import ConfigWriter
from feda4fair.partition import Iid
from feda4fair.recipe import ClientSplit, Recipe
from feda4fair.schema import Schema
from feda4fair.steps import federate_table

REPO = "feda4fair/acs"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A device and a silo config; the silo's row groups are cut in several pieces."""
    folder = tmp_path_factory.mktemp("built")
    small_release(folder / "device")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "ROW_GROUP_BYTES", 5_000)
        small_release(folder / "silo", ("value-silo",), shard_bytes=20_000)
    return folder


@pytest.fixture(scope="module")
def device(built: Path) -> Path:
    return built / "device"


@pytest.fixture(scope="module")
def silo(built: Path) -> Path:
    return built / "silo"


def plainly(folder: Path, config: str, client: str, split: str) -> Dataset:
    return load_dataset(str(folder), config, split=split, filters=[("client_id", "==", client)])


def test_a_device_client_is_found_in_its_split(device: Path) -> None:
    for client in ("AK_0", "AL_0", "TX_0"):
        found = load_client(device, "value-device", client)
        assert isinstance(found, Dataset)
        split = str(found.split)
        assert split in ("train", "test")
        expected = plainly(device, "value-device", client, split)
        assert found.data.table.equals(expected.data.table.combine_chunks())
        assert found.features == expected.features


def test_a_silo_client_comes_whole_or_by_split(silo: Path) -> None:
    metadata = pq.read_metadata(next((silo / "data/value-silo").glob("train-*")))
    assert metadata.num_row_groups > 1
    parts = []
    for split in ("train", "validation", "test"):
        found = load_client(silo, "value-silo", "WY", split)
        assert found.to_list() == plainly(silo, "value-silo", "WY", split).to_list()
        parts += found.to_list()
    whole = load_client(str(silo), "value-silo", "WY")
    assert whole.to_list() == parts
    assert str(whole.split) == "train+validation+test"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("value-device", "TX_1"), "no client 'TX_1' among 3, such as TX_0"),
        (("value-device", "nobody"), "such as AK_0"),
        (("value-silo", "WY"), "no config 'value-silo'"),
        (("../value-device", "TX_0"), "no name of a config"),
        (("value-device", "TX_0", "validation"), "has no validation"),
        (("value-device", "TX_0", "dev"), "there are train, validation, test"),
    ],
)
def test_mistakes_are_named(device: Path, arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(OutputError) as caught:
        load_client(device, *arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize("source", ["no/such/folder", "nothing", "../..", "/etc/hosts", ""])
def test_what_is_neither_folder_nor_repository_is_refused(source: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        load_client(source if source else tmp_path, "value-device", "TX_0")


@given(config=st.text(max_size=20), client=st.text(max_size=20))
def test_no_name_leads_out_of_the_folder(device: Path, config: str, client: str) -> None:
    with pytest.raises(OutputError):
        load_client(device, config, client)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "data/value-device/../../../outside.parquet"},
        {"file": "/etc/passwd"},
        {"file": "data/value-device/test-9.parquet"},
        {"row_group": 1},
        {"row_group": -1},
        {"row_group": 10_000},
        {"rows": 10**9},
        {"rows": 3},
    ],
)
def test_a_wrong_index_is_found_out(
    device: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    folder = Path(shutil.copytree(device, tmp_path / "device"))
    path = folder / "clients" / "value-device.parquet"
    index = pq.read_table(path)
    rows = [row | change if row["client_id"] == "AK_0" else row for row in index.to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, index.schema), path)
    with pytest.raises(OutputError):
        load_client(folder, "value-device", "AK_0")


@pytest.mark.parametrize("value", ["x", None, 2**62, -1, float("nan"), ["a"], b"\xff"])
@pytest.mark.parametrize("column", ["split", "file", "row_group", "rows"])
def test_a_garbled_index_is_one_sentence(
    device: Path, tmp_path: Path, column: str, value: object
) -> None:
    folder = Path(shutil.copytree(device, tmp_path / "device"))
    path = folder / "clients" / "value-device.parquet"
    index = pq.read_table(path)
    values = pa.array([value] * index.num_rows)
    pq.write_table(index.set_column(index.column_names.index(column), column, values), path)
    with pytest.raises(OutputError, match=r"damaged|does not fit|no data file"):
        load_client(folder, "value-device", "AK_0")
    pq.write_table(index.drop([column]), path)
    with pytest.raises(OutputError, match="damaged"):
        load_client(folder, "value-device", "AK_0")


def test_damaged_metadata_are_one_sentence(device: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(device, tmp_path / "device"))
    (path,) = (folder / "data/value-device").glob("train-*")
    groups = [
        pq.ParquetFile(path).read_row_group(i)
        for i in range(pq.read_metadata(path).num_row_groups)
    ]
    for text in (b"{", b"\xff", b'{"info": {"features": {"label": {"_type": "Evil"}}}}'):
        tables = [group.replace_schema_metadata({b"huggingface": text}) for group in groups]
        with pq.ParquetWriter(path, tables[0].schema) as writer:
            for table in tables:
                writer.write_table(table)
        with pytest.raises(OutputError, match="metadata"):
            load_client(folder, "value-device", "AK_0")


@pytest.mark.parametrize("where", ["clients", "data"])
@pytest.mark.parametrize("damage", ["cut", "zeros", "text"])
def test_damage_is_named(device: Path, tmp_path: Path, where: str, damage: str) -> None:
    folder = Path(shutil.copytree(device, tmp_path / "device"))
    for path in (folder / where).rglob("*.parquet"):
        data = path.read_bytes()
        match damage:
            case "cut":
                path.write_bytes(data[: len(data) // 2])
            case "zeros":
                footer = 8 + int.from_bytes(data[-8:-4], "little")
                path.write_bytes(data[:4] + bytes(len(data) - 4 - footer) + data[-footer:])
            case _:
                path.write_text("<html>not found</html>")
    with pytest.raises(OutputError, match=where):
        load_client(folder, "value-device", "TX_0")


def test_row_groups_are_counted_by_rows(silo: Path) -> None:
    path = next((silo / "data/value-silo").glob("train-*"))
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert row_groups(metadata, 0, sum(sizes)) == list(range(len(sizes)))
    assert row_groups(metadata, 1, sizes[1]) == [1]
    with pytest.raises(IndexError):
        row_groups(metadata, 0, sum(sizes) + 1)


# From the Hub


@pytest.fixture(scope="module")
def hub() -> Iterator[HubEmulator]:
    with HubEmulator() as hub:
        yield hub


@pytest.fixture(scope="module")
def warm(hub: HubEmulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    if not hasattr(os, "fork"):
        pytest.skip("processes are forked")
    folder = tmp_path_factory.mktemp("clients")
    warm = Warm(hub.env(folder / "home"), folder)
    yield warm
    warm.close()


def put(hub: HubEmulator, folder: Path, repo_id: str) -> None:
    """Put a folder on the Hub without publishing it."""
    repo = hub.repos["dataset", repo_id] = Repo("dataset", repo_id)
    tree = {}
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            name = path.relative_to(folder).as_posix()
            tree[name] = Entry(hub.put(data), len(data), git_oid(data), lfs=True)
    hub.new_commit(repo, "refs/heads/main", tree, "put")


def remote(warm: Warm, repo: str, config: str, client: str) -> list[dict[str, object]]:
    code = f"""
import json
found = load_client({repo!r}, {config!r}, {client!r})
print(json.dumps([str(found.split), found.features.to_dict(), found.to_list()]))
"""
    ended = warm.run("-c", code)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    return list(json.loads(ended.out))


def test_a_remote_client_equals_the_local_one(hub: HubEmulator, warm: Warm, built: Path) -> None:
    for folder, config, client in (
        ("device", "value-device", "TX_0"),
        ("silo", "value-silo", "VT"),
    ):
        put(hub, built / folder, f"feda4fair/{folder}")
        here = load_client(built / folder, config, client)
        expected = [str(here.split), here.features.to_dict(), here.to_list()]
        assert remote(warm, f"feda4fair/{folder}", config, client) == expected


def group_bytes(path: Path, group: int) -> int:
    """Return the bytes of the pages of a row group."""
    row_group = pq.read_metadata(path).row_group(group)
    return sum(row_group.column(i).total_compressed_size for i in range(row_group.num_columns))


def test_a_remote_client_moves_its_row_group_and_the_footer(
    hub: HubEmulator, warm: Warm, device: Path
) -> None:
    put(hub, device, "feda4fair/measured")
    hub.served.clear()
    found = load_client(device, "value-device", "TX_0")
    remote(warm, "feda4fair/measured", "value-device", "TX_0")
    path = device / f"data/value-device/{found.split}-00000-of-00001.parquet"
    places = pq.read_table(device / "clients/value-device.parquet").to_pylist()
    (group,) = (place["row_group"] for place in places if place["client_id"] == "TX_0")
    footer = pq.read_metadata(path).serialized_size + 8
    served = {url: count for url, count in hub.served.items() if url.endswith(path.name)}
    assert sum(served.values()) <= footer + 1.2 * group_bytes(path, group)
    others = {url for url in hub.served if "/resolve/" in url} - set(served)
    assert [url.rsplit("/", 1)[1] for url in others] == ["value-device.parquet"], "the index"


@pytest.mark.slow
def test_one_client_of_150_moves_less_than_2_percent_of_20_megabytes(
    hub: HubEmulator, warm: Warm, tmp_path: Path
) -> None:
    rows, random = 1_000_000, np.random.default_rng(7)
    columns = [f"c{number:02d}" for number in range(8)]
    table = pa.table(
        {
            "row_id": np.arange(rows),
            **{name: random.integers(0, 3_000, rows).astype(np.int16) for name in columns},
            "group": random.integers(0, 2, rows).astype(np.int8),
            "label": random.integers(0, 2, rows),
        }
    )
    recipe = Recipe(
        dataset="synthetic",
        name="large",
        schema=Schema(
            columns=(
                *(Column(name=name, dtype="int16") for name in columns),
                Column(name="group", dtype="int8", role="sensitive"),
            ),
            label=Label(column="label"),
        ),
        partition=Iid(clients=150),
        split=ClientSplit(test=("c149",)),
    )
    with ConfigWriter(tmp_path / "large", recipe, attach=lambda part: part) as writer:
        writer.add(federate_table(table, recipe))
        writer.finish()
    (path,) = (tmp_path / "large/data/large").glob("train-*")
    assert 19e6 < path.stat().st_size < 22e6
    put(hub, tmp_path / "large", "feda4fair/large")
    hub.served.clear()
    found = remote(warm, "feda4fair/large", "large", "c070")
    assert found[2] == load_client(tmp_path / "large", "large", "c070").to_list()
    footer = pq.read_metadata(path).serialized_size
    assert hub.bytes_out < footer + 1.2 * group_bytes(path, 70)
    assert hub.bytes_out < 0.02 * path.stat().st_size


def test_the_hub_names_what_is_missing(hub: HubEmulator, warm: Warm, device: Path) -> None:
    put(hub, device, "feda4fair/device")
    for arguments, words in (
        (("feda4fair/none", "value-device", "TX_0"), "no such repository"),
        (("feda4fair/device", "value-silo", "TX_0"), "no config 'value-silo'"),
        (("feda4fair/device", "value-device", "TX_9"), "no client 'TX_9'"),
    ):
        ended = warm.run("-c", f"load_client{arguments!r}")
        assert ended.code == 70
        assert words in ended.err.splitlines()[-1]
        assert "hf_test" not in ended.err


def test_a_remote_read_survives_an_answer_of_503(
    hub: HubEmulator, warm: Warm, device: Path
) -> None:
    put(hub, device, "feda4fair/device")
    hub.fault("GET", "/resolve/.*/data/", status=503, times=1)
    assert remote(warm, "feda4fair/device", "value-device", "TX_0")


def test_a_remote_read_that_is_refused_is_one_sentence(
    hub: HubEmulator, warm: Warm, device: Path
) -> None:
    put(hub, device, "feda4fair/device")
    fault = hub.fault("GET", "/resolve/.*/data/", status=403)
    ended = warm.run("-c", "load_client('feda4fair/device', 'value-device', 'TX_0')")
    hub.faults.remove(fault)
    assert ended.code == 70
    last = ended.err.splitlines()[-1]
    assert last.startswith("feda4fair.errors.PublishError: feda4fair/device/data/value-device/")
    assert "no right" in last
