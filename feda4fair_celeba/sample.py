"""The built-in sample of CelebA: synthetic rows and drawn faces in the shape of the source.

No row is a person and no picture shows one: code draws every row from rounded aggregate figures,
with the seed, and every picture from the attributes of its row.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair import seeds
from feda4fair.errors import SourceError
from feda4fair_celeba.annotations import join_annotations
from feda4fair_celeba.faces import VARIANTS, Face, jpeg
from feda4fair_celeba.schema import ATTRIBUTES, HAIR_FLAGS

__all__ = ["NOTICE", "ROWS", "DrawnImages", "population", "write_celeba"]

NOTICE: Final = (
    "Synthetic sample: code draws every row and every picture from rounded aggregate figures of "
    "CelebA; no row or picture shows a person, and a figure measured on it is not a figure of the "
    "benchmark."
)
"""What the card of every build from the sample says."""

ROWS: Final = 6_000

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MALE: Final = 0.417
HAIR: Final = ((327, 192, 227, 229, 8, 17), (455, 292, 17, 143, 83, 10))
"""No color, black, blond, brown, gray, several, by sex, in thousandths."""

SMILING: Final = (
    (0.485, 0.556, 0.594, 0.543, 0.649, 0.644),
    (0.376, 0.408, 0.473, 0.405, 0.477, 0.472),
)
"""Share of smiling images by sex and hair color."""

SEVERAL: Final = np.array(((0, 1, 1, 0), (1, 0, 1, 0), (0, 1, 0, 1)))
"""Flags of the images with several hair colors, equally often."""

EVAL_PARTITION: Final = (803, 98, 99)


def population(*, seed: int = 0) -> pa.Table:
    """Return the synthetic rows as the source would give them.

    Parameters
    ----------
    seed : int
        Another seed draws other rows; the default is the built-in sample.

    Returns
    -------
    pyarrow.Table
        The columns of the source; image ids begin with ``sample-``, so that a row names its
        origin.

    Examples
    --------
    >>> table = population()
    >>> table.num_rows, table["image_id"][0].as_py()
    (6000, 'sample-00001.jpg')
    """

    def units(column: str) -> Floats:
        return seeds.uniforms(seed, "celeba-sample", column, size=ROWS)

    male = (units("Male") < MALE).astype(np.int64)
    hair = pick(units("hair"), HAIR, male)
    smiling = (units("Smiling") < np.array(SMILING)[male, hair]).astype(np.int64)
    flags = np.vstack((np.zeros((1, 4)), np.eye(4), np.zeros((1, 4))))[hair].astype(np.int8)
    several = np.flatnonzero(hair == 5)
    flags[several] = SEVERAL[(units("several")[several] * len(SEVERAL)).astype(np.int64)]
    columns = {"Male": male, "Smiling": smiling, **dict(zip(HAIR_FLAGS, flags.T, strict=True))}
    for name, rates in attribute_rates().items():
        columns[name] = units(name) < np.array(rates)[2 * male + smiling]
    ids = pa.array([f"sample-{number:05d}.jpg" for number in range(1, ROWS + 1)], pa.string())
    partition = pick(units("eval_partition"), (EVAL_PARTITION,), np.zeros(ROWS, np.int64))
    return join_annotations(
        pa.table({"image_id": ids, **{n: pa.array(columns[n], pa.int8()) for n in ATTRIBUTES}}),
        pa.table({"image_id": ids, "eval_partition": pa.array(partition, pa.int8())}),
        where="sample",
    )


def attribute_rates() -> Mapping[str, tuple[float, ...]]:
    """Return the shares of each attribute: women, smiling women, men, smiling men."""
    text = Path(__file__).with_name("sample_rates.tsv").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    kinds = ("women", "women_smiling", "men", "men_smiling")
    return MappingProxyType(
        {
            row["attribute"]: tuple(float(row[kind]) for kind in kinds)
            for row in csv.DictReader(lines, delimiter="\t")
        }
    )


def pick(units: Floats, shares: tuple[tuple[int, ...], ...], group: Ints) -> Ints:
    """Return the category of each draw by the inverse cumulative shares of its group."""
    weights = np.array(shares)
    cumulative = weights.cumsum(axis=1) / weights.sum(axis=1, keepdims=True)
    chosen: Ints = (units[:, None] >= cumulative[group]).sum(axis=1)
    return chosen


@dataclass(frozen=True, kw_only=True)
class DrawnImages:
    """Pictures of the sample's rows; rows that look alike share a picture."""

    seed: int = 0

    @property
    def where(self) -> str:
        """What to call them in a message."""
        return "sample"

    def sizes(self) -> dict[str, int]:
        """Return file name and size in bytes of every picture."""
        return {image_id: len(jpeg(face)) for image_id, face in self._faces.items()}

    def read(self, image_id: str) -> bytes:
        """Return the JPEG of a row."""
        return jpeg(self._faces[image_id])

    def locate(self, image_id: str) -> str:
        """Refuse: a drawn picture has no file."""
        raise SourceError(f"sample: {image_id} is drawn and lies nowhere; write_celeba writes it.")

    @cached_property
    def _faces(self) -> dict[str, Face]:
        table = population(seed=self.seed)
        rows = {
            name: table[name].to_pylist()
            for name in ("image_id", "Male", "Smiling", "Hair_Color", "Eyeglasses", "No_Beard")
        }
        units = seeds.uniforms(self.seed, "celeba-sample", "variant", size=ROWS)
        variants = (units * VARIANTS).astype(np.int64).tolist()
        return {
            image_id: Face(
                male=bool(male),
                smiling=bool(smiling),
                hair=hair,
                glasses=bool(glasses),
                beard=bool(male and not no_beard),
                variant=variant,
            )
            for image_id, male, smiling, hair, glasses, no_beard, variant in zip(
                *rows.values(), variants, strict=True
            )
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to draw the pictures itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def write_celeba(
    folder: Path, *, images: bool = True, rows: int = ROWS, seed: int = 0
) -> tuple[Path, ...]:
    """Write the sample in the source's own layout.

    Parameters
    ----------
    folder : Path
        Receives ``list_attr_celeba.txt``, ``list_eval_partition.txt`` and ``img_align_celeba/``.
    images : bool
        Whether to draw the pictures.
    rows : int
        How many rows, from the first.
    seed : int
        Seed of the population.

    Returns
    -------
    tuple of Path
        The two files and, if drawn, the folder.
    """
    if not 1 <= rows <= ROWS:
        raise SourceError(f"the built-in sample has {ROWS:,} rows, {rows} were asked for.")
    table = population(seed=seed).slice(0, rows)
    ids = table["image_id"].to_pylist()
    values = np.stack([table[name].to_numpy() for name in ATTRIBUTES], axis=1) * 2 - 1
    lines = [
        " ".join([image_id, *(f"{value:2d}" for value in row)])
        for image_id, row in zip(ids, values.tolist(), strict=True)
    ]
    attributes, partition = folder / "list_attr_celeba.txt", folder / "list_eval_partition.txt"
    head = [str(rows), " ".join(ATTRIBUTES) + " "]
    attributes.write_bytes("\r\n".join([*head, *lines, ""]).encode())
    splits = zip(ids, table["eval_partition"].to_pylist(), strict=True)
    partition.write_bytes("".join(f"{name} {code}\r\n" for name, code in splits).encode())
    if not images:
        return attributes, partition
    pictures = folder / "img_align_celeba"
    pictures.mkdir()
    drawn = DrawnImages(seed=seed)
    for image_id in ids:
        (pictures / image_id).write_bytes(drawn.read(image_id))
    return attributes, partition, pictures
