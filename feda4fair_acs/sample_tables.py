"""What the built-in sample of ACS Income knows: figures of the states and national tables.

Weights are aggregate figures of the ACSIncome rows of the public-domain ACS 2018 1-Year file,
rounded; those of unmarried people, of birth and of detailed race are plausible round figures.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BIRTH", "HOURS", "RACE", "RELATION", "SCHOOLING", "UNMARRIED",
    "Floats", "Ints", "Occupations", "Profile", "Table", "occupations", "profiles",
]  # fmt: skip

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """Codes and, for each class of rows, their integer weights."""

    codes: Ints
    ends: Ints

    def draw(self, classes: Ints, units: Floats) -> Ints:
        """Return a code for each row by the inverse of its class's cumulative weights."""
        ends = self.ends[classes]
        drawn: Ints = self.codes[((units * ends[:, -1])[:, None] >= ends[:, :-1]).sum(axis=1)]
        return drawn


def _table(codes: Iterable[int], *weights: Sequence[int]) -> Table:
    return Table(np.array(tuple(codes)), np.cumsum(np.array(weights, dtype=np.int64), axis=1))


SCHOOLING: Final = _table(
    (1, 9, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24),
    (0, 0, 7, 66, 220, 36, 300, 12, 168, 179, 10, 1, 0, 0, 0),
    (5, 1, 8, 14, 15, 15, 292, 21, 82, 390, 72, 84, 2, 0, 0),
    (5, 2, 9, 14, 12, 13, 212, 30, 71, 177, 92, 313, 44, 6, 3),
    (9, 5, 8, 18, 12, 14, 205, 38, 69, 133, 100, 227, 112, 29, 19),
)
"""SCHL by age: to 19, to 22, to 26, above."""

HOURS: Final = _table(
    (8, 15, 20, 25, 30, 35, 38, 40, 45, 50, 55, 60, 70),
    (76, 176, 158, 79, 111, 48, 10, 241, 31, 31, 9, 15, 14),
    (11, 18, 26, 16, 38, 29, 13, 484, 103, 126, 34, 61, 41),
    (79, 107, 108, 50, 83, 39, 12, 315, 54, 77, 14, 37, 24),
    (103, 243, 192, 92, 118, 46, 11, 158, 13, 11, 2, 5, 5),
    (24, 45, 61, 37, 77, 64, 31, 473, 69, 65, 16, 24, 15),
    (119, 152, 131, 56, 90, 52, 25, 279, 30, 35, 6, 14, 10),
)
"""WKHP by sex, then age: to 21, to 64, above."""

UNMARRIED: Final = _table((2, 3, 4, 5), (5, 60, 20, 915), (40, 450, 80, 430), (270, 520, 40, 170))
"""MAR of the unmarried by age: to 34, to 59, above."""

RELATION: Final = _table(
    (0, 1, 2, 5, 6, 7, 9, 10, 12, 13, 15, 17),
    (580, 390, 8, 2, 3, 1, 8, 3, 2, 0, 3, 0),
    (440, 537, 8, 2, 5, 1, 6, 2, 1, 0, 2, 0),
    (135, 0, 470, 15, 0, 34, 0, 15, 56, 40, 22, 180),
    (445, 0, 250, 20, 0, 17, 0, 15, 60, 120, 23, 18),
    (713, 0, 85, 20, 12, 2, 1, 11, 20, 82, 15, 13),
)
"""RELP of married men, married women, and the unmarried by age: to 24, to 34, above."""

BIRTH: Final = _table(
    (6, 12, 17, 26, 36, 39, 42, 48,
     72, 110, 207, 210, 217, 233, 247, 301, 303, 312, 313, 327, 329, 332, 333, 416, 440),
    (17, 8, 13, 10, 17, 13, 13, 14, *[0] * 17),
    (*[0] * 8, 16, 10, 0, 2, 0, 0, 0, 8, 45, 5, 2, 6, 3, 0, 0, 0, 0),
    (*[0] * 8, 8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 8, 21, 29, 12, 18),
    (*[0] * 8, 0, 0, 24, 32, 12, 19, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    (*[0] * 8, 8, 0, 0, 0, 0, 0, 0, 10, 62, 8, 12, 0, 0, 0, 0, 0, 0),
    (*[0] * 8, 16, 0, 0, 0, 0, 2, 0, 0, 56, 9, 6, 0, 11, 0, 0, 0, 0),
    (*[0] * 19, 25, 75, *[0] * 4),
)  # fmt: skip
"""POBP of those born in another state, abroad by race group, and abroad for Puerto Rico."""

RACE: Final = _table(
    range(1, 10),
    (1, 0, 0, 0, 0, 0, 0, 0, 0),
    (0, 1, 0, 0, 0, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 1, 0, 0, 0),
    (0, 0, 78, 2, 20, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 0, 4, 50, 46),
    (0, 0, 20, 75, 5, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 0, 35, 4, 61),
)
"""RAC1P by race group, then group 4 in Alaska and group 5 in Hawaii."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Public figures of one state's ACSIncome rows, and how the sample draws it.

    Attributes
    ----------
    frame_rows : int
        Rows of the state in the 2018 1-Year file after the ACSIncome filter.
    rows : int
        Rows of the state in the sample after the same filter.
    lifted : int
        Race group whose share the sample raises by 4.5 points, since a rule names it and its
        true share would leave the rule nothing to do; 0 where there is none.
    female, married : float
        Shares of the rows.
    race : tuple of 5 floats
        Shares of White, Black, Asian, Alaska Native/American Indian, Others.
    rate : float
        Share of the rows with an income above 50,000 dollars.
    rate_by_sex : tuple of 2 floats
        The same among men and among women.
    rate_by_race : tuple of 5 floats
        The same in each race group.
    """

    frame_rows: int
    rows: int
    lifted: int
    female: float
    married: float
    race: tuple[float, ...]
    rate: float
    rate_by_sex: tuple[float, ...]
    rate_by_race: tuple[float, ...]


@cache
def profiles() -> Mapping[str, Profile]:
    """Return the profile of each of the 51 states, by postal code.

    Examples
    --------
    >>> profiles()["WY"].frame_rows
    3064
    >>> sum(profile.rows for profile in profiles().values())
    60490
    """
    groups = range(1, 6)
    return MappingProxyType(
        {
            row["state"]: Profile(
                frame_rows=int(row["frame_rows"]),
                rows=int(row["rows"]),
                lifted=int(row["lifted"]),
                female=float(row["female"]),
                married=float(row["married"]),
                race=tuple(float(row[f"share_{group}"]) for group in groups),
                rate=float(row["rate"]),
                rate_by_sex=(float(row["rate_male"]), float(row["rate_female"])),
                rate_by_race=tuple(float(row[f"rate_{group}"]) for group in groups),
            )
            for row in _read("sample_profiles.tsv")
        }
    )


@dataclass(frozen=True, slots=True)
class Occupations:
    """The occupations of the sample, by rising code."""

    codes: Ints
    workers: Table
    """OCCP by sex, then schooling: no college, no bachelor's degree, one at least."""
    classes: Table
    """COW by position of the occupation."""
    pull: Floats
    """Effect of each on the log-odds of an income above 50,000 dollars."""

    def position(self, codes: Ints) -> Ints:
        """Return where each code stands in ``codes``."""
        return np.searchsorted(self.codes, codes)


@cache
def occupations() -> Occupations:
    """Read ``sample_occupations.tsv``."""
    rows = _read("sample_occupations.tsv")
    kinds = [name for name in rows[0] if name.startswith(("men_", "women_"))]
    classes = [name for name in rows[0] if name.startswith("cow_")]
    codes = [int(row["OCCP"]) for row in rows]
    return Occupations(
        codes=np.array(codes),
        workers=_table(codes, *[[int(row[kind]) for row in rows] for kind in kinds]),
        classes=_table(range(1, 9), *[[int(row[name]) for name in classes] for row in rows]),
        pull=np.array([float(row["log_odds"]) for row in rows]),
    )


def _read(name: str) -> list[dict[str, str]]:
    """Return the rows of a tab-separated file beside this module, by column name."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader((x for x in lines if not x.startswith("#")), delimiter="\t"))
