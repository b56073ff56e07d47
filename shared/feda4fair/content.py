"""What a table says, apart from how it is stored: a content hash and the record of a source file.

Two tables with the same columns, types and values in the same order have the same hash, whatever
their chunks, their file format, or the version of the program that wrote them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feda4fair.errors import SchemaError

__all__ = ["SourceFile", "content_sha256"]

_FORMAT: Final = "feda4fair content 1"

_VIEWS: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}

_Feed = Callable[[Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """What was read from one source file, as a manifest records it.

    Attributes
    ----------
    name : str
        File name without its folder.
    part : str
        The part of the source that the file holds, e.g. a postal code.
    rows_read, rows_kept : int
        Data rows in the file, and rows of the table that was made of them.
    content_sha256 : str
        :func:`content_sha256` of that table: equal for every packing of the same data.
    unknown_codes : tuple of (str, int, int)
        Column, code and number of kept rows for each code that the dictionary does not list.
    """

    name: str
    part: str
    rows_read: int
    rows_kept: int
    content_sha256: str
    unknown_codes: tuple[tuple[str, int, int], ...] = ()


def content_sha256(table: pa.Table) -> str:
    """Return the SHA-256 of a table's column names, types and values, in order.

    Parameters
    ----------
    table : pyarrow.Table
        Columns of integers, floats, booleans, strings, bytes, dates, times, decimals, or
        dictionaries, structs and lists of these. A dictionary column counts as its decoded
        values, a large or view string and a decimal as a string, an extension as what it is
        stored as. Schema metadata does not count.

    Returns
    -------
    str
        64 hexadecimal digits.

    Raises
    ------
    SchemaError
        A column has a type outside that list.

    Notes
    -----
    The hash covers, for each column: a line with name, type, length and number of nulls; one byte
    of validity for each row if there are nulls; then the values little-endian with nulls as zero
    (strings and lists: all lengths as int64 first, then the joined content).

    Examples
    --------
    >>> whole = pa.table({"a": pa.array([1, 2, None], pa.int8())})
    >>> parts = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    >>> content_sha256(whole) == content_sha256(parts)
    True
    >>> content_sha256(whole) == content_sha256(whole.rename_columns(["b"]))
    False
    """
    digest = hashlib.sha256(f"{_FORMAT}\n{table.num_rows} {table.num_columns}\n".encode())
    for name, column in zip(table.column_names, table.columns, strict=True):
        _feed_column(digest.update, name, column)
    return digest.hexdigest()


def _feed_column(feed: _Feed, name: str, column: pa.ChunkedArray) -> None:
    """Feed one column, its nested columns after it."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    elif isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    if column.type in _VIEWS:
        column = column.cast(_VIEWS[column.type])
    elif pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    elif pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    kind = _kind(name, column.type)
    feed(f"{len(name)} {name} {kind} {len(column)} {column.null_count}\n".encode())
    if column.null_count:
        for chunk in column.chunks:
            feed(_bytes_of(chunk.is_valid()))
    match kind:
        case "null":
            pass
        case "string" | "binary":
            _feed_lengths(feed, pc.binary_length(column))
            for chunk in column.chunks:
                _feed_text(feed, chunk)
        case "list":
            _feed_lengths(feed, pc.list_value_length(column))
            _feed_column(feed, "item", _as_chunked(pc.list_flatten(column)))
        case "struct":
            for field in column.type:
                _feed_column(feed, field.name, _as_chunked(pc.struct_field(column, field.name)))
        case _:
            for chunk in column.chunks:
                feed(_bytes_of(chunk))


@lru_cache(4096)
def _kind(name: str, dtype: pa.DataType) -> str:
    """Return our own name of a type, which does not change with pyarrow."""
    is_type = pa.types
    if is_type.is_boolean(dtype):
        return "bool"
    if is_type.is_integer(dtype) or is_type.is_floating(dtype):
        return str(np.dtype(dtype.to_pandas_dtype()).name)
    if is_type.is_string(dtype) or is_type.is_large_string(dtype):
        return "string"
    if is_type.is_binary(dtype) or is_type.is_large_binary(dtype):
        return "binary"
    if is_type.is_temporal(dtype) and dtype.bit_width in (32, 64):
        return f"{dtype}".replace(" ", "")
    if is_type.is_list(dtype) or is_type.is_large_list(dtype) or is_type.is_fixed_size_list(dtype):
        return "list"
    if is_type.is_struct(dtype):
        return "struct"
    if is_type.is_null(dtype):
        return "null"
    raise SchemaError(
        f"column {name!r} has type {dtype}, which has no content hash: cast it to a number, "
        "string, date, list or struct first"
    )


def _bytes_of(chunk: pa.Array) -> memoryview:
    """Return the values of a fixed-width array as bytes, without a copy where there is no null."""
    if pa.types.is_boolean(chunk.type):
        chunk = chunk.cast(pa.uint8())
    elif pa.types.is_temporal(chunk.type):
        chunk = chunk.view(pa.int32() if chunk.type.bit_width == 32 else pa.int64())
    if chunk.null_count:
        chunk = chunk.fill_null(0)
    values = chunk.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data.cast("B")


def _feed_lengths(feed: _Feed, lengths: pa.ChunkedArray) -> None:
    for chunk in lengths.chunks:
        feed(_bytes_of(chunk.cast(pa.int64())))


def _feed_text(feed: _Feed, chunk: pa.Array) -> None:
    """Feed the joined bytes of strings; what lies under a null is skipped."""
    if chunk.null_count:
        chunk = chunk.drop_null()
    for piece in _pieces(chunk.cast(pa.large_binary())):
        feed(piece)


def _pieces(chunk: pa.Array) -> Iterator[memoryview]:
    _, offsets, data = chunk.buffers()
    if data is not None and len(chunk):
        ends = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
        yield memoryview(data)[ends[0] : ends[-1]]


def _as_chunked(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
