"""The four ACS Income configs: the paper's tables as data, and the recipes made from them.

``PRINTED_*`` are Table 1 and Table 2 of the paper. ``RELEASED_ATTRIBUTE`` holds the five states
whose released files differ from Table 1: they show a flip where the table shows a larger drop (in
all five, drop + flip is the printed figure). The recipes follow the released files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from feda4fair.columns import Coding
from feda4fair.partition import Natural, Subdivide
from feda4fair.recipe import BiasRule, ClientGroup, ClientSplit, Recipe, RowSplit
from feda4fair_acs.schema import RACE_BINARY, RACE_FIVE, SEX, acs_schema

__all__ = ["PRINTED_ATTRIBUTE", "PRINTED_VALUE", "RECIPES", "RELEASED_ATTRIBUTE"]

PRINTED_ATTRIBUTE: Final[dict[str, tuple[float, str, int]]] = {
    "WY": (0.1, "SEX", 2), "WI": (0.1, "RAC1P", 2), "ND": (0.1, "SEX", 2),
    "CA": (0.1, "RAC1P", 2), "MT": (0.1, "RAC1P", 2), "LA": (0.1, "SEX", 2),
    "KY": (0.1, "RAC1P", 2), "ME": (0.1, "RAC1P", 2), "AL": (0.2, "RAC1P", 2),
    "IN": (0.2, "SEX", 2), "MS": (0.2, "RAC1P", 2), "GA": (0.2, "RAC1P", 2),
    "VT": (0.2, "RAC1P", 2), "IL": (0.3, "SEX", 2), "WA": (0.3, "SEX", 2),
    "NH": (0.3, "SEX", 2), "PA": (0.4, "SEX", 2), "WV": (0.4, "SEX", 2),
    "AR": (0.4, "SEX", 2), "KS": (0.4, "SEX", 2), "OR": (0.4, "RAC1P", 2),
    "TX": (0.4, "SEX", 2), "DE": (0.4, "RAC1P", 2), "OK": (0.4, "SEX", 2),
    "ID": (0.4, "SEX", 2), "MI": (0.5, "SEX", 2), "VA": (0.5, "SEX", 2),
    "TN": (0.5, "SEX", 2), "OH": (0.5, "SEX", 2), "MO": (0.6, "SEX", 2),
    "PR": (0.6, "SEX", 2),
}  # fmt: skip
"""Table 1, attribute-silo and attribute-device: state -> (drop rate, attribute, code)."""

RELEASED_ATTRIBUTE: Final[dict[str, tuple[float, float]]] = {
    "AL": (0.1, 0.1), "GA": (0.1, 0.1), "ME": (0.0, 0.1), "MT": (0.0, 0.1), "OR": (0.25, 0.15),
}  # fmt: skip
"""States whose released rates differ from Table 1: state -> (drop rate, flip rate)."""

PRINTED_VALUE: Final[dict[str, tuple[float, str, int]]] = {
    "AZ": (0.1, "RAC1P", 5), "OH": (0.1, "RAC1P", 4), "AR": (0.2, "RAC1P", 4),
    "MN": (0.2, "RAC1P", 5), "OR": (0.2, "RAC1P", 2), "WV": (0.2, "RAC1P", 5),
    "DE": (0.3, "RAC1P", 4), "LA": (0.3, "RAC1P", 5), "NE": (0.3, "RAC1P", 4),
    "AK": (0.5, "RAC1P", 4), "MS": (0.5, "RAC1P", 4), "PR": (0.6, "RAC1P", 4),
}  # fmt: skip
"""Table 2, value-silo and value-device: state -> (drop rate, attribute, code)."""

ATTRIBUTE_DEVICE: Final[dict[str, str]] = {
    "Sex": """
        ID_0 IL_2 IL_3 IL_4 IN_0 IN_2 IN_3 KS_2 KS_4 LA_4 MI_0 MI_1 MI_2 MI_3 MI_4 MO_1 MO_4 ND_1
        ND_4 NE_5 NH_0 NH_1 NH_4 NH_5 OH_0 OH_1 OH_2 OH_3 OH_4 OK_0 OK_2 OK_3 PA_0 PA_1 PA_2 PA_3
        PA_5 TN_2 TN_4 TN_5 TX_0 TX_1 TX_3 TX_4 TX_5 UT_0 UT_4 UT_5 VA_0 VA_1 VA_3 VA_4 WA_3 WA_5
        WV_0""",
    "Race": """
        AL_2 AL_3 AL_4 AZ_0 AZ_5 CA_1 CO_0 CO_3 CT_2 CT_5 FL_5 HI_0 IA_0 IA_1 ID_2 LA_2 MA_0 MA_4
        MA_3 ME_1 MN_0 MN_3 MN_4 MN_5 MS_4 MS_5 NC_1 NE_3 NE_4 NJ_1 NJ_3 NJ_4 NM_1 NM_5 NV_0 NV_1
        NV_3 NY_0 NY_1 NY_2 NY_3 NY_4 NY_5 OR_1 OR_3 OR_4 RI_2 SC_0 SC_1 SC_2 SC_4 SD_3 UT_1 WI_2
        WI_3 WV_5""",
}
"""Table 5, Demographic Disparity columns: the 111 kept clients by most biased attribute."""

VALUE_DEVICE: Final[dict[str, str]] = {
    "White": "WV_2",
    "Black": """
        ID_1 ME_2 MI_1 MN_0 MN_1 MN_2 MT_2 ND_0 ND_1 NH_2 SD_1 SD_2 VT_0 WI_0 WY_0""",
    "Asian": "AK_0 AR_2 MT_0 MT_1 NE_1 VT_1",
    "Alaska Native/American Indian": """
        AK_1 AK_2 CO_1 CT_1 CT_2 DE_0 DE_1 GA_1 GA_2 HI_0 HI_1 ID_2 IL_0 IL_1 KS_0 KY_2 LA_1 MA_0
        ME_1 MI_2 MO_0 MO_2 MS_0 MS_1 NE_0 NJ_2 NM_0 NY_0 RI_0 SC_2 TN_2""",
    "Others": """
        AL_0 AL_2 AR_0 AR_1 AZ_0 AZ_1 AZ_2 CA_1 CA_2 CO_2 DE_2 FL_0 GA_0 HI_2 ID_0 IN_0 IN_2 KS_2
        KY_0 MD_0 MD_1 MD_2 MO_1 NC_0 NC_1 NC_2 NE_2 NJ_1 NV_0 NV_2 NY_1 NY_2 OH_0 PA_0 PA_2 RI_2
        SC_1 TN_0 TX_0 TX_1 TX_2 VA_2 WA_1 WA_2 WI_1 WI_2 WV_0""",
}
"""Table 6, Demographic Disparity columns: the 100 kept clients by most biased value of Race."""


def names(text: str) -> tuple[str, ...]:
    """Return client names written with blanks between them, sorted."""
    return tuple(sorted(text.split()))


ATTRIBUTE_DEVICE_TEST: Final = names(
    """
    CA_1 CO_0 CO_3 CT_2 CT_5 HI_0 IA_0 IA_1 IN_0 IN_2 IN_3 NH_0 NH_1 NH_4 NH_5 NM_1 NM_5 NV_0
    NV_1 NV_3 PA_0 PA_1 PA_2 PA_3 PA_5 RI_2 SD_3 TN_2 TN_4 TN_5"""
)
"""Test clients of attribute-device: 15 by Sex, 15 by Race; no state sits on both sides.

Drawn once by ``split.draw_test_clients(clients, 30, seed=42, scope="attribute-device")``.
"""

VALUE_DEVICE_TEST: Final = names(
    """
    AL_0 AL_2 CT_1 CT_2 FL_0 ID_0 ID_1 ID_2 KY_0 KY_2 LA_1 MS_0 MS_1 MT_0 MT_1 MT_2 NH_2 NM_0
    NV_0 NV_2 PA_0 PA_2 SC_1 SC_2 SD_1 SD_2 TX_0 TX_1 TX_2 VA_2"""
)
"""Test clients of value-device, by value 0, 5, 2, 9, 14; no state sits on both sides.

Drawn once by ``split.draw_test_clients(clients, 30, seed=42, scope="value-device")``.
"""

NATURAL: Final = Natural(column="state")


def groups(
    printed: dict[str, tuple[float, str, int]],
    released: dict[str, tuple[float, float]],
    race: Coding,
) -> tuple[ClientGroup, ...]:
    """Return one group for each state that has a rule, with the released rates."""
    names = {"SEX": dict(SEX.names), "RAC1P": dict(race.names)}
    return tuple(
        ClientGroup(
            name=state,
            clients=(state,),
            rules=(
                BiasRule(
                    where=((attribute, names[attribute][code]),),
                    drop=released.get(state, (rate, 0.0))[0],
                    flip=released.get(state, (rate, 0.0))[1],
                ),
            ),
        )
        for state, (rate, attribute, code) in sorted(printed.items())
    )


ATTRIBUTE_SILO: Final = Recipe(
    dataset="acs",
    name="attribute-silo",
    schema=acs_schema(RACE_BINARY),
    partition=NATURAL,
    groups=groups(PRINTED_ATTRIBUTE, RELEASED_ATTRIBUTE, RACE_BINARY),
    split=RowSplit(validation=0.1, test=0.2, stratify=("SEX", "RAC1P")),
    seed=42,
    sampler="released",
    description="51 silos (states and Puerto Rico), biased by Sex or by binary Race.",
)

VALUE_SILO: Final = Recipe(
    dataset="acs",
    name="value-silo",
    schema=acs_schema(RACE_FIVE),
    partition=NATURAL,
    groups=groups(PRINTED_VALUE, {}, RACE_FIVE),
    split=RowSplit(validation=0.1, test=0.2),
    seed=42,
    sampler="released",
    description="51 silos (states and Puerto Rico), biased by different values of Race.",
)

RECIPES: Final[tuple[Recipe, ...]] = (
    ATTRIBUTE_SILO,
    VALUE_SILO,
    replace(
        ATTRIBUTE_SILO,
        name="attribute-device",
        subdivide=Subdivide(parts=6, cut="floor"),
        keep=names(" ".join(ATTRIBUTE_DEVICE.values())),
        split=ClientSplit(test=ATTRIBUTE_DEVICE_TEST, folds=5),
        description="111 devices, each a sixth of a state, biased by Sex or by binary Race.",
    ),
    replace(
        VALUE_SILO,
        name="value-device",
        subdivide=Subdivide(parts=3, cut="balanced"),
        keep=names(" ".join(VALUE_DEVICE.values())),
        split=ClientSplit(test=VALUE_DEVICE_TEST, folds=5),
        description="100 devices, each a third of a state, biased by different values of Race.",
    ),
)
