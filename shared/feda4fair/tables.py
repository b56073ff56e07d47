"""Read rows from wherever a user has them: memory, a file, a folder, the Hub.

Text stays text and images stay bytes; nothing that is read is unpickled or executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from feda4fair.content import SourceFile
from feda4fair.errors import SourceError

if TYPE_CHECKING:
    import datasets
    import pyarrow.parquet as pq

__all__ = ["BLOCK", "ParquetRows", "blocks_of", "content_of", "read_table", "record"]

BLOCK: Final = 1 << 20
"""Rows of a block: what is read, hashed and moved at a time."""


_IMAGES: Final = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
_JSON: Final = frozenset({".json", ".jsonl", ".ndjson"})
_BOM: Final = b"\xef\xbb\xbf"
"""What some programs write before UTF-8."""

_PACKED: Final = frozenset({".gz", ".bz2", ".zst"})

_UNLIKE: Final = (
    "its Parquet files do not fit together, their columns differ in names, order or types; name "
    "one of them."
)

_TEXT_BLOCK: Final = 1 << 25
"""Bytes of a CSV or JSON file that are parsed at a time, and bound of one row."""


def read_table(data: Any, *, config: str | None = None, split: str | None = None) -> pa.Table:
    """Return rows as an Arrow table.

    Parameters
    ----------
    data : pyarrow.Table, pandas.DataFrame, datasets.Dataset or DatasetDict, path, or str
        A path names a Parquet, CSV or JSON (lines) file, a folder of Parquet files, or a folder
        of images as the ``imagefolder`` loader takes it. Other text is the id of a Hub dataset.
    config, split : str, optional
        Config and split of a Hub dataset; split of a DatasetDict. Without a split all are read,
        one after another.

    Returns
    -------
    pyarrow.Table
        Rows in source order, with the Hub's features in the metadata where there are any.

    Raises
    ------
    SourceError
        If the data is not there, cannot be read, or has no rows.
    """
    table = _read(data, config, split)
    if table.num_rows == 0:
        raise SourceError(f"{_name(data)}: no rows; name a source that has some.")
    return _in_utf8(table, _name(data))


def record(data: Any, rows: int, content: str) -> SourceFile:
    """Return the record of what was read, for the manifest."""
    return SourceFile(
        name=_name(data), part="all", rows_read=rows, rows_kept=rows, content_sha256=content
    )


def blocks_of(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a table in order, :data:`BLOCK` at a time, without metadata."""
    for start in range(0, table.num_rows, BLOCK):
        yield table.slice(start, BLOCK).replace_schema_metadata(None)


def content_of(hashes: Sequence[str]) -> str:
    """Return the content hash of rows from those of their blocks.

    One block's hash is its :func:`feda4fair.content.content_sha256`; of several blocks of
    :data:`BLOCK` rows it is the SHA-256 of their hashes, one a line.
    """
    if len(hashes) == 1:
        return hashes[0]
    return sha256("\n".join(hashes).encode()).hexdigest()


def _name(data: Any) -> str:
    if not isinstance(data, str | os.PathLike):
        return "table"
    if is_url(data):
        return str(data).rstrip("/").rpartition("/")[2]
    path = Path(data)
    return path.resolve().name if path.exists() else str(data)


def _existing(data: str | os.PathLike[str]) -> Path | None:
    """Return the path that text names, None if nothing is there."""
    path = Path(data).expanduser()
    try:
        return path if str(data) and path.exists() else None
    except OSError:  # a name longer than the system takes
        return None


def _files_of(folder: Path) -> list[Path]:
    """Return all files below a folder, in the order in which their rows are read."""
    return sorted((file for file in folder.rglob("*") if file.is_file()), key=lambda f: f.parts)


def _in_utf8(table: pa.Table, where: str) -> pa.Table:
    """Make sure that texts are text, which Arrow takes on trust from a file."""
    try:
        table.schema.names  # noqa: B018 - names are decoded here
        table.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"{where}: holds what is no valid text or table ({reason}).") from None
    return table


def is_url(data: Any) -> bool:
    """Tell whether text names a file of a remote file system, such as ``hf://`` or ``s3://``."""
    return isinstance(data, str) and "://" in data


@dataclass(frozen=True)
class ParquetRows:
    """The rows of Parquet files, block by block.

    Parameters
    ----------
    files : tuple of str
        Paths or URLs, in order.
    """

    files: tuple[str, ...]

    @classmethod
    def find(cls, data: Any) -> ParquetRows | None:
        """Return the Parquet files that a path or URL names, or None if it names none."""
        if is_url(data):
            return cls(_remote_parquet(data))
        if not isinstance(data, str | os.PathLike):
            return None
        path = _existing(data)
        if path is None:
            return None
        if path.is_dir():
            files = [str(file) for file in _files_of(path) if file.suffix == ".parquet"]
        else:
            files = [str(path)] if path.suffix == ".parquet" and path.is_file() else []
        return cls(tuple(files)) if files else None

    @cached_property
    def num_rows(self) -> int:
        """Rows in all files."""
        return sum(self._open(file).metadata.num_rows for file in self.files)

    @cached_property
    def row_bytes(self) -> float:
        """Memory of a row, by the first ones."""
        for file in self.files:
            for batch in self._open(file).iter_batches(batch_size=1 << 14):
                if batch.num_rows:
                    return float(batch.nbytes / batch.num_rows)
        return 0.0

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows in order, :data:`BLOCK` at a time, some or all columns."""
        held: list[pa.Table] = []
        rows = 0
        first: pa.Schema | None = None
        for batch in self._batches(columns):
            first = first or batch.schema
            if batch.schema != first:
                raise SourceError(f"{self.files[0]}: {_UNLIKE}")
            held.append(batch)
            rows += batch.num_rows
            if rows >= BLOCK:
                table = pa.concat_tables(held)
                while rows >= BLOCK:
                    yield table.slice(0, BLOCK).combine_chunks()
                    table, rows = table.slice(BLOCK), rows - BLOCK
                held = [table]
        if rows:
            yield pa.concat_tables(held).combine_chunks()

    def _batches(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        names = None if columns is None else list(dict.fromkeys(columns))
        for file in self.files:
            opened = self._open(file)
            missing = sorted(set(names or ()) - set(opened.schema_arrow.names))
            if missing:
                raise SourceError(
                    f"{file}: no column {', '.join(missing)} among "
                    f"{', '.join(opened.schema_arrow.names)}."
                )
            try:
                for batch in opened.iter_batches(batch_size=BLOCK, columns=names):
                    table = pa.Table.from_batches([batch])
                    yield _in_utf8(table, file).replace_schema_metadata(None)
            except (pa.ArrowException, OSError) as error:
                reason = str(error).splitlines()[0]
                raise SourceError(f"{file} cannot be read ({reason}); check the file.") from None

    @staticmethod
    def _open(file: str) -> pq.ParquetFile:
        import pyarrow.parquet as pq

        try:
            if not is_url(file):
                return pq.ParquetFile(file, memory_map=True)
            import fsspec

            system, path = fsspec.url_to_fs(file)
            return pq.ParquetFile(system.open(path))
        except (pa.ArrowException, OSError, ValueError, ImportError) as error:
            reason = str(error).splitlines()[0]
            raise SourceError(f"{file} cannot be read ({reason}); check the file.") from None


def _remote_parquet(url: str) -> tuple[str, ...]:
    """Return the Parquet files that a URL names: itself, or those below it."""
    import fsspec

    try:
        system, path = fsspec.url_to_fs(url)
        if path.endswith(".parquet"):
            return (url,)
        files = [file for file in system.find(path) if file.endswith(".parquet")]
        found = sorted(files, key=lambda file: str(file).split("/"))
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"{url} cannot be read ({reason}); check address and access.") from None
    if not found:
        raise SourceError(f"{url}: no Parquet file is there; convert the rows to Parquet.")
    return tuple(system.unstrip_protocol(file) for file in found)


def _read(data: Any, config: str | None, split: str | None) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if is_url(data):
        found = list(ParquetRows(_remote_parquet(data)).blocks())
        if not found:
            raise SourceError(f"{data}: no rows; name a source that has some.")
        return pa.concat_tables(found)
    if isinstance(data, str | os.PathLike):
        path = _existing(data)
        if path is not None:
            return _read_path(path)
        if isinstance(data, os.PathLike) or not _is_hub_id(data):
            shown = f"{str(data)[:100]!r}" if len(str(data)) > 100 or not str(data) else data
            raise SourceError(f"{shown}: no such file or folder, and no id of a Hub dataset.")
        return _read_hub(data, config, split)
    kind = f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"
    match kind:
        case "pandas.DataFrame":
            return _from_pandas(data)
        case "datasets.Dataset":
            return _from_datasets([data])
        case "datasets.DatasetDict":
            return _from_datasets(_splits(data, split, "the DatasetDict"))
        case "polars.DataFrame":
            return cast(pa.Table, data.to_arrow())
        case _:
            raise SourceError(
                f"data of type {kind} cannot be read; pass a path, a Hub id, a pandas or polars "
                "frame, an Arrow table or a datasets.Dataset."
            )


def _from_pandas(frame: Any) -> pa.Table:
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(
            f"the frame does not fit Arrow ({reason}); give every column one type."
        ) from None
    return table.replace_schema_metadata(None)


def _is_hub_id(text: str) -> bool:
    parts = text.split("/")
    data = {".parquet", ".csv", ".tsv", *_JSON, *_PACKED}
    return (
        len(parts) <= 2
        and text.isprintable()
        and len(text) <= 200
        and all(part.strip(".") for part in parts)
        and Path(text).suffix.lower() not in data
    )


def _read_path(path: Path) -> pa.Table:
    if path.is_dir():
        return _read_folder(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in _PACKED else path.suffix.lower()
    try:
        if kind == ".parquet":
            import pyarrow.parquet as pq

            return pq.read_table(path, partitioning=None)
        if kind in (".csv", ".tsv"):
            return _read_csv(path, "\t" if kind == ".tsv" else ",")
        if kind in _JSON:
            return _read_json(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"{path} cannot be read ({reason}); check the file.") from None
    raise SourceError(
        f"{path}: a file of type {path.suffix or 'none'}, expected .parquet, .csv, .tsv, .json or "
        ".jsonl; convert it."
    )


def _read_csv(path: Path, delimiter: str) -> pa.Table:
    from pyarrow import csv

    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(block_size=_TEXT_BLOCK),
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
    )
    foreign = [f.name for f in _in_utf8(table, str(path)).schema if pa.types.is_binary(f.type)]
    if foreign:
        raise SourceError(f"{path}: column {', '.join(foreign)} is not UTF-8; save the file so.")
    return table


def _read_json(path: Path) -> pa.Table:
    """Read objects, one a line, or one array of objects."""
    from pyarrow import json as arrow_json

    with pa.input_stream(str(path), compression="detect") as stream:
        start = stream.read(1 << 10).removeprefix(_BOM).lstrip()[:1]
    if start == b"{":
        options = arrow_json.ReadOptions(block_size=_TEXT_BLOCK)
        return arrow_json.read_json(path, read_options=options)
    if start != b"[":
        raise SourceError(
            f"{path}: begins neither with an object nor with an array of objects; convert it."
        )
    with pa.input_stream(str(path), compression="detect") as stream:
        text = stream.read()
    try:
        return _of_objects(json.loads(text.removeprefix(_BOM)))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"{path} cannot be read ({reason}); check the file.") from None


def _of_objects(rows: Any) -> pa.Table:
    """Return a table of JSON objects; what some of them lack is missing there."""
    if not all(isinstance(row, dict) for row in rows):
        raise TypeError("the array holds something else than objects")
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def _read_folder(path: Path) -> pa.Table:
    files = _files_of(path)
    parquet = [file for file in files if file.suffix == ".parquet"]
    if parquet:
        tables = [_read_path(file) for file in parquet]
        try:
            return pa.concat_tables(table.replace_schema_metadata(None) for table in tables)
        except pa.ArrowException:
            raise SourceError(f"{path}: {_UNLIKE}") from None
    if any(file.suffix.lower() in _IMAGES for file in files):
        return _read_hub("imagefolder", None, None, data_dir=str(path))
    raise SourceError(f"{path}: holds neither Parquet files nor images; name a file.")


def _read_hub(name: str, config: str | None, split: str | None, **arguments: str) -> pa.Table:
    """Load by the datasets library, which runs no code of a repository unless it is told to."""
    import datasets

    where = arguments.get("data_dir", name)
    try:
        loaded = datasets.load_dataset(name, config, **arguments)
    except Exception as error:  # the library raises what its many readers raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SourceError(
            f"{where} cannot be loaded ({reason}); check name, config and network."
        ) from None
    return _from_datasets(_splits(loaded, split, where))


def _splits(
    loaded: Mapping[str, datasets.Dataset], split: str | None, where: str
) -> list[datasets.Dataset]:
    if split is None:
        return list(loaded.values())
    if split not in loaded:
        raise SourceError(f"{where}: no split {split!r}; there are {', '.join(loaded)}.")
    return [loaded[split]]


def _from_datasets(parts: list[datasets.Dataset]) -> pa.Table:
    """Return the rows of datasets one after another, images as bytes and not decoded."""
    try:
        tables = [_embedded(part) for part in parts]
        return pa.concat_tables(tables, promote_options="default")
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(
            f"the dataset cannot be read ({reason}); check its files, and that its splits have "
            "the same columns."
        ) from None


def _embedded(part: datasets.Dataset) -> pa.Table:
    import datasets
    from datasets.table import embed_table_storage

    for name, feature in part.features.items():
        if isinstance(feature, datasets.Image):
            part = part.cast_column(name, datasets.Image(decode=False))
    table: pa.Table = part.with_format("arrow")[:]
    return embed_table_storage(table.cast(part.features.arrow_schema))
