"""Rows from wherever a user has them: the same rows by every route, one sentence for bad input."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

from feda4fair.errors import SourceError
from feda4fair.tables import ParquetRows, read_table, record

pytestmark = pytest.mark.usefixtures("untouched_random")

ROWS = pa.table({"text": ["a,\nb", "é", "c"], "sex": ["f", "m", "f"], "label": [1, 0, 1]})


def written(folder: Path, name: str) -> Path:
    """Write the rows as a file of the kind that the name tells."""
    path = folder / name
    match name.split(".", 1)[1]:
        case "parquet":
            pq.write_table(ROWS, path)
        case "csv":
            pa_csv.write_csv(ROWS, path)
        case "csv.gz":
            buffer = io.BytesIO()
            pa_csv.write_csv(ROWS, buffer)
            path.write_bytes(gzip.compress(buffer.getvalue()))
        case "tsv":
            ROWS.to_pandas().to_csv(path, sep="\t", index=False)
        case "jsonl":
            path.write_text("\n".join(json.dumps(row) for row in ROWS.to_pylist()), "utf-8")
        case "json":
            path.write_text(json.dumps(ROWS.to_pylist()), "utf-8")
    return path


@pytest.mark.parametrize("name", ["r.parquet", "r.csv", "r.csv.gz", "r.tsv", "r.jsonl", "r.json"])
def test_files(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    table = read_table(path)
    assert table.to_pylist() == ROWS.to_pylist()
    assert record(str(path), table.num_rows, "").name == name


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        ROWS.to_pandas(),
        pl.from_arrow(ROWS),
        datasets.Dataset(ROWS),
        datasets.DatasetDict({"train": datasets.Dataset(ROWS)}),
    ],
    ids=lambda data: type(data).__name__,
)
def test_rows_in_memory(data: Any) -> None:
    table = read_table(data)
    assert table.to_pylist() == ROWS.to_pylist()
    assert record(data, table.num_rows, "").name == "table"


def test_a_frame_with_an_index_gives_no_index_column() -> None:
    frame = ROWS.to_pandas().set_index(pd.Index([7, 8, 9], name="person"))
    assert read_table(frame).column_names == ROWS.column_names


def test_a_folder_of_parquet_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    pq.write_table(ROWS.slice(1), tmp_path / "b.parquet")
    pq.write_table(ROWS.slice(0, 1), tmp_path / "a.parquet")
    assert read_table(tmp_path).to_pylist() == ROWS.to_pylist()


def test_all_ways_to_read_a_folder_take_its_files_in_one_order(tmp_path: Path) -> None:
    for number, name in enumerate(["part.parquet", "part/x.parquet", "part-1/x.parquet"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"number": [number]}), tmp_path / name)
    whole = read_table(tmp_path)["number"].to_pylist()
    for source in (tmp_path, f"file://{tmp_path}"):
        found = ParquetRows.find(str(source))
        assert found is not None
        assert pa.concat_tables(found.blocks())["number"].to_pylist() == whole


@pytest.mark.parametrize("other", [{"a": ["x"], "b": [1]}, {"b": [1], "a": [1]}, {"a": [1]}])
def test_files_that_do_not_fit_together_are_a_sentence(
    tmp_path: Path, other: dict[str, list[Any]]
) -> None:
    pq.write_table(pa.table({"a": [1], "b": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table(other), tmp_path / "1.parquet")
    found = ParquetRows.find(tmp_path)
    assert found is not None
    for read in (lambda: read_table(tmp_path), lambda: list(found.blocks())):
        with pytest.raises(SourceError, match="do not fit together") as caught:
            read()
        assert "\n" not in str(caught.value)


def test_an_array_of_objects_keeps_keys_that_the_first_ones_lack(tmp_path: Path) -> None:
    objects = [{"a": 1}, {"b": "x", "a": 2}]
    text = b"\xef\xbb\xbf " + json.dumps(objects, indent=1).encode()
    (tmp_path / "r.json").write_bytes(text)
    (tmp_path / "r.json.gz").write_bytes(gzip.compress(text))
    for name in ("r.json", "r.json.gz"):
        table = read_table(tmp_path / name)
        assert table.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl"])
def test_a_text_of_megabytes_is_one_row(tmp_path: Path, name: str) -> None:
    text = "x" * 3_000_000
    rows = {"r.csv": f"a\n{text}\ny\n", "r.jsonl": f'{{"a": "{text}"}}\n{{"a": "y"}}\n'}
    (tmp_path / name).write_text(rows[name])
    assert read_table(tmp_path / name)["a"].to_pylist() == [text, "y"]


def test_a_folder_of_images_gives_their_bytes(tmp_path: Path) -> None:
    contents = {}
    for color, name in (("red", "x.jpg"), ("blue", "y.jpg")):
        path = tmp_path / "train" / name
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), color).save(path)
        contents[name] = path.read_bytes()
    lines = [{"file_name": name, "sex": "f", "label": 1} for name in contents]
    text = "\n".join(json.dumps(line) for line in lines)
    (tmp_path / "train" / "metadata.jsonl").write_text(text, "utf-8")
    table = read_table(tmp_path)
    assert [row["bytes"] for row in table["image"].to_pylist()] == list(contents.values())
    assert table["sex"].to_pylist() == ["f", "f"]
    (tmp_path / "train" / "x.jpg").unlink()
    assert table["image"][0].as_py()["bytes"] == contents["x.jpg"]


def test_all_splits_or_one(tmp_path: Path) -> None:
    parts = datasets.DatasetDict(
        {"train": datasets.Dataset(ROWS), "test": datasets.Dataset(ROWS.slice(0, 1))}
    )
    assert read_table(parts).num_rows == 4
    assert read_table(parts, split="test").num_rows == 1
    with pytest.raises(SourceError, match="no split 'valid'; there are train, test"):
        read_table(parts, split="valid")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Path("nowhere.csv"), "no such file or folder"),
        ("a/b/c", "no such file or folder"),
        ([1, 2], "data of type builtins.list cannot be read"),
        (ROWS.slice(0, 0), "no rows"),
        (pd.DataFrame({"x": [1, "a"]}), "give every column one type"),
        ("", "'': no such file or folder"),
        ("a" * 5_000, "no such file or folder"),
        ("/" + "a" * 5_000, "no such file or folder"),
        ("a\0b", "no such file or folder"),
        (
            datasets.DatasetDict(
                {
                    "train": datasets.Dataset.from_dict({"x": [1]}),
                    "test": datasets.Dataset.from_dict({"x": ["a"]}),
                }
            ),
            "its splits have the same columns",
        ),
        (
            datasets.Dataset.from_dict(
                {"image": ["/nowhere/x.png"]}, datasets.Features({"image": datasets.Image()})
            ),
            "the dataset cannot be read .*x.png",
        ),
        (
            pa.table(
                {
                    "x": pa.Array.from_buffers(
                        pa.string(),
                        1,
                        [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xe9")],
                    )
                }
            ),
            "no valid text",
        ),
    ],
    ids=str,
)
def test_bad_input_is_a_sentence(data: Any, words: str) -> None:
    with pytest.raises(SourceError, match=words) as caught:
        read_table(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r.parquet", b"PAR1nonsense", "cannot be read"),
        ("r.csv", b"a,b\n1\n2,3,4\n", "cannot be read"),
        ("r.json", b"{", "cannot be read"),
        ("r.json", b"null", "begins neither with an object"),
        ("r.json", b"", "begins neither with an object"),
        ("r.json", b"[" * 100_000 + b"]" * 100_000, "cannot be read"),
        ("r.json", b'[{"a": 1}, 2]', "something else than objects"),
        ("r.json", b'[{"a": 1%s}]' % (b"0" * 40), "cannot be read"),
        ("r.json", b'[{"a": 1}, {"a": "x"}]', "cannot be read"),
        ("r.json", b'[{"a": "\xe9"}]', "cannot be read"),
        ("r.jsonl", b'{"a": "\xe9"}\n', "no valid text"),
        ("r.csv", b"a,b\n1,\xe9\n", "column b is not UTF-8"),
        ("r.csv", b"a,\xe9\n1,2\n", "no valid text"),
        ("r.pkl", b"\x80", "expected .parquet, .csv"),
    ],
)
def test_bad_files_are_sentences(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=words) as caught:
        read_table(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_an_empty_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="neither Parquet files nor images"):
        read_table(tmp_path)
