"""How the people of the built-in sample are drawn.

Shares of sex, race and marriage and the rates of incomes above 50,000 dollars are met by count,
not on average, so a state is within two points of its public figures. Exceptions stay within
five: the group that a profile lifts, taken from White, and rates of groups of few rows, rounded.

Within a state sex, race and age are independent; schooling follows age; occupation follows sex
and schooling; class of worker follows occupation; hours follow sex and age; marriage follows age;
relationship follows marriage; place of birth follows race. Among the rows of one sex and race,
incomes above 50,000 dollars go to those with the highest logistic score plus noise. The weights
of the score are rounded from a logistic regression on the rows of the public file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from feda4fair_acs.sample_tables import (
    BIRTH,
    HOURS,
    RACE,
    RELATION,
    SCHOOLING,
    UNMARRIED,
    Floats,
    Ints,
    Profile,
    occupations,
)
from feda4fair_acs.schema import FIPS

__all__ = ["BLANK", "Units", "removed", "shuffled", "steps", "workers"]

Units: TypeAlias = Callable[[str, int], Floats]
"""Uniform draws in [0, 1) of one state: the name of the stream, the number of draws."""

BLANK: Final = int(np.iinfo(np.int64).min)
"""Stands for an empty field."""

_LIFT: Final = 0.045
_AGE_SHARES: Final = (0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1)
_AGES: Final = (17, 18, 20, 22, 28, 33, 38, 43, 49, 54, 58, 63, 68, 73, 94)
_BORN_ABROAD: Final = np.array([0, 0.08, 0.15, 0.78, 0.07, 0.41])
"""Share by race group, from 1."""

_SCHOOLING_PULL: Final = (0, 0.3, 0.3, 0.5, 0.5, 0.8, 1.3, 1.6, 1.8)
_CLASS_PULL: Final = np.array([0, 0, -0.1, 0, 0, 0.8, -0.5, -0.2, -0.7])
"""By COW, from 1."""


def workers(state: str, profile: Profile, units: Units) -> dict[str, Ints]:
    """Draw the rows that the ACSIncome filter keeps."""
    size = profile.rows
    columns = _features(state, profile, units)
    group = shuffled(_apportion(size, _sampled_race(profile)), units("RAC1P", size)) + 1
    columns["POBP"] = _birth(state, group, units)
    abroad = (columns["POBP"] >= FIPS["PR"]) & (columns["POBP"] != FIPS[state])
    score = _score(columns) - 0.2 * abroad + _logistic(units("PINCP", size))
    columns["PINCP"] = _income(score, columns["SEX"], group, profile)
    columns["RAC1P"] = _raw_race(state, group, units("RAC1P in full", size))
    return columns


def _features(state: str, profile: Profile, units: Units) -> dict[str, Ints]:
    """Draw the features that do not depend on race."""
    size = profile.rows
    women = profile.female
    sex = shuffled(_apportion(size, (1 - women, women)), units("SEX", size)) + 1
    age = steps(units("AGEP", size), _AGE_SHARES, _AGES)
    schooling = SCHOOLING.draw(np.digitize(age, (20, 23, 27)), units("SCHL", size))
    tables = occupations()
    kind = (sex - 1) * 3 + np.digitize(schooling, (18, 21))
    occupation = tables.workers.draw(kind, units("OCCP", size))
    married = _highest(
        np.interp(age, (17, 20, 23, 28, 33, 40), (-4.5, -3.5, -1.8, -0.4, 0.4, 0.8))
        + _logistic(units("married", size)),
        np.zeros(size, dtype=np.int64),
        np.array([round(profile.married * size)]),
    )
    unmarried = UNMARRIED.draw(np.digitize(age, (35, 60)), units("MAR", size))
    family = np.where(married, sex - 1, 2 + np.digitize(age, (25, 35)))
    return {
        "AGEP": age,
        "COW": tables.classes.draw(tables.position(occupation), units("COW", size)),
        "SCHL": schooling,
        "MAR": np.where(married, 1, unmarried),
        "OCCP": occupation,
        "RELP": RELATION.draw(family, units("RELP", size)),
        "WKHP": HOURS.draw((sex - 1) * 3 + np.digitize(age, (22, 65)), units("WKHP", size)),
        "SEX": sex,
    }


def _birth(state: str, group: Ints, units: Units) -> Ints:
    """Draw POBP: born here, in another state, or abroad."""
    size = len(group)
    island = state == "PR"
    abroad = np.full(size, 0.03) if island else _BORN_ABROAD[group]
    here = abroad + (1 - abroad) * (0.95 if island else 0.62)
    where = units("born here", size)
    kind = np.where(where < abroad, 6 if island else group, 0)
    place = BIRTH.draw(kind, units("POBP", size))
    return np.where((where >= abroad) & (where < here), FIPS[state], place)


def _score(columns: Mapping[str, Ints]) -> Floats:
    """Return the log-odds of an income above 50,000 dollars, up to a constant of the group."""
    tables = occupations()
    schooling = columns["SCHL"]
    relation = columns["RELP"]
    score: Floats = (
        tables.pull[tables.position(columns["OCCP"])]
        + _CLASS_PULL[columns["COW"]]
        + np.interp(columns["AGEP"], (17, 35, 55, 95), (0, 2.3, 2.6, 5))
        + np.interp(schooling, (15, 16, 17, 18, 19, 20, 21, 22, 23), _SCHOOLING_PULL)
        + np.interp(columns["WKHP"], (0, 39, 40, 70), (-2.7, -0.3, 0, 1.2))
        + np.where(columns["MAR"] == 1, 0.3, 0.0)
        + np.select([relation == 0, relation == 2, relation == 17], [0.4, -0.4, -1.2], 0.0)
    )
    return score


def _income(score: Floats, sex: Ints, group: Ints, profile: Profile) -> Ints:
    """Return dollars: each sex and race has its rate of incomes above 50,000, by count.

    The rate of a cell is the product of its margins, ``rate_race * rate_sex / rate``.
    """
    by_sex = np.array(profile.rate_by_sex)
    mean = (1 - profile.female) * by_sex[0] + profile.female * by_sex[1]
    rates = np.outer(profile.rate_by_race, by_sex / mean).ravel()
    cell = (group - 1) * 2 + sex - 1
    ends = np.cumsum(np.bincount(cell, minlength=len(rates)) * rates.clip(max=0.95))
    high = _highest(score, cell, np.diff(np.rint(ends), prepend=0))
    income = np.empty(len(score), dtype=np.int64)
    top = _quantiles(score[high])
    low = _quantiles(score[~high])
    income[high] = np.minimum(50_000 * (1 - top) ** -0.45 // 1000 * 1000 + 1000, 700_000)
    income[~high] = np.clip(51_500 * low**0.75 // 100 * 100, 200, 50_000)
    return income


def removed(state: str, profile: Profile, units: Units, *, size: int) -> dict[str, Ints]:
    """Draw rows that the ACSIncome filter removes, some for each of its reasons.

    Children, workers of exactly 16 years, retired people without hours, and self-employed whose
    income is a loss, nothing, or 100 dollars at most.
    """
    kind = np.digitize(units("removed", size), (0.45, 0.55, 0.85))
    young = kind < 2
    unit = units("removed AGEP", size)
    ages = np.choose(kind, [unit * 16, np.full(size, 16), 62 + unit * 30, 18 + unit * 50])
    age = ages.astype(np.int64)
    pension = steps(units("removed pension", size), (0, 1), (900, 40_000))
    little = np.array([-2900, 0, 4, 100])[steps(units("removed PINCP", size), (0, 1), (0, 4))]
    blank = np.full(size, BLANK)
    groups = np.cumsum(_sampled_race(profile))[:4]
    group = np.digitize(units("removed RAC1P", size), groups) + 1
    return {
        "AGEP": age,
        "COW": np.choose(kind, [blank, 1, blank, 6]),
        "SCHL": np.where(young, np.where(age < 3, BLANK, np.clip(age - 3, 1, 12)), 16),
        "MAR": np.choose(kind, [5, 5, 2, 1]),
        "OCCP": np.choose(kind, [blank, 4720, blank, 440]),
        "POBP": np.full(size, FIPS[state]),
        "RELP": np.where(young, 2, 0),
        "WKHP": np.choose(kind, [blank, 15, blank, 20]),
        "SEX": np.where(units("removed SEX", size) < profile.female, 2, 1),
        "RAC1P": _raw_race(state, group, units("removed RAC1P in full", size)),
        "PINCP": np.choose(kind, [np.where(age < 15, BLANK, 0), 2500, pension, little]),
    }


def _sampled_race(profile: Profile) -> tuple[float, ...]:
    """Return the sample's shares of the race groups: what is lifted is taken from White."""
    return tuple(
        share + _LIFT * ((group == profile.lifted) - (group == 1) * (profile.lifted > 0))
        for group, share in enumerate(profile.race, start=1)
    )


def _raw_race(state: str, group: Ints, units: Floats) -> Ints:
    kind = group - 1
    if state == "AK":
        kind = np.where(group == 4, 5, kind)
    if state == "HI":
        kind = np.where(group == 5, 6, kind)
    return RACE.draw(kind, units)


def _apportion(size: int, shares: tuple[float, ...]) -> Ints:
    """Return as many positions of each share as its part of ``size``, in order."""
    ends = np.rint(np.cumsum(shares) / sum(shares) * size).astype(np.int64)
    return np.repeat(np.arange(len(shares)), np.diff(ends, prepend=0))


def shuffled(values: Ints, units: Floats) -> Ints:
    """Return the values in the rank order of their draws."""
    return values[np.argsort(units, kind="stable")]


def _highest(score: Floats, cell: Ints, counts: Floats | Ints) -> NDArray[np.bool_]:
    """Mark the ``counts[c]`` highest scores of each cell ``c``."""
    order = np.lexsort((-score, cell))
    first = np.searchsorted(cell[order], np.arange(len(counts)))
    marked = np.empty(len(score), dtype=np.bool_)
    marked[order] = np.arange(len(score)) - first[cell[order]] < counts[cell[order]]
    return marked


def _quantiles(score: Floats) -> Floats:
    """Return the middle of each score's rank as a share of their number."""
    rank = np.empty(len(score))
    rank[np.argsort(score, kind="stable")] = np.arange(len(score)) + 0.5
    return rank / len(score)


def _logistic(units: Floats) -> Floats:
    middle = units + 2.0**-54
    return np.log(middle / (1 - middle))


def steps(units: Floats, shares: tuple[float, ...], limits: tuple[float, ...]) -> Ints:
    """Return integers with the given quantiles, evenly spread between them."""
    return np.interp(units, shares, limits).astype(np.int64)
