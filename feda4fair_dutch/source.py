"""Read the Dutch census file, an ARFF of twelve nominal attributes.

The header is read line by line and the rows with Arrow's CSV reader, as text: SciPy's ARFF reader
takes twenty times as long for the same rows and returns bytes; a test holds the two equal.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from feda4fair.content import SourceFile, content_sha256
from feda4fair.errors import SourceError
from feda4fair.fetch import Remote, cache_folder, fetch, web_page
from feda4fair.recipe import Recipe
from feda4fair_dutch.configs import VALUE
from feda4fair_dutch.schema import LABEL

__all__ = ["CONTENT", "FILENAME", "ROWS", "DutchSource", "open_source", "read_arff", "remote"]

FILENAME: Final = "dutch_census_2001.arff"
ROWS: Final = 60_420
CONTENT: Final = "aa4874912af3670f978cf9a0a0f412099eb6be7818d6e74766702f34fd8f80fd"
"""Content hash of the rows of the published file, however they are packed."""

PART: Final = "all"
DTYPES: Final = {column.name: column.dtype for column in VALUE.columns} | {LABEL.column: "string"}

_ATTRIBUTE: Final = re.compile(r"@attribute\s+('[^']+'|\"[^\"]+\"|\S+)\s+(.+)", re.IGNORECASE)
_AGAIN: Final = "download it again or pass another --source"


@dataclass(frozen=True, kw_only=True)
class DutchSource:
    """The Dutch census rows, or the built-in sample of made-up ones.

    Attributes
    ----------
    path : Path or None
        The ARFF file, possibly gzipped; None for the sample.
    """

    path: Path | None

    @property
    def parts(self) -> tuple[str, ...]:
        """The one part that holds all rows."""
        return (PART,)

    @property
    def natural(self) -> str:
        """Empty: clients are drawn, not given."""
        return ""

    @property
    def synthetic(self) -> bool:
        """Whether the rows are the made-up sample."""
        return self.path is None

    def read(self, part: str = PART) -> pa.Table:
        """Return ``row_id`` and the twelve columns of the file, in file order.

        Raises
        ------
        SourceError
            The file is not the published one.
        """
        if part != PART:
            raise SourceError(f"dutch: the source has no part {part!r}, only {PART!r}.")
        return self._table

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing: a file with other rows is refused."""
        return ()

    @property
    def options(self) -> dict[str, Any]:
        """Nothing beside the common arguments."""
        return {}

    def fit(self, recipe: Recipe) -> Recipe:
        """Return the recipe as it is: `attach` adds no column."""
        return recipe

    def attach(self, table: pa.Table) -> pa.Table:
        """Return the rows as they are: nothing is too large to carry along."""
        return table

    def files(self) -> tuple[SourceFile, ...]:
        """Return the record of the file."""
        return (
            SourceFile(
                name="sample" if self.path is None else self.path.name,
                part=PART,
                rows_read=self._table.num_rows,
                rows_kept=self._table.num_rows,
                content_sha256=content_sha256(self._table),
            ),
        )

    @cached_property
    def _table(self) -> pa.Table:
        if self.path is None:
            from feda4fair_dutch.sample import population

            return population()
        table = read_arff(self.path)
        _check_published(self.path, table)
        return table

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to read the rows itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def open_source(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    recipes: Sequence[Recipe] = (),
    clients: Sequence[str] = (),
    sample: bool = False,
    allow_missing: bool = False,
) -> DutchSource:
    """Return the source: a folder of the user, the download, or the sample.

    Parameters
    ----------
    data_dir : path, optional
        Folder that holds ``dutch_census_2001.arff`` or ``dutch_census_2001.arff.gz``. Without
        it the file is downloaded once and kept, from the address in ``checksums.tsv`` or from
        the base address in ``FEDA4FAIR_DUTCH_MIRROR``.
    recipes, clients, allow_missing
        Of no effect: every client is drawn from all rows, so none can be missing.
    sample : bool
        Use the built-in sample and nothing else.

    Raises
    ------
    SourceError
        The folder does not hold the file, or it cannot be downloaded.
    """
    if sample:
        return DutchSource(path=None)
    if data_dir is None:
        return DutchSource(path=fetch(remote(), cache_folder() / "dutch"))
    folder = Path(data_dir).expanduser()
    for path in (folder / FILENAME, folder / f"{FILENAME}.gz"):
        if path.is_file():
            return DutchSource(path=path)
    raise SourceError(
        f"{folder} holds neither {FILENAME} nor {FILENAME}.gz: put the file there, or leave "
        "--source out to download it."
    )


def remote() -> Remote:
    """Return where the file is downloaded from, with its size and SHA-256."""
    table = Path(__file__).with_name("checksums.tsv").read_text("utf-8").splitlines()
    row = next(row for row in csv.DictReader(table, delimiter="\t") if row["filename"] == FILENAME)
    mirror = os.environ.get("FEDA4FAIR_DUTCH_MIRROR")
    return Remote(
        url=f"{mirror.rstrip('/')}/{FILENAME}" if mirror else row["url"],
        filename=FILENAME,
        bytes=int(row["bytes"]),
        sha256=row["sha256"],
    )


def read_arff(path: Path) -> pa.Table:
    """Read an ARFF file with the twelve nominal attributes of the Dutch census.

    Parameters
    ----------
    path : Path
        The file, gzipped if its name ends in ``.gz``.

    Returns
    -------
    pyarrow.Table
        ``row_id`` (int64, position in the file), the codes as int8 or int16, and ``occupation``
        as string.

    Raises
    ------
    SourceError
        The file is damaged, is something else, lacks an attribute, or holds a value that its
        header does not declare.
    """
    text = _content(path)
    match = re.search(rb"^@data[ \t]*\r?$", text, re.IGNORECASE | re.MULTILINE)
    if match is None:
        raise SourceError(f"{path} has no line @data, so it is not a whole ARFF file: {_AGAIN}.")
    nominals = _header(path, text[: match.start()])
    rows = _rows(path, text[match.end() :], list(nominals))
    columns = {name: _column(path, name, rows[name], nominals[name]) for name in DTYPES}
    return pa.table({"row_id": pa.array(np.arange(rows.num_rows, dtype=np.int64)), **columns})


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz" and not web_page(content[:512]):
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(f"{path} is truncated or corrupt ({error}): {_AGAIN}.") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}.") from None
    if not content:
        raise SourceError(f"{path} is empty (0 bytes): {_AGAIN}.")
    if web_page(content[:512]):
        raise SourceError(f"{path} is a web page, not the ARFF file: {_AGAIN}.")
    if not content.isascii():
        raise SourceError(f"{path} is damaged or not text, it has bytes beyond ASCII: {_AGAIN}.")
    return content


def _header(path: Path, header: bytes) -> dict[str, frozenset[str]]:
    """Return the declared values of every attribute, in file order."""
    nominals: dict[str, frozenset[str]] = {}
    for line in header.decode("ascii").splitlines():
        match = _ATTRIBUTE.fullmatch(line.strip())
        if match is None:
            continue
        name, kind = match[1].strip("'\""), match[2].strip()
        if name in DTYPES and not (kind.startswith("{") and kind.endswith("}")):
            raise SourceError(
                f"{path} declares {name} as {kind}, expected its values in braces: use the "
                "published ARFF file, whose attributes are all nominal."
            )
        nominals[name] = frozenset(value.strip(" '\"") for value in kind.strip("{}").split(","))
    missing = [name for name in DTYPES if name not in nominals]
    if missing:
        raise SourceError(
            f"{path} has no attribute {', '.join(missing)} among {', '.join(nominals) or 'none'}: "
            "use the published ARFF file."
        )
    return nominals


def _rows(path: Path, data: bytes, names: list[str]) -> pa.Table:
    lines = b"\n".join(line for line in data.split(b"\n") if not line.lstrip().startswith(b"%"))
    wrong: list[pa_csv.InvalidRow] = []

    def remember(row: pa_csv.InvalidRow) -> str:
        wrong.append(row)
        return "skip"

    if not lines.strip():
        raise SourceError(f"{path} has a header and no rows: {_AGAIN}.")
    try:
        table = pa_csv.read_csv(
            io.BytesIO(lines),
            pa_csv.ReadOptions(column_names=names, use_threads=False),
            pa_csv.ParseOptions(invalid_row_handler=remember),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise SourceError(
            f"{path} cannot be read as rows ({str(error).splitlines()[0]}): {_AGAIN}."
        ) from None
    if wrong:
        row = wrong[0]
        raise SourceError(
            f"{path} is cut off or damaged: {len(wrong)} rows have another number of values than "
            f"the {row.expected_columns} attributes, the first is {row.text[:60]!r}: {_AGAIN}."
        )
    return table


def _column(
    path: Path, name: str, values: pa.ChunkedArray, nominals: frozenset[str]
) -> pa.ChunkedArray:
    """Return a column as its dtype after making sure that every value is declared."""
    values = pc.utf8_trim_whitespace(values)
    unknown = sorted(set(pc.unique(values).to_pylist()) - nominals)
    if unknown:
        first = pc.index(values, unknown[0]).as_py()
        raise SourceError(
            f"{path} has {unknown[0]!r} in {name} of data row {first + 1}, which its header does "
            f"not declare: {_AGAIN}."
        )
    if DTYPES[name] == "string":
        return values
    try:
        return values.cast(pa.type_for_alias(DTYPES[name]))
    except pa.ArrowInvalid:
        raise SourceError(
            f"{path} declares {name} with values that are not small whole numbers "
            f"({', '.join(sorted(nominals)[:5])}): use the published ARFF file."
        ) from None


def _check_published(path: Path, table: pa.Table) -> None:
    """Hold the rows against the published file: another row or order is another benchmark."""
    if table.num_rows != ROWS:
        raise SourceError(f"{path} has {table.num_rows:,} rows, expected {ROWS:,}: {_AGAIN}.")
    found = content_sha256(table)
    if found != CONTENT:
        raise SourceError(
            f"{path} has {ROWS:,} rows, but other ones or in another order than the published "
            f"file (content {found[:12]}, expected {CONTENT[:12]}): {_AGAIN}."
        )
