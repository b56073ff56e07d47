"""The rows that a session works on, and what is made of them; no part of the page.

Rows are read once and hashed once. Figures need sensitive attributes and labels only, so that
they are counted on those columns; draws are keyed by names, and the counts are those of the whole
federation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feda4fair.bias import LedgerEntry
from feda4fair.build import build, parts_of
from feda4fair.content import SourceFile
from feda4fair.cube import Cube, concatenate
from feda4fair.dashboard.opening import OWN_NOTE, Opening, script
from feda4fair.dataset import Dataset, Source
from feda4fair.disparity import Figure
from feda4fair.errors import SchemaError, SourceError
from feda4fair.evaluate import Model, local_models
from feda4fair.export import to_csv
from feda4fair.federation import Federation, concat
from feda4fair.manifest import Manifest
from feda4fair.measurement import contenders, count_labels
from feda4fair.own import TableSource, own_dataset
from feda4fair.recipe import Recipe
from feda4fair.report import FairnessReport, measure_cube
from feda4fair.schema import MOST_VALUES
from feda4fair.score import score_rows
from feda4fair.split import SPLITS
from feda4fair.steps import federate_table
from feda4fair.tables import read_table

__all__ = ["Counted", "Modeled", "Rows", "Tick", "open_builtin", "open_own"]

Tick = Callable[[str, float], None]
"""Says what is being done and which share of it is done; raises where it is to stop."""

_COUNTABLE: Final = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
)

_NUMERIC: Final = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)

BATCH: Final = 16
"""Clients whose local models are fitted between two ticks, at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Counted:
    """What the figures of a federation need: counts, and no rows.

    Parameters
    ----------
    recipe : Recipe
        How it was made.
    before, after : Cube
        Labels by client and sensitive attributes, before and after injection.
    splits : ndarray of int64, shape (clients, 3)
        Rows after injection in train, validation and test.
    ledger : tuple of LedgerEntry
        What each rule did.
    dropped, left_out : int
        Rows that injection removed, and rows that no client has.
    """

    recipe: Recipe
    before: Cube
    after: Cube
    splits: Any
    ledger: tuple[LedgerEntry, ...]
    dropped: int
    left_out: int

    @cached_property
    def reports(self) -> tuple[FairnessReport, FairnessReport]:
        """The report before and after injection."""
        compare = contenders(self.recipe)
        one, other = (measure_cube(cube, compare=compare) for cube in (self.before, self.after))
        return one, other


@dataclass(frozen=True, kw_only=True, eq=False)
class Modeled:
    """What each client's own model predicts of its held-out rows.

    Parameters
    ----------
    report : FairnessReport
        Of the predictions, on the rows as injection left them.
    notes : tuple of str
        What did not go as usual.
    """

    report: FairnessReport
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """The rows of a session.

    Parameters
    ----------
    opening : Opening
        Where they come from.
    base : Recipe or None
        The config of a built-in dataset that the session starts from.
    source : Source
        The source, with its records.
    tables : mapping of str to pyarrow.Table
        Its parts, as they were read.
    content : str
        SHA-256 over the content of all parts, hashed once: the key of every result.
    """

    opening: Opening
    base: Recipe | None
    source: Source
    tables: Mapping[str, pa.Table]
    content: str

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(table.num_rows for table in self.tables.values())

    @property
    def first(self) -> pa.Table:
        """The first part, which shows what columns there are."""
        return next(iter(self.tables.values()))

    @cached_property
    def countable(self) -> tuple[str, ...]:
        """Columns of whole numbers, truth values or texts."""
        kinds = {
            field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            for field in self.first.schema
        }
        return tuple(
            name for name, kind in kinds.items() if any(is_kind(kind) for is_kind in _COUNTABLE)
        )

    def values(self, column: str) -> int:
        """Return how many values a column of own rows has."""
        return int(pc.count_distinct(self.first[column]).as_py())

    @cached_property
    def few(self) -> dict[str, list[Any]]:
        """Columns of own rows that may be labels or sensitive attributes, with their values.

        They hold 2 to 50 different values, which are whole numbers, truth values or texts.
        """
        found = {}
        for name in self.countable:
            column = self.first[name]
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            values = pc.unique(column).drop_null()
            if 2 <= len(values) <= MOST_VALUES:
                found[name] = sorted(values.to_pylist())
        return found

    def dataset(self, recipe: Recipe) -> Dataset:
        """Return the built-in dataset, or what the cards need to know of own rows."""
        return self.opening.dataset or own_dataset([recipe])

    def count_labels(self, recipe: Recipe, tick: Tick) -> Counted:
        """Make the federation of a recipe without its features, and count it.

        Raises
        ------
        SchemaError, RecipeError
            If rows and recipe do not fit.
        """
        cubes, ledger, splits = [], [], []
        dropped = left_out = 0
        for federation in self._federations(_without_features(recipe), tick):
            cubes.append(count_labels(federation))
            ledger += federation.ledger
            splits += [
                np.bincount(federation.split_of(client), minlength=len(SPLITS))
                for client in federation.clients
            ]
            dropped += federation.dropped.num_rows
            left_out += federation.left_out
        return Counted(
            recipe=recipe,
            before=concatenate(before for before, _ in cubes),
            after=concatenate(after for _, after in cubes),
            splits=np.array(splits),
            ledger=tuple(ledger),
            dropped=dropped,
            left_out=left_out,
        )

    def judge(self, reports: Sequence[FairnessReport], figure: Figure, tick: Tick) -> bool:
        """Let reports judge every client, which they remember; thousands of them take seconds."""
        clients = [(report, client) for report in reports for client in report.clients]
        for done, (report, client) in enumerate(clients):
            if done % 200 == 0:
                tick(f"{done:,} of {len(clients):,}", done / len(clients))
            for attribute in report.attributes():
                report.finding(client, attribute.name, figure)
        return True

    def federate(self, recipe: Recipe, tick: Tick) -> Federation:
        """Make the whole federation of a recipe."""
        return concat(self._federations(recipe, tick))

    def _federations(self, recipe: Recipe, tick: Tick) -> Any:
        parts = parts_of(recipe, self.source, ())
        for done, part in enumerate(parts):
            tick("making clients", done / len(parts))
            table = self.tables[part]
            if self.source.natural:
                parents = self.source.parts
                yield federate_table(table, recipe, client=part, parents=parents)
            else:
                yield federate_table(table, recipe)

    def model(self, recipe: Recipe, model: Model, compare: tuple[str, ...], tick: Tick) -> Modeled:
        """Train each client's own model and measure its predictions.

        ``compare`` names the attributes that compete for a client's worst.

        Raises
        ------
        MeasureError
            If the features cannot be trained on, or no client has rows enough.
        """
        numbers, notes = _numbers(recipe)
        federation = self.federate(numbers, tick)
        names = [client.name for client in federation.clients]
        size = min(BATCH, -(-len(names) // 20))
        cubes: list[Cube] = []
        for start in range(0, len(names), size):
            tick(f"fitting {start:,} of {len(names):,} clients", start / len(names))
            some = federation.only(names[start : start + size])
            local = local_models(some, model=model)
            found = score_rows(local.predictions, local.rows, method=local.method)
            cubes.append(found.injected.report.cube)
            notes += local.notes
        report = measure_cube(concatenate(cubes), compare=compare)
        return Modeled(report=report, notes=tuple(notes))

    def write(
        self,
        recipe: Recipe,
        out: Path,
        tick: Tick,
        *,
        form: Literal["full", "index"] = "full",
        overwrite: bool = False,
    ) -> Manifest:
        """Write the federation as a folder in Hub layout; it appears complete or not at all.

        The files are those that ``build.py`` writes, byte for byte.
        """
        dataset = self.dataset(recipe)
        source = self.source if self.opening.dataset is None else self.opening.source(recipe)
        parts = max(1, len(parts_of(recipe, source, ())))
        notes = () if recipe in dataset.recipes else (f"{recipe.name} {OWN_NOTE}",)
        watched = cast(Source, _Watched(source, tick, parts))
        return build(dataset, [recipe], watched, out, form=form, overwrite=overwrite, notes=notes)

    def write_csv(self, recipe: Recipe, out: Path, tick: Tick) -> Path:
        """Write one CSV file for each client; see :func:`feda4fair.export.to_csv`."""
        federation = self.federate(self.source.fit(recipe), tick)

        def attach(table: pa.Table) -> pa.Table:
            tick("writing", 0.5)
            return self.source.attach(table)

        return to_csv(federation, out, attach=attach)

    def script(self, recipe: Recipe, out: str, *, form: str = "full") -> str:
        """Return the Python lines that write the same folder."""
        return script(self.opening, self.base, recipe, out, form)


def _without_features(recipe: Recipe) -> Recipe:
    """Return a recipe that keeps the columns which decide where rows go."""
    wanted = {*recipe.schema.sensitive, *(name for name, _ in recipe.select)}
    columns = tuple(column for column in recipe.schema.columns if column.name in wanted)
    return replace(recipe, schema=replace(recipe.schema, columns=columns))


def _numbers(recipe: Recipe) -> tuple[Recipe, list[str]]:
    """Return a recipe without features that local models cannot take, and say which those are."""
    texts = [
        column.name
        for column in recipe.schema.columns
        if column.role == "feature"
        and column.dtype != "image"
        and not any(is_kind(pa.type_for_alias(column.dtype)) for is_kind in _NUMERIC)
    ]
    if not texts:
        return recipe, []
    selected = {name for name, _ in recipe.select}
    columns = tuple(
        replace(column, role="provenance") if column.name in texts else column
        for column in recipe.schema.columns
        if column.name not in texts or column.name in selected
    )
    note = f"Models take numbers; left out: {', '.join(texts)}."
    return replace(recipe, schema=replace(recipe.schema, columns=columns)), [note]


class _Watched:
    """A source that says how many of its parts have been written, and can be stopped."""

    def __init__(self, source: Source, tick: Tick, total: int) -> None:
        self._source, self._tick = source, tick
        self._done, self._total = 0, total

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def read(self, part: str) -> pa.Table:
        self._tick(f"writing {part}", self._done / self._total)
        self._done += 1
        return self._source.read(part)

    def blocks(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        for block in cast(Any, self._source).blocks(columns):
            self._tick("dealing rows to clients", 0.0)
            yield block

    def attach(self, table: pa.Table) -> pa.Table:
        self._tick("writing", min(1.0, self._done / self._total))
        return self._source.attach(table)


def open_builtin(opening: Opening, tick: Tick) -> Rows:
    """Read the rows of a built-in dataset that one of its configs needs.

    Raises
    ------
    SourceError
        If files are missing or damaged.
    """
    assert opening.dataset is not None, "own rows are opened by open_own"
    base = opening.dataset.recipe(opening.config or opening.dataset.recipes[0].name)
    source = opening.source(base)
    tables = {}
    parts = parts_of(base, source, ())
    for done, part in enumerate(parts):
        tick(f"reading {part}", done / len(parts))
        tables[part] = source.read(part)
    tick("hashing the rows", 1.0)
    return Rows(
        opening=opening,
        base=base,
        source=source,
        tables=tables,
        content=_content(source.files()),
    )


def open_own(opening: Opening, tick: Tick) -> Rows:
    """Read own rows from a file, a folder or the Hub.

    Raises
    ------
    SourceError
        If there are none, or they cannot be read.
    """
    if not opening.data:
        raise SourceError("no rows are named; type a path or the id of a Hub dataset.")
    tick(f"reading {Path(opening.data).name}", 0.0)
    table = read_table(opening.data, config=opening.config, split=opening.split)
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise SourceError(f"{opening.data}: column {', '.join(twice)} stands twice; keep one.")
    tick("hashing the rows", 0.5)
    source = TableSource(data=opening.data, config=opening.config, split=opening.split)
    vars(source)["_table"] = table  # as its cached property would keep it
    try:
        files = source.files()
    except SchemaError as error:
        raise SourceError(f"{opening.data}: {error}") from None
    return Rows(
        opening=opening,
        base=None,
        source=source,
        tables={"all": table},
        content=_content(files),
    )


def _content(files: tuple[SourceFile, ...]) -> str:
    text = "\n".join(f"{file.part} {file.name} {file.content_sha256}" for file in files)
    return hashlib.sha256(text.encode()).hexdigest()
