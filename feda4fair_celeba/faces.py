"""Simple drawn faces at CelebA's size, as JPEG bytes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from typing import Final

from PIL import Image, ImageDraw

__all__ = ["SIZE", "VARIANTS", "Face", "jpeg"]

SIZE: Final = (178, 218)
"""Width and height in pixels of an aligned CelebA image."""

VARIANTS: Final = 4

Color = tuple[int, int, int]

SKIN: Final[tuple[Color, ...]] = (
    (244, 208, 177), (224, 172, 105), (198, 134, 66), (120, 79, 50),
)  # fmt: skip
BACKGROUND: Final[tuple[Color, ...]] = (
    (176, 196, 222), (210, 210, 200), (188, 214, 188), (226, 198, 190),
)  # fmt: skip
HAIR: Final[tuple[Color | None, ...]] = (
    None, (28, 24, 22), (232, 200, 110), (104, 66, 38), (168, 168, 168), (176, 128, 70),
)  # fmt: skip
"""By code of ``Hair_Color``; without a color the head is covered by a cap."""

CAP: Final[Color] = (92, 108, 150)
INK: Final[Color] = (40, 32, 32)
LIPS: Final[Color] = (170, 60, 70)
EARRING: Final[Color] = (212, 175, 55)


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """What a drawn face shows; ``hair`` is a code of ``Hair_Color``."""

    male: bool
    smiling: bool
    hair: int
    glasses: bool = False
    beard: bool = False
    variant: int = 0


@cache
def jpeg(face: Face) -> bytes:
    """Return the picture of a face; equal faces give equal bytes.

    Examples
    --------
    >>> jpeg(Face(male=True, smiling=True, hair=1))[:3].hex()
    'ffd8ff'
    """
    image = Image.new("RGB", SIZE, BACKGROUND[face.variant % len(BACKGROUND)])
    pen = ImageDraw.Draw(image)
    _draw_head(pen, face)
    _draw_features(pen, face)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=75)
    return stream.getvalue()


def _draw_head(pen: ImageDraw.ImageDraw, face: Face) -> None:
    skin = SKIN[(face.variant + face.hair) % len(SKIN)]
    hair = HAIR[face.hair]
    if hair is not None:
        bottom = 118 if face.male else 200
        pen.rounded_rectangle((32, 28, 146, bottom), 48, fill=hair)
    pen.rectangle((74, 168, 104, 218), fill=skin)
    pen.ellipse((43, 48, 135, 184), fill=skin)
    pen.pieslice((40, 30, 138, 130), 185, 355, fill=CAP if hair is None else hair)
    if face.beard:
        pen.chord((48, 100, 130, 184), 20, 160, fill=hair or INK)


def _draw_features(pen: ImageDraw.ImageDraw, face: Face) -> None:
    for center in (69, 109):
        pen.ellipse((center - 8, 96, center + 8, 108), fill=(255, 255, 255))
        pen.ellipse((center - 4, 98, center + 4, 106), fill=INK)
        pen.arc((center - 12, 84, center + 12, 100), 200, 340, fill=INK, width=3)
        if face.glasses:
            pen.ellipse((center - 16, 88, center + 16, 116), outline=INK, width=2)
    if face.glasses:
        pen.line((85, 101, 93, 101), fill=INK, width=2)
    if not face.male:
        for ear in (44, 134):
            pen.ellipse((ear - 5, 128, ear + 5, 138), fill=EARRING)
    pen.line((89, 104, 84, 130, 92, 131), fill=INK, width=2)
    if face.smiling:
        pen.chord((64, 126, 114, 166), 15, 165, fill=(255, 255, 255), outline=LIPS, width=3)
    else:
        pen.line((70, 152, 108, 152), fill=LIPS, width=4)
