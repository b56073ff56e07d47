"""Federations of a user's own data: from any rows to a folder in Hub layout.

The same corridor as the built-in datasets': rows, `federate_table`, and what `build` writes.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from feda4fair.build import finish, own_words
from feda4fair.columns import Value
from feda4fair.content import SourceFile, content_sha256
from feda4fair.dataset import Dataset
from feda4fair.errors import OutputError, RecipeError, SourceError
from feda4fair.federation import Federation, Origin
from feda4fair.manifest import Manifest
from feda4fair.parquet import ConfigWriter
from feda4fair.partition import Partition, Subdivide
from feda4fair.recipe import ClientGroup, Recipe, RowSplit, Split
from feda4fair.schema import Schema
from feda4fair.staging import staging
from feda4fair.steps import federate_table
from feda4fair.tables import ParquetRows, blocks_of, content_of, read_table, record

LARGE_BYTES = 512_000_000
"""Rows of a source, in memory, from which on they are dealt to files."""

_FORMS: Final[Mapping[str, tuple[type, str]]] = {
    **dict.fromkeys(("task_categories", "tags", "limits"), (list, "a list of texts")),
    **dict.fromkeys(("paper", "datasheet"), (Mapping, "a table of texts")),
}
"""Form of what the card takes from people where it is no single text."""

__all__ = ["TableSource", "federate", "own_dataset", "read_prose", "write"]


def federate(
    data: Any,
    *,
    partition: Any = None,
    groups: ClientGroup | Sequence[ClientGroup] = (),
    schema: Schema | None = None,
    split: Split | None = None,
    subdivide: Subdivide | None = None,
    keep: str | Sequence[str] | None = None,
    select: Mapping[str, Value | Sequence[Value]] | None = None,
    seed: int = 42,
    dataset: str = "own",
    name: str = "default",
    description: str = "",
    recipe: Recipe | None = None,
    source_config: str | None = None,
    source_split: str | None = None,
) -> Federation:
    """Make a federation with chosen partition and chosen bias from any data.

    Parameters
    ----------
    data : pyarrow.Table, pandas.DataFrame, datasets.Dataset, path, or Hub id
        See :func:`feda4fair.tables.read_table`; ``source_config`` and ``source_split`` choose
        within a Hub dataset.
    partition : Natural, Iid, Dirichlet, Shards, Assigned, or FromFlower
        How rows become clients.
    groups : ClientGroup or sequence of ClientGroup
        Which clients get which bias rules; see :mod:`feda4fair.scenarios` for ready ones.
    schema : Schema, optional
        Columns, label, favorable value and sensitive attributes; proposed by
        :meth:`Schema.infer` if not given.
    split : RowSplit or ClientSplit, optional
        By default 70 / 10 / 20 of each client's rows.
    subdivide : Subdivide, optional
        Cut clients into smaller ones after injection.
    keep : str or sequence of str, optional
        Clients that stay.
    select : mapping of str to value or values, optional
        Rows whose column holds one of these values stay.
    seed : int, default 42
        Seed of every draw.
    dataset, name : str
        Names of the dataset and of this config.
    description : str
        One sentence for people.
    recipe : Recipe, optional
        All of these choices at once, in their place.

    Returns
    -------
    Federation
        Use it with :func:`feda4fair.measure` and :func:`feda4fair.write`.

    Raises
    ------
    SourceError, SchemaError, RecipeError
        If data, schema and recipe do not fit.

    Examples
    --------
    >>> from feda4fair import BiasRule, ClientGroup, Dirichlet, federate
    >>> rows = pa.table({"sex": ["f", "m"] * 100, "score": range(200), "label": [1, 0, 1, 1] * 50})
    >>> rule = BiasRule(where={"sex": "f"}, drop=0.5)
    >>> biased = ClientGroup(name="biased", clients=0.5, rules=(rule,))
    >>> federate(rows, partition=Dirichlet(4, alpha=1.0), groups=[biased], seed=7)
    Federation(own/default: 4 clients, 196 rows, 4 dropped)
    """
    if select is not None and not isinstance(select, Mapping):
        raise RecipeError(f"federate: select is {select!r}, expected columns and their values.")
    if recipe is not None:
        others = (partition, schema, split, subdivide, keep, select, groups or None)
        if any(choice is not None for choice in others):
            raise RecipeError(
                f"{recipe}: the recipe holds all choices; change it and name no other."
            )
    table = read_table(data, config=source_config, split=source_split)
    if recipe is None:
        if partition is None:
            raise RecipeError("federate: no partition is named; use for example Iid(10).")
        recipe = Recipe(
            dataset=dataset,
            name=name,
            schema=Schema.infer(table) if schema is None else schema,
            partition=_plain_partition(partition, table),
            groups=(groups,) if isinstance(groups, ClientGroup) else tuple(groups),
            subdivide=subdivide,
            keep=None if keep is None else _several(keep),
            select=tuple((column, _several(values)) for column, values in (select or {}).items()),
            split=split or RowSplit(),
            seed=seed,
            description=description,
        )
    federation = federate_table(table, recipe)
    chosen = {"source-config": source_config, "source-split": source_split}
    options = tuple((name, value) for name, value in chosen.items() if value is not None)
    hashes = [content_sha256(block) for block in blocks_of(table)]
    file = record(data, table.num_rows, content_of(hashes))
    return replace(federation, origin=Origin(file=file, options=options))


def _several(values: Any) -> tuple[Any, ...]:
    """Return values as a tuple; a single one stands for itself."""
    return (values,) if isinstance(values, str | int) else tuple(values)


def _plain_partition(partition: Any, table: pa.Table) -> Partition:
    """Return a partition as data; one that others make is kept as its assignment."""
    made: Partition = partition.assigned(table) if hasattr(partition, "assigned") else partition
    return made


def own_dataset(recipes: Sequence[Recipe], prose: Mapping[str, Any] | None = None) -> Dataset:
    """Return what the cards need to know about a user's own dataset.

    Parameters
    ----------
    recipes : sequence of Recipe
        Its configs, the default first; all of one dataset.
    prose : mapping, optional
        What no program can compute, with the keys of the built-in datasets' ``prose.toml``:
        ``title``, ``license``, ``summary``, ``motivation``, ``citation`` and so on. What is not
        there is listed as unanswered in the datasheet.

    Raises
    ------
    SourceError
        If a text is none.
    """
    _check_prose({} if prose is None else prose)
    return Dataset(
        name=recipes[0].dataset,
        folder=None,
        recipes=tuple(recipes),
        open_source=TableSource,
        own_prose=dict(prose or {}),
    )


def _check_prose(prose: Any) -> None:
    """Hold texts to their form before anything is written."""
    if not isinstance(prose, Mapping):
        raise SourceError(f"prose: {type(prose).__name__}, expected a mapping of keys to texts.")
    for key, value in prose.items():
        kind, form = _FORMS.get(key, (str, "a text in quotes"))
        is_fit = isinstance(value, kind)
        if is_fit and kind is list:
            is_fit = all(isinstance(item, str) for item in value)
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except (TypeError, ValueError):
            is_fit = False
        if not is_fit:
            raise SourceError(f"prose: {key} is of type {type(value).__name__}, expected {form}.")


def read_prose(path: Path | None) -> dict[str, Any]:
    """Read texts for the card from a TOML file.

    Raises
    ------
    SourceError
        If it is not there or is no TOML.
    """
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SourceError(f"{path}: cannot be read as TOML ({reason}); correct it.") from None


def write(
    federation: Federation,
    out: str | os.PathLike[str],
    *,
    prose: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write a federation as a folder in Hub layout, with card, datasheet and recipe.

    Parameters
    ----------
    federation : Federation
        As `federate` returned it.
    out : path or str
        Target folder, which appears complete or not at all; or the URL of one, such as
        ``s3://bucket/name``.
    prose : mapping, optional
        What no program can compute; see :func:`own_dataset`.
    overwrite : bool, default False
        Replace an earlier build in ``out``.

    Returns
    -------
    dict
        The manifest.

    Raises
    ------
    OutputError
        If ``out`` holds something else or cannot be written, or the source is not recorded.
    """
    if federation.origin is None:
        raise OutputError(
            f"{federation.recipe}: the source of this federation is not recorded; make it with "
            "feda4fair.federate."
        )
    dataset, origin = own_dataset([federation.recipe], prose), federation.origin
    place = out if isinstance(out, str) else Path(out)
    with staging(place, overwrite=overwrite) as folder:
        words = own_words(place, dataset)
        with ConfigWriter(folder, federation.recipe, attach=_as_they_are) as writer:
            writer.add(federation)
            config = writer.finish()
        return finish(
            folder,
            dataset,
            [config],
            [origin.file],
            options=dict(origin.options),
            existing=words,
        )


def _as_they_are(table: pa.Table) -> pa.Table:
    return table


@dataclass(frozen=True, kw_only=True)
class TableSource:
    """The rows of a user's own data as a source that `build` can read.

    Parameters
    ----------
    data : path or Hub id
        See :func:`feda4fair.tables.read_table`.
    config, split : str, optional
        Config and split of a Hub dataset.
    """

    data: str
    config: str | None = None
    split: str | None = None
    parts: tuple[str, ...] = field(default=("all",), init=False)
    natural: str = field(default="", init=False)
    synthetic: bool = field(default=False, init=False)
    notes: tuple[str, ...] = field(default=(), init=False)
    _hashes: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    @cached_property
    def _parquet(self) -> ParquetRows | None:
        return ParquetRows.find(self.data)

    @cached_property
    def _table(self) -> pa.Table:
        return read_table(self.data, config=self.config, split=self.split)

    @property
    def is_large(self) -> bool:
        """Whether the rows are better dealt to files than held in memory."""
        parquet = self._parquet
        return parquet is not None and parquet.num_rows * parquet.row_bytes > LARGE_BYTES

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return self._parquet.num_rows if self._parquet else self._table.num_rows

    @property
    def row_bytes(self) -> float:
        """Memory of a row, by the first ones."""
        if self._parquet:
            return self._parquet.row_bytes
        return float(self._table.nbytes / self._table.num_rows)

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows in order, some or all columns; whole rows are hashed on the way."""
        with ThreadPoolExecutor(1) as thread:
            hashes: list[Future[str]] = []
            for block in self._blocks(columns):
                if columns is None:
                    if len(hashes) > 1:
                        hashes[-2].result()  # at most two blocks wait for their hash
                    hashes.append(thread.submit(content_sha256, block))
                yield block
            if columns is None:
                self._hashes[:] = [each.result() for each in hashes]

    def _blocks(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        if self._parquet:
            yield from self._parquet.blocks(columns)
            return
        table = self._table if columns is None else self._table.select(list(columns))
        yield from blocks_of(table)

    @property
    def options(self) -> dict[str, Any]:
        """What was chosen within a Hub dataset."""
        chosen = {"source-config": self.config, "source-split": self.split}
        return {name: value for name, value in chosen.items() if value is not None}

    def read(self, part: str = "all") -> pa.Table:
        """Return all rows."""
        del part
        return self._table

    def fit(self, recipe: Recipe) -> Recipe:
        """Return the recipe as it is: `attach` adds no column."""
        return recipe

    def attach(self, table: pa.Table) -> pa.Table:
        """Return the rows as they are: images are among them."""
        return table

    def files(self) -> tuple[SourceFile, ...]:
        """Return the record of the rows."""
        if not self._hashes:
            for _ in self.blocks():
                pass
        return (record(self.data, self.num_rows, content_of(self._hashes)),)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to read the rows itself."""
        return {"data": self.data, "config": self.config, "split": self.split, "_hashes": []}
