"""One client of a built config, read alone: from a folder, or from the Hub by range.

The index of clients says which row group holds the client; nothing else of the data is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from feda4fair.errors import OutputError
from feda4fair.split import SPLITS

__all__ = ["load_client", "row_groups"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)
REPO_ID = re.compile(rf"{NAME.pattern}/{NAME.pattern}", re.ASCII)
MAGIC = b"PAR1"
SECONDS = 60
"""How long to go on when the Hub does not answer."""

T = TypeVar("T")


def load_client(
    source: str | Path,
    config: str,
    client: str,
    split: str | None = None,
    *,
    revision: str = "main",
) -> Any:
    """Load one client of a config without reading the others.

    Parameters
    ----------
    source : str or Path
        A built folder, or a dataset repository such as ``"feda4fair/acs"``. As in
        ``load_dataset``, a folder of that name in the working directory comes first.
    config : str
        Name of the config, e.g. ``"value-device"``.
    client : str
        Name of the client, e.g. ``"TX_0"``.
    split : str, optional
        Only this split. Without it all rows of the client, by split in the order train,
        validation, test; the client of a device config lies in one split anyhow.
    revision : str, default "main"
        Branch, tag or commit of the repository; ignored for a folder.

    Returns
    -------
    datasets.Dataset
        The rows in the order of the config, with its features: the same as
        ``load_dataset(source, config, split=..., filters=[("client_id", "==", client)])``.

    Raises
    ------
    OutputError
        If there is no such folder, config, client or split, or a file is damaged.
    PublishError
        If the Hub does not answer.

    Notes
    -----
    From the Hub the client index, one footer and the client's row groups are transferred, and
    nothing is read ahead; the index is kept in the Hub's cache.
    """
    import datasets
    from datasets.table import InMemoryTable

    if not NAME.fullmatch(config):
        raise OutputError(f"config {config!r}: is no name of a config.")
    if split is not None and split not in SPLITS:
        raise OutputError(f"split {split!r}: there are {', '.join(SPLITS)}.")
    with _opened(source, revision) as opened:
        places = _places(opened, config, client, split)
        tables = [_rows(opened, config, client, place) for place in places]
    split = datasets.NamedSplit("+".join(place["split"] for place in places))
    try:
        return datasets.Dataset(InMemoryTable(pa.concat_tables(tables)), split=split)
    except (ValueError, TypeError, LookupError, AttributeError, pa.ArrowException):
        raise OutputError(
            f"{source}, {config}: columns or metadata of {client!r} are damaged; build or "
            "download it again."
        ) from None


class _Folder:
    """A built folder."""

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = str(folder), folder

    def whole(self, path: str) -> BinaryIO:
        return self.open(path)

    def open(self, path: str) -> BinaryIO:
        return (self.folder / path).open("rb")


class _Repository:
    """A repository at one commit, so that index and rows belong together."""

    def __init__(self, repo_id: str, revision: str) -> None:
        from huggingface_hub import HfApi, HfFileSystem

        self.name = repo_id
        self.repo_id = repo_id
        info = _persist(lambda: HfApi().dataset_info(repo_id, revision=revision), repo_id)
        self.commit = info.sha
        self.files = {sibling.rfilename for sibling in info.siblings or []}
        self.system = HfFileSystem()

    def whole(self, path: str) -> BinaryIO:
        from huggingface_hub import hf_hub_download

        self._check(path)
        local = _persist(
            lambda: hf_hub_download(self.repo_id, path, repo_type="dataset", revision=self.commit),
            f"{self.repo_id}/{path}",
        )
        return Path(local).open("rb")

    def open(self, path: str) -> BinaryIO:
        self._check(path)
        name, where = f"{self.repo_id}/{path}", f"datasets/{self.repo_id}@{self.commit}/{path}"
        # Without the cache of the file system a read is one request for these bytes alone.
        stream = _persist(lambda: self.system.open(where, "rb", cache_type="none"), name)
        return cast(BinaryIO, _Patient(stream, name))

    def _check(self, path: str) -> None:
        if path not in self.files:
            raise FileNotFoundError(path)


class _Patient:
    """A remote file whose reads are tried again, and fail in one sentence."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.stream, self.name = stream, name

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.stream.seek(offset, whence)

    def read(self, size: int) -> bytes:
        place = self.stream.tell()

        def read() -> bytes:
            self.stream.seek(place)
            return self.stream.read(size)

        return _persist(read, self.name)

    def __enter__(self) -> _Patient:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stream.close()


def _persist(step: Callable[[], T], what: str) -> T:
    from feda4fair.patience import Patience, persist

    return persist(step, what, Patience.within(SECONDS), lambda _line: None)


@contextmanager
def _opened(source: str | Path, revision: str) -> Iterator[_Folder | _Repository]:
    if Path(source).is_dir():
        yield _Folder(Path(source))
    elif isinstance(source, str) and REPO_ID.fullmatch(source):
        # The Hub's library takes long to import, and a folder does not need it.
        from feda4fair.patience import Patience, patient_client

        with patient_client(Patience.within(SECONDS)):
            yield _Repository(source, revision)
    else:
        raise OutputError(f"{source}: is neither a built folder nor a repository ORG/NAME.")


def _places(
    opened: _Folder | _Repository, config: str, client: str, split: str | None
) -> list[dict[str, Any]]:
    """Return the entries of the client index, by split."""
    path = f"clients/{config}.parquet"
    try:
        with opened.whole(path) as stream:
            index = _entries(pq.read_table(stream))
    except FileNotFoundError:
        raise OutputError(
            f"{opened.name}: has no {path}, so it is not a build or has no config {config!r}."
        ) from None
    except (OSError, ValueError, pa.ArrowException):
        raise OutputError(
            f"{opened.name}/{path}: is damaged; build or download it again."
        ) from None
    own = [entry for entry in index if entry["client_id"] == client]
    found = [entry for entry in own if split in (None, entry["split"])]
    if found:
        return sorted(found, key=lambda entry: SPLITS.index(entry["split"]))
    if own:
        raise OutputError(
            f"{opened.name}, {config}: client {client!r} has no {split}, it has "
            f"{', '.join(entry['split'] for entry in own)}."
        )
    names = sorted({entry["client_id"] for entry in index})
    near = get_close_matches(client, names, n=3, cutoff=0.5) or [names[0], names[-1]]
    raise OutputError(
        f"{opened.name}, {config}: no client {client!r} among {len(names)}, such as "
        f"{', '.join(near)}."
    )


def _entries(index: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a client index, each of which names a place in a file.

    Raises
    ------
    ValueError
        If the table is no such index.
    """
    kinds = {"client_id": str, "split": str, "file": str, "row_group": int, "rows": int}
    if not set(kinds) <= set(index.column_names) or not index.num_rows:
        raise ValueError("no client index")
    entries: list[dict[str, Any]] = index.select(list(kinds)).to_pylist()
    for entry in entries:
        if any(type(entry[name]) is not kind for name, kind in kinds.items()):
            raise ValueError("no place in a file")
        if entry["split"] not in SPLITS:
            raise ValueError("no split")
    return entries


def _rows(
    opened: _Folder | _Repository, config: str, client: str, place: dict[str, Any]
) -> pa.Table:
    """Read the row groups of a client: the footer, then one range that spans them."""
    folder, _, file = place["file"].rpartition("/")
    where = f"{opened.name}/{place['file']}"
    if folder != f"data/{config}" or not NAME.fullmatch(file):
        raise OutputError(f"{where}: is no data file of {config}; build it again.")
    try:
        with opened.open(place["file"]) as stream:
            metadata = _read_metadata(stream)
            groups = row_groups(metadata, place["row_group"], place["rows"])
            source = _Range(stream, *_span(metadata, groups), _end(stream))
            table = pq.ParquetFile(source, metadata=metadata).read_row_groups(
                groups, use_threads=False
            )
    except FileNotFoundError:
        raise OutputError(f"{where}: is missing; build or download it again.") from None
    except (OSError, IndexError, ValueError, OverflowError, pa.ArrowException):
        raise OutputError(f"{where}: is damaged; build or download it again.") from None
    if "client_id" not in table.column_names:
        raise OutputError(f"{where}: has no client_id; build or download it again.")
    if table.num_rows != place["rows"] or set(table["client_id"].unique().to_pylist()) != {client}:
        raise OutputError(f"{where}: does not fit clients/{config}.parquet; build it again.")
    return table


def _end(stream: BinaryIO) -> int:
    return stream.seek(0, 2)


def _read_metadata(stream: BinaryIO) -> pq.FileMetaData:
    """Read the footer and no byte more."""
    size = stream.seek(-8, 2)
    tail = stream.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or not 0 < length <= size:
        raise pa.ArrowInvalid("no Parquet footer")
    stream.seek(size - length)
    return pq.read_metadata(BytesIO(MAGIC + stream.read(length) + tail))


def row_groups(metadata: pq.FileMetaData, first: int, rows: int) -> list[int]:
    """Return the row groups of a client: from the first, as many as its rows need.

    Raises
    ------
    IndexError
        If the file ends before.
    """
    groups: list[int] = []
    while rows > 0:
        groups.append(first + len(groups))
        if not 0 <= groups[-1] < metadata.num_row_groups:
            raise IndexError(f"no row group {groups[-1]}")
        rows -= metadata.row_group(groups[-1]).num_rows
    return groups


def _span(metadata: pq.FileMetaData, groups: Sequence[int]) -> tuple[int, int]:
    """Return the first byte and the end of row groups, which lie side by side."""
    chunks = [
        metadata.row_group(group).column(column)
        for group in groups
        for column in range(metadata.num_columns)
    ]
    starts = [
        min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in chunks
    ]
    ends = [
        start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)
    ]
    return min(starts), max(ends)


class _Range(BytesIO):
    """A range of a file, read at once, that answers with the offsets of the whole file."""

    def __init__(self, stream: BinaryIO, start: int, end: int, size: int) -> None:
        stream.seek(start)
        super().__init__(stream.read(end - start))
        self.start, self.size = start, size
        self.place = 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self.place = offset + (0, self.place, self.size)[whence]
        return self.place

    def tell(self) -> int:
        return self.place

    def read(self, size: int | None = -1, /) -> bytes:
        super().seek(max(0, self.place - self.start))
        data = super().read(size)
        self.place += len(data)
        return data
