"""From a table to a federation: encode, partition, inject, keep, split.

This is the method section of the paper (3.1 to 3.3) as a chain of pure steps. Each step decides
one column of an `Assignment`; rows move once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feda4fair.assign import assign, numbered
from feda4fair.columns import Value
from feda4fair.decide import Assignment, Codes, decide
from feda4fair.encode import encode
from feda4fair.errors import RecipeError, SchemaError
from feda4fair.federation import Federation
from feda4fair.gather import gather
from feda4fair.partition import MOST, Assigned, Dirichlet, Natural, Shards
from feda4fair.recipe import (
    BiasRule,
    ClientSplit,
    Recipe,
)
from feda4fair.split import folds

__all__ = [
    "Seen",
    "chosen_clients",
    "federate_dealt",
    "federate_table",
    "known_clients",
    "rules_of",
    "selected_rows",
]

Rows = NDArray[np.int64]


def federate_table(
    table: pa.Table,
    recipe: Recipe,
    *,
    client: str | None = None,
    parents: tuple[str, ...] = (),
) -> Federation:
    """Make a federation from source rows.

    Parameters
    ----------
    table : pyarrow.Table, n rows
        Source rows in source order.
    recipe : Recipe
        What to do.
    client : str, optional
        Name of the natural client that all rows belong to, where the source is read one natural
        client at a time.
    parents : tuple of str, optional
        Then also the names of all natural clients of the source.

    Returns
    -------
    Federation
        Clients sorted by name, their rows by split and row_id.

    Raises
    ------
    SchemaError
        If the table does not fit the recipe's schema.
    RecipeError
        If a client loses all its rows, groups do not fit the clients, or no row is selected.
    """
    if not isinstance(table, pa.Table):
        raise SchemaError(
            f"{recipe}: the rows are a {type(table).__name__}, expected an Arrow table; use "
            "pyarrow.Table.from_pandas(frame, preserve_index=False) for pandas."
        )
    encoded = encode(table, recipe.schema)
    selected = selected_rows(encoded, recipe)
    if len(selected) == 0:
        raise RecipeError(
            f"{recipe}: no row of {table.num_rows} is left; check source and select."
        )
    if len(selected) < table.num_rows:
        encoded = encoded.take(selected)
    content = Codes.of(encoded, recipe)
    names, codes = _partition(table, selected, content, recipe, client)
    if client is None:
        seen = Seen()
        seen.add(encoded, recipe)
        seen.check(recipe, names)
    everyone = names if client is None else parents or names
    return federate_dealt(encoded, codes, names, everyone, recipe, source_rows=table.num_rows)


def federate_dealt(
    encoded: pa.Table,
    codes: NDArray[np.int32],
    names: tuple[str, ...],
    everyone: tuple[str, ...],
    recipe: Recipe,
    *,
    source_rows: int,
) -> Federation:
    """Inject, keep and split rows whose clients are known.

    Parameters
    ----------
    encoded : pyarrow.Table, n rows
        Rows as :func:`feda4fair.encode.encode` returns them, in source order.
    codes : ndarray of int32, shape (n,)
        Position of each row's client in ``names``; -1 for none.
    names, everyone : tuple of str
        The clients of these rows, and those of the whole federation; both sorted.
    recipe : Recipe
        What to do.
    source_rows : int
        Rows of the source that these stand for.
    """
    content = Codes.of(encoded, recipe)
    assignment = Assignment.empty(encoded.num_rows)
    rules = rules_of(everyone, recipe)
    for name, members in zip(names, _members(codes, len(names)), strict=True):
        decide(name, members, content.take(members), rules[name], recipe, assignment)
    fold = _folds(recipe, everyone, assignment)
    return gather(encoded, assignment, recipe, source_rows, fold)


def known_clients(recipe: Recipe, parents: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the clients that a recipe may yield, sorted, without looking at rows.

    ``parents`` are the natural clients of the source where it is read one by one. An empty tuple
    means that only the rows can tell.
    """
    if recipe.keep is not None:
        return tuple(sorted(recipe.keep))
    match recipe.partition:
        case Natural():
            names = parents
        case Assigned(clients=clients):
            names = clients
        case _:
            names = numbered(recipe.partition.clients)
    if recipe.subdivide is None or not names:
        return tuple(sorted(names))
    if recipe.subdivide.parts is None:
        return ()
    pieces_of = range(recipe.subdivide.parts)
    if len(names) * len(pieces_of) > MOST:
        raise RecipeError(
            f"{recipe}: {len(names):,} clients in {len(pieces_of):,} parts are more than "
            f"{MOST:,} clients; use fewer."
        )
    return tuple(sorted(f"{name}_{i}" for name in names for i in pieces_of))


def chosen_clients(
    recipe: Recipe, clients: Sequence[str], parents: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the wanted clients of a recipe: those named, or all that are known.

    Raises
    ------
    RecipeError
        If a named client is known not to be one of the recipe's.
    """
    known = known_clients(recipe, parents)
    named = tuple(sorted(set(clients)))
    if not known:
        return named
    unknown = sorted(set(named) - set(known))
    if unknown:
        raise RecipeError(
            f"{recipe}: no client {', '.join(unknown)}; it has {len(known)}, {known[0]} to "
            f"{known[-1]}."
        )
    return named or known


def _partition(
    table: pa.Table, selected: Rows, content: Codes, recipe: Recipe, client: str | None
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the clients, and the client of every selected row.

    What belongs to the source (a natural client, an assignment made elsewhere) is read off all
    rows; other partitions deal selected rows only.
    """
    partition = recipe.partition
    if client is not None and not isinstance(partition, Natural):
        raise RecipeError(
            f"{recipe}: rows of one natural client {client} came to a recipe whose partition is "
            f"{type(partition).__name__}; use Natural."
        )
    if client is not None:
        return (client,), np.zeros(len(selected), dtype=np.int32)
    if isinstance(partition, Natural | Assigned):
        names, codes = assign(table, partition, seed=recipe.seed, scope=recipe.name)
        return names, codes[selected]
    by = partition.by if isinstance(partition, Dirichlet | Shards) else ()
    rows = pa.table({"row_id": content.row_id})
    strata = content.strata(by) if by else None
    return assign(rows, partition, seed=recipe.seed, scope=recipe.name, strata=strata)


@dataclass(slots=True)
class Seen:
    """What only the rows of all clients together can tell, gathered block by block."""

    positives: int = 0
    values: dict[str, set[Value]] = field(default_factory=dict)

    def add(self, encoded: pa.Table, recipe: Recipe) -> None:
        """Look at some rows."""
        self.positives += pc.sum(encoded["label"]).as_py() or 0
        for rule in recipe.rules:
            for name, _ in rule.where:
                if recipe.schema[name].coding is None:
                    found = pc.unique(encoded[name]).to_pylist()
                    self.values.setdefault(name, set()).update(found)

    def check(self, recipe: Recipe, parents: tuple[str, ...]) -> None:
        """Hold the recipe to what was seen and to the clients that there are.

        Raises
        ------
        RecipeError
            If no row is favorable, a rule's value does not occur, or a client is unknown.
        """
        if self.positives == 0:
            favorable = ", ".join(map(str, recipe.schema.label.favorable))
            raise RecipeError(
                f"{recipe}: no row has the favorable label {favorable}; name the value that "
                f"{recipe.schema.label.column} holds."
            )
        for rule in recipe.rules:
            for name, value in rule.where:
                found = self.values.get(name)
                if found is not None and value not in found:
                    raise RecipeError(
                        f"{recipe}: rule {rule.name}: no such value; {name} holds "
                        f"{', '.join(sorted(map(str, found))[:5])}."
                    )
        _check_clients(recipe, parents)


def _check_clients(recipe: Recipe, parents: tuple[str, ...]) -> None:
    grouped = {c for g in recipe.groups if isinstance(g.clients, tuple) for c in g.clients}
    named = set(recipe.keep or ())
    if isinstance(recipe.split, ClientSplit):
        named |= set(recipe.split.test)
    cut = recipe.subdivide
    foreign = [
        name
        for name in sorted(named)
        if recipe.parent(name) not in parents
        or (cut is not None and not cut.may_be(name.rpartition("_")[2]))
    ]
    unknown = sorted(grouped - set(parents)) + foreign
    if unknown:
        raise RecipeError(
            f"{recipe}: it names {', '.join(unknown)}, but the clients are {parents[0]} to "
            f"{parents[-1]} ({len(parents)})."
        )


def selected_rows(table: pa.Table, recipe: Recipe) -> Rows:
    """Return the positions of the rows that the recipe selects."""
    if not recipe.select:
        return np.arange(table.num_rows)
    mask: NDArray[np.bool_] = np.ones(table.num_rows, dtype=np.bool_)
    for column, values in recipe.select:
        codes = [recipe.schema.code(column, value) for value in values]
        try:
            wanted = pa.array(codes, table[column].type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            raise RecipeError(
                f"{recipe}: select {column} in {codes}, but the column is {table[column].type}."
            ) from None
        mask &= pc.is_in(table[column], wanted).to_numpy()
    return np.flatnonzero(mask)


def _members(codes: NDArray[np.int32], clients: int) -> Iterator[Rows]:
    """Yield the row positions of each client, ascending."""
    if clients == 1:
        yield np.flatnonzero(codes == 0)
        return
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(clients + 1))
    for start, stop in pairwise(bounds):
        yield order[start:stop]


def rules_of(names: tuple[str, ...], recipe: Recipe) -> dict[str, tuple[BiasRule, ...]]:
    """Return the rules of every client; shares are taken in client order."""
    rules: dict[str, tuple[BiasRule, ...]] = dict.fromkeys(names, ())
    taken = 0.0
    for group in recipe.groups:
        match group.clients:
            case None:
                members: tuple[str, ...] = names
            case tuple():
                members = tuple(name for name in group.clients if name in rules)
            case float() | int():
                start, taken = taken, taken + group.clients
                if taken > 1 + 1e-9:
                    raise RecipeError(
                        f"{recipe}: the groups' shares add up to more than 1 at {group.name}."
                    )
                members = names[round(start * len(names)) : round(taken * len(names))]
            case _:
                assert_never(group.clients)
        for name in members:
            if rules[name]:
                raise RecipeError(f"{recipe}: client {name} is in two groups; a client has one.")
            rules[name] = group.rules
    return rules


def _folds(recipe: Recipe, parents: tuple[str, ...], assignment: Assignment) -> dict[str, int]:
    """Return the fold of every client, from the clients the recipe names, present or not."""
    if not isinstance(recipe.split, ClientSplit) or not recipe.split.folds:
        return {}
    names = known_clients(recipe, parents) or assignment.names
    clients = {client: recipe.parent(client) for client in sorted(names)}
    return folds(clients, recipe.split.folds, seed=recipe.seed, scope=recipe.name)
