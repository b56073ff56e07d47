"""Columns and codes of ACS Income (PUMS 2018, 1-Year, person files).

Code names follow the Census Bureau's 2018 PUMS data dictionary (public domain). Names of all
codes, the long lists of occupations and places of birth included, are in ``codes.tsv``.
"""

from __future__ import annotations

from typing import Final

from feda4fair.columns import Coding, Column, Label
from feda4fair.schema import Schema

__all__ = ["FIPS", "MAR", "RACE_BINARY", "RACE_FIVE", "SEX", "STATES", "STATE_NAMES", "acs_schema"]

FIPS: Final[dict[str, int]] = {
    "AL": 1, "AK": 2, "AZ": 4, "AR": 5, "CA": 6, "CO": 8, "CT": 9, "DE": 10, "FL": 12, "GA": 13,
    "HI": 15, "ID": 16, "IL": 17, "IN": 18, "IA": 19, "KS": 20, "KY": 21, "LA": 22, "ME": 23,
    "MD": 24, "MA": 25, "MI": 26, "MN": 27, "MS": 28, "MO": 29, "MT": 30, "NE": 31, "NV": 32,
    "NH": 33, "NJ": 34, "NM": 35, "NY": 36, "NC": 37, "ND": 38, "OH": 39, "OK": 40, "OR": 41,
    "PA": 42, "RI": 44, "SC": 45, "SD": 46, "TN": 47, "TX": 48, "UT": 49, "VT": 50, "VA": 51,
    "WA": 53, "WV": 54, "WI": 55, "WY": 56, "PR": 72,
}  # fmt: skip
"""Postal code and FIPS code of the 51 clients: 50 states and Puerto Rico, without DC."""

STATES: Final[tuple[str, ...]] = tuple(sorted(FIPS))
"""The 51 clients in the order in which they are written."""

STATE_NAMES: Final[dict[str, str]] = {
    "AL": "Alabama", "AK": "Alaska", "AZ": "Arizona", "AR": "Arkansas", "CA": "California",
    "CO": "Colorado", "CT": "Connecticut", "DE": "Delaware", "FL": "Florida", "GA": "Georgia",
    "HI": "Hawaii", "ID": "Idaho", "IL": "Illinois", "IN": "Indiana", "IA": "Iowa",
    "KS": "Kansas", "KY": "Kentucky", "LA": "Louisiana", "ME": "Maine", "MD": "Maryland",
    "MA": "Massachusetts", "MI": "Michigan", "MN": "Minnesota", "MS": "Mississippi",
    "MO": "Missouri", "MT": "Montana", "NE": "Nebraska", "NV": "Nevada", "NH": "New Hampshire",
    "NJ": "New Jersey", "NM": "New Mexico", "NY": "New York", "NC": "North Carolina",
    "ND": "North Dakota", "OH": "Ohio", "OK": "Oklahoma", "OR": "Oregon", "PA": "Pennsylvania",
    "RI": "Rhode Island", "SC": "South Carolina", "SD": "South Dakota", "TN": "Tennessee",
    "TX": "Texas", "UT": "Utah", "VT": "Vermont", "VA": "Virginia", "WA": "Washington",
    "WV": "West Virginia", "WI": "Wisconsin", "WY": "Wyoming", "PR": "Puerto Rico",
}  # fmt: skip
"""Names of the 51 clients."""

COW: Final = Coding(
    names=(
        (1, "Private for-profit employee"),
        (2, "Private not-for-profit employee"),
        (3, "Local government employee"),
        (4, "State government employee"),
        (5, "Federal government employee"),
        (6, "Self-employed, not incorporated"),
        (7, "Self-employed, incorporated"),
        (8, "Unpaid in family business"),
        (9, "Unemployed"),
    )
)

SCHL: Final = Coding(
    names=(
        (1, "No schooling"),
        (2, "Nursery school"),
        (3, "Kindergarten"),
        *((code, f"Grade {code - 3}") for code in range(4, 15)),
        (15, "Grade 12, no diploma"),
        (16, "High school diploma"),
        (17, "GED or alternative"),
        (18, "College, under 1 year"),
        (19, "College, no degree"),
        (20, "Associate's degree"),
        (21, "Bachelor's degree"),
        (22, "Master's degree"),
        (23, "Professional degree"),
        (24, "Doctorate"),
    )
)

RELP: Final = Coding(
    names=(
        (0, "Reference person"),
        (1, "Spouse"),
        (2, "Biological child"),
        (3, "Adopted child"),
        (4, "Stepchild"),
        (5, "Sibling"),
        (6, "Parent"),
        (7, "Grandchild"),
        (8, "Parent-in-law"),
        (9, "Child-in-law"),
        (10, "Other relative"),
        (11, "Roomer or boarder"),
        (12, "Housemate"),
        (13, "Unmarried partner"),
        (14, "Foster child"),
        (15, "Other nonrelative"),
        (16, "Institutional group quarters"),
        (17, "Noninstitutional group quarters"),
    )
)

SEX: Final = Coding(names=((1, "Male"), (2, "Female")))

MAR: Final = Coding(
    names=((1, "Married"), (2, "Not married")),
    recode=((1, 1), (2, 2), (3, 2), (4, 2), (5, 2)),
)

RACE_BINARY: Final = Coding(
    names=((1, "White"), (2, "Others")),
    recode=((1, 1), *((code, 2) for code in range(2, 10))),
)

RACE_FIVE: Final = Coding(
    names=(
        (1, "White"),
        (2, "Black"),
        (3, "Asian"),
        (4, "Alaska Native/American Indian"),
        (5, "Others"),
    ),
    recode=((1, 1), (2, 2), (6, 3), (3, 4), (4, 4), (5, 4), (7, 5), (8, 5), (9, 5)),
)


def acs_schema(race: Coding) -> Schema:
    """Return the schema of the ten ACSIncome features and the label.

    Parameters
    ----------
    race : Coding
        ``RACE_BINARY`` in the attribute configs, ``RACE_FIVE`` in the value configs.
    """
    return Schema(
        columns=(
            Column(name="AGEP", dtype="int8", description="Age in years, top-coded at 99."),
            Column(name="COW", dtype="int8", coding=COW, description="Class of worker."),
            Column(name="SCHL", dtype="int8", coding=SCHL, description="Educational attainment."),
            Column(
                name="MAR",
                dtype="int8",
                role="sensitive",
                coding=MAR,
                description="Marital status; 2 joins widowed, divorced, separated, never married.",
            ),
            Column(
                name="OCCP",
                dtype="int16",
                description="Occupation, 2018 Census code; names in codes.tsv.",
            ),
            Column(name="POBP", dtype="int16", description="Place of birth; names in codes.tsv."),
            Column(
                name="RELP",
                dtype="int8",
                coding=RELP,
                description="Relationship to the reference person of the household.",
            ),
            Column(
                name="WKHP",
                dtype="int8",
                description="Usual hours worked a week in the past 12 months, top-coded at 99.",
            ),
            Column(name="SEX", dtype="int8", role="sensitive", coding=SEX, description="Sex."),
            Column(
                name="RAC1P",
                dtype="int8",
                role="sensitive",
                coding=race,
                description="Race: "
                + "; ".join(
                    f"{code} {name} (source codes "
                    + ", ".join(str(source) for source, target in race.recode if target == code)
                    + ")"
                    for code, name in race.names
                )
                + ".",
            ),
        ),
        label=Label(
            column="label",
            favorable=(1,),
            names=("<=50K", ">50K"),
            description="Total person's income (PINCP) above 50,000 dollars.",
        ),
    )
