"""Cached tidy tables, each bound to the source file it was made of.

An entry holds for as long as size, times and inode of its source file stay as they were: hashing
a file would cost more than parsing it again. An entry is an Arrow stream with its CRC-32 behind
it; one that is damaged counts as absent. Parquet would be three times as large and ten times as
slow here, because it stores an int8 in four bytes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from feda4fair.errors import SourceError

__all__ = ["entry_of", "load", "stamp_of", "store"]

_READER: Final = 1  # raise it when a tidy table changes
_DAY: Final = 86_400.0
_LOG = logging.getLogger(__name__)


def stamp_of(source: Path) -> list[int]:
    """Return the numbers that change when a source file or this reader changes.

    Raises
    ------
    SourceError
        The file is not there or cannot be looked at.
    """
    try:
        stat = source.stat()
    except OSError as error:
        reason = error.strerror or error
        raise SourceError(f"{source} cannot be read ({reason}); make it readable.") from error
    return [_READER, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def entry_of(folder: Path, source: Path) -> Path:
    """Return the cache file that belongs to a source file: one for each path."""
    key = hashlib.sha256(os.fsencode(source.absolute())).hexdigest()[:16]
    return folder / f"{source.stem}-{key}.arrow"


def load(entry: Path, source: Path) -> tuple[pa.Table, dict[str, Any]] | None:
    """Return the table and the facts that were stored for this very file, or nothing."""
    try:
        content = memoryview(entry.read_bytes())
        body, check = content[:-4], content[-4:]
        if zlib.crc32(body) != int.from_bytes(check, "little"):
            return None
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        facts = json.loads(table.schema.metadata[b"facts"])
        if facts.pop("stamp") != stamp_of(source):
            return None
    except (OSError, SourceError, pa.ArrowInvalid, ValueError, KeyError, TypeError):
        return None
    return table.replace_schema_metadata(None), facts


def store(entry: Path, table: pa.Table, facts: dict[str, Any], stamp: list[int]) -> None:
    """Write an entry whole or not at all; a cache that cannot be written is no reason to stop.

    Parameters
    ----------
    entry : Path
        From :func:`entry_of`.
    table : pyarrow.Table
        What to keep.
    facts : dict
        JSON values to keep with it.
    stamp : list of int
        :func:`stamp_of` the source file, taken before it was read.
    """
    metadata = {"facts": json.dumps({**facts, "stamp": stamp})}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema.with_metadata(metadata)) as writer:
        writer.write_table(table)
    body = sink.getvalue()
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        _sweep(entry.parent)
        _write_whole(entry, body, zlib.crc32(body).to_bytes(4, "little"))
    except OSError as error:
        _LOG.warning("%s was not cached: %s", entry.name, error.strerror or error)


def _write_whole(path: Path, *pieces: pa.Buffer | bytes) -> None:
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f"{path.stem}-", suffix=".tmp", delete=False
    ) as file:
        temporary = Path(file.name)
        try:
            for piece in pieces:
                file.write(piece)
            file.close()
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _sweep(folder: Path) -> None:
    """Remove what a run that was killed while it wrote has left, once it is surely dead."""
    for left in folder.glob("*.tmp"):
        if left.stat().st_mtime < time.time() - _DAY:
            left.unlink(missing_ok=True)
