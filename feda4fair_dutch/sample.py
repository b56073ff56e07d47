"""The built-in sample of the Dutch census: synthetic rows in the shape of the source file.

No row is a person: code draws every row from the rounded aggregate figures below, with the seed.
Widowed and divorced rows are more frequent than in the source, so that the rules of the value
configs have rows to act on in clients a fifth of the real size.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair import seeds

__all__ = ["NOTICE", "ROWS", "population", "write_arff"]

NOTICE: Final = (
    "Synthetic sample: code draws every row from rounded aggregate figures of the Dutch census "
    "2001 file; no row describes a person, and a figure measured on it is not a figure of the "
    "benchmark."
)
"""What the card of every build from the sample says."""

ROWS: Final = 12_000

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

AGES: Final = np.arange(4, 16)
AGE: Final = (
    (54, 61, 88, 130, 144, 143, 138, 132, 79, 23, 5, 3),
    (71, 97, 120, 144, 145, 138, 123, 100, 49, 10, 2, 1),
)
"""Age group by sex, in thousandths."""

MARITAL: Final = (
    (985, 5, 5, 5),
    (890, 80, 10, 20),
    (620, 310, 30, 40),
    (330, 560, 40, 70),
    (185, 665, 50, 100),
    (125, 705, 60, 110),
    (85, 725, 70, 120),
    (60, 720, 90, 130),
    (50, 730, 100, 120),
    (50, 700, 130, 120),
    (60, 690, 140, 110),
    (100, 580, 240, 80),
)
"""Never married, married, widowed, divorced by age group, in thousandths; 3 and 4 are raised."""

EDUCATION: Final = (
    (10, 160, 540, 280, 10, 0),
    (2, 40, 200, 560, 60, 138),
    (3, 70, 190, 370, 45, 322),
    (5, 120, 230, 330, 35, 280),
)
"""Education level 0 to 5 by age: youngest, second, middle, oldest three groups."""

HIGH_LEVEL: Final = (0.165, 0.16, 0.185, 0.355, 0.57, 0.895)
"""Share of high level occupations by education."""

HOUSEHOLD: Final = (
    (366, 0, 0, 258, 86, 17, 252, 21),
    (0, 272, 715, 1, 0, 4, 6, 2),
    (1, 0, 0, 110, 68, 401, 407, 13),
    (5, 0, 0, 184, 151, 315, 331, 14),
)
POSITIONS: Final = np.array((1110, 1121, 1122, 1131, 1132, 1140, 1210, 1220))
"""Household position by marital status."""

SIZE: Final = (
    (0, 76, 289, 396, 173, 66),
    (0, 978, 16, 4, 1, 1),
    (0, 0, 304, 469, 177, 50),
    (0, 997, 2, 1, 0, 0),
    (0, 0, 513, 380, 93, 14),
    (0, 508, 361, 112, 15, 4),
    (1, 0, 0, 0, 0, 0),
    (0, 395, 304, 136, 87, 78),
)
SIZES: Final = np.array((111, 112, 113, 114, 125, 126))
"""Household size by household position."""

ACTIVITY: Final = (
    (41, 153, 45, 184, 38, 63, 34, 177, 89, 84, 59, 33),
    (16, 63, 12, 200, 48, 39, 31, 162, 54, 110, 211, 54),
)
ACTIVITIES: Final = np.array((111, 122, 124, 131, 132, 133, 134, 135, 136, 137, 138, 139))
"""Economic activity by sex."""

STATUS: Final = ((835, 65, 100), (864, 77, 59))
STATUSES: Final = np.array((111, 112, 120))
"""Economic status by sex."""

ORIGIN: Final = ((929, 16, 53, 2),)
BORN: Final = np.array((1, 2, 3, 1))
CITIZEN: Final = np.array((1, 2, 1, 3))
"""Country of birth and citizenship, jointly."""


def population(*, seed: int = 0) -> pa.Table:
    """Return the synthetic rows as the source would give them.

    Parameters
    ----------
    seed : int
        Another seed draws other rows; the default is the built-in sample.

    Returns
    -------
    pyarrow.Table
        ``row_id`` and the twelve columns, with the types of the source.

    Examples
    --------
    >>> population().num_rows
    12000
    """

    def units(column: str) -> Floats:
        return seeds.uniforms(seed, "dutch-sample", column, size=ROWS)

    sex = pick(units("sex"), ((499, 501),))
    age = pick(units("age"), AGE, sex)
    marital = pick(units("marital"), MARITAL, age)
    band = np.searchsorted((0, 1, 9), age)
    education = pick(units("education"), EDUCATION, band)
    position = pick(units("position"), HOUSEHOLD, marital)
    origin = pick(units("origin"), ORIGIN)
    high = units("occupation") < high_level(sex, age, marital, education)
    columns: dict[str, tuple[Ints, pa.DataType]] = {
        "sex": (sex + 1, pa.int8()),
        "age": (AGES[age], pa.int8()),
        "household_position": (POSITIONS[position], pa.int16()),
        "household_size": (SIZES[pick(units("size"), SIZE, position)], pa.int16()),
        "prev_residence_place": (pick(units("moved"), ((976, 24),)) + 1, pa.int8()),
        "citizenship": (CITIZEN[origin], pa.int8()),
        "country_birth": (BORN[origin], pa.int8()),
        "edu_level": (education, pa.int8()),
        "economic_status": (STATUSES[pick(units("status"), STATUS, sex)], pa.int16()),
        "cur_eco_activity": (ACTIVITIES[pick(units("activity"), ACTIVITY, sex)], pa.int16()),
        "Marital_status": (marital + 1, pa.int8()),
    }
    return pa.table(
        {
            "row_id": pa.array(np.arange(ROWS, dtype=np.int64)),
            **{name: pa.array(values, dtype) for name, (values, dtype) in columns.items()},
            "occupation": pa.array(np.where(high, "2_1", "5_4_9"), pa.string()),
        }
    )


def high_level(sex: Ints, age: Ints, marital: Ints, education: Ints) -> Floats:
    """Return the probability of a high level occupation, shape (n,).

    Education sets the odds; sex, youth and marital status move them so that the shares by sex and
    by marital status come out near those of the source.
    """
    share = np.array(HIGH_LEVEL)[education]
    log_odds = np.log(share / (1 - share))
    log_odds += np.array((0.87, -0.9))[sex]
    log_odds += np.array((-2.5, -0.9, *[0.0] * 4, *[0.2] * 6))[age]
    log_odds += np.array((0.1, 0.15, -0.4, -0.45))[marital]
    probability: Floats = 1 / (1 + np.exp(-log_odds))
    return probability


def pick(units: Floats, shares: tuple[tuple[int, ...], ...], group: Ints | None = None) -> Ints:
    """Return the category of each draw by the inverse cumulative shares of its group.

    Parameters
    ----------
    units : ndarray, shape (n,)
        Draws in [0, 1).
    shares : sequence of sequences of int
        One row of weights for each group.
    group : ndarray of int, shape (n,), optional
        Group of each draw; the first by default.

    Examples
    --------
    >>> pick(np.array([0.1, 0.6]), ((1, 1), (1, 3)), np.array([0, 1])).tolist()
    [0, 1]
    """
    weights = np.array(shares)
    cumulative = weights.cumsum(axis=1) / weights.sum(axis=1, keepdims=True)
    rows = cumulative[np.zeros(len(units), np.int64) if group is None else group]
    chosen: Ints = (units[:, None] >= rows).sum(axis=1)
    return chosen


def write_arff(folder: Path, *, packed: bool = False, seed: int = 0) -> Path:
    """Write the sample as an ARFF file with the source's attributes.

    Parameters
    ----------
    folder : Path
        Receives ``dutch_sample.arff``, or ``dutch_sample.arff.gz`` if packed.
    packed : bool
        Compress it.
    seed : int
        Seed of the population.
    """
    table = population(seed=seed).drop_columns(["row_id"])
    columns = [table[name].cast(pa.string()).to_pylist() for name in table.column_names]
    header = ["@relation dutch_sample", ""]
    for name, values in zip(table.column_names, columns, strict=True):
        header.append(f"@attribute {name} {{{','.join(sorted(set(values)))}}}")
    rows = [",".join(row) for row in zip(*columns, strict=True)]
    content = "\n".join([*header, "", "@data", *rows, ""]).encode()
    path = folder / ("dutch_sample.arff.gz" if packed else "dutch_sample.arff")
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return path
