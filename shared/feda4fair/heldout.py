"""The rows that predictions are scored on, and predictions brought onto them.

Nothing is dropped or filled in silently: a row without a prediction, with two of them, or a
prediction for a row that is not asked for is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from feda4fair.codes import Code, binary
from feda4fair.columns import Column
from feda4fair.cube import Attribute
from feda4fair.errors import MeasureError, OutputError
from feda4fair.federation import Federation
from feda4fair.recipe import Recipe

__all__ = ["HeldOut", "Predictions", "held_out", "read_predictions", "write_predictions"]

Predictions = Any
"""A table ``client_id, row_id, prediction``: Arrow, pandas, polars, a mapping of columns, or the
path of a Parquet or CSV file."""

COLUMNS = ("client_id", "row_id", "prediction")
_METADATA = b"feda4fair.predictions.recipe_sha256"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOut:
    """Rows with known labels that a model must predict, n of them, by client and row_id.

    Parameters
    ----------
    recipe : Recipe
        Recipe of the federation.
    what : str
        Which rows these are, e.g. "test split".
    names : tuple of str
        Clients that hold such rows.
    client : ndarray of int64, shape (n,)
        Position in ``names``.
    row_id : ndarray of int64, shape (n,)
    label : ndarray of int8, shape (n,)
        As the federation holds it, after injection; of a dropped row the source's label.
    flipped, dropped : ndarray of bool, shape (n,)
        Rows whose label injection changed, and rows that injection removed.
    attributes : tuple of Attribute
        Sensitive attributes.
    codes : mapping of str to ndarray, shape (n,)
        Code of every row, by attribute.
    """

    recipe: Recipe
    what: str
    names: tuple[str, ...]
    client: NDArray[np.int64]
    row_id: NDArray[np.int64]
    label: NDArray[np.int8]
    flipped: NDArray[np.bool_]
    dropped: NDArray[np.bool_]
    attributes: tuple[Attribute, ...]
    codes: Mapping[str, NDArray[Any]]

    def take(self, mask: NDArray[np.bool_]) -> HeldOut:
        """Return some of the rows; the clients stay."""
        return replace(
            self,
            client=self.client[mask],
            row_id=self.row_id[mask],
            label=self.label[mask],
            flipped=self.flipped[mask],
            dropped=self.dropped[mask],
            codes={name: values[mask] for name, values in self.codes.items()},
        )

    def align(
        self, predictions: pa.Table, what: str, *, partial: bool = False
    ) -> NDArray[np.int8]:
        """Return the prediction of every row, -1 where there is none.

        Parameters
        ----------
        predictions : pyarrow.Table
            From :func:`read_predictions`.
        what : str
            Whose predictions these are, for messages.
        partial : bool, default False
            Whether rows may be missing, and predictions of other rows are left aside. Otherwise
            every row that injection kept needs a prediction, and those it dropped either all or
            none.

        Raises
        ------
        MeasureError
            Naming missing, doubled and foreign rows.
        """
        names = predictions["client_id"].combine_chunks()
        client = pc.index_in(names, pa.array(self.names)).fill_null(-1).to_numpy().astype(np.int64)
        row_id = predictions["row_id"].to_numpy()
        position = self._position(client, row_id)
        problems = []
        counts = np.bincount(position[position >= 0], minlength=len(self.row_id))
        if (counts > 1).any():
            problems.append(f"{self._some(counts > 1)} predicted twice")
        if not partial:
            problems += self._gaps(counts == 0)
            foreign = np.flatnonzero(position < 0)
            if len(foreign):
                first = f"{names[int(foreign[0])]}/{row_id[foreign[0]]}"
                problems.append(f"{_rows(len(foreign), first)} not among them")
        if problems:
            raise MeasureError(
                f"{what}: expected one prediction for each row of the {self.what}, got "
                f"{'; '.join(problems)}; predict exactly these rows (client_id/row_id)."
            )
        aligned = np.full(len(self.row_id), -1, dtype=np.int8)
        known = position >= 0
        aligned[position[known]] = predictions["prediction"].to_numpy()[known]
        if partial and not known.any():
            raise MeasureError(
                f"{what}: none of its {len(known)} rows is in the {self.what} of {self.recipe}; "
                "name predictions of the same config."
            )
        return aligned

    def _position(self, client: NDArray[np.int64], row_id: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where each (client, row_id) stands among the rows, or -1."""
        if not len(self.row_id):
            return np.full(len(row_id), -1)
        most = int(self.row_id.max()) + 1
        keys = self.client * most + self.row_id
        inside = (client >= 0) & (row_id >= 0) & (row_id < most)
        wanted = np.where(inside, client * most + np.where(inside, row_id, 0), -1)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(inside & (keys[at] == wanted), at, -1)

    def _gaps(self, absent: NDArray[np.bool_]) -> list[str]:
        problems = []
        if (absent & ~self.dropped).any():
            problems.append(f"no prediction for {self._some(absent & ~self.dropped)}")
        left = absent & self.dropped
        if left.any() and not absent[self.dropped].all():
            problems.append(f"no prediction for {self._some(left)} among those dropped")
        return problems

    def _some(self, mask: NDArray[np.bool_]) -> str:
        first = int(np.flatnonzero(mask)[0])
        return _rows(int(mask.sum()), f"{self.names[self.client[first]]}/{self.row_id[first]}")


def _rows(count: int, first: str) -> str:
    return f"1 row ({first})" if count == 1 else f"{count} rows (the first is {first})"


def held_out(
    federation: Federation,
    kept: NDArray[np.bool_],
    gone: NDArray[np.bool_],
    *,
    what: str,
) -> HeldOut:
    """Choose rows of a federation and of what injection dropped from it.

    Parameters
    ----------
    federation : Federation
    kept : ndarray of bool, shape (rows of ``federation.table``,)
    gone : ndarray of bool, shape (rows of ``federation.dropped``,)
        The rows.
    what : str
        What to call them.

    Raises
    ------
    MeasureError
        If there is none, or no sensitive attribute.
    """
    schema = federation.recipe.schema
    if not kept.any():
        raise MeasureError(f"{federation.recipe}: its {what} holds no row; choose other clients.")
    columns = ["client_id", "row_id", "label", *schema.sensitive]
    here = federation.table.filter(pa.array(kept)).select([*columns, "flipped"])
    there = federation.dropped.filter(pa.array(gone)).select(columns)
    there = there.append_column("flipped", pa.array(np.zeros(there.num_rows, np.bool_)))
    table = pa.concat_tables([here, there.cast(here.schema)])
    names = tuple(name for name in (c.name for c in federation.clients) if name in _set(table))
    client = pc.index_in(table["client_id"].combine_chunks(), pa.array(names))
    position = client.to_numpy().astype(np.int64)
    order = np.lexsort((table["row_id"].to_numpy(), position))
    dropped = np.arange(table.num_rows) >= here.num_rows
    codes = {name: _numpy(table[name])[order] for name in schema.sensitive}
    return HeldOut(
        recipe=federation.recipe,
        what=what,
        names=names,
        client=position[order],
        row_id=table["row_id"].to_numpy()[order],
        label=table["label"].to_numpy()[order].astype(np.int8),
        flipped=_numpy(table["flipped"])[order],
        dropped=dropped[order],
        attributes=tuple(_attribute(schema[name], codes[name]) for name in schema.sensitive),
        codes=codes,
    )


def _set(table: pa.Table) -> set[str]:
    return set(pc.unique(table["client_id"]).to_pylist())


def _numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    return np.asarray(column.to_numpy())


def _attribute(column: Column, values: NDArray[Any]) -> Attribute:
    """Return the declared values of a column, or those that occur."""
    if column.coding is not None:
        codes = tuple(code for code, _ in column.coding.names)
        return Attribute(
            name=column.name, values=tuple(name for _, name in column.coding.names), codes=codes
        )
    found: Sequence[Code] = sorted(pc.unique(pa.array(values)).to_pylist())
    return Attribute(name=column.name, values=tuple(map(str, found)), codes=tuple(found))


def read_predictions(
    predictions: Predictions, what: str, *, recipe_sha256: str | None = None
) -> pa.Table:
    """Bring predictions of any form into a table ``client_id, row_id, prediction``.

    Parameters
    ----------
    predictions : table or path
        See :data:`Predictions`.
    what : str
        Whose predictions these are, for messages.
    recipe_sha256 : str, optional
        Recipe that they must belong to, where the file names one.

    Returns
    -------
    pyarrow.Table
        string, int64 and int8 with 0 or 1.

    Raises
    ------
    MeasureError
        If the file cannot be read, a column is missing, a prediction is neither 0 nor 1, or the
        predictions were made for another recipe.
    """
    table = _table(predictions, what)
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise MeasureError(
            f"{what}: no column {', '.join(missing)} among {', '.join(table.column_names)}; "
            f"expected {', '.join(COLUMNS)}."
        )
    made_for = (table.schema.metadata or {}).get(_METADATA, b"").decode()
    if recipe_sha256 and made_for and made_for != recipe_sha256:
        raise MeasureError(
            f"{what}: made for the recipe {made_for[:12]}, but this config has "
            f"{recipe_sha256[:12]}; predict the rows of this build."
        )
    try:
        ids = table["client_id"].cast(pa.string())
        rows = table["row_id"].cast(pa.int64())
    except pa.ArrowException as error:
        raise MeasureError(
            f"{what}: client_id and row_id do not read as text and whole numbers "
            f"({str(error).splitlines()[0]}); write them as the build holds them."
        ) from None
    if ids.null_count or rows.null_count:
        raise MeasureError(
            f"{what}: {ids.null_count + rows.null_count} values of client_id and row_id are "
            "missing; every prediction names its row."
        )
    guess = binary(table["prediction"].to_numpy(), f"{what}: prediction").astype(np.int8)
    return pa.table({"client_id": ids, "row_id": rows, "prediction": guess})


def _table(predictions: Predictions, what: str) -> pa.Table:
    try:
        match predictions:
            case pa.Table():
                return predictions
            case str() | Path():
                return _file(Path(predictions))
            case Mapping():
                return pa.table(dict(predictions))
            case _ if hasattr(predictions, "to_arrow"):
                return predictions.to_arrow()
            case _:
                return pa.Table.from_pandas(predictions, preserve_index=False)
    except OSError as error:
        absent = isinstance(error, FileNotFoundError)
        reason = "no such file" if absent else error.strerror or str(error).splitlines()[0]
        raise MeasureError(f"{what}: cannot be read ({reason}); name another file.") from None
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise MeasureError(
            f"{what}: no table ({str(error).splitlines()[0]}); expected the columns "
            f"{', '.join(COLUMNS)} as an Arrow or pandas table, a Parquet or a CSV file."
        ) from None


def _file(path: Path) -> pa.Table:
    if path.suffix.lower() != ".csv":
        return pq.read_table(path, partitioning=None)
    text = pacsv.ConvertOptions(column_types={"client_id": pa.string()})
    return pacsv.read_csv(path, convert_options=text)


def write_predictions(predictions: pa.Table, path: Path, *, recipe_sha256: str) -> None:
    """Write predictions as Parquet, with the recipe they belong to; never half a file.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        pq.write_table(
            predictions.replace_schema_metadata({_METADATA: recipe_sha256}),
            part,
            compression="zstd",
        )
        part.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror}); name another.") from None
    finally:
        part.unlink(missing_ok=True)
