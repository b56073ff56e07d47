"""Images as bytes: read by file name, never decoded, attached to the rows of one client."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from feda4fair.errors import SourceError
from feda4fair.fetch import web_page
from feda4fair_celeba.annotations import sentence

__all__ = ["IMAGE_TYPE", "FolderImages", "Images", "ZipImages", "attach_images", "check_images"]

IMAGE_TYPE: Final = pa.struct({"bytes": pa.binary(), "path": pa.string()})
"""Storage type of the Image feature of ``datasets``."""

_JPEG: Final = b"\xff\xd8\xff"
_UNREADABLE: Final = (
    OSError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What a file, or a damaged or encrypted member of a zip, may raise when it is read."""


class Images(Protocol):
    """Image files of one release. Instances can be pickled."""

    @property
    def where(self) -> str:
        """Where they lie, for messages."""

    def sizes(self) -> dict[str, int]:
        """Return file name and size in bytes of every image."""

    def read(self, image_id: str) -> bytes:
        """Return the bytes of one image as they are."""

    def locate(self, image_id: str) -> str:
        """Return a path from which ``datasets`` can open the image."""


@dataclass(frozen=True, kw_only=True)
class FolderImages:
    """Images in a folder, ``img_align_celeba``."""

    folder: Path

    @property
    def where(self) -> str:
        """The folder."""
        return str(self.folder)

    def sizes(self) -> dict[str, int]:
        """Return file name and size in bytes of every image, in one pass over the folder."""
        with os.scandir(self.folder) as entries:
            return {
                entry.name: entry.stat().st_size
                for entry in entries
                if entry.name.lower().endswith(".jpg") and entry.is_file()
            }

    def read(self, image_id: str) -> bytes:
        """Return the bytes of one image as they are."""
        return (self.folder / image_id).read_bytes()

    def locate(self, image_id: str) -> str:
        """Return the path of the image."""
        return str((self.folder / image_id).absolute())


@dataclass(frozen=True, kw_only=True)
class ZipImages:
    """Images in ``img_align_celeba.zip``, which need not be unpacked."""

    path: Path

    @property
    def where(self) -> str:
        """The zip."""
        return str(self.path)

    def sizes(self) -> dict[str, int]:
        """Return file name and size in bytes of every image."""
        return {name: member.file_size for name, member in self._members.items()}

    def read(self, image_id: str) -> bytes:
        """Return the bytes of one image; the zip's checksum is verified."""
        return self._archive.read(self._members[image_id])

    def locate(self, image_id: str) -> str:
        """Return the path of the image within the zip, as ``datasets`` writes it."""
        return f"zip://{self._members[image_id].filename}::{self.path.absolute()}"

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        again = "download it again, or unpack a whole copy into img_align_celeba"
        with self.path.open("rb") as file:
            start = file.read(512)
        if web_page(start):
            raise SourceError(
                f"{self.path} is a web page, as a server sends it in place of the file when its "
                f"quota is used up: {again}."
            )
        try:
            return zipfile.ZipFile(self.path)
        except zipfile.BadZipFile:
            raise SourceError(f"{self.path} is truncated or not a zip: {again}.") from None

    @cached_property
    def _members(self) -> dict[str, zipfile.ZipInfo]:
        return {
            name: member
            for member in self._archive.infolist()
            if (name := member.filename.rpartition("/")[2]).lower().endswith(".jpg")
            and not member.filename.startswith("__MACOSX")
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to open the zip itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def check_images(images: Images, image_ids: Iterable[str]) -> dict[str, int]:
    """Make sure that exactly the named images are there and none is empty.

    Returns
    -------
    dict of str to int
        File name and size in bytes of every image.

    Raises
    ------
    SourceError
        Images are missing, unknown or empty; the first three of each kind are named.
    """
    try:
        sizes = images.sizes()
    except OSError as error:
        raise SourceError(f"{images.where} cannot be read: {error.strerror or error}.") from None
    expected, found = set(image_ids), set(sizes)
    empty = {name for name in found & expected if not sizes[name]}
    problems = [
        sentence(those, what, "")
        for those, what in (
            (expected - found, "missing"),
            (found - expected, "not named in list_attr_celeba.txt"),
            (empty, "of 0 bytes"),
        )
        if those
    ]
    if problems:
        raise SourceError(
            f"{images.where} does not hold the {len(expected):,} images of list_attr_celeba.txt "
            f"({'; '.join(problems)}): put the same images there, or build with --images none."
        )
    return sizes


def attach_images(table: pa.Table, images: Images) -> pa.Table:
    """Return a table with the column ``image`` after ``image_id``.

    Parameters
    ----------
    table : pyarrow.Table, n rows
        Rows of one client, so that only one client's images are in memory.
    images : Images
        Where the bytes come from.

    Returns
    -------
    pyarrow.Table, n rows
        ``image`` is of `IMAGE_TYPE`: the bytes as they are in the file, and the file name.

    Raises
    ------
    SourceError
        An image cannot be read or is not a JPEG.
    """
    ids = table["image_id"].to_pylist()
    column = pa.StructArray.from_arrays(
        [pa.array([_read(images, name) for name in ids], pa.binary()), pa.array(ids, pa.string())],
        fields=list(IMAGE_TYPE),
    )
    return table.add_column(table.column_names.index("image_id") + 1, "image", column)


def _read(images: Images, image_id: str) -> bytes:
    try:
        content = images.read(image_id)
    except _UNREADABLE as error:
        raise SourceError(
            f"{images.where}: image {image_id} cannot be read ({error}): put a whole copy there."
        ) from None
    if not content.startswith(_JPEG):
        what = "a web page" if web_page(content[:512]) else "not a JPEG"
        raise SourceError(
            f"{images.where}: image {image_id} is {what}: put a whole copy of the images there."
        )
    return content
