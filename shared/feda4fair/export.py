"""A federation in other forms: datasets, pandas, and one CSV file for each client.

Columns keep their types and order, the label its names, images their bytes. Sensitive attributes
and other coded columns hold codes; ``names=True`` writes what the codes mean instead.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from feda4fair.columns import PROVENANCE, Value
from feda4fair.errors import Feda4FairError, OutputError, SchemaError
from feda4fair.federation import Client, Federation
from feda4fair.parquet import arrow_schema, complete, hub_features
from feda4fair.schema import Schema
from feda4fair.split import SPLITS

__all__ = ["Attach", "file_name", "to_csv", "to_datasets", "to_pandas"]

Attach = Callable[[pa.Table], pa.Table]
"""Adds columns too large to carry along, e.g. ``source.attach`` of a dataset with images."""

CLIENTS, CODES, IMAGES = "_clients.csv", "_codes.csv", "_images"

MAGIC = {
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG\r\n\x1a\n": ".png",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"RIFF": ".webp",
    b"II*\x00": ".tif",
    b"MM\x00*": ".tif",
}
"""First bytes of image files, and the suffix of each."""


def to_datasets(
    federation: Federation, *, names: bool = False, attach: Attach | None = None
) -> Any:
    """Return a federation as ``datasets.DatasetDict``, one dataset for each split with rows.

    Parameters
    ----------
    federation : Federation
    names : bool, default False
        Names in place of codes, as text.
    attach : callable, optional
        Adds images to rows.

    Returns
    -------
    datasets.DatasetDict
        In memory, without a copy where it can be; rows, order and features are those of
        ``load_dataset`` on the built folder. ``save_to_disk``, ``with_format("torch")``, ``map``
        and the like work. ``info.description`` says what the codes mean.

    Raises
    ------
    SchemaError
        If the rows lack the images that the schema names.

    Examples
    --------
    >>> from feda4fair import Column, Iid, Label, Recipe, Schema, federate_table
    >>> sex = Column(name="sex", dtype="int8", role="sensitive")
    >>> schema = Schema(columns=(sex,), label=Label(column="y"))
    >>> recipe = Recipe(dataset="demo", name="demo", schema=schema, partition=Iid(clients=2))
    >>> federation = federate_table(pa.table({"sex": [1, 2] * 20, "y": [0, 1] * 20}), recipe)
    >>> to_datasets(federation).num_rows
    {'train': 28, 'validation': 4, 'test': 8}
    """
    import datasets
    from datasets.table import InMemoryTable

    table = _written(federation, federation.table, names=names, attach=attach)
    info = datasets.DatasetInfo(description=_description(federation))
    parts = {
        split: datasets.Dataset(
            InMemoryTable(table.filter(pa.array(federation.split == code)).combine_chunks()),
            info=info.copy(),
            split=datasets.NamedSplit(split),
        )
        for code, split in enumerate(SPLITS)
        if (federation.split == code).any()
    }
    return datasets.DatasetDict(parts)


def to_pandas(federation: Federation, *, names: bool = False, attach: Attach | None = None) -> Any:
    """Return the rows of a federation as a data frame.

    Parameters
    ----------
    federation, names, attach
        As in `to_datasets`.

    Returns
    -------
    pandas.DataFrame
        The columns of the federation and ``split``, a fresh index; sorted by client, split and
        row_id. ``frame.attrs["names"]`` maps column and code to the name.
    """
    table = _written(federation, federation.table, names=names, attach=attach)
    splits = pa.DictionaryArray.from_arrays(pa.array(federation.split), pa.array(SPLITS))
    frame = table.append_column("split", splits).replace_schema_metadata(None).to_pandas()
    frame.attrs["names"] = _names(federation.recipe.schema)
    return frame


def to_csv(
    federation: Federation,
    out: str | Path,
    *,
    names: bool = False,
    provenance: bool = False,
    attach: Attach | None = None,
) -> Path:
    """Write one CSV file for each client: the layout of the paper's released data.

    A file holds the schema's columns and ``label``, and no index column: what is in it may be
    trained on. Train rows come first, then validation, then test; ``_clients.csv`` says how many
    there are, and which file is whose; ``_codes.csv`` says what codes mean. Images become files
    of their own below ``_images/``, byte for byte, and their column holds the path.

    Parameters
    ----------
    federation : Federation
    out : str or Path
        Folder to make; it appears complete or not at all.
    names, attach
        As in `to_datasets`.
    provenance : bool, default False
        Write ``row_id``, ``flipped`` and ``split`` too, which no model should see.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    OutputError
        If the folder exists and is not empty, or cannot be written.
    """
    schema = federation.recipe.schema
    images = [column.name for column in schema.columns if column.dtype == "image"]
    stems = file_names([client.name for client in federation.clients])
    index = []
    with _appearing(Path(out)) as folder:
        for client, rows in federation:
            table = _written(federation, rows, names=names, attach=attach)
            stem = stems[client.name]
            for column in images:
                table = _images_out(table, column, folder / IMAGES / stem)
            split = federation.split_of(client)
            table = table.append_column("split", pa.array(SPLITS).take(pa.array(split)))
            left_out = {"client_id"} if provenance else {*PROVENANCE, "split"}
            chosen = [name for name in table.column_names if name not in left_out]
            _write(table.select(chosen), folder / f"{stem}.csv")
            index.append(_entry(client, stem, split))
        _write(pa.Table.from_pylist(index), folder / CLIENTS)
        _write(_codes(schema), folder / CODES)
    return Path(out)


def file_name(client: str) -> str:
    """Return a client's name as a file name that every system takes, without its suffix.

    Letters, digits, ``-`` and what stands within of ``_`` and ``.`` stay; other characters are
    percent-encoded, so that the name can be read back with ``urllib.parse.unquote``.

    Examples
    --------
    >>> [file_name(name) for name in ("TX_0", "St. Louis/MO", "..", "São Tomé")]
    ['TX_0', 'St.%20Louis%2FMO', '%2E%2E', 'S%C3%A3o%20Tom%C3%A9']
    """
    safe = quote(client, safe="")
    for edge in (0, -1):
        if safe and safe[edge] in "._":
            code = f"%{ord(safe[edge]):02X}"
            safe = code + safe[1:] if edge == 0 else safe[:-1] + code
    return safe


def file_names(clients: Sequence[str]) -> dict[str, str]:
    """Return a file name for each client, different even where capitals do not count.

    Names that would be too long, be taken for a device, or differ in capitals alone get a hash.
    """
    plain = {client: file_name(client) for client in clients}
    folded = Counter(stem.casefold() for stem in plain.values())
    return {
        client: stem
        if folded[stem.casefold()] == 1 and 0 < len(stem) <= 120 and not _reserved(stem)
        else f"{stem[:100].rstrip('%.')}-{hashlib.sha256(client.encode()).hexdigest()[:12]}"
        for client, stem in plain.items()
    }


def _reserved(stem: str) -> bool:
    """Whether Windows takes a name for a device."""
    first = stem.partition(".")[0].upper()
    return first in {"CON", "PRN", "AUX", "NUL"} or (
        first[:3] in {"COM", "LPT"} and first[3:].isdigit() and len(first) == 4
    )


def _written(
    federation: Federation, rows: pa.Table, *, names: bool, attach: Attach | None
) -> pa.Table:
    """Return rows in their written form: attached columns, order, types, the Hub's features."""
    schema = federation.recipe.schema
    rows = attach(rows) if attach else rows
    absent = [c.name for c in schema.columns if c.name not in rows.column_names]
    if absent:
        raise SchemaError(
            f"{federation.recipe}: the rows lack {', '.join(absent)}; give attach=source.attach, "
            "or load the built folder with load_dataset."
        )
    table = complete(rows, arrow_schema(schema), lambda whole: whole)
    return _named(table, schema) if names else table


def _named(table: pa.Table, schema: Schema) -> pa.Table:
    """Put names in place of codes, and text in place of the label's class."""
    features = hub_features(schema)
    for column, known in _names(schema).items():
        values = table[column]
        place = pc.index_in(values, pa.array(list(known), values.type))
        names = pc.coalesce(pa.array(list(known.values())).take(place), values.cast(pa.string()))
        table = table.set_column(table.column_names.index(column), column, names)
        features[column] = {"dtype": "string", "_type": "Value"}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return table.replace_schema_metadata(metadata)


def _names(schema: Schema) -> dict[str, dict[Value, str]]:
    """Return code and name by column, the label among them."""
    coded = {c.name: dict(c.coding.names) for c in schema.columns if c.coding is not None}
    return {**coded, "label": dict(enumerate(schema.label.names))}


def _description(federation: Federation) -> str:
    """Say in text what `datasets` has no other place for: the codes, the roles, the recipe."""
    schema = federation.recipe.schema
    lines = [f"{federation.recipe}. {federation.recipe.description}".strip()]
    for column, known in _names(schema).items():
        meant = ", ".join(f"{code} = {name}" for code, name in known.items())
        lines.append(f"{column}: {meant}.")
    lines.append(f"Sensitive: {', '.join(schema.sensitive)}.")
    lines.append(f"Not for training: {', '.join(PROVENANCE)}.")
    return "\n".join(lines)


def _codes(schema: Schema) -> pa.Table:
    rows = [(c, str(k), name) for c, known in _names(schema).items() for k, name in known.items()]
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(column) for column in columns], names=["column", "code", "name"])


def _entry(client: Client, stem: str, split: NDArray[np.int8]) -> dict[str, object]:
    counts = np.bincount(split, minlength=len(SPLITS)).tolist()
    return {
        "client_id": client.name,
        "file": f"{stem}.csv",
        **dict(zip(SPLITS, counts, strict=True)),
    }


def _write(table: pa.Table, path: Path) -> None:
    pacsv.write_csv(table, path)


def _images_out(table: pa.Table, column: str, folder: Path) -> pa.Table:
    """Write the images of a client's rows as files and put their paths in the column."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[str | None] = []
    for row_id, image in zip(table["row_id"].to_pylist(), table[column].to_pylist(), strict=True):
        if image is None or image["bytes"] is None:
            paths.append(None)
            continue
        path = folder / f"{column}-{row_id}{_suffix(image)}"
        path.write_bytes(image["bytes"])
        paths.append(f"{IMAGES}/{folder.name}/{path.name}")
    position = table.column_names.index(column)
    return table.set_column(position, column, pa.array(paths, pa.string()))


def _suffix(image: dict[str, Any]) -> str:
    for magic, suffix in MAGIC.items():
        if image["bytes"].startswith(magic):
            return suffix
    return ".bin"


@contextmanager
def _appearing(out: Path) -> Iterator[Path]:
    """Give a hidden folder that takes its name at the end, or vanishes."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out}: exists and is not an empty folder; name another.")
    partial: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        partial.chmod(0o755)
        yield partial
        partial.replace(out)
    except OSError as error:
        if isinstance(error, Feda4FairError):
            raise
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or error
        raise OutputError(
            f"{out}: cannot be written ({reason}); free or name another place, nothing was left "
            "behind."
        ) from None
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
