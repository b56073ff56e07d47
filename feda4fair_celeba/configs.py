"""The four CelebA configs.

Section 4.3 and Table 7 of the paper: IID clients in two halves; each client of a half draws its
drop rate from N(0.3, 0.05) and its flip rate from N(mean, 0.02), with the means of Table 7. The
rules act on the favorable label, smiling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from feda4fair.columns import Column, Value
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
from feda4fair_celeba.schema import attribute_schema, value_schema

__all__ = ["RECIPES", "with_images"]

DROP: Final = Gaussian(mean=0.3, std=0.05)
FLIP_STD: Final = 0.02
SILOS: Final = 50
DEVICES: Final = 150

ATTRIBUTE: Final = attribute_schema()
VALUE: Final = value_schema()


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

ONE_COLOR: Final[tuple[tuple[str, tuple[Value, ...]], ...]] = (
    ("Hair_Color", ("Black", "Blond", "Brown", "Gray")),
)
"""Value configs keep the images that have exactly one of the four hair colors."""

ATTRIBUTE_MEANS: Final = ((("Male", "Male"), 0.28), (("Black_Hair", "Black"), 0.60))
VALUE_MEANS: Final = ((("Hair_Color", "Black"), 0.35), (("Hair_Color", "Blond"), 0.35))
"""Table 7: attribute and value, mean of the flip rate."""


def halves(means: tuple[tuple[tuple[str, str], float], ...]) -> tuple[ClientGroup, ...]:
    """Return one group of clients for each row of Table 7, all of equal size."""
    return tuple(
        ClientGroup(
            name=f"{attribute}={value}",
            clients=1 / len(means),
            rules=(
                BiasRule(
                    where=((attribute, value),),
                    drop=DROP,
                    flip=Gaussian(mean=mean, std=FLIP_STD),
                ),
            ),
        )
        for (attribute, value), mean in means
    )


def celeba_recipe(name: str, clients: int, *, split: Split, description: str) -> Recipe:
    """Return a recipe with the parts that all configs of its kind share."""
    by_value = name.startswith("value")
    return Recipe(
        dataset="celeba",
        name=name,
        schema=VALUE if by_value else ATTRIBUTE,
        partition=Iid(clients=clients),
        groups=halves(VALUE_MEANS if by_value else ATTRIBUTE_MEANS),
        select=ONE_COLOR if by_value else (),
        split=split,
        seed=42,
        description=description,
    )


RECIPES: Final[tuple[Recipe, ...]] = (
    celeba_recipe(
        "attribute-silo",
        SILOS,
        split=RowSplit(stratify=("label", "Male", "Black_Hair")),
        description="50 silos, half biased by Sex, half by black hair.",
    ),
    celeba_recipe(
        "value-silo",
        SILOS,
        split=RowSplit(stratify=("label", "Hair_Color")),
        description="50 silos, half biased against black hair, half against blond hair.",
    ),
    celeba_recipe(
        "attribute-device",
        DEVICES,
        split=ClientSplit(test=ATTRIBUTE_DEVICE_TEST, folds=5),
        description="150 devices, half biased by Sex, half by black hair.",
    ),
    celeba_recipe(
        "value-device",
        DEVICES,
        split=ClientSplit(test=VALUE_DEVICE_TEST, folds=5),
        description="150 devices, half biased against black hair, half against blond hair.",
    ),
)


def with_images(recipe: Recipe) -> Recipe:
    """Return a recipe whose rows also hold their image; no choice in it depends on images.

    Examples
    --------
    >>> [column.name for column in with_images(RECIPES[0]).schema.columns[:2]]
    ['image_id', 'image']
    """
    first, *rest = recipe.schema.columns
    if rest[0].name == "image":
        return recipe
    image = Column(
        name="image", dtype="image", description="Aligned face, JPEG, 178 x 218, as in the source."
    )
    return replace(recipe, schema=replace(recipe.schema, columns=(first, image, *rest)))
