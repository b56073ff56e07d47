"""Which Census releases and states there are, and what is known of each file in advance."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from feda4fair.errors import SourceError
from feda4fair.fetch import Remote
from feda4fair_acs.pums import zip_name
from feda4fair_acs.schema import FIPS, STATES

__all__ = ["check_release", "chosen_states", "known_file"]

_CENSUS: Final = "https://www2.census.gov/programs-surveys/acs/data/pums"


def check_release(year: int, horizon: str) -> None:
    """Refuse a release that does not exist or lacks a column of the task.

    Raises
    ------
    SourceError
        With the reason.
    """
    if horizon not in ("1-Year", "5-Year"):
        raise SourceError(f"horizon {horizon!r} does not exist; use '1-Year' or '5-Year'.")
    if year == 2020 and horizon == "1-Year":
        raise SourceError(
            "the Census Bureau released no standard 1-Year PUMS for 2020, since the pandemic "
            "spoiled its collection; use 2018, the year of the benchmark."
        )
    if year >= 2019:
        raise SourceError(
            f"the {year} files have RELSHIPP instead of RELP, a feature of the income task; "
            "use a year up to 2018."
        )
    if year < 2014:
        raise SourceError(f"year {year} is not supported; use 2014 to 2018.")


def chosen_states(states: Sequence[str] | None) -> tuple[str, ...]:
    """Return the wanted states in the order of ``STATES``; all of them for None.

    Raises
    ------
    SourceError
        A state is not one of the 51, or none is named.

    Examples
    --------
    >>> chosen_states(["WY", "AL"])
    ('AL', 'WY')
    """
    chosen = STATES if states is None else tuple(states)
    unknown = [state for state in chosen if state not in FIPS]
    if unknown:
        raise SourceError(
            f"unknown state {', '.join(map(repr, unknown))}; use postal codes of the 50 states "
            "and PR, such as WY (DC is not part of the task)."
        )
    if not chosen:
        raise SourceError("no state was asked for; name at least one, such as WY.")
    return tuple(state for state in STATES if state in chosen)


@cache
def _checksums() -> dict[str, dict[str, str]]:
    """Return the known size, SHA-256 and number of task rows of each zip, by its address."""
    text = Path(__file__).with_name("checksums.tsv").read_text(encoding="utf-8")
    return {row["url"]: row for row in csv.DictReader(text.splitlines(), delimiter="\t")}


def known_file(year: int, horizon: str, state: str) -> tuple[Remote, int | None]:
    """Return a state's remote file, and how many rows of the task it must give, if known.

    Size, SHA-256 and rows come from ``checksums.tsv``; the environment variable
    ``FEDA4FAIR_ACS_MIRROR`` names another base address.

    Examples
    --------
    >>> known_file(2018, "1-Year", "WY")[1]
    3064
    """
    place = f"{year}/{horizon}/{zip_name(state)}"
    known = _checksums().get(f"{_CENSUS}/{place}", {})
    base = os.environ.get("FEDA4FAIR_ACS_MIRROR") or _CENSUS
    remote = Remote(
        url=f"{base.rstrip('/')}/{place}",
        filename=zip_name(state),
        bytes=int(known["bytes"]) if known.get("bytes") else None,
        sha256=known.get("sha256") or None,
    )
    return remote, int(known["rows"]) if known.get("rows") else None
