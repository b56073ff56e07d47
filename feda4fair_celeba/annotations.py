"""Read CelebA's two annotation files and join them by file name.

Lines may come in any order: rows are sorted by image id, so the order of the files changes
nothing. What could make rows silently wrong stops the reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from feda4fair.errors import SourceError
from feda4fair.fetch import web_page
from feda4fair_celeba.schema import ATTRIBUTES, HAIR_FLAGS

__all__ = ["hair_color", "join_annotations", "read_attributes", "read_partition"]

_AGAIN: Final = "use the original file or pass another --source"
_SEVERAL: Final = 5


def read_attributes(path: Path) -> pa.Table:
    """Read ``list_attr_celeba.txt``.

    Parameters
    ----------
    path : Path
        Line 1 is the number of images, line 2 the forty names, then one line for each image:
        its file name and forty values of -1 or 1, separated by blanks.

    Returns
    -------
    pyarrow.Table
        ``image_id`` (string), then the forty attributes as int8, 1 where the file has 1 and 0
        where it has -1; sorted by ``image_id``.

    Raises
    ------
    SourceError
        The file is something else, its count is wrong, an attribute is missing, a value is
        neither -1 nor 1, or an image is named twice.
    """
    content = _content(path)
    count, names, body = _head(path, content)
    rows = _rows(path, body, ["image_id", *names], first_line=3)
    if rows.num_rows != count:
        raise SourceError(
            f"{path} has {rows.num_rows:,} images, but its first line says {count:,}: {_AGAIN}."
        )
    rows = _sorted(path, rows)
    return pa.table(
        {"image_id": rows["image_id"], **{n: _zero_one(path, rows, n) for n in ATTRIBUTES}}
    )


def read_partition(path: Path) -> pa.Table:
    """Read ``list_eval_partition.txt``: a file name and 0, 1 or 2 on each line.

    Returns
    -------
    pyarrow.Table
        ``image_id`` (string) and ``eval_partition`` (int8: 0 train, 1 validation, 2 test), sorted
        by ``image_id``.

    Raises
    ------
    SourceError
        The file is something else, a value is not 0, 1 or 2, or an image is named twice.
    """
    rows = _rows(path, _content(path), ["image_id", "eval_partition"], first_line=1)
    rows = _sorted(path, rows)
    values = pc.unique(rows["eval_partition"]).to_pylist()
    unknown = sorted(set(values) - {0, 1, 2})
    if unknown:
        raise SourceError(
            f"{path} has the partition {unknown[0]}, expected 0 (train), 1 (validation) or 2 "
            f"(test): {_AGAIN}."
        )
    return rows


def join_annotations(attributes: pa.Table, partition: pa.Table, *, where: str) -> pa.Table:
    """Join attributes and partition by file name and derive the hair color.

    Parameters
    ----------
    attributes, partition : pyarrow.Table
        From `read_attributes` and `read_partition`.
    where : str
        What the two belong to, for the message.

    Returns
    -------
    pyarrow.Table
        ``row_id`` (int64, position in the order of image ids), ``image_id``, forty attributes,
        ``Hair_Color`` and ``eval_partition``.

    Raises
    ------
    SourceError
        An image is in one file and not in the other.
    """
    ids = attributes["image_id"]
    if not ids.equals(partition["image_id"]):
        listed, split = set(ids.to_pylist()), set(partition["image_id"].to_pylist())
        raise SourceError(
            f"{where}: list_attr_celeba.txt and list_eval_partition.txt name different images "
            f"({sentence(listed - split, 'only in the first', 'none only in the first')}, "
            f"{sentence(split - listed, 'only in the second', 'none only in the second')}): "
            "use two files of the same release."
        )
    flags = np.stack([attributes[name].to_numpy() for name in HAIR_FLAGS], axis=1)
    return pa.table(
        {
            "row_id": pa.array(np.arange(attributes.num_rows, dtype=np.int64)),
            **dict(zip(attributes.column_names, attributes.columns, strict=True)),
            "Hair_Color": pa.array(hair_color(flags)),
            "eval_partition": partition["eval_partition"],
        }
    )


def hair_color(flags: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return one hair color from the four flags of each image.

    Parameters
    ----------
    flags : ndarray of int8, shape (n, 4)
        Black, blond, brown, gray; 0 or 1.

    Returns
    -------
    ndarray of int8, shape (n,)
        1 to 4 for the one flag that is set, 0 for none, 5 for several.

    Examples
    --------
    >>> hair_color(np.array([[0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 1]], np.int8)).tolist()
    [0, 2, 5]
    """
    count = flags.sum(axis=1)
    color = np.where(count == 1, flags.argmax(axis=1) + 1, 0)
    return np.where(count > 1, _SEVERAL, color).astype(np.int8)


def sentence(images: set[str], some: str, none: str) -> str:
    """Return a count of images with the first three names, or what to say when there are none."""
    if not images:
        return none
    shown = ", ".join(sorted(images)[:3]) + (", ..." if len(images) > 3 else "")
    return f"{len(images):,} {some}: {shown}"


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}.") from None
    if not content.strip():
        raise SourceError(f"{path} is empty: {_AGAIN}.")
    if web_page(content[:512]):
        raise SourceError(
            f"{path} is a web page, as a server sends it in place of the file when its quota is "
            f"used up: {_AGAIN}."
        )
    if not content.isascii():
        raise SourceError(f"{path} is damaged or not text, it has bytes beyond ASCII: {_AGAIN}.")
    return content.replace(b"\r\n", b"\n")


def _head(path: Path, content: bytes) -> tuple[int, list[str], bytes]:
    """Return the count of line 1, the names of line 2, and the rest."""
    first, _, rest = content.partition(b"\n")
    second, _, body = rest.partition(b"\n")
    count = first.strip()
    if not count.isdigit():
        raise SourceError(
            f"{path} begins with {_shown(first)}, expected the number of images: {_AGAIN}."
        )
    names = second.decode("ascii").split()
    missing = [name for name in ATTRIBUTES if name not in names]
    if missing or len(names) != len(ATTRIBUTES):
        raise SourceError(
            f"{path} names {len(names)} attributes in its second line, expected the "
            f"{len(ATTRIBUTES)} of CelebA (missing: {', '.join(missing[:3]) or 'none'}): {_AGAIN}."
        )
    return int(count), names, body


def _shown(line: bytes) -> str:
    return repr(line[:40].decode("ascii").strip())


def _rows(path: Path, body: bytes, names: Sequence[str], *, first_line: int) -> pa.Table:
    """Parse lines of a file name and whole numbers, separated by any number of blanks."""
    body = body.replace(b"\t", b" ")
    while b"  " in body:
        body = body.replace(b"  ", b" ")
    body = body.replace(b" \n", b"\n").strip(b" ")
    wrong: list[pa_csv.InvalidRow] = []

    def remember(row: pa_csv.InvalidRow) -> str:
        wrong.append(row)
        return "skip"

    if not body.strip():
        raise SourceError(f"{path} names no image: {_AGAIN}.")
    types = {name: pa.string() if name == "image_id" else pa.int8() for name in names}
    try:
        rows = pa_csv.read_csv(
            pa.BufferReader(body),
            pa_csv.ReadOptions(column_names=list(names), use_threads=False),
            pa_csv.ParseOptions(delimiter=" ", quote_char=False, invalid_row_handler=remember),
            pa_csv.ConvertOptions(column_types=types, strings_can_be_null=False, null_values=[]),
        )
    except pa.ArrowInvalid as error:
        raise SourceError(
            f"{path} holds a value that is not a whole number ({str(error).splitlines()[0]}): "
            f"{_AGAIN}."
        ) from None
    if wrong:
        row = wrong[0]
        line = "" if row.number is None else f" {row.number + first_line - 1:,}"
        raise SourceError(
            f"{path} is cut off or damaged: line{line} has {row.actual_columns} fields, expected "
            f"{row.expected_columns}, in {_shown(row.text.encode())}: {_AGAIN}."
        )
    return rows


def _sorted(path: Path, rows: pa.Table) -> pa.Table:
    rows = rows.take(pc.sort_indices(rows["image_id"])).combine_chunks()
    ids = rows["image_id"]
    same = pc.equal(ids.slice(1), ids.slice(0, len(ids) - 1))
    twice = ids.slice(1).filter(same)
    if len(twice):
        raise SourceError(
            f"{path} names {len(twice):,} images more than once, the first is "
            f"{twice[0].as_py()}: {_AGAIN}."
        )
    return rows


def _zero_one(path: Path, rows: pa.Table, name: str) -> pa.Array:
    """Map -1 to 0 and 1 to 1; anything else is another coding and stops the reading."""
    values = rows[name].to_numpy()
    other = np.flatnonzero((values != 1) & (values != -1))
    if len(other):
        found = sorted(set(np.unique(values).tolist()))
        hint = "coded as 0 and 1" if found[0] == 0 else f"with the value {values[other[0]]}"
        raise SourceError(
            f"{path} has attribute {name} {hint} (first at {rows['image_id'][other[0]].as_py()}), "
            f"expected -1 and 1: {_AGAIN}."
        )
    return pa.array((values == 1).astype(np.int8))
