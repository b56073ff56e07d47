"""What happens to the rows of one client: inject, cut into pieces, keep, split.

Nothing moves here: each step decides one column of an `Assignment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from feda4fair import seeds
from feda4fair.assign import pieces
from feda4fair.bias import (
    Injection,
    LedgerEntry,
    Sampler,
    inject,
    keyed_sampler,
    released_sampler,
)
from feda4fair.encode import as_numpy, ranked
from feda4fair.errors import RecipeError
from feda4fair.partition import MOST
from feda4fair.recipe import (
    BiasRule,
    ClientSplit,
    Recipe,
    RowSplit,
    homogeneous_rule,
)
from feda4fair.split import SPLITS, released_split, scatter_split, split_rows

__all__ = ["Assignment", "Codes", "decide"]

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
        """Return an assignment in which nothing is decided yet."""
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
        """Return the deciding columns of encoded rows."""
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
        """Return the joint code of label and attributes, not negative, shape (n,)."""
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


def decide(
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
