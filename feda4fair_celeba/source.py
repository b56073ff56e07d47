"""CelebA from a folder of the user: annotations and images joined by file name.

CelebA has no permitted download: the user agrees to its terms and fetches it. Everything is
checked before any work begins.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from feda4fair.content import SourceFile, content_sha256
from feda4fair.errors import SourceError
from feda4fair.recipe import Recipe
from feda4fair_celeba.annotations import join_annotations, read_attributes, read_partition
from feda4fair_celeba.configs import with_images
from feda4fair_celeba.images import (
    FolderImages,
    Images,
    ZipImages,
    attach_images,
    check_images,
)
from feda4fair_celeba.mirror import Mirror, is_hub_id, open_mirror

__all__ = [
    "ATTRIBUTE_FILE",
    "CONTENT",
    "PARTITION_FILE",
    "ROWS",
    "CelebASource",
    "embeds",
    "open_source",
]

_LOG = logging.getLogger(__name__)

ATTRIBUTE_FILE: Final = "list_attr_celeba.txt"
PARTITION_FILE: Final = "list_eval_partition.txt"
IMAGE_FOLDER: Final = "img_align_celeba"
FOLDERS: Final = ("", "Anno", "Eval", "Img")
"""A flat folder, or the folders of the source's own server."""

ROWS: Final = 202_599
CONTENT: Final = "2e4707aba37d4170dfac6994ec04522eabeede068672d033ba5a2b317cb7c6ff"
"""Content hash of the joined rows of the published files, whatever the order of their lines."""

PART: Final = "all"


@dataclass(frozen=True, kw_only=True)
class CelebASource:
    """CelebA's rows and, where they are wanted, its images.

    Attributes
    ----------
    folder : Path or None
        The user's folder; None for the built-in sample of made-up rows.
    images : Images or None
        Where image bytes come from; None to leave images out.
    mirror : Mirror or None
        A copy on the Hub that takes the place of the folder.
    """

    folder: Path | None
    images: Images | None = None
    mirror: Mirror | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The one part that holds all rows."""
        return (PART,)

    @property
    def natural(self) -> str:
        """Empty: clients are drawn, not given."""
        return ""

    @property
    def synthetic(self) -> bool:
        """Whether the rows are the made-up sample."""
        return self.folder is None and self.mirror is None

    @property
    def published(self) -> bool:
        """Whether the rows are those of the published files, all of them."""
        return self._table.num_rows == ROWS and content_sha256(self._table) == CONTENT

    def read(self, part: str = PART) -> pa.Table:
        """Return the rows sorted by image id.

        ``row_id`` (position), ``image_id``, the forty attributes as 0 and 1, ``Hair_Color`` and
        ``eval_partition``.

        Raises
        ------
        SourceError
            The files are damaged or do not fit together.
        """
        if part != PART:
            raise SourceError(f"celeba: the source has no part {part!r}, only {PART!r}.")
        return self._table

    @property
    def notes(self) -> tuple[str, ...]:
        """Whether the rows are fewer or other than those of the published files."""
        if self.synthetic or self.published:
            return ()
        if self._table.num_rows == ROWS:
            return (f"built from {ROWS:,} rows whose content is not that of the published files.",)
        return (f"built from {self._table.num_rows:,} rows, not the published {ROWS:,}.",)

    @property
    def options(self) -> dict[str, Any]:
        """Whether images are embedded."""
        return {"images": "none" if self.images is None else "embed"}

    def fit(self, recipe: Recipe) -> Recipe:
        """Return a recipe with the columns that `attach` adds."""
        return recipe if self.images is None else with_images(recipe)

    def attach(self, table: pa.Table) -> pa.Table:
        """Return the rows of one client with their images, or as they are without images.

        See Also
        --------
        feda4fair_celeba.images.attach_images
        """
        return table if self.images is None else attach_images(table, self.images)

    def files(self) -> tuple[SourceFile, ...]:
        """Return the records of the annotation files and of the images.

        The images' record is the hash of their names and sizes.
        """
        rows = self._table
        if self.folder is None:
            tables = {"sample" if self.mirror is None else self.mirror.name: rows}
        else:
            partition = rows.select(["image_id", "eval_partition"])
            attributes = rows.drop_columns(["row_id", "Hair_Color", "eval_partition"])
            tables = {ATTRIBUTE_FILE: attributes, PARTITION_FILE: partition}
        if self.images is not None:
            sizes = sorted(self._sizes.items())
            tables[IMAGE_FOLDER] = pa.table(
                {"image_id": [name for name, _ in sizes], "bytes": [size for _, size in sizes]}
            )
        return tuple(
            SourceFile(
                name=name,
                part=PART,
                rows_read=table.num_rows,
                rows_kept=table.num_rows,
                content_sha256=content_sha256(table),
            )
            for name, table in tables.items()
        )

    def check(self) -> None:
        """Read the annotations and look for every image.

        Raises
        ------
        SourceError
            Something is missing, damaged or does not fit together.
        """
        if self.mirror is not None:
            if not self.published:
                raise SourceError(
                    f"{self.mirror.name} does not hold the {ROWS:,} rows of CelebA with the "
                    "published attributes in the published order: name another copy."
                )
        elif self._table.num_rows and self.images is not None:
            _ = self._sizes

    @cached_property
    def _table(self) -> pa.Table:
        if self.mirror is not None:
            return self.mirror.annotations()
        if self.folder is None:
            from feda4fair_celeba.sample import population

            return population()
        return join_annotations(
            read_attributes(_find(self.folder, ATTRIBUTE_FILE)),
            read_partition(_find(self.folder, PARTITION_FILE)),
            where=str(self.folder),
        )

    @cached_property
    def _sizes(self) -> dict[str, int]:
        if self.images is None:
            return {}
        return check_images(self.images, self._table["image_id"].to_pylist())

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to read the rows itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def open_source(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    recipes: Sequence[Recipe] = (),
    clients: Sequence[str] = (),
    sample: bool = False,
    allow_missing: bool = False,
    images: Literal["embed", "none"] | None = None,
) -> CelebASource:
    """Return the checked source: a folder of the user, a copy on the Hub, or the sample.

    Parameters
    ----------
    data_dir : path, optional
        Folder that holds ``list_attr_celeba.txt``, ``list_eval_partition.txt`` and, for images,
        ``img_align_celeba/`` or ``img_align_celeba.zip``; the source's own folders ``Anno``,
        ``Eval`` and ``Img`` are looked into as well. Or the id, ``ORG/NAME``, of a copy on the
        Hub that the user may use.
    recipes, clients, allow_missing
        Of no effect: every client is drawn from all rows, so none can be missing.
    sample : bool
        Use the built-in sample and nothing else.
    images : {"embed", "none"}, optional
        Whether rows get their image bytes; by default where images are there.

    Raises
    ------
    SourceError
        Something is missing, damaged or does not fit together.
    """
    embed = embeds(data_dir, sample=sample, images=images)
    if sample:
        from feda4fair_celeba.sample import DrawnImages

        return CelebASource(folder=None, images=DrawnImages() if embed else None)
    if data_dir is None:
        raise SourceError(
            "CelebA may not be downloaded by a program: agree to its terms, fetch "
            f"{ATTRIBUTE_FILE}, {PARTITION_FILE} and {IMAGE_FOLDER} from its site, and pass "
            "--source with their folder, or try --sample."
        )
    folder = Path(data_dir).expanduser()
    if is_hub_id(folder):
        mirror = open_mirror(folder.as_posix())
        source = CelebASource(folder=None, images=mirror if embed else None, mirror=mirror)
        source.check()
        return source
    for name in (ATTRIBUTE_FILE, PARTITION_FILE):
        _find(folder, name)
    found = _find_images(folder)
    if embed and found is None:
        raise SourceError(
            f"{folder} holds neither {IMAGE_FOLDER} nor {IMAGE_FOLDER}.zip: put the aligned "
            "images there, or build with --images none."
        )
    if found is None and images is None:
        _LOG.warning(
            "%s holds no %s: rows are built without images; --images embed insists on them.",
            folder,
            IMAGE_FOLDER,
        )
    source = CelebASource(folder=folder, images=found if embed else None)
    source.check()
    return source


def embeds(
    data_dir: str | os.PathLike[str] | None,
    *,
    sample: bool = False,
    images: Literal["embed", "none"] | None = None,
) -> bool:
    """Return whether a source opened with these arguments has images.

    Raises
    ------
    SourceError
        ``images`` is something else.
    """
    if images not in ("embed", "none", None):
        raise SourceError(f"celeba: images is 'embed' or 'none', got {images!r}.")
    if images is not None:
        return images == "embed"
    if sample or data_dir is None:
        return sample
    folder = Path(data_dir).expanduser()
    return is_hub_id(folder) or _find_images(folder) is not None


def _find(folder: Path, name: str) -> Path:
    for inner in FOLDERS:
        path = folder / inner / name
        if path.is_file():
            return path
    raise SourceError(
        f"{folder} holds no {name}: put CelebA's original file there, or pass another --source."
    )


def _find_images(folder: Path) -> Images | None:
    for inner in FOLDERS:
        if (folder / inner / IMAGE_FOLDER).is_dir():
            return FolderImages(folder=folder / inner / IMAGE_FOLDER)
    for inner in FOLDERS:
        if (folder / inner / f"{IMAGE_FOLDER}.zip").is_file():
            return ZipImages(path=folder / inner / f"{IMAGE_FOLDER}.zip")
    return None
