"""What a built folder says about itself, in the form in which cards and datasheets say it.

Everything comes from the folder: the manifest, the recipes, and the Parquet files of clients and
statistics. So a page can be rendered again without the source.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from feda4fair.columns import Value
from feda4fair.disagreement import skew
from feda4fair.manifest import Manifest
from feda4fair.recipe import Recipe

__all__ = [
    "AttributeFacts",
    "ClientFacts",
    "ConfigFacts",
    "Facts",
    "RuleFacts",
    "Stage",
    "read_facts",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One attribute in one client, before or after injection.

    Parameters
    ----------
    disparity : float or None
        Demographic disparity, one value against the rest (paper equation 2), in [0, 1].
    values : tuple of str
        Value with the lowest signed gap; several only where they tie exactly.
    support : int
        Rows of the first of ``values``.
    gap, low, high : float or None
        Its signed gap and the simultaneous interval of it, in [-1, 1].
    favored : tuple of str
        What attains the disparity, where that is a favored value and none of ``values``.
    verdict : str
        See :func:`feda4fair.uncertainty.assess`.
    worst_set : tuple of str
        Values that cannot be told from the worst one.
    groups : tuple of (str, int, float or None)
        Every value with its rows and its signed gap.
    dominant : str or None
        Attribute with the client's largest disparity, "undecided", "undefined", or None where
        no two attributes compete.
    """

    disparity: float | None
    values: tuple[str, ...]
    support: int
    gap: float | None
    low: float | None
    high: float | None
    favored: tuple[str, ...]
    verdict: str
    worst_set: tuple[str, ...]
    groups: tuple[tuple[str, int, float | None], ...]
    dominant: str | None

    @property
    def rows(self) -> int:
        """Rows of all values."""
        return sum(count for _, count, _ in self.groups)

    def gap_of(self, value: str) -> float | None:
        """Return the signed gap of a value."""
        return next((gap for name, _, gap in self.groups if name == value), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """One attribute in one client; ``client`` is empty for all clients pooled."""

    client: str
    before: Stage
    after: Stage


@dataclass(frozen=True, kw_only=True)
class AttributeFacts:
    """One sensitive attribute over the clients of a config.

    ``ruled`` says whether a rule of the config names the attribute.
    """

    name: str
    ruled: bool
    pooled: ClientFacts
    clients: tuple[ClientFacts, ...]

    @cached_property
    def verdicts(self) -> Counter[str]:
        """Number of clients by verdict after injection."""
        return Counter(client.after.verdict for client in self.clients)

    @property
    def mean_before(self) -> float | None:
        """Mean disparity over the clients that have one, before injection."""
        return _mean([client.before.disparity for client in self.clients])

    @property
    def mean_after(self) -> float | None:
        """Mean disparity over the clients that have one, after injection."""
        return _mean([client.after.disparity for client in self.clients])


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """One rule over the clients of a config.

    Parameters
    ----------
    name : str
        The group, e.g. ``SEX=Female``.
    clients : int
        Clients in which it acts.
    gap_before, gap_after : float or None
        Mean signed gap of the group over those clients that have one; None for an intersection.
    """

    name: str
    clients: int
    gap_before: float | None
    gap_after: float | None


@dataclass(frozen=True, kw_only=True)
class ConfigFacts:
    """One config: its recipe, its entry in the manifest, its rules, its fairness.

    ``free_clients`` counts the clients without a rule; ``label_skew`` is the mean Jensen-Shannon
    distance of the clients' labels from the pooled ones, in [0, 1].
    """

    name: str
    recipe: Recipe
    entry: dict[str, Any]
    rules: tuple[RuleFacts, ...]
    free_clients: int
    label_skew: float
    attributes: tuple[AttributeFacts, ...]

    @property
    def ruled(self) -> tuple[AttributeFacts, ...]:
        """Return the attributes that rules name; all of them where no rule names any."""
        return tuple(a for a in self.attributes if a.ruled) or self.attributes

    @property
    def dominant(self) -> Counter[str]:
        """Number of clients by attribute that dominates; empty where no two compete."""
        clients = self.ruled[0].clients
        return Counter(c.after.dominant for c in clients if c.after.dominant is not None)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A built folder: its manifest, its configs, and the files that lie in ``assets/``."""

    manifest: Manifest
    configs: tuple[ConfigFacts, ...]
    assets: tuple[str, ...]

    @property
    def prose(self) -> dict[str, Any]:
        """What no program can compute; empty where nobody wrote it."""
        return dict(self.manifest["prose"])

    @property
    def index_only(self) -> bool:
        """Whether the folder holds only the index that may be published."""
        return any(config.entry["form"] == "index" for config in self.configs)


def read_facts(folder: Path, manifest: Manifest) -> Facts:
    """Read what pages say about a built folder.

    Parameters
    ----------
    folder : Path
        A built folder; its ``recipes``, ``clients`` and ``statistics`` are read.
    manifest : dict
        Its manifest; ``files`` may still be empty.
    """
    assets = sorted(path.name for path in (folder / "assets").glob("*") if path.is_file())
    return Facts(
        manifest=manifest,
        configs=tuple(_config(folder, name, entry) for name, entry in manifest["configs"].items()),
        assets=tuple(assets),
    )


def _config(folder: Path, name: str, entry: dict[str, Any]) -> ConfigFacts:
    recipe = Recipe.from_json((folder / "recipes" / f"{name}.json").read_text("utf-8"))
    columns = ["client_id", "rules", "rows", "positives"]
    index = pq.read_table(folder / "clients" / f"{name}.parquet", columns=columns)
    rules = dict(zip(index["client_id"].to_pylist(), index["rules"].to_pylist(), strict=True))
    sizes = index.group_by("client_id").aggregate([("rows", "sum"), ("positives", "sum")])
    positives = sizes["positives_sum"].to_numpy()
    statistics = pq.read_table(folder / "statistics" / f"{name}.parquet")
    named = {attribute for rule in recipe.rules for attribute, _ in rule.where}
    attributes = tuple(
        _attribute(
            statistics.filter(pc.field("attribute") == attribute), attribute, attribute in named
        )
        for attribute in recipe.schema.sensitive
    )
    return ConfigFacts(
        name=name,
        recipe=recipe,
        entry=entry,
        rules=_rules(recipe, rules, attributes),
        free_clients=sum(not texts for texts in rules.values()),
        label_skew=skew(np.stack([positives, sizes["rows_sum"].to_numpy() - positives], axis=1)),
        attributes=attributes,
    )


def _rules(
    recipe: Recipe, by_client: dict[str, list[str]], attributes: tuple[AttributeFacts, ...]
) -> tuple[RuleFacts, ...]:
    """Return the rules in the order in which the recipe first names them."""
    found: dict[str, RuleFacts] = {}
    for rule in recipe.rules:
        clients = {client for client, texts in by_client.items() if rule.name in texts}
        if rule.name in found or not clients:
            continue
        before: float | None = None
        after: float | None = None
        if len(rule.where) == 1:
            ((attribute, value),) = rule.where
            text = _value_name(recipe, attribute, value)
            stages = [
                client
                for facts in attributes
                if facts.name == attribute
                for client in facts.clients
                if client.client in clients
            ]
            before = _mean([client.before.gap_of(text) for client in stages])
            after = _mean([client.after.gap_of(text) for client in stages])
        found[rule.name] = RuleFacts(
            name=rule.name, clients=len(clients), gap_before=before, gap_after=after
        )
    return tuple(found.values())


def _value_name(recipe: Recipe, attribute: str, value: Value) -> str:
    """Return the name of a value that a rule names or gives as a code."""
    coding = recipe.schema[attribute].coding
    names = dict(coding.names) if coding is not None else {}
    return names.get(value, str(value))


def _attribute(table: pa.Table, name: str, ruled: bool) -> AttributeFacts:
    stages: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        stages.setdefault((row["client_id"] or "", row["stage"]), []).append(row)
    clients = [
        ClientFacts(client=client, before=_stage(rows), after=_stage(stages[client, "after"]))
        for (client, stage), rows in stages.items()
        if stage == "before"
    ]
    (pooled,) = (client for client in clients if not client.client)
    return AttributeFacts(
        name=name,
        ruled=ruled,
        pooled=pooled,
        clients=tuple(client for client in clients if client.client),
    )


def _stage(rows: list[dict[str, Any]]) -> Stage:
    lowest = min((row["gap"] for row in rows if row["gap"] is not None), default=None)
    worst = [row for row in rows if lowest is not None and row["gap"] == lowest]
    values = tuple(row["value"] for row in worst)
    none = {"support": 0, "gap": None, "gap_low": None, "gap_high": None}
    first: dict[str, Any] = worst[0] if worst else none
    attained = tuple(rows[0]["argmax"])
    return Stage(
        disparity=rows[0]["disparity"],
        values=values,
        support=first["support"],
        gap=first["gap"],
        low=first["gap_low"],
        high=first["gap_high"],
        favored=() if set(attained) & set(values) else attained,
        verdict=rows[0]["verdict"],
        worst_set=tuple(rows[0]["worst_set"]),
        groups=tuple((row["value"], row["n"], row["gap"]) for row in rows),
        dominant=rows[0]["dominant_attribute"],
    )


def _mean(sizes: list[float | None]) -> float | None:
    known = [size for size in sizes if size is not None]
    return sum(known) / len(known) if known else None
