from __future__ import annotations

import gzip
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import arff
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import arff as scipy_arff

from feda4fair.content import content_sha256
from feda4fair.errors import SourceError
from feda4fair_dutch.sample import write_arff
from feda4fair_dutch.source import CONTENT, FILENAME, ROWS, open_source, read_arff, remote

HEADER = """\
@relation dutch_census

@attribute sex {2,1}
@attribute age {4,5}
@attribute household_position {1110,1122}
@attribute household_size {111,112}
@attribute prev_residence_place {2,1}
@attribute citizenship {2,1}
@attribute country_birth {2,1}
@attribute edu_level {0,5}
@attribute economic_status {111,112}
@attribute cur_eco_activity {111,131}
@attribute Marital_status {3,2,1,4}
@attribute occupation {5_4_9,2_1}

@data
"""
ROW = "1,4,1110,111,1,1,1,5,111,131,2,2_1\n"


@pytest.fixture(scope="module")
def packed(shared_data: Path) -> Path:
    return shared_data / "dutch" / f"{FILENAME}.gz"


@pytest.fixture(scope="module")
def content(packed: Path) -> bytes:
    return gzip.decompress(packed.read_bytes())


@pytest.fixture(scope="module")
def table(packed: Path) -> pa.Table:
    return open_source(packed.parent).read()


def one_sentence(error: pytest.ExceptionInfo[SourceError]) -> str:
    text = str(error.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert not re.search(r"[.!?] [A-Z]", text)
    return text


def test_rows_are_those_that_two_other_readers_see(table: pa.Table, content: bytes) -> None:
    ours = [table[name].cast(pa.string()).to_pylist() for name in table.column_names[1:]]
    theirs = arff.loads(content.decode())
    assert [name for name, _ in theirs["attributes"]] == table.column_names[1:]
    assert [list(row) for row in zip(*ours, strict=True)] == theirs["data"]


def test_rows_are_those_of_scipy(table: pa.Table, content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILENAME).write_bytes(content)
    data, meta = scipy_arff.loadarff(tmp_path / FILENAME)
    assert meta.names() == table.column_names[1:]
    for name in meta.names():
        assert data[name].astype(str).tolist() == table[name].cast(pa.string()).to_pylist()


def test_counts_of_the_published_file(table: pa.Table) -> None:
    assert table.num_rows == ROWS == 60_420
    assert np.bincount(table["sex"].to_numpy()).tolist() == [0, 30_147, 30_273]
    marital = np.bincount(table["Marital_status"].to_numpy()).tolist()
    assert marital == [0, 19_656, 36_655, 543, 3_566]
    assert table["occupation"].to_pylist().count("2_1") == 28_763
    assert table["occupation"].to_pylist().count("5_4_9") == 31_657
    assert sum(column.null_count for column in table.columns) == 0
    assert table["row_id"].to_pylist() == list(range(ROWS))


def test_codes_three_and_four_have_the_ages_of_widowed_and_divorced(table: pa.Table) -> None:
    age, marital = table["age"].to_numpy(), table["Marital_status"].to_numpy()
    mean = [age[marital == code].mean() for code in (1, 2, 3, 4)]
    assert mean[2] == max(mean)
    women = (table["sex"].to_numpy()[marital == 3] == 2).mean()
    assert women == pytest.approx(0.69, abs=0.01)


def test_twins_are_counted_and_kept(table: pa.Table) -> None:
    rows = table.drop_columns(["row_id"])
    sizes = rows.group_by(rows.column_names).aggregate([([], "count_all")])["count_all"].to_numpy()
    assert len(sizes) == 18_438
    assert sizes[sizes > 1].sum() == 48_906


def test_rows_are_those_of_the_recoded_hub_dataset(table: pa.Table, shared_data: Path) -> None:
    hub = pq.read_table(shared_data / "dutch" / "dutch_hub_equivalent.parquet")
    same = [n for n in hub.column_names if n in table.column_names and n != "Marital_status"]
    assert len(same) >= 9
    for name in same:
        assert hub[name].cast(pa.int64()).equals(table[name].cast(pa.int64()))
    low = np.array([value == "5_4_9" for value in table["occupation"].to_pylist()])
    assert (hub["occupation_binary"].to_numpy() == low).all()
    assert (hub["sex_binary"].to_numpy() == (table["sex"].to_numpy() == 1)).all()
    other = table["Marital_status"].to_numpy() != 1
    assert (hub["Marital_status"].to_numpy() == other).all()


def test_plain_and_packed_file_give_the_same_table(
    table: pa.Table, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / FILENAME).write_bytes(content.replace(b"\n", b"\r\n"))
    plain = open_source(tmp_path)
    assert plain.read().equals(table)
    assert content_sha256(table) == CONTENT
    (record,) = plain.files()
    assert (record.name, record.rows_read, record.rows_kept) == (FILENAME, ROWS, ROWS)
    assert record.content_sha256 == CONTENT


def test_attributes_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.arff").write_text(HEADER + ROW, "utf-8")
    lines = HEADER.splitlines()
    moved = [*lines[:2], lines[-3], *lines[2:-3], *lines[-2:]]
    swapped = "2_1," + ROW.strip().rpartition(",")[0]
    (tmp_path / "b.arff").write_text("\n".join([*moved, swapped, ""]), "utf-8")
    assert read_arff(tmp_path / "a.arff").equals(read_arff(tmp_path / "b.arff"))


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
def test_damage_is_a_sentence_or_another_whole_table(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray((HEADER + ROW * 3).encode())
    start = data.draw(st.integers(0, len(content) - 1))
    length = data.draw(st.integers(0, 40))
    content[start : start + length] = data.draw(st.binary(max_size=20))
    path = tmp_path / data.draw(st.sampled_from(["x.arff", "x.arff.gz"]))
    path.write_bytes(content if path.suffix == ".arff" else gzip.compress(bytes(content)))
    try:
        table = read_arff(path)
    except SourceError as error:
        message = str(error)
        table = None
    if table is None:
        assert "\n" not in message
    else:
        assert table.num_columns == 13
        assert all(column.null_count == 0 for column in table.columns)


def test_underscores_never_group_digits(tmp_path: Path) -> None:
    path = tmp_path / "x.arff"
    path.write_text(HEADER + ROW + ROW.replace("2_1", "5_4_9"), "utf-8")
    assert read_arff(path)["occupation"].to_pylist() == ["2_1", "5_4_9"]
    path.write_text(HEADER.replace("{0,5}", "{0,1_5}") + ROW.replace(",5,", ",1_5,"), "utf-8")
    with pytest.raises(SourceError, match="edu_level with values that are not small whole"):
        read_arff(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"is empty \(0 bytes\)"),
        ("<!DOCTYPE html><html><body>quota</body></html>", "is a web page"),
        ("age,sex\n1,2\n", "has no line @data"),
        (HEADER, "has a header and no rows"),
        (HEADER.replace("@attribute sex {2,1}", "@attribute sex numeric") + ROW, "sex as numeric"),
        (HEADER.replace("@attribute sex {2,1}\n", "") + ROW, "has no attribute sex"),
        (HEADER + ROW + ROW.replace("1,4", "3,4", 1), "'3' in sex of data row 2"),
        (HEADER + ROW + ROW.replace("2_1", "?"), r"'\?' in occupation of data row 2"),
        (HEADER + ROW + "1,4,11", "1 rows have another number of values than the 12"),
        (HEADER.replace("dutch", "dütch") + ROW, "bytes beyond ASCII"),
        (HEADER + ROW, "has 1 rows, expected 60,420"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / FILENAME).write_text(text, "utf-8")
    with pytest.raises(SourceError, match=message) as error:
        open_source(tmp_path).read()
    assert FILENAME in one_sentence(error)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:-1], "has 60,419 rows, expected 60,420"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], "other ones or in another order"),
        (lambda rows: [*rows[:-1], b"2" + rows[-1][1:]], "other ones or in another order"),
        (lambda rows: [*rows[:-1], rows[-1][:9]], "is cut off or damaged"),
    ],
)
def test_other_rows_are_not_the_benchmark(
    content: bytes, tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], message: str
) -> None:
    head, _, data = content.partition(b"@data\n")
    rows = change(data.strip().split(b"\n"))
    (tmp_path / FILENAME).write_bytes(head + b"@data\n" + b"\n".join(rows) + b"\n")
    with pytest.raises(SourceError, match=message) as error:
        open_source(tmp_path).read()
    one_sentence(error)


def test_a_cut_archive_is_named(packed: Path, tmp_path: Path) -> None:
    path = tmp_path / f"{FILENAME}.gz"
    path.write_bytes(packed.read_bytes()[:-1000])
    with pytest.raises(SourceError, match="truncated or corrupt") as error:
        open_source(tmp_path).read()
    one_sentence(error)
    path.write_bytes(b"<html>login</html>")
    with pytest.raises(SourceError, match="is a web page") as error:
        open_source(tmp_path).read()
    one_sentence(error)


def test_a_folder_without_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds neither") as error:
        open_source(tmp_path)
    assert str(tmp_path) in one_sentence(error)


def test_the_sample_file_is_not_taken_for_the_benchmark(tmp_path: Path) -> None:
    write_arff(tmp_path).rename(tmp_path / FILENAME)
    with pytest.raises(SourceError, match="has 12,000 rows, expected 60,420"):
        open_source(tmp_path).read()


def test_a_source_travels_without_its_rows(packed: Path) -> None:
    source = open_source(packed.parent)
    rows = source.read()
    moved = pickle.dumps(source)
    assert len(moved) < 1000
    assert pickle.loads(moved) == source
    assert pickle.loads(moved).read().equals(rows)
    assert source.read() is rows
    assert (source.parts, source.natural, source.synthetic) == (("all",), "", False)
    with pytest.raises(SourceError, match="no part 'WY'"):
        source.read("WY")


@pytest.fixture
def served() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Serve whatever bytes the test puts under a path, on the loopback interface."""
    files: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", files
        server.shutdown()
        thread.join()


def test_the_file_is_downloaded_once_and_verified(
    served: tuple[str, dict[str, bytes]],
    content: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base, files = served
    monkeypatch.setenv("FEDA4FAIR_CACHE", str(tmp_path))
    monkeypatch.setenv("FEDA4FAIR_DUTCH_MIRROR", base)
    files[f"/{FILENAME}"] = content[:-1] + b"x"
    with pytest.raises(SourceError, match="SHA-256"):
        open_source()
    assert not (tmp_path / "dutch" / FILENAME).exists()
    files[f"/{FILENAME}"] = content
    assert open_source().read().num_rows == ROWS
    files.clear()
    assert open_source().files()[0].content_sha256 == CONTENT


def test_the_published_address_is_pinned_to_a_commit() -> None:
    where = remote()
    assert re.search(r"/[0-9a-f]{40}/Dutch_census/", where.url)
    assert where.bytes == 2_199_278
    assert where.sha256 is not None
    assert where.sha256.startswith("0e7e3f32")
