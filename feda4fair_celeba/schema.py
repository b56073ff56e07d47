"""Columns and codes of CelebA.

The attribute file gives forty attributes as -1 and 1; they are written as 0 and 1 under the
source's names. How rows with no hair color, or with several, are treated is said here and in
``configs.py``, once for each kind of config.
"""

from __future__ import annotations

from typing import Final

from feda4fair.columns import Coding, Column, Label
from feda4fair.schema import Schema

__all__ = [
    "ATTRIBUTES",
    "HAIR_COLOR",
    "HAIR_FLAGS",
    "LABEL",
    "attribute_schema",
    "value_schema",
]

ATTRIBUTES: Final[tuple[str, ...]] = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs",
    "Big_Lips", "Big_Nose", "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows",
    "Chubby", "Double_Chin", "Eyeglasses", "Goatee", "Gray_Hair", "Heavy_Makeup",
    "High_Cheekbones", "Male", "Mouth_Slightly_Open", "Mustache", "Narrow_Eyes", "No_Beard",
    "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline", "Rosy_Cheeks", "Sideburns",
    "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat",
    "Wearing_Lipstick", "Wearing_Necklace", "Wearing_Necktie", "Young",
)  # fmt: skip
"""The forty attributes in the order of ``list_attr_celeba.txt``."""

HAIR_FLAGS: Final[tuple[str, ...]] = ("Black_Hair", "Blond_Hair", "Brown_Hair", "Gray_Hair")
"""The four hair color flags; of 202,599 images 77,003 have none and 2,926 several."""

SEX: Final = Coding(names=((0, "Female"), (1, "Male")))
BLACK_HAIR: Final = Coding(names=((0, "Not black"), (1, "Black")))

HAIR_COLOR: Final = Coding(
    names=(
        (0, "No color"),
        (1, "Black"),
        (2, "Blond"),
        (3, "Brown"),
        (4, "Gray"),
        (5, "Several colors"),
    )
)
"""One color from the four flags, in their order; 0 where none is set, 5 where several are."""

EVAL_PARTITION: Final = Coding(names=((0, "Train"), (1, "Validation"), (2, "Test")))

LABEL: Final = Label(
    column="Smiling",
    favorable=(1,),
    names=("not smiling", "smiling"),
    description="Attribute Smiling: 1 smiling, 0 not. A stand-in for a decision, not one itself.",
)

_IMAGE_ID: Final = Column(
    name="image_id",
    dtype="string",
    role="provenance",
    description="File name of the image in img_align_celeba.",
)
_EVAL_PARTITION: Final = Column(
    name="eval_partition",
    dtype="int8",
    role="provenance",
    coding=EVAL_PARTITION,
    description="The source's own split by identity: 0 train, 1 validation, 2 test. Not used.",
)
_MALE: Final = Column(
    name="Male",
    dtype="int8",
    role="sensitive",
    coding=SEX,
    description="Sex as annotated, not as the person would say.",
)


def _flag(name: str) -> Column:
    return Column(name=name, dtype="int8", description=f"Attribute {name}: 1 present, 0 not.")


def attribute_schema() -> Schema:
    """Return the schema of the attribute configs.

    All rows stay. ``Black_Hair`` is the hair attribute: images without a hair color count as not
    black, images with several colors as black if that flag is among them.

    Examples
    --------
    >>> attribute_schema().sensitive
    ('Black_Hair', 'Male')
    """
    black_hair = Column(
        name="Black_Hair",
        dtype="int8",
        role="sensitive",
        coding=BLACK_HAIR,
        description="Attribute Black_Hair, whatever other hair color is set: 1 black, 0 not.",
    )
    special = {"Male": _MALE, "Black_Hair": black_hair}
    names = [name for name in ATTRIBUTES if name != LABEL.column]
    return Schema(
        columns=(
            _IMAGE_ID,
            *(special.get(name) or _flag(name) for name in names),
            _EVAL_PARTITION,
        ),
        label=LABEL,
    )


def value_schema() -> Schema:
    """Return the schema of the value configs.

    ``Hair_Color`` stands for the four flags; the configs select rows with exactly one of them.

    Examples
    --------
    >>> value_schema().sensitive
    ('Male', 'Hair_Color')
    """
    hair_color = Column(
        name="Hair_Color",
        dtype="int8",
        role="sensitive",
        coding=HAIR_COLOR,
        description="Hair color from the four flags; rows with none or several are left out.",
    )
    names = [name for name in ATTRIBUTES if name != LABEL.column and name not in HAIR_FLAGS]
    return Schema(
        columns=(
            _IMAGE_ID,
            *(_MALE if name == "Male" else _flag(name) for name in names),
            hair_color,
            _EVAL_PARTITION,
        ),
        label=LABEL,
    )
