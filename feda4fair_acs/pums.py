"""Read the columns of the income task from a Census PUMS person file, CSV or zip.

The whole file is inflated, if it is a zip, and parsed once. What could make rows silently wrong
stops the reading: a missing column, a line with too few or too many fields, a value that is not a
whole number, a zip whose checksum does not hold.
"""

from __future__ import annotations

import csv
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, Final, NoReturn

import numpy as np
import pyarrow as pa

from feda4fair.errors import SourceError
from feda4fair.fetch import web_page
from feda4fair_acs.schema import FIPS

_DAMAGE: tuple[type[Exception], ...] = (zipfile.BadZipFile, zlib.error, struct.error, EOFError)
_inflater: ModuleType = zlib
with suppress(ImportError):  # the same bytes from a zip in half the time
    from isal import isal_zlib as _inflater

    _DAMAGE = (*_DAMAGE, _inflater.error)

if TYPE_CHECKING:
    import polars as pl

__all__ = ["COLUMNS", "csv_name", "read_persons", "zip_name"]

COLUMNS: Final[tuple[str, ...]] = (
    "AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P", "PINCP", "PWGTP",
)  # fmt: skip
"""The columns that are read: the task's features, its target, and the person weight."""

_AGAIN: Final = "download it again or pass another --source."
_DEFLATE: Final = 8
_BEST_RATIO: Final = 1032  # of deflate; no more room is asked for, whatever a zip claims
_ENCRYPTED: Final = 1
_BLOCK: Final = 1 << 18


def csv_name(state: str, year: int) -> str:
    """Return the name of a state's CSV.

    Examples
    --------
    >>> csv_name("WY", 2018), csv_name("WY", 2016)
    ('psam_p56.csv', 'ss16pwy.csv')
    """
    if year <= 2016:
        return f"ss{year % 100}p{state.lower()}.csv"
    return f"psam_p{FIPS[state]:02d}.csv"


def zip_name(state: str) -> str:
    """Return the name of a state's zip.

    Examples
    --------
    >>> zip_name("WY")
    'csv_pwy.zip'
    """
    return f"csv_p{state.lower()}.zip"


def read_persons(path: Path, *, member: str, fips: int) -> pa.Table:
    """Read one state's person records.

    Parameters
    ----------
    path : Path
        A PUMS CSV, or a Census zip that holds it.
    member : str
        Name of the CSV in the zip.
    fips : int
        The state's code, which the file must carry in its column ST, if it has that column.

    Returns
    -------
    pyarrow.Table
        :data:`COLUMNS` as int32, blanks as nulls, all rows in file order.

    Raises
    ------
    SourceError
        The file is damaged, is something else, or lacks a column.
    """
    try:
        with _opened(path, member) as file:
            header = _header(path, file)
            _check_state(path, file, header, fips)
            frame = _parse(path, file)
            _check_lines(path, file, len(header), len(frame))
    except csv.Error:  # an endless line
        raise SourceError(f"{path} cannot be parsed as CSV; {_AGAIN}") from None
    table: pa.Table = frame.to_arrow()
    return table


@contextmanager
def _opened(path: Path, member: str) -> Iterator[BinaryIO]:
    """Open the CSV as it lies there, or inflated in memory from its zip."""
    try:
        with path.open("rb") as file:
            start = file.read(512)
            if not start:
                raise SourceError(f"{path} is empty (0 bytes); {_AGAIN}")
            if web_page(start):
                raise SourceError(f"{path} is a web page, not Census data; {_AGAIN}")
            if path.suffix == ".zip":
                yield io.BytesIO(_inflate(path, member))
            else:
                file.seek(0)
                yield file
    except OSError as error:
        reason = error.strerror or error
        raise SourceError(f"{path} cannot be read ({reason}); make it readable.") from error


def _inflate(path: Path, member: str) -> bytes:
    """Return one member of a zip after checking its length and its CRC-32."""
    damaged = f"{path} is truncated or corrupt"
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            info = _member(archive, path, member)
            if info.compress_type != _DEFLATE or info.flag_bits & _ENCRYPTED:
                return archive.read(info)
            file.seek(info.header_offset + 26)
            file.seek(sum(struct.unpack("<HH", file.read(4))), io.SEEK_CUR)
            packed = file.read(info.compress_size)
        room = min(info.file_size, _BEST_RATIO * len(packed)) + 1
        content: bytes = _inflater.decompress(packed, -15, room)
    except _DAMAGE as error:
        raise SourceError(f"{damaged} ({error}); {_AGAIN}") from None
    except (RuntimeError, NotImplementedError):  # what zipfile raises for these two
        raise SourceError(f"{path} is encrypted or packed in an unusual way; {_AGAIN}") from None
    if len(content) != info.file_size or _inflater.crc32(content) != info.CRC:
        raise SourceError(
            f"{damaged} ({member} has {len(content)} bytes, expected {info.file_size} with "
            f"CRC-32 {info.CRC:08x}); {_AGAIN}"
        )
    return content


def _member(archive: zipfile.ZipFile, path: Path, member: str) -> zipfile.ZipInfo:
    for info in archive.infolist():
        if Path(info.filename).name.lower() == member:
            return info
    held = ", ".join(archive.namelist()) or "nothing"
    raise SourceError(f"{path} holds {held}, expected {member}; {_AGAIN}")


def _fields(file: BinaryIO) -> list[str]:
    """Return the fields of the next line."""
    line = file.readline().decode("utf-8", errors="replace")
    return next(csv.reader([line.lstrip("\ufeff")]), [])


def _header(path: Path, file: BinaryIO) -> list[str]:
    """Return the column names, after making sure that the needed ones are among them."""
    header = _fields(file)
    missing = [column for column in COLUMNS if column not in header]
    if not missing:
        return header
    if missing == ["RELP"] and "RELSHIPP" in header:
        raise SourceError(
            f"{path} has RELSHIPP instead of RELP, so it is from 2019 or later, and the income "
            "task is defined on RELP; use a year up to 2018."
        )
    raise SourceError(
        f"{path} has no column {', '.join(missing)} among its {len(header)}; "
        "use an ACS PUMS person file."
    )


def _check_state(path: Path, file: BinaryIO, header: list[str], fips: int) -> None:
    """Compare the state in the first row with the one in the file's name."""
    row = dict(zip(header, _fields(file), strict=False))
    if not row:
        raise SourceError(f"{path} has a header and no rows; {_AGAIN}")
    found = row.get("ST", "").strip()
    if found.isdigit() and int(found) != fips:
        raise SourceError(
            f"{path} holds state {int(found):02d}, expected {fips:02d}; put each state's file "
            "under its own name."
        )


def _parse(path: Path, file: BinaryIO) -> pl.DataFrame:
    import polars as pl  # here, because a cached source needs no parser

    source = file.getvalue() if isinstance(file, io.BytesIO) else path
    try:
        return _needed(source, pl.Int32)
    except pl.exceptions.PolarsError:
        return _whole_numbers(path, source)


def _needed(source: bytes | Path, dtype: type[pl.DataType]) -> pl.DataFrame:
    """Parse the needed columns; lines are checked afterwards, unread columns never decoded."""
    import polars as pl

    table = pl.scan_csv(
        source,
        schema_overrides=dict.fromkeys(COLUMNS, dtype),
        infer_schema=False,
        encoding="utf8-lossy",
        truncate_ragged_lines=True,
        glob=False,
    )
    return table.select(COLUMNS).collect()


def _whole_numbers(path: Path, source: bytes | Path) -> pl.DataFrame:
    """Read numbers written as ``1.0``, as other programs save them, or name the first bad one."""
    import polars as pl

    try:
        texts = _needed(source, pl.String)
    except pl.exceptions.PolarsError:
        raise SourceError(f"{path} cannot be parsed as CSV; {_AGAIN}") from None
    numbers = texts.with_columns(pl.all().str.strip_chars().cast(pl.Float64, strict=False))
    whole = numbers.with_columns(pl.all().cast(pl.Int32, strict=False))
    for column in texts.columns:
        filled = texts[column].str.strip_chars() != ""
        bad = (filled & (whole[column].is_null() | (whole[column] != numbers[column]))).arg_true()
        if len(bad):
            raise SourceError(
                f"{path} has {texts[column][bad[0]]!r} in column {column} of data row "
                f"{bad[0] + 1}, expected a whole number; {_AGAIN}"
            )
    return whole


def _check_lines(path: Path, file: BinaryIO, width: int, rows: int) -> None:
    """Make sure that every line has as many fields as the header.

    Counting all commas at once costs a tenth of the parsing; lines are looked at one by one only
    where the count is off, or where quotes may hide commas.
    """
    commas, quoted = 0, False
    file.seek(0)
    while block := file.read(_BLOCK):
        commas += int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord(",")))
        quoted = quoted or b'"' in block
    if commas == (width - 1) * (rows + 1) and not quoted:
        return
    file.seek(0)
    lines = (line.decode("utf-8", errors="replace") for line in file)
    for number, fields in enumerate(csv.reader(lines)):
        if len(fields) != width:
            _ragged(path, number, len(fields), width)


def _ragged(path: Path, number: int, found: int, width: int) -> NoReturn:
    raise SourceError(
        f"{path} is cut off or damaged: data row {number} has {found} fields, "
        f"expected {width}; {_AGAIN}"
    )
