"""Bias injection: which rows a rule drops, which labels it flips, and the ledger of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feda4fair import seeds
from feda4fair.recipe import BiasRule, Gaussian, Rate, Recipe
from feda4fair.schema import Schema

__all__ = ["Injection", "LedgerEntry", "Sampler", "inject", "keyed_sampler", "released_sampler"]

Sampler = Callable[[int, int, int, str], NDArray[np.int64]]
"""(rows eligible, rows wanted, rule index, "drop" or "flip") -> positions among the eligible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """What one rule did to one client.

    ``drop`` and ``flip`` are the rates as drawn; ``dropped = int(eligible * drop)`` and
    ``flipped = int(survivors * flip)``, where survivors are the eligible rows that no rule
    dropped. A row that two rules draw is counted by both and changed once.
    """

    client: str
    rule: str
    label: int
    drop: float
    flip: float
    eligible: int
    dropped: int
    survivors: int
    flipped: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Injection:
    """Row masks of one client.

    ``rule`` is the index of the first rule that dropped the row, -1 for kept rows (int16);
    ``flipped`` is true where the label was changed (bool).
    """

    rule: NDArray[np.int16]
    flipped: NDArray[np.bool_]
    ledger: tuple[LedgerEntry, ...]


def keyed_sampler(recipe: Recipe, client: str) -> Sampler:
    """Return the sampler whose draws are keyed by config, client, rule and operation."""

    def sample(size: int, count: int, rule: int, operation: str) -> NDArray[np.int64]:
        key = (recipe.name, client, rule, operation)
        return seeds.choice(recipe.seed, *key, size=size, count=count)

    return sample


def released_sampler(seed: int) -> Sampler:
    """Return the sampler that replays the legacy stream: a fresh RandomState for each draw."""

    def sample(size: int, count: int, rule: int, operation: str) -> NDArray[np.int64]:
        state = np.random.RandomState(seed)
        return state.choice(size, count, replace=False).astype(np.int64)

    return sample


def draw_rate(rate: Rate, recipe: Recipe, client: str, rule: int, operation: str) -> float:
    """Return a rate in [0, 1]: itself, or a clipped Gaussian draw keyed by names."""
    if not isinstance(rate, Gaussian):
        return rate
    key = (recipe.name, client, rule, operation, "rate")
    drawn = seeds.normal(recipe.seed, *key, mean=rate.mean, std=rate.std)
    return min(1.0, max(0.0, drawn))


def inject(
    client: str,
    attributes: Mapping[str, NDArray[np.generic]],
    label: NDArray[np.int8],
    rules: tuple[BiasRule, ...],
    recipe: Recipe,
    sampler: Sampler,
) -> Injection:
    """Apply rules to the rows of one client (paper section 3.2).

    Every rule judges eligibility on the original rows. Drops of all rules are united first;
    flips then act on the survivors, and a label is changed at most once. The result therefore
    does not depend on what other rules did to the same rows.

    Parameters
    ----------
    client : str
        Name of the client; keys the draws.
    attributes : mapping of str to ndarray, each of shape (n,)
        Codes of the sensitive attributes.
    label : ndarray of int8, shape (n,)
        1 = favorable.
    rules : tuple of BiasRule
        Rules of the client's group, possibly none.
    recipe : Recipe
        Gives schema, seed and name.
    sampler : Sampler
        Chooses rows; see `keyed_sampler` and `released_sampler`.

    Returns
    -------
    Injection
        Masks of shape (n,) and one ledger entry for each rule.
    """
    eligible = [eligible_rows(rule, attributes, label, recipe.schema) for rule in rules]
    dropped_by = np.full(len(label), -1, dtype=np.int16)
    drops: list[float] = []
    dropped: list[int] = []
    for index in reversed(range(len(rules))):
        rate = draw_rate(rules[index].drop, recipe, client, index, "drop")
        count = int(len(eligible[index]) * rate)
        if count:
            chosen = sampler(len(eligible[index]), count, index, "drop")
            dropped_by[eligible[index][chosen]] = index
        drops.insert(0, rate)
        dropped.insert(0, count)
    flipped = np.zeros(len(label), dtype=np.bool_)
    ledger = []
    for index, rule in enumerate(rules):
        survivors = eligible[index][dropped_by[eligible[index]] < 0]
        rate = draw_rate(rule.flip, recipe, client, index, "flip")
        count = int(len(survivors) * rate)
        if count:
            flipped[survivors[sampler(len(survivors), count, index, "flip")]] = True
        ledger.append(
            LedgerEntry(
                client=client,
                rule=rule.name,
                label=rule.label,
                drop=drops[index],
                flip=rate,
                eligible=len(eligible[index]),
                dropped=dropped[index],
                survivors=len(survivors),
                flipped=count,
                note=_note(len(eligible[index]), dropped[index] + count, drops[index] + rate),
            )
        )
    return Injection(dropped_by, flipped, tuple(ledger))


def _note(eligible: int, changed: int, rates: float) -> str:
    if eligible == 0:
        return "the rule matches no row"
    if changed == 0 and rates > 0:
        return f"the rates round to no row among {eligible}"
    return ""


def eligible_rows(
    rule: BiasRule,
    attributes: Mapping[str, NDArray[np.generic]],
    label: NDArray[np.int8],
    schema: Schema,
) -> NDArray[np.int64]:
    """Return the positions of the rows that a rule names, in row order."""
    mask = label == rule.label
    for attribute, value in rule.where:
        mask &= attributes[attribute] == schema.code(attribute, value)
    return np.flatnonzero(mask)
