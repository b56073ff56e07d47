"""CelebA from a copy on the Hugging Face Hub that the user names, such as ``flwrlabs/celeba``.

Copies keep the source's order and its three splits, and mostly drop the file names; a row's name
is its position. That is proven, not believed: row by row, the attributes must be the published
ones. Whether the pixels are the source's own bytes cannot be proven; they are copied as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair.errors import SourceError
from feda4fair_celeba.annotations import join_annotations
from feda4fair_celeba.schema import ATTRIBUTES

if TYPE_CHECKING:
    import datasets

__all__ = ["Mirror", "is_hub_id", "open_mirror"]

SPLITS: Final = (("train",), ("valid", "validation", "val"), ("test",))
"""Names of the source's three partitions in copies."""

_HUB_ID: Final = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)


def is_hub_id(data_dir: Path) -> bool:
    """Return whether a path is not there and reads as the id of a Hub dataset."""
    return bool(_HUB_ID.fullmatch(data_dir.as_posix())) and not data_dir.exists()


def open_mirror(repo_id: str) -> Mirror:
    """Load a copy from the Hub, or from the cache of ``datasets`` when offline.

    Raises
    ------
    SourceError
        It cannot be loaded, or does not hold the source's three partitions.
    """
    import datasets

    try:
        loaded = datasets.load_dataset(repo_id)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SourceError(
            f"{repo_id} is neither a folder nor a dataset that the Hub gives ({reason}): pass "
            "--source with a folder that holds CelebA."
        ) from None
    return Mirror.of(repo_id, loaded)


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A loaded copy: its name, and its three partitions in the source's order."""

    name: str
    partitions: tuple[datasets.Dataset, ...]

    @classmethod
    def of(cls, name: str, loaded: Mapping[str, datasets.Dataset]) -> Mirror:
        """Take the partitions of a loaded copy."""
        found = [next((s for s in names if s in loaded), None) for names in SPLITS]
        if None in found:
            raise SourceError(
                f"{name} has the splits {', '.join(loaded)}, expected train, valid and test: name "
                "a copy of CelebA that kept the source's partitions."
            )
        parts = [loaded[split] for split in found if split]
        return cls(name=name, partitions=tuple(part.flatten_indices() for part in parts))

    @property
    def where(self) -> str:
        """What to call it in a message."""
        return self.name

    def annotations(self) -> pa.Table:
        """Return the rows as the source gives them, named by position.

        Raises
        ------
        SourceError
            An attribute is missing or holds something else than yes and no.
        """
        sizes = [len(part) for part in self.partitions]
        ids = pa.array(list(self._position), pa.string())
        columns = {name: pa.array(self._attribute(name)) for name in ATTRIBUTES}
        partition = np.repeat(np.arange(len(sizes), dtype=np.int8), sizes)
        return join_annotations(
            pa.table({"image_id": ids, **columns}),
            pa.table({"image_id": ids, "eval_partition": pa.array(partition)}),
            where=self.name,
        )

    def sizes(self) -> dict[str, int]:
        """Return file name and size in bytes of every image."""
        return {image_id: len(self.read(image_id)) for image_id in self._position}

    def read(self, image_id: str) -> bytes:
        """Return the bytes of one image as the copy holds them."""
        part, row = self._position[image_id]
        value = self._images[part][row].as_py()
        content: bytes | None = value["bytes"]
        return Path(value["path"]).read_bytes() if content is None else content

    def locate(self, image_id: str) -> str:
        """Refuse: an image of a copy has no file of its own."""
        raise SourceError(
            f"{self.name}: {image_id} has no file of its own: use a folder that holds CelebA."
        )

    def _attribute(self, name: str) -> NDArray[np.int8]:
        values = []
        for part in self.partitions:
            if name not in part.column_names:
                raise SourceError(
                    f"{self.name} has no column {name}: name a copy of CelebA with its forty "
                    "attributes."
                )
            try:
                values.append(part.data[name].to_numpy().astype(np.int8))
            except (TypeError, ValueError):
                raise SourceError(
                    f"{self.name} has values of type {part.data[name].type} in {name}, expected "
                    "yes and no: name another copy."
                ) from None
        joined = np.concatenate(values)
        unknown = sorted(set(np.unique(joined).tolist()) - {-1, 0, 1})
        if unknown:
            raise SourceError(
                f"{self.name} has {unknown[0]} in {name}, expected yes and no: name another copy."
            )
        flags: NDArray[np.int8] = (joined == 1).astype(np.int8)
        return flags

    @cached_property
    def _position(self) -> dict[str, tuple[int, int]]:
        places = [(p, row) for p, part in enumerate(self.partitions) for row in range(len(part))]
        return {f"{number:06d}.jpg": place for number, place in enumerate(places, start=1)}

    @cached_property
    def _images(self) -> tuple[pa.ChunkedArray, ...]:
        for part in self.partitions:
            if "image" not in part.column_names:
                raise SourceError(
                    f"{self.name} has no column image: build with --images none, or name another "
                    "copy of CelebA."
                )
        return tuple(part.data["image"] for part in self.partitions)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to read the copy itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
