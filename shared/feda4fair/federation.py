"""A federation: one table sorted by client, where a client is a zero-copy slice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feda4fair.bias import LedgerEntry
from feda4fair.columns import PROVENANCE
from feda4fair.content import SourceFile
from feda4fair.errors import RecipeError
from feda4fair.recipe import Recipe
from feda4fair.split import SPLITS

__all__ = ["Client", "Federation", "Origin", "concat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source that all rows of a federation came from, and what was chosen within it."""

    file: SourceFile
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client and its rows: ``start`` to ``stop`` in the federation's table."""

    name: str
    parent: str
    start: int
    stop: int
    fold: int | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Rows of several clients after injection, with what injection removed.

    Parameters
    ----------
    recipe : Recipe
        How the federation was made.
    clients : tuple of Client
        In the order of their rows.
    table : pyarrow.Table, n rows
        ``client_id``, ``row_id``, the schema's columns, ``label``, ``flipped``; sorted by
        client, split and row_id.
    split : ndarray of int8, shape (n,)
        0 train, 1 validation, 2 test.
    dropped : pyarrow.Table
        The rows that injection removed: the same columns without ``flipped``, with the ``rule``
        that removed them and the ``split`` they would have had.
    ledger : tuple of LedgerEntry
        What each rule did, for each client as it was before subdivision.
    source_rows, left_out : int
        Rows of the source, and those among them that no client keeps:
        ``source_rows == len(table) + len(dropped) + left_out``.
    origin : Origin, optional
        The record of the source, where all rows came from one.
    """

    recipe: Recipe
    clients: tuple[Client, ...]
    table: pa.Table
    split: NDArray[np.int8]
    dropped: pa.Table
    ledger: tuple[LedgerEntry, ...]
    source_rows: int
    left_out: int
    origin: Origin | None = None

    def __repr__(self) -> str:
        """Say what it is in one line."""
        return (
            f"Federation({self.recipe}: {len(self.clients)} clients, "
            f"{self.table.num_rows:,} rows, {self.dropped.num_rows:,} dropped)"
        )

    @cached_property
    def _position(self) -> dict[str, int]:
        return {client.name: i for i, client in enumerate(self.clients)}

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Row offsets of the clients, shape (clients + 1,)."""
        return np.array([0, *(client.stop for client in self.clients)], dtype=np.int64)

    def find(self, name: str) -> Client:
        """Return the client of that name.

        Raises
        ------
        RecipeError
            If there is none.
        """
        position = self._position.get(name)
        if position is None:
            raise RecipeError(
                f"{self.recipe}: no client {name!r} among {len(self.clients)}, "
                f"{self.clients[0].name if self.clients else '-'} to "
                f"{self.clients[-1].name if self.clients else '-'}."
            )
        return self.clients[position]

    def client(self, name: str, split: str | None = None, *, provenance: bool = True) -> pa.Table:
        """Return the rows of a client, or its rows of one split: a zero-copy slice.

        Parameters
        ----------
        name : str
            Client name.
        split : {"train", "validation", "test"}, optional
            Only the rows of that split.
        provenance : bool, default True
            Keep ``client_id``, ``row_id`` and ``flipped``, which no model should see.
        """
        client = self.find(name)
        start, stop = client.start, client.stop
        if split is not None:
            if split not in SPLITS:
                raise RecipeError(
                    f"{self.recipe}: no split {split!r}; there are {', '.join(SPLITS)}."
                )
            code = SPLITS.index(split)
            start, stop = start + np.searchsorted(self.split_of(client), [code, code + 1])
        table = self.table.slice(start, stop - start)
        if provenance:
            return table
        return table.drop_columns([c for c in PROVENANCE if c in table.column_names])

    def split_of(self, client: Client) -> NDArray[np.int8]:
        """Return the split codes of a client's rows."""
        return self.split[client.start : client.stop]

    def dropped_of(self, name: str) -> pa.Table:
        """Return the rows that injection removed from a client."""
        self.find(name)
        start, stop = self._dropped_bounds.get(name, (0, 0))
        return self.dropped.slice(start, stop - start)

    @cached_property
    def _dropped_bounds(self) -> dict[str, tuple[int, int]]:
        """First and last row of each client among the dropped rows, which are sorted by client."""
        if self.dropped.num_rows == 0:
            return {}
        runs = pc.run_end_encode(self.dropped["client_id"].combine_chunks())
        ends = runs.run_ends.to_pylist()
        names = runs.values.to_pylist()
        return {
            name: (start, end)
            for name, start, end in zip(names, [0, *ends[:-1]], ends, strict=True)
        }

    def only(self, names: Iterable[str]) -> Federation:
        """Return the federation cut down to some of its clients, their rows unchanged."""
        wanted = set(names)
        chosen = [client for client in self.clients if client.name in wanted]
        rows = np.concatenate(
            [np.arange(client.start, client.stop) for client in chosen]
            or [np.empty(0, dtype=np.int64)]
        )
        stops = np.cumsum([client.rows for client in chosen])
        gone = self.dropped.filter(
            pc.is_in(self.dropped["client_id"], pa.array(sorted(wanted), pa.string()))
        )
        parents = {client.parent for client in chosen} | wanted
        return replace(
            self,
            clients=tuple(
                replace(client, start=int(stop) - client.rows, stop=int(stop))
                for client, stop in zip(chosen, stops, strict=True)
            ),
            table=self.table.take(pa.array(rows)),
            split=self.split[rows],
            dropped=gone,
            ledger=tuple(entry for entry in self.ledger if entry.client in parents),
            left_out=self.source_rows - len(rows) - gone.num_rows,
        )

    def __iter__(self) -> Iterator[tuple[Client, pa.Table]]:
        """Yield every client with its rows."""
        for client in self.clients:
            yield client, self.table.slice(client.start, client.rows)


def concat(parts: Iterable[Federation]) -> Federation:
    """Join federations of the same recipe, one after another.

    Raises
    ------
    RecipeError
        If there is nothing to join.
    """
    federations = list(parts)
    if not federations:
        raise RecipeError("no part to join: the source gave no client.")
    clients: list[Client] = []
    for federation in federations:
        base = clients[-1].stop if clients else 0
        clients += [
            replace(c, start=c.start + base, stop=c.stop + base) for c in federation.clients
        ]
    return Federation(
        recipe=federations[0].recipe,
        clients=tuple(clients),
        table=pa.concat_tables([f.table for f in federations]),
        split=np.concatenate([f.split for f in federations]),
        dropped=pa.concat_tables([f.dropped for f in federations]),
        ledger=tuple(entry for f in federations for entry in f.ledger),
        source_rows=sum(f.source_rows for f in federations),
        left_out=sum(f.left_out for f in federations),
    )
