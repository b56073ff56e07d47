"""Columns of any kind as small integers: labels to booleans, codes to positions.

Nothing is guessed: a label that is not binary, a missing group or an undeclared code is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from feda4fair.errors import MeasureError

__all__ = ["Code", "binary", "encode", "positions"]

Code = int | float | str | bool
Ints = NDArray[np.int64]

# A lookup table serves codes as small as the Census' own; wider codes are searched instead.
_LOOKUP_SPAN = 1 << 16


def binary(values: ArrayLike, name: str, pos_label: Code | None = None) -> NDArray[np.bool_]:
    """Return labels as booleans; refuse to guess which of two labels is the favorable one.

    Parameters
    ----------
    values : array-like, shape (n,)
        Labels. Without ``pos_label`` they must be bool or 0 and 1.
    name : str
        What the values are, for the message.
    pos_label : scalar, optional
        The favorable one of at most two labels.
    """
    array = np.asarray(values)
    if array.dtype == np.object_:
        array = np.asarray(_arrow(array, name).to_numpy(zero_copy_only=False))
    if array.dtype == np.bool_ and pos_label is None:
        return array
    if pos_label is None:
        if array.dtype.kind in "iuf":
            ones: NDArray[np.bool_] = array == 1
            if bool((ones | (array == 0)).all()):
                return ones
        found = _distinct(array)
        raise MeasureError(
            f"{name}: got the labels {found}, expected 0 and 1 (or bool) with 1 the favorable "
            "outcome; name the favorable one with pos_label, or reduce to two classes."
        )
    classes = _arrow(array, name).unique().to_pylist()
    if None in classes or len(classes) > 2 or (len(classes) == 2 and pos_label not in classes):
        raise MeasureError(
            f"{name}: got the labels {_distinct(array)} with pos_label {pos_label!r}, expected "
            "at most two labels, none missing, one of them pos_label."
        )
    return np.asarray(array == pos_label, dtype=np.bool_)


def _arrow(array: Any, name: str) -> Any:
    try:
        arrow = isinstance(array, (pa.Array, pa.ChunkedArray))
        values = array if arrow else pa.array(array, from_pandas=True)
        return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise MeasureError(
            f"{name}: the values are of mixed or unknown types ({error}), expected one type; "
            "convert the column first."
        ) from error


def _distinct(array: NDArray[Any]) -> str:
    values = _arrow(array.ravel(), "column").unique().to_pylist()
    names = sorted("missing" if value is None else repr(value) for value in values)
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def encode(column: Any, name: str) -> tuple[Ints, tuple[Code, ...]]:
    """Return each row's position among the column's own values, and those values in order.

    Parameters
    ----------
    column : array-like, shape (n,)
        A sensitive column. A categorical declares its values, with or without rows, in its order;
        the values of any other column are those that occur, sorted.
    name : str
        Column name, for the message.

    Raises
    ------
    MeasureError
        When a row holds no value, or values of mixed types.
    """
    if hasattr(column, "to_arrow"):
        column = column.to_arrow()
    known = isinstance(column, (pa.Array, pa.ChunkedArray)) or hasattr(column, "dtype")
    values = _arrow(column if known else np.asarray(column), name)
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
        order = np.argsort(values.dictionary.to_numpy(zero_copy_only=False), kind="stable")
    else:
        order = np.arange(len(values.dictionary))
    if values.null_count:
        raise MeasureError(
            f"{name}: {values.null_count} of {len(values)} rows hold no value; give missing "
            "values a group of their own, or leave these rows out."
        )
    indices = values.indices.to_numpy(zero_copy_only=False)
    names = values.dictionary.to_pylist()
    return np.argsort(order)[indices].astype(np.int64), tuple(names[i] for i in order)


def positions(codes: Any, declared: Sequence[Code], name: str) -> Ints:
    """Return the position of every row's code among the declared ones.

    Parameters
    ----------
    codes : array-like, shape (n,)
        Codes of the rows.
    declared : sequence
        Declared codes.
    name : str
        Column name, for the message.

    Raises
    ------
    MeasureError
        When a row holds a missing or undeclared code.
    """
    array = np.asarray(codes)
    wanted = np.array(declared)
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    small = array.dtype.kind in "iu" and wanted.dtype.kind in "iub" and len(array) > 0
    low, high = (int(array.min()), int(array.max())) if small else (0, _LOOKUP_SPAN)
    if low >= 0 and high < _LOOKUP_SPAN:
        lookup = np.full(high + 1, -1, dtype=np.int64)
        for position, code in enumerate(declared):
            if 0 <= int(code) <= high:
                lookup[int(code)] = position
        positions: Ints = lookup[array]
    else:
        positions = _search(array, wanted)
    if len(positions) and positions.min() < 0:
        unknown = array[positions < 0]
        raise MeasureError(
            f"attribute {name}: {len(unknown)} rows hold {_distinct(unknown)}, expected "
            f"{', '.join(map(str, declared))}; declare each code, a missing one included."
        )
    return positions


def _search(array: NDArray[Any], declared: NDArray[Any]) -> Ints:
    try:
        wanted = pa.array(declared)
        found = pc.index_in(pa.array(array, from_pandas=True).cast(wanted.type), wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return np.full(len(array), -1, dtype=np.int64)
    positions: Ints = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return positions
