"""The search for rates: federate, train local models, measure, raise the rate, again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from feda4fair.bias import LedgerEntry
from feda4fair.closedform import By
from feda4fair.evaluate import Model, local_models
from feda4fair.federation import Federation
from feda4fair.measurement import contenders
from feda4fair.ownsplit import cuts
from feda4fair.rates import Against, Rates, rates
from feda4fair.recipe import BiasRule, ClientGroup, Recipe, RowSplit
from feda4fair.report import FairnessReport
from feda4fair.score import score_rows

__all__ = ["Found", "Make", "Rules", "Search", "group_of"]

Make = Callable[[Recipe], Federation]
"""Federates the rows of one part by a recipe."""

Rules = dict[str, tuple[BiasRule, ...]]
"""Rules by client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the search came to for one client: its rules, its row of the table, its note."""

    client: str
    rules: tuple[BiasRule, ...]
    row: dict[str, object]
    note: str


@dataclass(frozen=True, slots=True)
class Search:
    """The search for rates; `run` serves the clients of one part of the rows together."""

    recipe: Recipe
    floor: float
    models: tuple[Model, ...]
    by: By
    beside: float
    step: float
    against: Against
    split: RowSplit

    def run(self, make: Make, rules: Rules) -> list[Found]:
        """Raise the rates of these clients, who come with the rules that the recipe gives them."""
        start, _ = self._train(make, {c: self._raised(own, 0.0) for c, own in rules.items()})
        named = {c: own or self._named(start, c) for c, own in rules.items()}
        trail = {c: [(0.0, _size(start, c, own, self.against))] for c, own in named.items()}
        for number in range(1, math.ceil(1 / self.step - 1e-9) + 1):
            rate = min(1.0, round(number * self.step, 9))
            pending = [c for c in named if trail[c][-1][1] <= self.floor]
            if not pending:
                break
            found, _ = self._train(make, {c: self._raised(named[c], rate) for c in pending})
            for c in pending:
                trail[c].append((rate, _size(found, c, named[c], self.against)))
        given, drawn = self._train(make, {c: own for c, own in rules.items() if own})
        facts = {
            c: (entry.drop, entry.flip, _size(given, c, rules[c], self.against))
            for c, entry in drawn.items()
        }
        return [self._found(c, named[c], trail[c], facts.get(c)) for c in named]

    def _train(
        self, make: Make, rules: Rules
    ) -> tuple[list[FairnessReport], dict[str, LedgerEntry]]:
        """Return a report for each model, and what the first rule of each client did."""
        if not rules:
            return [], {}
        groups = tuple(group_of(client, own) for client, own in rules.items() if own)
        federation = make(replace(self.recipe, groups=groups, keep=None)).only(rules)
        first = {entry.client: entry for entry in reversed(federation.ledger)}
        if not any(len(cut.train) and len(cut.test) for cut in cuts(federation, self.split)):
            return [], first
        reports = []
        for model in self.models:
            local = local_models(federation, model=model, split=self.split)
            scored = score_rows(local.predictions, local.rows, against=self.against)
            reports.append(scored.injected.report)
        return reports, first

    def _raised(self, rules: tuple[BiasRule, ...], rate: float) -> tuple[BiasRule, ...]:
        """Return rules with the first one's rates set, without those that then do nothing."""
        if not rules:
            return ()
        drop, flip = (rate, self.beside) if self.by == "drop" else (self.beside, rate)
        first = replace(rules[0], drop=drop, flip=flip)
        return tuple(rule for rule in (first, *rules[1:]) if rule.drop or rule.flip)

    def _named(self, reports: list[FairnessReport], client: str) -> tuple[BiasRule, ...]:
        """Return a rule against the most disadvantaged value of a client without a rule."""
        among = contenders(self.recipe) or self.recipe.schema.sensitive
        sizes = {name: _disparity(reports, client, (name,), self.against) for name in among}
        known = {name: size for name, size in sizes.items() if not math.isnan(size)}
        if not known:
            return ()
        attribute = max(known, key=lambda name: known[name])
        part = _part(reports[0], client, (attribute,))
        value = part.attribute.values[int(part.worst()[0].argmax())]
        return (BiasRule(where=((attribute, value),)),)

    def _found(
        self,
        client: str,
        named: tuple[BiasRule, ...],
        trail: list[tuple[float, float]],
        given: tuple[float, float, float] | None,
    ) -> Found:
        rate, size = trail[-1]
        reached = size > self.floor
        row = {
            "client": client,
            "rule": named[0].name if named and (given or rate) else "",
            "DD at 0": trail[0][1],
            "rate": rate if reached else math.nan,
            "DD": size if reached else math.nan,
            "given drop": given[0] if given else math.nan,
            "given flip": given[1] if given else math.nan,
            "DD given": given[2] if given else math.nan,
        }
        rules = self._raised(named, rate) if reached else ()
        return Found(client=client, rules=rules, row=row, note=self._note(client, named, trail))

    def _note(
        self, client: str, named: tuple[BiasRule, ...], trail: list[tuple[float, float]]
    ) -> str:
        if trail[-1][1] > self.floor:
            return ""
        known = [(size, rate) for rate, size in trail if not math.isnan(size)]
        if not known:
            what = named[0].name if named else "any attribute"
            return f"{client}: its test rows give no disparity of {what}, so that no rate helps."
        size, rate = max(known)
        return (
            f"{client}: no {self.by} rate of {named[0].name} brings the disparity of its local "
            f"model above {self.floor}; the largest is {size:.3f}, at {rate:g}."
        )


def _size(
    reports: list[FairnessReport], client: str, rules: tuple[BiasRule, ...], against: Against
) -> float:
    names = tuple(name for name, _ in rules[0].where) if rules else ()
    return _disparity(reports, client, names, against) if names else math.nan


def _disparity(
    reports: list[FairnessReport], client: str, names: tuple[str, ...], against: Against
) -> float:
    """Return the smallest disparity over the models; NaN where one of them has none."""
    if not reports or any(client not in report.clients for report in reports):
        return math.nan
    sizes = [float(_part(report, client, names).size(against)[0]) for report in reports]
    return math.nan if any(map(math.isnan, sizes)) else min(sizes)


def _part(report: FairnessReport, client: str, names: tuple[str, ...]) -> Rates:
    return rates(report.cube.on(*names)).of_client(report.cube.client(client))


def group_of(client: str, rules: tuple[BiasRule, ...]) -> ClientGroup:
    """Return the group of one client."""
    return ClientGroup(name=client, clients=(client,), rules=rules)
