"""The Census source: genuine zips, every way in which a file can be wrong, cache and download."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import pickle
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import folktables
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feda4fair.content import content_sha256
from feda4fair.errors import SourceError
from feda4fair_acs import cache as tidy_cache
from feda4fair_acs import pums
from feda4fair_acs.income import FEATURES, INCOME, income_rows, unknown_codes
from feda4fair_acs.pums import COLUMNS, csv_name, read_persons, zip_name
from feda4fair_acs.release import known_file
from feda4fair_acs.schema import FIPS, STATES
from feda4fair_acs.source import PumsSource, SampleSource, open_source

GENUINE = ("DE", "ND", "SD", "VT", "WY")
ROWS = {"DE": 4713, "ND": 4455, "SD": 4899, "VT": 3767, "WY": 3064}
PERSONS = {"DE": 9123, "ND": 7876, "SD": 8986, "VT": 6436, "WY": 5740}
TYPES = pa.schema([("row_id", pa.int64()), *FEATURES.items(), ("label", pa.int8())])


@pytest.fixture(scope="session")
def zips(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a source folder of the five genuine zips."""
    root = tmp_path_factory.mktemp("zips")
    shutil.copytree(shared_data / "raw_pums" / "2018_1-Year", root / "2018" / "1-Year")
    return root


@pytest.fixture(scope="session")
def csvs(zips: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a source folder of the same five states, unpacked."""
    root = tmp_path_factory.mktemp("csvs")
    folder = root / "2018" / "1-Year"
    for state in GENUINE:
        with zipfile.ZipFile(zips / "2018" / "1-Year" / zip_name(state)) as archive:
            archive.extract(csv_name(state, 2018), folder)
    return root


@pytest.fixture(scope="session")
def wyoming(csvs: Path) -> bytes:
    return (csvs / "2018" / "1-Year" / "psam_p56.csv").read_bytes()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def folder_of(root: Path, *, year: int = 2018) -> Path:
    folder = root / str(year) / "1-Year"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def pack(content: bytes, path: Path, member: str = "psam_p56.csv", method: int = 8) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(member, content)
        archive.writestr("ACS2018_PUMS_README.pdf", b"%PDF")
    return path


def read(root: Path, home: Path, state: str = "WY", **options: object) -> pa.Table:
    return open_source(root, states=[state], cache_dir=home, **options).read(state)  # type: ignore[arg-type]


def fabricated(rows: int = 40, *, columns: tuple[str, ...] = COLUMNS, state: int = 56) -> bytes:
    """Return a small made-up person file, every second row outside the task."""
    values = {
        "AGEP": "40", "COW": "1", "SCHL": "21", "MAR": "1", "OCCP": "0010", "POBP": "006",
        "RELP": "00", "WKHP": "40", "SEX": "2", "RAC1P": "1", "PINCP": "60000", "PWGTP": "7",
    }  # fmt: skip
    names = ("RT", "ST", *columns)
    lines = [",".join(names)]
    for row in range(rows):
        own = {**values, "RT": "P", "ST": f"{state:02d}", "AGEP": "40" if row % 2 else "12"}
        lines.append(",".join(own.get(name, "5") for name in names))
    return ("\n".join(lines) + "\n").encode()


# What is read


def test_task_is_that_of_folktables() -> None:
    assert list(FEATURES) == folktables.ACSIncome.features
    assert folktables.ACSIncome.target == "PINCP"
    above = folktables.ACSIncome.target_transform(pd.Series([INCOME, INCOME + 1]))
    assert above.tolist() == [False, True]
    assert set(FEATURES) | {"PINCP", "PWGTP"} == set(COLUMNS)


@pytest.mark.parametrize("state", GENUINE)
def test_genuine_zip_equals_folktables(zips: Path, csvs: Path, home: Path, state: str) -> None:
    table = read(zips, home, state)
    assert table.schema == TYPES
    assert table.schema.metadata is None
    assert all(column.null_count == 0 for column in table.columns)
    assert table["row_id"].to_pylist() == list(range(ROWS[state]))

    raw = pd.read_csv(folder_of(csvs) / csv_name(state, 2018), usecols=list(COLUMNS))
    features, target, _ = folktables.ACSIncome.df_to_pandas(raw)
    assert table.select(list(FEATURES)).to_pandas().astype("float64").equals(features)
    assert (table["label"].to_numpy() == target["PINCP"].to_numpy()).all()


def test_zip_and_csv_give_the_same(zips: Path, csvs: Path, home: Path) -> None:
    packed = open_source(zips, states=GENUINE, cache_dir=home)
    unpacked = open_source(csvs, states=GENUINE, cache_dir=home)
    for state in GENUINE:
        assert packed.read(state).equals(unpacked.read(state))
    assert packed.files() == unpacked.files()


def test_record_of_a_file(zips: Path, home: Path) -> None:
    source = open_source(zips, states=GENUINE, cache_dir=home)
    for part, record in zip(source.parts, source.files(), strict=True):
        assert record.part == part
        assert record.name == csv_name(part, 2018)
        assert record.rows_read == PERSONS[part]
        assert record.rows_kept == ROWS[part]
        assert record.content_sha256 == content_sha256(source.read(part))
        assert record.unknown_codes == ()
    assert source.files() == open_source(zips, states=GENUINE, cache_dir=home).files()


def test_one_genuine_row(zips: Path, home: Path) -> None:
    """The row of Delaware that the released files lack, as the Census has it."""
    row = read(zips, home, "DE").slice(1208, 1).to_pylist()[0]
    assert row == {
        "row_id": 1208, "AGEP": 77, "COW": 1, "SCHL": 20, "MAR": 1, "OCCP": 10, "POBP": 54,
        "RELP": 0, "WKHP": 4, "SEX": 1, "RAC1P": 5, "label": 1,
    }  # fmt: skip


def test_expanded_rows_of_other_states(shared_data: Path, shared_tools: Path, home: Path) -> None:
    """Puerto Rico and two more, expanded from the rows at hand into the Census layout."""
    states = ["AK", "AL", "PR"]
    root = home / "source"
    maker = [sys.executable, str(shared_tools / "make_pums.py"), "--out", str(root)]
    subprocess.run([*maker, "--states", *states], check=True, capture_output=True)
    source = open_source(root, states=states, cache_dir=home)
    real = pq.read_table(
        shared_data / "acs_income_2018.parquet", filters=[("state", "in", states)]
    ).to_pandas()
    for state in states:
        table = source.read(state).to_pandas()
        rows = real[real["state"] == state].sort_values("row")
        same = ["AGEP", "COW", "SCHL", "OCCP", "POBP", "RELP", "WKHP", "SEX"]
        assert (table[same].to_numpy() == rows[same].to_numpy()).all()
        assert (table["label"].to_numpy() == rows["PINCP"].to_numpy()).all()


def test_csv_is_preferred(zips: Path, wyoming: bytes, home: Path) -> None:
    folder = folder_of(home / "both")
    shutil.copy(folder_of(zips) / "csv_pwy.zip", folder)
    (folder / "psam_p56.csv").write_bytes(wyoming[: len(wyoming) // 2])
    with pytest.raises(SourceError, match=r"psam_p56\.csv"):
        read(home / "both", home)


def test_stored_zip_and_library_inflater(
    wyoming: bytes, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = pack(wyoming, folder_of(home / "a") / "csv_pwy.zip", method=zipfile.ZIP_STORED)
    packed = pack(wyoming, folder_of(home / "b") / "csv_pwy.zip", member="x/PSAM_P56.CSV")
    monkeypatch.setattr(pums, "_inflater", zlib)
    tables = [read_persons(path, member="psam_p56.csv", fips=56) for path in (stored, packed)]
    assert tables[0].equals(tables[1])
    assert tables[0].num_rows == PERSONS["WY"]


def test_columns_are_found_by_name(wyoming: bytes, home: Path) -> None:
    lines = wyoming.decode().splitlines()
    folder = folder_of(home / "turned")
    turned = "\n".join(",".join(reversed(line.split(","))) for line in lines) + "\n"
    (folder / "psam_p56.csv").write_text(turned)
    plain = folder_of(home / "plain")
    (plain / "psam_p56.csv").write_bytes(wyoming)
    assert read(home / "turned", home).equals(read(home / "plain", home))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.removesuffix(b"\n"),
        lambda text: text.replace(b",40,", b", 40 ,"),
        lambda text: text.replace(b",40,", b",40.0,"),
        lambda text: text.replace(b",40,", b',"40",'),
    ],
    ids=["crlf", "bom", "no last newline", "blanks", "floats", "quotes"],
)
def test_harmless_variants(home: Path, change: Callable[[bytes], bytes]) -> None:
    """What another program may make of a file on saving it."""
    path = folder_of(home) / "psam_p56.csv"
    path.write_bytes(fabricated())
    expected = read_persons(path, member="", fips=56)
    path.write_bytes(change(fabricated()))
    assert read_persons(path, member="", fips=56).equals(expected)


def test_serial_numbers_are_not_read(zips: Path, home: Path) -> None:
    read(zips, home, "WY")
    entry = next((home / "acs" / "tidy").rglob("*.arrow"))
    assert b"SERIALNO" not in entry.read_bytes()
    assert b"2018GQ" not in entry.read_bytes()


# The task's filter


def raw_table(**columns: list[int | None]) -> pa.Table:
    rows = len(next(iter(columns.values())))
    plain = {"AGEP": 40, "PINCP": 60_000, "WKHP": 40, "PWGTP": 1}
    return pa.table(
        {
            name: pa.array(columns.get(name, [plain.get(name, 1)] * rows), pa.int32())
            for name in COLUMNS
        }
    )


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, 15, 16, 17, 99]),
            st.sampled_from([None, -5, 99, 100, 101, 50_000, 50_001]),
            st.sampled_from([None, 0, 1, 99]),
            st.sampled_from([None, 0, 1, 2]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_filter_agrees_with_folktables(rows: list[tuple[int | None, ...]]) -> None:
    names = ("AGEP", "PINCP", "WKHP", "PWGTP")
    rows = [*rows, (40, 60_000, 40, 1)]
    columns = zip(*rows, strict=True)
    raw = raw_table(**{name: list(values) for name, values in zip(names, columns, strict=True)})
    frame = raw.to_pandas()
    frame["row"] = np.arange(len(rows))
    kept = folktables.acs.adult_filter(frame)
    table = income_rows(raw, "made up")
    assert table["AGEP"].to_pylist() == kept["AGEP"].astype(int).tolist()
    assert table["WKHP"].to_pylist() == kept["WKHP"].astype(int).tolist()
    assert table["label"].to_pylist() == (kept["PINCP"] > INCOME).astype(int).tolist()


def test_blanks_of_rows_outside_do_not_matter() -> None:
    table = income_rows(raw_table(AGEP=[12, 40], OCCP=[None, 10]), "made up")
    assert table["OCCP"].to_pylist() == [10]


def test_blank_in_a_kept_row_is_an_error() -> None:
    raw = raw_table(OCCP=[None, None, 10], RAC1P=[1, None, 1])
    with pytest.raises(SourceError, match=r"made up has blanks .*\(2 in OCCP, 1 in RAC1P\)"):
        income_rows(raw, "made up")


def test_value_that_is_no_code_is_an_error() -> None:
    with pytest.raises(SourceError, match="made up has the code 200 in column COW"):
        income_rows(raw_table(COW=[1, 200]), "made up")


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(SourceError, match="no row of the income task among 2 rows"):
        income_rows(raw_table(AGEP=[3, 4]), "made up")


def test_unknown_codes_are_counted() -> None:
    raw = raw_table(POBP=[6, 999, 999, 6], SEX=[1, 2, 3, 1], OCCP=[10] * 4, SCHL=[21] * 4)
    assert sorted(unknown_codes(income_rows(raw, "made up"))) == [("POBP", 999, 2), ("SEX", 3, 1)]


# Bad files: one clear sentence each, nothing cached


def spoil(root: Path, name: str, content: bytes) -> None:
    (folder_of(root) / name).write_bytes(content)


def refused(root: Path, home: Path, words: str) -> None:
    with pytest.raises(SourceError, match=words) as caught:
        read(root, home)
    assert "\n" not in str(caught.value)
    assert list(home.rglob("*.arrow")) == []
    assert list(home.rglob("*.tmp")) == []


HTML = b"<html><head><title>403 Forbidden</title></head></html>"


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        (lambda data: b"", r"csv_pwy\.zip is empty \(0 bytes\)"),
        (lambda data: HTML, r"csv_pwy\.zip is a web page, not Census data"),
        (lambda data: b"no zip at all", r"csv_pwy\.zip is truncated or corrupt"),
        (lambda data: data[: len(data) // 2], r"csv_pwy\.zip is truncated or corrupt"),
        (lambda data: data[:-1], r"csv_pwy\.zip is truncated or corrupt"),
        (lambda data: data[:9000] + bytes(500) + data[9500:], "is truncated or corrupt"),
        (lambda data: b"PK\x03\x04" + bytes(99), "is truncated or corrupt"),
    ],
    ids=["empty", "html", "text", "half", "last byte", "zeros inside", "only magic"],
)
@pytest.mark.parametrize("library", [False, True], ids=["isal", "zlib"])
def test_bad_zip(
    zips: Path,
    home: Path,
    spoiled: Callable[[bytes], bytes],
    words: str,
    library: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if library:
        monkeypatch.setattr(pums, "_inflater", zlib)
    data = (folder_of(zips) / "csv_pwy.zip").read_bytes()
    spoil(home / "bad", "csv_pwy.zip", spoiled(data))
    refused(home / "bad", home, words)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_flipped_bit_in_a_zip(home: Path, method: int) -> None:
    """Every bit of the packed rows is guarded by the CRC-32."""
    path = pack(fabricated(400), folder_of(home / "bad") / "csv_pwy.zip", method=method)
    with zipfile.ZipFile(path) as archive:
        size = archive.infolist()[0].compress_size
    data = bytearray(path.read_bytes())
    for position in range(42, 40 + size, 1 + size // 40):
        data[position] ^= 4
        path.write_bytes(data)
        refused(home / "bad", home, "is truncated or corrupt")
        data[position] ^= 4


def test_zip_with_another_member(home: Path, wyoming: bytes) -> None:
    pack(wyoming, folder_of(home / "bad") / "csv_pwy.zip", member="psam_h56.csv")
    refused(home / "bad", home, r"holds psam_h56\.csv, ACS.*, expected psam_p56\.csv")


def test_encrypted_zip(home: Path) -> None:
    path = pack(fabricated(), folder_of(home / "bad") / "csv_pwy.zip")
    data = bytearray(path.read_bytes())
    for signature, flag in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.find(signature) + flag] |= 1
    path.write_bytes(data)
    refused(home / "bad", home, "is encrypted or packed in an unusual way")


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        (lambda data: b"", r"psam_p56\.csv is empty \(0 bytes\)"),
        (lambda data: HTML, r"psam_p56\.csv is a web page"),
        (lambda data: data[: data.index(b"\n") + 1], "has a header and no rows"),
        (lambda data: data[: data.index(b"\n")], "has a header and no rows"),
        (lambda data: data[:-150], r"data row 5740 has \d+ fields, expected 286"),
        (lambda data: data[: len(data) // 2], r"data row \d+ has \d+ fields, expected 286"),
        (
            lambda data: data[: data.rindex(b"\n", 0, len(data) // 2) + 1],
            r"gives 1,\d{3} rows of the income task, expected 3,064, so the file is cut off",
        ),
        (lambda data: data.replace(b",", b";"), r"has no column AGEP, COW.* among its 1;"),
        (lambda data: data.replace(b",RELP,", b",RELSHIPP,"), "RELSHIPP instead of RELP.*2019"),
        (lambda data: data.replace(b",OCCP,", b",OCCP10,"), "has no column OCCP among its 286"),
        (lambda data: data.replace(b",1013097,", b",1013097,9,", 1), "row 1 has 287 fields"),
        (lambda data: data.replace(b"\nP,", b"\n\nP,", 3).replace(b"\n\n", b"\n", 2), "0 fields"),
        (lambda data: data + data[data.index(b"\n") + 1 :], "gives 6,128 rows"),
        (lambda data: data[:9000] + bytes(500) + data[9500:], r"has \d+ fields, expected 286"),
        (lambda data: b"x" * 200_000 + b"\n" + data, "cannot be parsed as CSV"),
        (lambda data: data + b"x" * 200_000, "cannot be parsed as CSV"),
        (lambda data: data.replace(b",48,13,", b",48,\xff,", 1), "has '\ufffd' in column AGEP"),
    ],
    ids=[
        "empty", "html", "header line", "header only", "last line cut", "half", "half at a line",
        "semicolons", "2019", "other occupation", "long line", "blank line", "twice", "zeros",
        "endless header", "endless line", "bytes that are no text",
    ],
)  # fmt: skip
def test_bad_csv(
    wyoming: bytes, home: Path, spoiled: Callable[[bytes], bytes], words: str
) -> None:
    spoil(home / "bad", "psam_p56.csv", spoiled(wyoming))
    refused(home / "bad", home, words)


@pytest.mark.parametrize("value", ["x", "4x", "40.5", "4 0", "0x1F", "1e99", "99999999999", "-"])
def test_value_that_is_not_a_whole_number(home: Path, value: str) -> None:
    lines = fabricated().decode().splitlines()
    lines[18] = lines[18].replace("P,56,40,1", f"P,56,{value},1")
    assert value in lines[18]
    spoil(home / "bad", "psam_p56.csv", ("\n".join(lines) + "\n").encode())
    refused(
        home / "bad",
        home,
        rf"psam_p56\.csv has '{value}' in column AGEP of data row 18, expected a whole number",
    )


def test_file_of_another_state(csvs: Path, home: Path) -> None:
    spoil(home / "bad", "psam_p56.csv", (folder_of(csvs) / "psam_p50.csv").read_bytes())
    refused(home / "bad", home, r"psam_p56\.csv holds state 50, expected 56")


def test_unreadable_file(home: Path, wyoming: bytes) -> None:
    spoil(home / "bad", "psam_p56.csv", wyoming)
    path = folder_of(home / "bad") / "psam_p56.csv"
    source = open_source(home / "bad", states=["WY"], cache_dir=home)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(SourceError, match=f"cannot be read .{os.strerror(errno.ENOENT)}"):
        source.read("WY")


def test_name_with_pattern_characters(home: Path) -> None:
    path = home / "a[b]*?" / "psam_p56.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(fabricated(6))
    assert read_persons(path, member="", fips=56).num_rows == 6


# Which release, which states, which folder


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"year": 2020}, "no standard 1-Year PUMS for 2020"),
        ({"year": 2020, "horizon": "5-Year"}, "2020 files have RELSHIPP instead of RELP"),
        ({"year": 2019}, "2019 files have RELSHIPP instead of RELP.*use a year up to 2018"),
        ({"year": 2024}, "2024 files have RELSHIPP"),
        ({"year": 2005}, "year 2005 is not supported; use 2014 to 2018"),
        ({"horizon": "3-Year"}, "horizon '3-Year' does not exist"),
        ({"states": ["WY", "DC", "XX"]}, "unknown state 'DC', 'XX'"),
        ({"states": ["wy"]}, "unknown state 'wy'"),
        ({"states": []}, "no state was asked for"),
    ],
)
def test_release_that_does_not_exist(home: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(SourceError, match=words):
        open_source(None, cache_dir=home, **options)  # type: ignore[arg-type]


def test_missing_states_are_all_named(zips: Path, home: Path) -> None:
    with pytest.raises(SourceError) as caught:
        open_source(zips, states=["WY", "AL", "TX"], cache_dir=home)
    assert str(caught.value) == (
        f"{zips / '2018' / '1-Year'} has no person file of AL, TX; put csv_pal.zip or "
        "psam_p01.csv there and likewise for the others, or pass --allow-missing to go on without."
    )
    some = open_source(zips, states=["WY", "AL", "TX"], cache_dir=home, allow_missing=True)
    assert some.parts == ("WY",)
    everything = open_source(zips, cache_dir=home, allow_missing=True)
    assert everything.parts == GENUINE


def test_empty_folder_is_an_error_even_if_states_may_be_missing(home: Path) -> None:
    with pytest.raises(SourceError, match=r"no person file of AK, .* WY; put csv_pak\.zip"):
        open_source(home / "nowhere", cache_dir=home, allow_missing=True)


def test_order_is_that_of_the_clients(zips: Path, home: Path) -> None:
    assert open_source(zips, states=["WY", "DE", "WY"], cache_dir=home).parts == ("DE", "WY")
    assert open_source(None, cache_dir=home).parts == STATES


def test_another_year(home: Path) -> None:
    """Other years are read too; nothing is known of their number of rows."""
    folder = folder_of(home / "old", year=2017)
    (folder / "psam_p56.csv").write_bytes(fabricated())
    assert read(home / "old", home, year=2017).num_rows == 20
    folder = folder_of(home / "old", year=2015)
    (folder / "ss15pwy.csv").write_bytes(fabricated(10))
    assert read(home / "old", home, year=2015).num_rows == 5


def test_end_is_checked_where_the_count_is_unknown(home: Path) -> None:
    folder = folder_of(home / "old", year=2017)
    (folder / "psam_p56.csv").write_bytes(fabricated()[:-1])
    with pytest.raises(SourceError, match="does not end with a line break"):
        read(home / "old", home, year=2017)


def test_2018_count_is_checked(home: Path) -> None:
    spoil(home / "bad", "psam_p56.csv", fabricated())
    refused(home / "bad", home, "gives 20 rows of the income task, expected 3,064")


def test_checksums_list_every_client(shared_data: Path) -> None:
    expected = pd.read_csv(shared_data / "expected" / "acs_frame_rows.csv", index_col="state")
    known = {state: known_file(2018, "1-Year", state) for state in STATES}
    assert {state: rows for state, (_, rows) in known.items()} == expected["rows"].to_dict()
    assert sum(rows or 0 for _, rows in known.values()) == 1_664_500
    for state in GENUINE:
        path = shared_data / "raw_pums" / "2018_1-Year" / zip_name(state)
        remote, _ = known[state]
        assert remote.bytes == path.stat().st_size
        assert remote.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert known_file(2017, "1-Year", "WY")[1] is None


# The cache


def entries(home: Path) -> list[Path]:
    return sorted(path for path in (home / "acs" / "tidy").rglob("*") if path.is_file())


@pytest.fixture
def cached(wyoming: bytes, home: Path) -> tuple[Path, pa.Table]:
    spoil(home / "source", "psam_p56.csv", wyoming)
    return home / "source", read(home / "source", home)


def test_second_reading_does_not_parse(
    cached: tuple[Path, pa.Table], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, table = cached
    records = open_source(root, states=["WY"], cache_dir=home).files()

    def parse(*_: object, **__: object) -> pa.Table:
        raise AssertionError("parsed again")

    monkeypatch.setattr("feda4fair_acs.source.read_persons", parse)
    source = open_source(root, states=["WY"], cache_dir=home)
    assert source.read("WY").equals(table)
    assert source.files() == records
    assert len(entries(home)) == 1


def test_changed_file_is_read_again(
    cached: tuple[Path, pa.Table], home: Path, wyoming: bytes
) -> None:
    root, table = cached
    path = folder_of(root) / "psam_p56.csv"
    lines = wyoming.splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *reversed(lines[1:])]))
    os.utime(path, ns=(0, 0))
    again = read(root, home)
    assert again["AGEP"].to_pylist() == table["AGEP"].to_pylist()[::-1]
    assert len(entries(home)) == 1
    path.write_bytes(lines[0])
    with pytest.raises(SourceError, match="header and no rows"):
        read(root, home)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"abc",
        lambda data: data[: len(data) // 2],
        lambda data: data[:20_000] + bytes([data[20_000] ^ 1]) + data[20_001:],
        lambda data: data[4:],
    ],
    ids=["empty", "short", "half", "one bit", "beginning lost"],
)
def test_damaged_entry_is_rebuilt(
    cached: tuple[Path, pa.Table], home: Path, damage: Callable[[bytes], bytes]
) -> None:
    root, table = cached
    (entry,) = entries(home)
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert read(root, home).equals(table)
    assert entry.read_bytes() == whole


def test_remains_of_a_killed_run_are_swept(
    cached: tuple[Path, pa.Table], home: Path, wyoming: bytes
) -> None:
    root, _ = cached
    (entry,) = entries(home)
    old, young = entry.with_name("old.tmp"), entry.with_name("young.tmp")
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (0, 0))
    entry.unlink()
    read(root, home)
    assert entries(home) == sorted([entry, young])


def test_read_only_source(zips: Path, home: Path) -> None:
    folder = folder_of(home / "locked")
    shutil.copy(folder_of(zips) / "csv_pwy.zip", folder)
    for path in (folder / "csv_pwy.zip", folder):
        path.chmod(stat.S_IREAD | (stat.S_IEXEC if path.is_dir() else 0))
    try:
        assert read(home / "locked", home).num_rows == ROWS["WY"]
        assert [path.name for path in folder.iterdir()] == ["csv_pwy.zip"]
    finally:
        folder.chmod(stat.S_IRWXU)


def test_cache_that_cannot_be_written(
    zips: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where the cache folder should be")
    source = open_source(zips, states=["WY"], cache_dir=home)
    assert source.read("WY").num_rows == ROWS["WY"]
    assert source.files()[0].rows_kept == ROWS["WY"]
    assert "was not cached" in caplog.text


FULL = """
import resource, sys
from feda4fair_acs.source import open_source
source = open_source(sys.argv[1], states=["WY"], cache_dir=sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
print(source.read("WY").num_rows)
"""


def test_full_disk_leaves_no_half_entry(zips: Path, home: Path) -> None:
    command = [sys.executable, "-c", FULL, str(zips), str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(ROWS["WY"])]
    assert entries(home) == []


def test_two_processes_at_once(zips: Path, home: Path) -> None:
    source = open_source(zips, states=GENUINE, cache_dir=home)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=PumsSource.files, args=(source,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(entries(home)) == len(GENUINE)
    assert [record.rows_kept for record in source.files()] == [ROWS[part] for part in GENUINE]


def test_entry_is_a_plain_arrow_stream(cached: tuple[Path, pa.Table], home: Path) -> None:
    (entry,) = entries(home)
    stored = pa.ipc.open_stream(entry.read_bytes()).read_all()
    assert stored.drop_columns([]).num_rows == ROWS["WY"]
    assert tidy_cache.load(entry, home / "elsewhere") is None


# Download


class Mirror(SimpleHTTPRequestHandler):
    """A quiet file server, as the Census Bureau's is."""

    asked: list[str] = []  # noqa: RUF012 - one list for all requests of a test

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror(zips: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    handler = partial(Mirror, directory=str(zips))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("FEDA4FAIR_ACS_MIRROR", f"http://127.0.0.1:{server.server_port}/")
    Mirror.asked = []
    yield Mirror.asked
    server.shutdown()
    server.server_close()


def test_only_the_wanted_states_are_downloaded(mirror: list[str], csvs: Path, home: Path) -> None:
    source = open_source(None, states=["WY", "VT"], cache_dir=home)
    assert mirror == []
    assert source.read("WY").equals(read(csvs, home, "WY"))
    assert mirror == ["/2018/1-Year/csv_pwy.zip"]
    source.files()
    assert mirror == ["/2018/1-Year/csv_pwy.zip", "/2018/1-Year/csv_pvt.zip"]
    assert open_source(None, states=["WY", "VT"], cache_dir=home).files() == source.files()
    assert len(mirror) == 2


def test_cache_of_downloads_is_a_source_folder(mirror: list[str], home: Path) -> None:
    table = open_source(None, states=["WY"], cache_dir=home).read("WY")
    assert read(home / "acs", home).equals(table)


def test_refused_download_names_file_and_folder(mirror: list[str], home: Path) -> None:
    with pytest.raises(SourceError) as caught:
        open_source(None, states=["AL"], cache_dir=home).read("AL")
    assert str(caught.value) == (
        "csv_pal.zip from 127.0.0.1 could not be downloaded, the server answered 404 File not "
        f"found; put csv_pal.zip into {home / 'acs' / '2018' / '1-Year'} by hand, or pass "
        "--source with a folder that holds it."
    )
    assert [path for path in home.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_unlisted_download_that_is_damaged_is_removed(
    mirror: list[str], home: Path, zips: Path, tmp_path: Path
) -> None:
    """No checksum is known of a 2017 zip; its own CRC-32 tells."""
    folder = folder_of(zips, year=2017)
    path = pack(fabricated(400), folder / "csv_pwy.zip")
    data = bytearray(path.read_bytes())
    data[120] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"corrupt.* The damaged download was removed\."):
        open_source(None, year=2017, states=["WY"], cache_dir=home).read("WY")
    assert list(home.rglob("*.zip")) == []
    pack(fabricated(400), path)
    source = open_source(None, year=2017, states=["WY"], cache_dir=home)
    assert source.read("WY").num_rows == 200


# The built-in sample, and workers


def test_sample_has_the_same_shape() -> None:
    source = SampleSource(parts=("VT", "WY"))
    table = source.read("WY")
    assert table.schema == TYPES
    assert table.equals(SampleSource().read("WY"))
    assert SampleSource().parts == STATES
    records = source.files()
    assert [record.part for record in records] == ["VT", "WY"]
    assert records[1].content_sha256 == content_sha256(table)
    assert records[1].unknown_codes == ()
    assert records[1].rows_read > records[1].rows_kept == table.num_rows


def test_sources_travel_to_workers(zips: Path, home: Path) -> None:
    for source in (open_source(zips, states=["WY"], cache_dir=home), SampleSource(parts=("WY",))):
        copy = pickle.loads(pickle.dumps(source))
        assert copy == source
        assert copy.read("WY").equals(source.read("WY"))
        assert source.natural == "state"


def test_names_of_files() -> None:
    assert {zip_name(state) for state in STATES} >= {"csv_pal.zip", "csv_ppr.zip"}
    assert csv_name("PR", 2018) == "psam_p72.csv"
    assert sorted(FIPS) == list(STATES)
    assert len(STATES) == 51


def test_reader_leaves_global_random_state_alone(zips: Path, home: Path) -> None:
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    read(zips, home)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
