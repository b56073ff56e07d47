"""Columns and codes of the Dutch census 2001 file.

The file is an ARFF whose twelve attributes are all nominal. Eleven of them are written with the
digits of the source's codes, which are kept as small integers; they are names, not quantities.
The twelfth, ``occupation``, holds ``2_1`` and ``5_4_9``, merged codes that must stay text:
``int("5_4_9")`` is 549 in Python, because an underscore may group digits.
"""

from __future__ import annotations

from typing import Final

from feda4fair.columns import Coding, Column, Label
from feda4fair.schema import Schema

__all__ = ["LABEL", "MARITAL_BINARY", "MARITAL_FOUR", "SEX", "dutch_schema"]

SEX: Final = Coding(names=((1, "Male"), (2, "Female")))

MARITAL_FOUR: Final = Coding(
    names=((1, "Never married"), (2, "Married"), (3, "Widowed"), (4, "Divorced"))
)
"""No code list came with the file. 1 and 2 are plain from age; 3 (543 rows, the oldest group, 69 %
women) and 4 (3,566 rows) are inferred as widowed and divorced. The paper lists "Never Married,
Married, Divorced, Widowed"; reading that list as the order of the codes would swap the two.
"""

MARITAL_BINARY: Final = Coding(
    names=((1, "Not married"), (2, "Married")),
    recode=((1, 1), (2, 2), (3, 1), (4, 1)),
)
"""Married keeps its source code 2; never married, widowed and divorced are 1."""

LABEL: Final = Label(
    column="occupation",
    favorable=("2_1",),
    names=("low level", "high level"),
    description="Level of the occupation: 1 for source value 2_1, 0 for source value 5_4_9.",
)


def dutch_schema(marital_status: Coding) -> Schema:
    """Return the schema of the nine features, two sensitive attributes and the label.

    Parameters
    ----------
    marital_status : Coding
        `MARITAL_BINARY` in the attribute configs, `MARITAL_FOUR` in the value configs.

    Examples
    --------
    >>> dutch_schema(MARITAL_FOUR).sensitive
    ('sex', 'Marital_status')
    """
    merged = " 1 joins source codes 1, 3 and 4." if marital_status.recode else ""
    return Schema(
        columns=(
            Column(name="sex", dtype="int8", role="sensitive", coding=SEX, description="Sex."),
            Column(
                name="age",
                dtype="int8",
                description="Age group, ascending, 4 to 15; apparently bands of five years, 4 = "
                "15 to 19.",
            ),
            Column(
                name="household_position",
                dtype="int16",
                description="Position in the household; code of the source.",
            ),
            Column(
                name="household_size",
                dtype="int16",
                description="Size of the household, ascending; code of the source.",
            ),
            Column(
                name="prev_residence_place",
                dtype="int8",
                description="Place of residence a year earlier; code of the source.",
            ),
            Column(
                name="citizenship", dtype="int8", description="Citizenship; code of the source."
            ),
            Column(
                name="country_birth",
                dtype="int8",
                description="Country of birth, grouped; code of the source.",
            ),
            Column(
                name="edu_level",
                dtype="int8",
                description="Level of education, ascending, 0 to 5; code of the source.",
            ),
            Column(
                name="economic_status",
                dtype="int16",
                description="Economic status; code of the source.",
            ),
            Column(
                name="cur_eco_activity",
                dtype="int16",
                description="Branch of the current economic activity; code of the source.",
            ),
            Column(
                name="Marital_status",
                dtype="int8",
                role="sensitive",
                coding=marital_status,
                description="Marital status; widowed and divorced are inferred, see the card."
                + merged,
            ),
        ),
        label=LABEL,
    )
