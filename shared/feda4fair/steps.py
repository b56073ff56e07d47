"""From a table to a federation: encode, partition, inject, keep, split.

This is the method section of the paper (3.1 to 3.3) as a chain of pure steps. Each step decides
one column of an `Assignment`; rows move once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from feda4fair import seeds
from feda4fair.assign import assign, numbered, pieces
from feda4fair.bias import (
    Injection,
    LedgerEntry,
    Sampler,
    inject,
    keyed_sampler,
    released_sampler,
)
from feda4fair.columns import Value
from feda4fair.encode import as_numpy, encode, ranked
from feda4fair.errors import RecipeError, SchemaError
from feda4fair.federation import Client, Federation
from feda4fair.partition import MOST, Assigned, Dirichlet, Natural, Shards
from feda4fair.recipe import (
    BiasRule,
    ClientSplit,
    Recipe,
    RowSplit,
    homogeneous_rule,
)
from feda4fair.split import SPLITS, folds, released_split, scatter_split, split_rows

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

WIDEST = 2**62
"""Bound of joint codes of several attributes."""


@dataclass(slots=True)
class Assignment:
    """What is decided about every row of a table, position by position, shape (n,) each.

    ``client`` is an index into ``names`` (-1: no client keeps the row); ``rule`` the rule that
    dropped the row (-1: none); ``flipped`` whether the label is changed; ``split`` its split.
    """

    client: NDArray[np.int32]
    rule: NDArray[np.int16]
    flipped: NDArray[np.bool_]
    split: NDArray[np.int8]
    names: list[str] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)
    ledger: list[LedgerEntry] = field(default_factory=list)

    @classmethod
    def empty(cls, rows: int) -> Assignment:
        return cls(
            np.full(rows, -1, np.int32),
            np.full(rows, -1, np.int16),
            np.zeros(rows, np.bool_),
            np.zeros(rows, np.int8),
        )


@dataclass(frozen=True, slots=True)
class Codes:
    """The only columns that decide anything: row ids, label and sensitive attributes."""

    row_id: NDArray[np.int64]
    label: NDArray[np.int8]
    attributes: Mapping[str, NDArray[np.generic]]

    @classmethod
    def of(cls, encoded: pa.Table, recipe: Recipe) -> Codes:
        return cls(
            encoded["row_id"].to_numpy(),
            encoded["label"].to_numpy(),
            {name: as_numpy(encoded[name]) for name in recipe.schema.sensitive},
        )

    def take(self, rows: Rows) -> Codes:
        """Return some rows; ``rows`` ascends, so as many rows as there are means all of them."""
        if len(rows) == len(self.label):
            return self
        attributes = {name: values[rows] for name, values in self.attributes.items()}
        return Codes(self.row_id[rows], self.label[rows], attributes)

    def strata(self, names: tuple[str, ...]) -> NDArray[np.int64]:
        joint = np.zeros(len(self.label), dtype=np.int64)
        for name in names:
            values = self.label if name == "label" else self.attributes[name]
            if not np.issubdtype(values.dtype, np.integer) or _is_wide(values):
                values = ranked(pa.array(values))[1]
            low = int(values.min())
            span = int(values.max()) - low + 1
            if int(joint.max()) * span > WIDEST:
                joint = np.unique(joint, return_inverse=True)[1]
            joint = joint * span + (values.astype(np.int64) - low)
        return joint


def _is_wide(values: NDArray[np.generic]) -> bool:
    """Tell whether whole numbers lie too far apart, or too high, to be counted from the lowest."""
    low, high = int(values.min()), int(values.max())
    return high - low >= MOST or high >= 2**63


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
        _decide(name, members, content.take(members), rules[name], recipe, assignment)
    fold = _folds(recipe, everyone, assignment)
    return _gather(encoded, assignment, recipe, source_rows, fold)


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


def _decide(
    name: str,
    rows: Rows,
    content: Codes,
    rules: tuple[BiasRule, ...],
    recipe: Recipe,
    assignment: Assignment,
) -> None:
    """Inject, keep and split the rows of one client before subdivision."""
    released = recipe.sampler == "released"
    sampler: Sampler = released_sampler(recipe.seed) if released else keyed_sampler(recipe, name)
    injection = inject(name, content.attributes, content.label, rules, recipe, sampler)
    order = _order(name, injection, recipe)
    piece = _piece_codes(name, content, order, recipe)
    clients = _kept(name, int(piece.max(initial=0)) + 1, recipe)
    for code, client in clients.items():
        members = np.flatnonzero(piece == code)
        local = Injection(injection.rule[members], injection.flipped[members], ())
        _check_left(client, local, recipe)
        own = content.take(members)
        split = _split_codes(client, own, local, _within(order, members, piece), recipe)
        if recipe.control:
            local = _control(client, own, recipe)
            _check_left(client, local, recipe)
        at = rows[members]
        assignment.client[at] = len(assignment.names)
        assignment.rule[at], assignment.flipped[at] = local.rule, local.flipped
        assignment.split[at] = split
        assignment.names.append(client)
        assignment.parents.append(name)
        assignment.ledger += local.ledger
    if clients and not recipe.control:
        assignment.ledger += injection.ledger


def _check_left(client: str, injection: Injection, recipe: Recipe) -> None:
    if len(injection.rule) == 0:
        raise RecipeError(
            f"{recipe}: client {client} has no rows; take it out of the recipe, or select and "
            "partition so that every client has some."
        )
    if (injection.rule >= 0).all():
        raise RecipeError(
            f"{recipe}: client {client} keeps none of its {len(injection.rule)} rows; lower its "
            "drop rates or take it out of the recipe."
        )


def _within(order: Rows, members: Rows, piece: NDArray[np.int32]) -> Rows:
    """Return an order of a client's rows as an order within some of them."""
    if len(members) == len(piece):
        return order
    position = np.full(len(piece), -1)
    position[members] = np.arange(len(members))
    within = position[order]
    return within[within >= 0]


def _order(name: str, injection: Injection, recipe: Recipe) -> Rows:
    """Return the order in which pieces and released splits are cut.

    The released datasets shuffle the rows that survived; otherwise all rows are shuffled, so
    that the cut does not depend on injection.
    """
    if recipe.sampler == "released":
        survivors = np.flatnonzero(injection.rule < 0)
        return survivors[np.random.default_rng(recipe.seed).permutation(len(survivors))]
    if recipe.subdivide is None:
        return np.arange(len(injection.rule))
    return seeds.permutation(recipe.seed, recipe.name, name, "order", size=len(injection.rule))


def _piece_codes(name: str, content: Codes, order: Rows, recipe: Recipe) -> NDArray[np.int32]:
    if recipe.subdivide is None:
        return np.zeros(len(content.label), dtype=np.int32)
    parts = recipe.subdivide.pieces(len(order))
    codes = np.full(len(content.label), -1, dtype=np.int32)
    codes[order] = pieces(len(order), parts, recipe.subdivide.cut)
    outside = np.ones(len(codes), dtype=np.bool_)
    outside[order] = False
    ids = content.row_id[outside]
    if len(ids):
        size = int(ids.max()) + 1
        draw = seeds.uniforms(recipe.seed, recipe.name, name, "restored piece", size=size)
        codes[outside] = (draw[ids] * parts).astype(np.int32)
    return codes


def _kept(name: str, parts: int, recipe: Recipe) -> dict[int, str]:
    """Return piece code and name of the clients that stay."""
    if recipe.subdivide is None:
        candidates = {0: name}
    else:
        candidates = {i: f"{name}_{i}" for i in range(recipe.subdivide.parts or parts)}
    if recipe.keep is None:
        return candidates
    keep = set(recipe.keep)
    return {code: client for code, client in candidates.items() if client in keep}


def _split_codes(
    client: str,
    content: Codes,
    injection: Injection,
    order: Rows,
    recipe: Recipe,
) -> NDArray[np.int8]:
    rows = len(content.label)
    match recipe.split:
        case ClientSplit(test=test):
            code = SPLITS.index("test" if client in test else "train")
            return np.full(rows, code, dtype=np.int8)
        case RowSplit() as split:
            scope = (recipe.name, client)
            if recipe.sampler == "keyed":
                strata = content.strata(split.stratify)
                return split_rows(strata, split, seed=recipe.seed, scope=scope)
            codes = np.zeros(rows, dtype=np.int8)
            gone = injection.rule >= 0
            codes[gone] = scatter_split(content.row_id[gone], split, seed=recipe.seed, scope=scope)
            released = content.strata(split.stratify)[order] if split.stratify else None
            try:
                codes[order] = released_split(released, len(order), split, seed=recipe.seed)
            except RecipeError as error:
                raise RecipeError(f"{recipe}: client {client}: {error}") from None
            return codes
        case _:
            assert_never(recipe.split)


def _control(client: str, content: Codes, recipe: Recipe) -> Injection:
    """Return the injection of a control: none, or the homogeneous rule, on all rows."""
    rules = () if recipe.control == "none" else (homogeneous_rule(recipe),)
    scoped = replace(recipe, name=f"{recipe.name}.{recipe.control}")
    sampler = keyed_sampler(scoped, client)
    return inject(client, content.attributes, content.label, rules, scoped, sampler)


def _gather(
    encoded: pa.Table,
    assignment: Assignment,
    recipe: Recipe,
    source_rows: int,
    fold: Mapping[str, int],
) -> Federation:
    """Move the rows: one take for those that stay, one for those that were dropped."""
    rank = np.argsort(np.array(assignment.names, dtype=object), kind="stable")
    position = np.empty(len(rank) + 1, dtype=np.int64)
    position[rank], position[-1] = np.arange(len(rank)), -1
    names = [assignment.names[i] for i in rank]
    sorted_codes = position[assignment.client]
    place = sorted_codes * len(SPLITS) + assignment.split
    kept = _in_order(place, (assignment.client >= 0) & (assignment.rule < 0))
    gone = _in_order(sorted_codes, (assignment.client >= 0) & (assignment.rule >= 0))
    label = encoded["label"].to_numpy()
    table = _columns(encoded, kept, names, sorted_codes)
    flipped = assignment.flipped[kept]
    table = table.append_column("label", pa.array(label[kept] ^ flipped, pa.int64()))
    table = table.append_column("flipped", pa.array(flipped))
    dropped = _columns(encoded, gone, names, sorted_codes)
    dropped = dropped.append_column("label", pa.array(label[gone], pa.int64()))
    dropped = dropped.append_column("rule", _rule_names(assignment, recipe, gone))
    splits = pa.array(SPLITS).take(pa.array(assignment.split[gone]))
    dropped = dropped.append_column("split", splits)
    counts = np.bincount(sorted_codes[kept], minlength=len(names))
    stops = np.cumsum(counts)
    return Federation(
        recipe=recipe,
        clients=tuple(
            Client(
                name=name,
                parent=assignment.parents[rank[i]],
                start=int(stops[i] - counts[i]),
                stop=int(stops[i]),
                fold=fold.get(name),
            )
            for i, name in enumerate(names)
        ),
        table=table,
        split=assignment.split[kept],
        dropped=dropped,
        ledger=tuple(assignment.ledger),
        source_rows=source_rows,
        left_out=source_rows - len(kept) - len(gone),
    )


def _in_order(place: NDArray[np.int64], mask: NDArray[np.bool_]) -> Rows:
    """Return the marked rows by place, then by position."""
    rows = np.flatnonzero(mask)
    own = place[rows]
    own = own.astype(np.min_scalar_type(int(own.max()))) if len(own) else own
    return rows[np.argsort(own, kind="stable")]


def _columns(
    encoded: pa.Table, rows: Rows, names: list[str], codes: NDArray[np.int64]
) -> pa.Table:
    """Return client_id, row_id and the schema's columns of the given rows."""
    clients = pa.DictionaryArray.from_arrays(
        pa.array(codes[rows], pa.int32()), pa.array(names, pa.string())
    )
    table = encoded.drop_columns(["label"]).take(pa.array(rows)).combine_chunks()
    return table.add_column(0, "client_id", clients.cast(pa.string()))


def _rule_names(assignment: Assignment, recipe: Recipe, rows: Rows) -> pa.Array:
    """Return for each dropped row the name of its rule."""
    first: dict[str, int] = {}
    for position, entry in enumerate(assignment.ledger):
        first.setdefault(entry.client, position)
    injected = assignment.names if recipe.control else assignment.parents
    base = np.array([first.get(client, 0) for client in injected], dtype=np.int64)
    positions = base[assignment.client[rows]] + assignment.rule[rows]
    names = pa.array([entry.rule for entry in assignment.ledger], pa.string())
    return names.take(pa.array(positions))


def _folds(recipe: Recipe, parents: tuple[str, ...], assignment: Assignment) -> dict[str, int]:
    """Return the fold of every client, from the clients the recipe names, present or not."""
    if not isinstance(recipe.split, ClientSplit) or not recipe.split.folds:
        return {}
    names = known_clients(recipe, parents) or assignment.names
    clients = {client: recipe.parent(client) for client in sorted(names)}
    return folds(clients, recipe.split.folds, seed=recipe.seed, scope=recipe.name)
