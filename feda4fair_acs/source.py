"""The source of ACS Income: Census PUMS person files, or the built-in sample, as tidy tables.

One part is one state. Its tidy table holds the rows of the income task in file order, with codes
as the Census wrote them; SERIALNO is never read. Tidy tables are cached.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from feda4fair.content import SourceFile, content_sha256
from feda4fair.errors import SourceError
from feda4fair.fetch import cache_folder, fetch
from feda4fair.recipe import Recipe
from feda4fair.steps import chosen_clients
from feda4fair_acs.cache import entry_of, load, stamp_of, store
from feda4fair_acs.income import income_rows, unknown_codes
from feda4fair_acs.pums import csv_name, read_persons, zip_name
from feda4fair_acs.release import check_release, chosen_states, known_file
from feda4fair_acs.schema import FIPS, STATES

__all__ = ["PumsSource", "SampleSource", "open_recipes", "open_source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PumsSource:
    """Census person files of some states; made by :func:`open_source`.

    Attributes
    ----------
    parts : tuple of str
        Postal codes, in the order of ``STATES``.
    year : int
        Survey year.
    horizon : str
        ``"1-Year"`` or ``"5-Year"``.
    folder : Path
        Folder of the files, in the layout of folktables.
    download : bool
        Whether a file that is not there is fetched from the Census Bureau.
    cache : Path
        Folder of the cached tidy tables.
    partial : bool
        Whether states with a wanted client are left out.
    natural : str
        What a part is.
    synthetic : bool
        Whether the rows are made up.
    """

    parts: tuple[str, ...]
    year: int
    horizon: str
    folder: Path
    download: bool
    cache: Path
    partial: bool = False
    natural: str = "state"
    synthetic: bool = False
    _records: dict[str, SourceFile] = field(default_factory=dict, repr=False, compare=False)

    def read(self, part: str) -> pa.Table:
        """Return the tidy table of a state, from the cache if its file has not changed.

        Parameters
        ----------
        part : str
            One of :attr:`parts`.

        Returns
        -------
        pyarrow.Table
            ``row_id`` (int64, position from 0), the ten features of the task as raw codes (int8
            or int16), and ``label`` (int8, 1 where PINCP > 50000); no nulls.

        Raises
        ------
        SourceError
            The file is damaged, is not the one expected, or cannot be downloaded.
        """
        path = self._local(part)
        table, facts = load(self._entry(path), path) or self._read_file(part)
        name = csv_name(part, self.year)
        self._records[part] = _record(name, part, rows_kept=table.num_rows, facts=facts)
        return _numbered(table)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the source differs from the benchmark's: another release, or states left out."""
        notes = []
        if (self.year, self.horizon) != (2018, "1-Year"):
            notes.append(f"built from the {self.year} {self.horizon} files, not 2018 1-Year.")
        if self.partial:
            notes.append(_parts_note(self.parts))
        return tuple(notes)

    @property
    def options(self) -> dict[str, Any]:
        """What `open_recipes` needs to give this source again."""
        states = {"states": list(self.parts)} if self.partial else {}
        return {"year": self.year, "horizon": self.horizon, **states}

    def fit(self, recipe: Recipe) -> Recipe:
        """Return the recipe as it is: `attach` adds no column."""
        return recipe

    def attach(self, table: pa.Table) -> pa.Table:
        """Return the rows as they are: nothing is too large to carry along."""
        return table

    def files(self) -> tuple[SourceFile, ...]:
        """Return what was read of each part, reading those that were not read yet."""
        for part in self.parts:
            if part not in self._records:
                self.read(part)
        return tuple(self._records[part] for part in self.parts)

    def _local(self, part: str) -> Path:
        """Return where a state's file is or will be: the CSV where there is one, as folktables."""
        unpacked = self.folder / csv_name(part, self.year)
        return unpacked if unpacked.is_file() else self.folder / zip_name(part)

    def _entry(self, path: Path) -> Path:
        return entry_of(self.cache / f"{self.year}-{self.horizon}", path)

    def _read_file(self, part: str) -> tuple[pa.Table, dict[str, Any]]:
        """Read a state's file, downloading it first if need be, and cache what it gives."""
        path = self._local(part)
        remote, rows = known_file(self.year, self.horizon, part)
        fetched = self.download and path.suffix == ".zip"
        if fetched:
            fetch(remote, self.folder)
        stamp = stamp_of(path)
        try:
            raw = read_persons(path, member=csv_name(part, self.year), fips=FIPS[part])
            table = income_rows(raw, str(path))
            _check_whole(path, table.num_rows, rows)
        except SourceError as error:
            if not fetched:
                raise
            path.unlink(missing_ok=True)
            raise SourceError(f"{error} The damaged download was removed.") from None
        facts = _facts(table, rows_read=raw.num_rows)
        store(self._entry(path), table, facts, stamp)
        return table, facts


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSource:
    """The built-in synthetic sample, with the interface of :class:`PumsSource`.

    Attributes
    ----------
    parts : tuple of str
        Postal codes.
    natural : str
        What a part is.
    synthetic : bool
        Whether the rows are made up.
    """

    parts: tuple[str, ...] = STATES
    partial: bool = False
    natural: str = "state"
    synthetic: bool = True
    _records: dict[str, SourceFile] = field(default_factory=dict, repr=False, compare=False)

    def read(self, part: str) -> pa.Table:
        """Return the tidy table of a made-up state; its columns are those of the Census source."""
        from feda4fair_acs.sample import population

        raw = population(part)
        name = f"sample/{part}"
        table = income_rows(raw, name)
        facts = _facts(table, rows_read=raw.num_rows)
        self._records[part] = _record(name, part, rows_kept=table.num_rows, facts=facts)
        return _numbered(table)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the sample differs from a whole one: states left out."""
        return (_parts_note(self.parts),) if self.partial else ()

    @property
    def options(self) -> dict[str, Any]:
        """What `open_recipes` needs to give this source again."""
        return {"states": list(self.parts)} if self.partial else {}

    def fit(self, recipe: Recipe) -> Recipe:
        """Return the recipe as it is: `attach` adds no column."""
        return recipe

    def attach(self, table: pa.Table) -> pa.Table:
        """Return the rows as they are: nothing is too large to carry along."""
        return table

    def files(self) -> tuple[SourceFile, ...]:
        """Return what was made of each part, making those that were not read yet."""
        for part in self.parts:
            if part not in self._records:
                self.read(part)
        return tuple(self._records[part] for part in self.parts)


def _parts_note(parts: Sequence[str]) -> str:
    lacking = [state for state in STATES if state not in parts]
    if len(lacking) < len(parts):
        return f"built without {', '.join(lacking)}."
    number = "one state" if len(parts) == 1 else f"{len(parts)} states"
    return f"built from {number}: {', '.join(parts)}."


def open_source(
    data_dir: str | os.PathLike[str] | None,
    *,
    year: int = 2018,
    horizon: str = "1-Year",
    states: Sequence[str] | None = None,
    allow_missing: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
) -> PumsSource:
    """Find the person files of a year; nothing is read or downloaded yet.

    Parameters
    ----------
    data_dir : path or None
        Folder in the layout of folktables: ``data_dir/2018/1-Year/csv_pwy.zip`` or
        ``data_dir/2018/1-Year/psam_p56.csv``; where both are there, the CSV is read. None
        downloads the zips of the wanted states into the cache as they are read, from the Census
        Bureau or from the base address in ``FEDA4FAIR_ACS_MIRROR``.
    year : int
        Survey year, 2014 to 2018; 2018 is the benchmark's.
    horizon : str
        ``"1-Year"`` (the benchmark's) or ``"5-Year"``.
    states : sequence of str, optional
        Postal codes; all 51 by default.
    allow_missing : bool
        Leave out states without a file, instead of stopping.
    cache_dir : path, optional
        Where downloads and tidy tables are kept; see :func:`feda4fair.fetch.cache_folder`.

    Returns
    -------
    PumsSource
        With the available states as parts.

    Raises
    ------
    SourceError
        A year, horizon or state that does not exist, or a folder without a wanted file.

    Examples
    --------
    >>> open_source(None, states=["WY", "AL"]).parts
    ('AL', 'WY')
    """
    check_release(year, horizon)
    wanted = chosen_states(states)
    home = cache_folder(cache_dir) / "acs"
    root = home if data_dir is None else Path(data_dir).expanduser()
    source = PumsSource(
        parts=wanted,
        year=year,
        horizon=horizon,
        folder=root / str(year) / horizon,
        download=data_dir is None,
        cache=home / "tidy",
    )
    if source.download:
        return source
    return _available(source, allow_missing=allow_missing)


def open_recipes(
    data_dir: str | os.PathLike[str] | None,
    *,
    recipes: Sequence[Recipe],
    clients: Sequence[str] = (),
    sample: bool = False,
    allow_missing: bool = False,
    states: Sequence[str] | None = None,
    year: int = 2018,
    horizon: str = "1-Year",
) -> PumsSource | SampleSource:
    """Find the person files that some recipes need, or the built-in sample.

    Parameters
    ----------
    data_dir, year, horizon, states, allow_missing
        As in `open_source`; only states that hold a wanted client are looked for.
    recipes : sequence of Recipe
        What is to be built.
    clients : sequence of str
        Only these clients; all by default.
    sample : bool, default False
        Use the built-in synthetic sample.
    """
    check_release(year, horizon)
    wanted = {
        recipe.parent(client)
        for recipe in recipes
        for client in chosen_clients(recipe, clients, STATES)
    }
    cut = states is not None and not wanted <= set(states)
    if states is not None:
        wanted &= set(chosen_states(states))
        if not wanted:
            raise SourceError(
                f"states {', '.join(states)} hold none of the clients that are to be built; name "
                "other states or another config."
            )
    if sample:
        return SampleSource(parts=chosen_states(sorted(wanted)), partial=cut)
    source = open_source(
        data_dir,
        year=year,
        horizon=horizon,
        states=sorted(wanted),
        allow_missing=allow_missing,
    )
    return replace(source, partial=source.partial or cut)


def _available(source: PumsSource, *, allow_missing: bool) -> PumsSource:
    """Return the source without the states that have no file, where that is allowed."""
    missing = [part for part in source.parts if not source._local(part).is_file()]
    present = tuple(part for part in source.parts if part not in missing)
    if missing and not (allow_missing and present):
        first = missing[0]
        way_out = ", or pass --allow-missing to go on without" if present else ""
        raise SourceError(
            f"{source.folder} has no person file of {', '.join(missing)}; put "
            f"{zip_name(first)} or {csv_name(first, source.year)} there"
            f"{' and likewise for the others' if len(missing) > 1 else ''}{way_out}."
        )
    return replace(source, parts=present, partial=source.partial or bool(missing))


def _check_whole(path: Path, found: int, expected: int | None) -> None:
    """Refuse a file that is cut off: by its rows, or by its end where their number is unknown."""
    if expected is None:
        if path.suffix == ".csv" and _last_byte(path) != b"\n":
            raise SourceError(
                f"{path} does not end with a line break, so it may be cut off; download it again."
            )
    elif found != expected:
        raise SourceError(
            f"{path} gives {found:,} rows of the income task, expected {expected:,}, so the "
            "file is cut off or not the Census Bureau's; download it again or pass another "
            "--source."
        )


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read()


def _facts(table: pa.Table, *, rows_read: int) -> dict[str, Any]:
    """Return what the record of a file needs beside its table, as JSON values."""
    return {
        "rows_read": rows_read,
        "content_sha256": content_sha256(_numbered(table)),
        "unknown_codes": unknown_codes(table),
    }


def _record(name: str, part: str, *, rows_kept: int, facts: dict[str, Any]) -> SourceFile:
    return SourceFile(
        name=name,
        part=part,
        rows_read=facts["rows_read"],
        rows_kept=rows_kept,
        content_sha256=facts["content_sha256"],
        unknown_codes=tuple((column, code, rows) for column, code, rows in facts["unknown_codes"]),
    )


def _numbered(table: pa.Table) -> pa.Table:
    return table.add_column(0, "row_id", pa.array(np.arange(table.num_rows, dtype=np.int64)))
