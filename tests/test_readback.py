"""Reading a built folder back: the federation that was written, or one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_release import small_release

from feda4fair.errors import Feda4FairError
from feda4fair.readback import read_federation

CONFIG = "value-silo"
INDEX = f"clients/{CONFIG}.parquet"
DATA = f"data/{CONFIG}/test-00000-of-00001.parquet"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_release(tmp_path_factory.mktemp("built") / "acs", (CONFIG,))


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(built, tmp_path / "acs"))


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(Feda4FairError) as caught:
        read_federation(folder, CONFIG)
    text = str(caught.value)
    assert text.count("\n") == 0
    assert all(word in text for word in words), text


def test_what_was_written_is_read(built: Path) -> None:
    federation = read_federation(built, CONFIG)
    assert [client.name for client in federation.clients] == ["VT", "WY"]
    rows = json.loads((built / "manifest.json").read_text("utf-8"))["configs"][CONFIG]["rows"]
    assert federation.table.num_rows == rows


@pytest.mark.parametrize("value", ["x", None, 2**62, -1, float("nan"), ["a"], b"\xff", "../x"])
@pytest.mark.parametrize("column", ["client_id", "rows"])
def test_a_garbled_index_is_one_sentence(folder: Path, column: str, value: Any) -> None:
    index = pq.read_table(folder / INDEX)
    place = index.column_names.index(column)
    values = pa.array([value] * index.num_rows)
    pq.write_table(index.set_column(place, column, values), folder / INDEX)
    refused(folder, str(folder))


@pytest.mark.parametrize("path", [INDEX, DATA, f"dropped/{CONFIG}.parquet"])
@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.drop(["client_id"]),
        lambda table: table.slice(0, 0).drop(["client_id"]),
        lambda table: table.append_column("client_id", table["client_id"]),
    ],
    ids=["a column less", "nothing left", "a column twice"],
)
def test_files_that_do_not_fit_are_one_sentence(
    folder: Path, path: str, change: Callable[[pa.Table], pa.Table]
) -> None:
    pq.write_table(change(pq.read_table(folder / path)), folder / path)
    refused(folder, str(folder))


@pytest.mark.parametrize("name", ["../value-silo.parquet", "/etc/passwd", "a\0b"])
def test_a_manifest_cannot_point_outside_of_the_data(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest["configs"][CONFIG]["splits"]["test"]["files"] = [name]
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    refused(folder, "no data file")
