"""The four Dutch census configs.

Section 4.2 and appendix B of the paper: IID clients in groups; each client of a group draws its
drop rate from N(0.5, 0.05) and its flip rate from N(0.4, 0.02). The rules act on the favorable
label: applied to the other one they do not make the bias that the paper shows.
"""

from __future__ import annotations

from typing import Final

from feda4fair.partition import Iid
from feda4fair.recipe import (
    BiasRule,
    ClientGroup,
    ClientSplit,
    Gaussian,
    Recipe,
    RowSplit,
    Split,
)
from feda4fair.schema import Schema
from feda4fair_dutch.schema import MARITAL_BINARY, MARITAL_FOUR, dutch_schema

__all__ = ["RECIPES"]

DROP: Final = Gaussian(mean=0.5, std=0.05)
FLIP: Final = Gaussian(mean=0.4, std=0.02)
SILOS: Final = 50
DEVICES: Final = 150

ATTRIBUTE: Final = dutch_schema(MARITAL_BINARY)
VALUE: Final = dutch_schema(MARITAL_FOUR)


def named(numbers: str) -> tuple[str, ...]:
    """Return the names of numbered clients."""
    return tuple(f"c{number}" for number in numbers.split())


ATTRIBUTE_DEVICE_TEST: Final = named(
    """000 002 013 014 015 017 023 040 041 047 051 060 064 070 073 094 105 106 108 115 116 124
    126 128 131 137 143 144 146 148"""
)
"""Test clients of attribute-device, 15 of each group, which is the stratum of the draw.

Drawn once by ``split.draw_test_clients(clients, 30, seed=42, scope="attribute-device")``.
"""
VALUE_DEVICE_TEST: Final = named(
    """001 008 021 029 032 033 034 037 040 042 046 059 063 064 069 076 083 086 088 090 091 108
    117 118 124 128 129 133 139 140"""
)
"""Test clients of value-device, 15 of each group, which is the stratum of the draw.

Drawn once by ``split.draw_test_clients(clients, 30, seed=42, scope="value-device")``.
"""


def groups(*targets: tuple[str, str]) -> tuple[ClientGroup, ...]:
    """Return one group of clients for each attribute and value, all of equal size."""
    return tuple(
        ClientGroup(
            name=f"{attribute}={value}",
            clients=1 / len(targets),
            rules=(BiasRule(where=((attribute, value),), drop=DROP, flip=FLIP),),
        )
        for attribute, value in targets
    )


def dutch_recipe(
    name: str,
    schema: Schema,
    clients: int,
    *targets: tuple[str, str],
    split: Split,
    description: str,
) -> Recipe:
    """Return a recipe with the parts that all four configs share."""
    return Recipe(
        dataset="dutch",
        name=name,
        schema=schema,
        partition=Iid(clients=clients),
        groups=groups(*targets),
        split=split,
        seed=42,
        description=description,
    )


BY_ATTRIBUTE: Final = (("sex", "Female"), ("Marital_status", "Not married"))

RECIPES: Final[tuple[Recipe, ...]] = (
    dutch_recipe(
        "attribute-silo",
        ATTRIBUTE,
        SILOS,
        *BY_ATTRIBUTE,
        split=RowSplit(stratify=("label", "sex", "Marital_status")),
        description="50 silos, half biased by Sex, half by binary marital status.",
    ),
    dutch_recipe(
        "value-silo",
        VALUE,
        SILOS,
        ("Marital_status", "Never married"),
        ("Marital_status", "Widowed"),
        ("Marital_status", "Divorced"),
        split=RowSplit(stratify=("label", "Marital_status")),
        description="50 silos, a third each biased against the never married, the widowed and "
        "the divorced.",
    ),
    dutch_recipe(
        "attribute-device",
        ATTRIBUTE,
        DEVICES,
        *BY_ATTRIBUTE,
        split=ClientSplit(test=ATTRIBUTE_DEVICE_TEST, folds=5),
        description="150 devices, half biased by Sex, half by binary marital status.",
    ),
    dutch_recipe(
        "value-device",
        VALUE,
        DEVICES,
        ("Marital_status", "Never married"),
        ("Marital_status", "Divorced"),
        split=ClientSplit(test=VALUE_DEVICE_TEST, folds=5),
        description="150 devices, half biased against the never married, half against the "
        "divorced.",
    ),
)
