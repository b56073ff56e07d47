"""The income task of folktables (Ding et al. 2021, "Retiring Adult"), on raw person records.

folktables itself is not imported, since that takes longer than reading a state; a test holds the
constants here against ``folktables.ACSIncome``.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from feda4fair.errors import SourceError

__all__ = ["FEATURES", "INCOME", "income_rows", "unknown_codes"]

FEATURES: Final[dict[str, pa.DataType]] = {
    "AGEP": pa.int8(),
    "COW": pa.int8(),
    "SCHL": pa.int8(),
    "MAR": pa.int8(),
    "OCCP": pa.int16(),
    "POBP": pa.int16(),
    "RELP": pa.int8(),
    "WKHP": pa.int8(),
    "SEX": pa.int8(),
    "RAC1P": pa.int8(),
}
"""Features of ``folktables.ACSIncome``, in its order, with the type that holds their codes."""


INCOME: Final = 50_000
"""The label is 1 above this total person's income (PINCP), in dollars."""


def income_rows(raw: pa.Table, name: str) -> pa.Table:
    """Return the features and the label of the rows that belong to the income task.

    Parameters
    ----------
    raw : pyarrow.Table
        Person records; integer columns of the features, PINCP (dollars) and PWGTP, nulls for
        blanks. Other columns are not looked at.
    name : str
        What to call the table in a message.

    Returns
    -------
    pyarrow.Table
        The ten :data:`FEATURES` and ``label``, rows in the order of ``raw``.

    Raises
    ------
    SourceError
        No row belongs to the task, or one that does lacks a value or has one that does not fit.

    Notes
    -----
    The filter is that of ``folktables.adult_filter``: AGEP > 16, PINCP > 100, WKHP > 0 and
    PWGTP >= 1; a row with a blank in one of these is left out.
    """
    bounds = {"AGEP": 16, "PINCP": 100, "WKHP": 0, "PWGTP": 0}
    within = [pc.greater(raw[column], bound) for column, bound in bounds.items()]
    rows = raw.filter(pc.and_(pc.and_(within[0], within[1]), pc.and_(within[2], within[3])))
    if not rows.num_rows:
        raise SourceError(
            f"{name} has no row of the income task among {raw.num_rows:,} rows; use the file of a "
            "whole state."
        )
    blanks = {column: rows[column].null_count for column in FEATURES if rows[column].null_count}
    if blanks:
        listed = ", ".join(f"{count:,} in {column}" for column, count in blanks.items())
        raise SourceError(
            f"{name} has blanks in rows of the income task ({listed}), expected none; "
            "use the file as the Census Bureau released it."
        )
    columns = [_narrowed(name, column, rows[column]) for column in FEATURES]
    label = pc.greater(rows["PINCP"], INCOME).cast(pa.int8())
    table = pa.table([*columns, label], names=[*FEATURES, "label"])
    return table.combine_chunks()


def _narrowed(name: str, column: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return values.cast(FEATURES[column])
    except pa.ArrowInvalid:
        largest = pc.max(pc.abs(values)).as_py()
        raise SourceError(
            f"{name} has the code {largest} in column {column}, which is not a PUMS code; "
            "use the file as the Census Bureau released it."
        ) from None


@cache
def _codes() -> dict[str, frozenset[int]]:
    """Return the codes of the 2018 dictionary, by column."""
    text = Path(__file__).with_name("codes.tsv").read_text(encoding="utf-8")
    codes: dict[str, set[int]] = {}
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        codes.setdefault(row["column"], set()).add(int(row["code"]))
    return {column: frozenset(listed) for column, listed in codes.items()}


def unknown_codes(table: pa.Table) -> list[tuple[str, int, int]]:
    """Return column, code and number of rows of each code that the dictionary does not list."""
    return [
        (column, entry["values"], entry["counts"])
        for column, listed in _codes().items()
        for entry in pc.value_counts(table[column]).to_pylist()
        if entry["values"] not in listed
    ]
