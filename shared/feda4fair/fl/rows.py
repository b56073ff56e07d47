"""The rows of a federation as its clients hold them, ready for training and counting.

Every client has four parts: ``train``, ``validation``, ``test`` and ``gone``, the test rows that
injection removed. Where whole clients are test, the training clients of fold 0 hold validation
rows instead of training rows.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from feda4fair.cube import Attribute
from feda4fair.federation import Federation
from feda4fair.fl.encoding import Encoding, fit
from feda4fair.heldout import held_out
from feda4fair.readback import read_federation
from feda4fair.recipe import ClientSplit
from feda4fair.split import SPLITS

__all__ = ["PARTS", "PIXELS", "Part", "Rows", "clean", "load_rows", "prepare"]

Part = Literal["train", "validation", "test", "gone"]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

PARTS: tuple[Part, ...] = ("train", "validation", "test", "gone")

PIXELS = 64
"""Width and height that pictures are brought to."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """What the clients of a federation hold, n rows sorted by client and part.

    Parameters
    ----------
    federation : str
        Dataset and config.
    clients : tuple of str
        K names; the position is the client's Flower partition.
    attributes : tuple of Attribute
        Sensitive attributes; joint groups are their product in row-major order.
    encoding : Encoding or None
        How features were encoded; None for pictures.
    codes : ndarray of int32, shape (n, categories)
    scaled : ndarray of float32, shape (n, quantities)
    pictures : ndarray of uint8, shape (n, 3, PIXELS, PIXELS)
        Features; pictures, or the two others, have no columns.
    label : ndarray of int64, shape (n,)
        1 is the favorable outcome, after injection.
    flipped : ndarray of bool, shape (n,)
        Whether injection changed the label.
    group : ndarray of int64, shape (n,)
        Joint group.
    row_id : ndarray of int64, shape (n,)
    bounds : ndarray of int64, shape (K * 4 + 1,)
        Where each part of each client begins.
    """

    federation: str
    clients: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    encoding: Encoding | None
    codes: NDArray[np.int32]
    scaled: NDArray[np.float32]
    pictures: NDArray[np.uint8]
    label: Ints
    flipped: Bools
    group: Ints
    row_id: Ints
    bounds: Ints

    @property
    def groups(self) -> int:
        """Number of joint groups."""
        return int(np.prod([len(attribute.values) for attribute in self.attributes]))

    def part(self, client: int, part: Part) -> slice:
        """Return where the rows of a client's part lie."""
        at = client * len(PARTS) + PARTS.index(part)
        return slice(int(self.bounds[at]), int(self.bounds[at + 1]))

    def count(self, part: Part) -> Ints:
        """Return the number of rows that every client has in a part, shape (K,)."""
        counts: Ints = np.diff(self.bounds).reshape(-1, len(PARTS))[:, PARTS.index(part)]
        return counts

    def marginal(self, attribute: str) -> Ints:
        """Return the value of one attribute in every joint group, shape (groups,)."""
        shape = [len(each.values) for each in self.attributes]
        axis = [each.name for each in self.attributes].index(attribute)
        position: Ints = np.unravel_index(np.arange(self.groups), shape)[axis]
        return position


def clean(federation: Federation) -> Federation:
    """Return the no-rules control: the same clients and splits without injection.

    Labels are the source's again and the rows that injection dropped are back in the split that
    they would have had.
    """
    here, gone = federation.table, federation.dropped
    label = here["label"].to_numpy() ^ here["flipped"].to_numpy()
    no_flip = pa.array(np.zeros(here.num_rows, np.bool_))
    here = here.set_column(here.schema.get_field_index("label"), "label", pa.array(label))
    here = here.set_column(here.schema.get_field_index("flipped"), "flipped", no_flip)
    there = gone.drop_columns(["rule", "split"])
    there = there.append_column("flipped", pa.array(np.zeros(gone.num_rows, np.bool_)))
    table = pa.concat_tables([here, there.select(here.column_names).cast(here.schema)])
    back = pc.index_in(gone["split"], pa.array(SPLITS)).to_numpy().astype(np.int8)
    split = np.concatenate((federation.split, back))
    names = [client.name for client in federation.clients]
    client = pc.index_in(table["client_id"], pa.array(names)).to_numpy().astype(np.int64)
    order = np.lexsort((table["row_id"].to_numpy(), split, client))
    stops = np.cumsum(np.bincount(client, minlength=len(names)))
    return replace(
        federation,
        recipe=federation.recipe.with_control("none"),
        clients=tuple(
            replace(each, start=int(start), stop=int(stop))
            for each, start, stop in zip(federation.clients, [0, *stops[:-1]], stops, strict=True)
        ),
        table=table.take(pa.array(order)),
        split=split[order],
        dropped=gone.slice(0, 0),
        ledger=(),
    )


def prepare(federation: Federation, pictures: pa.Table | None = None) -> Rows:
    """Arrange a federation for training.

    Parameters
    ----------
    federation : Federation
        With features.
    pictures : pyarrow.Table, optional
        ``client_id, row_id, image`` of all rows; a model of pictures is trained on them alone.

    Returns
    -------
    Rows

    Raises
    ------
    MeasureError
        If there is no test row, no sensitive attribute, or nothing to train on.
    """
    lost = np.asarray(pc.equal(federation.dropped["split"], "test").to_numpy())
    kept = np.ones(federation.table.num_rows, np.bool_)
    attributes = held_out(federation, kept, lost, what="rows").attributes
    names = tuple(client.name for client in federation.clients)
    table = _table(federation, lost)
    client = pc.index_in(table["client_id"], pa.array(names)).to_numpy().astype(np.int64)
    part = np.concatenate((_parts(federation), np.full(lost.sum(), PARTS.index("gone"))))
    order = np.lexsort((table["row_id"].to_numpy(), part, client))
    table = table.take(pa.array(order))
    train = table.filter(pa.array(part[order] == PARTS.index("train")))
    encoding = fit(train, federation.recipe) if pictures is None else None
    counts = np.bincount(client * len(PARTS) + part, minlength=len(names) * len(PARTS))
    size = len(order)
    return Rows(
        federation=str(federation.recipe),
        clients=names,
        attributes=attributes,
        encoding=encoding,
        codes=encoding.codes(table) if encoding else np.zeros((size, 0), np.int32),
        scaled=encoding.scaled(table) if encoding else np.zeros((size, 0), np.float32),
        pictures=np.zeros((size, 0, PIXELS, PIXELS), np.uint8)
        if pictures is None
        else _pixels(pictures, table),
        label=table["label"].to_numpy().astype(np.int64),
        flipped=np.asarray(table["flipped"].to_numpy()),
        group=_joint(table, attributes),
        row_id=table["row_id"].to_numpy().astype(np.int64),
        bounds=np.concatenate(([0], np.cumsum(counts))),
    )


def _table(federation: Federation, lost: Bools) -> pa.Table:
    """Return the rows of a federation, then the test rows that injection dropped."""
    columns = [c.name for c in federation.recipe.schema.columns if c.dtype != "image"]
    chosen = ["client_id", "row_id", *columns, "label"]
    chosen = [name for name in chosen if name in federation.table.column_names]
    here = federation.table.select([*chosen, "flipped"])
    there = federation.dropped.filter(pa.array(lost)).select(chosen)
    there = there.append_column("flipped", pa.array(np.zeros(there.num_rows, np.bool_)))
    return pa.concat_tables([here, there.cast(here.schema)])


def _joint(table: pa.Table, attributes: Sequence[Attribute]) -> Ints:
    """Return the joint group of every row."""
    joint = np.zeros(table.num_rows, dtype=np.int64)
    for attribute in attributes:
        codes = pc.index_in(
            table[attribute.name], pa.array(attribute.codes, table[attribute.name].type)
        )
        joint = joint * len(attribute.values) + codes.to_numpy()
    return joint


def _parts(federation: Federation) -> Ints:
    """Return the part of every row of a federation's table."""
    part = federation.split.astype(np.int64)
    if isinstance(federation.recipe.split, ClientSplit):
        for client in federation.clients:
            mine = part[client.start : client.stop]
            if client.fold == 0:
                mine[mine == PARTS.index("train")] = PARTS.index("validation")
    return part


def _pixels(pictures: pa.Table, table: pa.Table) -> NDArray[np.uint8]:
    """Return the picture of every row of a table, decoded and brought to one size."""
    keys = list(
        zip(*(pictures[name].to_pylist() for name in ("client_id", "row_id")), strict=True)
    )
    place = {key: position for position, key in enumerate(keys)}
    wanted = zip(*(table[name].to_pylist() for name in ("client_id", "row_id")), strict=True)
    images = pc.struct_field(pictures["image"], "bytes")
    pixels = np.empty((table.num_rows, 3, PIXELS, PIXELS), dtype=np.uint8)
    for position, key in enumerate(wanted):
        with Image.open(io.BytesIO(images[place[key]].as_py())) as picture:
            small = picture.convert("RGB").resize((PIXELS, PIXELS), Image.Resampling.BILINEAR)
        pixels[position] = np.asarray(small).transpose(2, 0, 1)
    return pixels


def _read_pictures(folder: Path, config: str) -> pa.Table:
    """Return the pictures of a built folder, of dropped rows too."""
    files: Sequence[Path] = sorted((folder / "data" / config).glob("*.parquet"))
    files = [*files, folder / "dropped" / f"{config}.parquet"]
    columns = ["client_id", "row_id", "image"]
    tables = [pq.read_table(path, columns=columns, partitioning=None) for path in files]
    return pa.concat_tables([table.replace_schema_metadata(None) for table in tables])


@lru_cache(maxsize=2)
def load_rows(folder: str, config: str, control: str) -> Rows:
    """Read one config of a built folder and prepare it, once in a process.

    Parameters
    ----------
    folder, config : str
        What to read.
    control : {"", "none"}
        "none" gives the no-rules control.

    Raises
    ------
    OutputError
        If the folder is no build or lacks the config.
    """
    federation = read_federation(Path(folder), config)
    images = any(c.dtype == "image" for c in federation.recipe.schema.columns)
    pictures: Any = _read_pictures(Path(folder), config) if images else None
    return prepare(clean(federation) if control == "none" else federation, pictures)
