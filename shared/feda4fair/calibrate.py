"""Rates that reach a wanted disparity, and the clients that do: rules come out, never data.

Three ways:

- `calibrate` raises the rate of a client's rule until its local model's demographic disparity
  exceeds a floor on the client's test rows (paper, section 4.1). A model has no closed form.
- `calibrate_labels` gives a group a wanted gap of the labels, see :mod:`feda4fair.closedform`.
- `select_clients` keeps the clients whose disparity exceeds a floor under given models.

What they find is frozen into a recipe; a build never trains a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import pyarrow as pa
from tqdm import tqdm

from feda4fair.build import parts_of
from feda4fair.closedform import By, LabelPlan, Where, plan_labels
from feda4fair.dataset import Source
from feda4fair.errors import MeasureError, RecipeError
from feda4fair.evaluate import Model
from feda4fair.federation import Federation
from feda4fair.measurement import contenders, count_labels
from feda4fair.ownsplit import OWN_SPLIT
from feda4fair.rates import Against
from feda4fair.recipe import ClientGroup, Recipe, RowSplit
from feda4fair.report import FairnessReport
from feda4fair.search import Found, Make, Rules, Search, group_of
from feda4fair.steps import federate_table, rules_of

__all__ = ["Calibration", "calibrate", "calibrate_labels", "select_clients"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """What a calibration found.

    Parameters
    ----------
    recipe : Recipe
        The recipe with the rules found: one group for each client that has rules. Its name and
        seed are kept, since draws are keyed by them.
    table : pandas.DataFrame
        One row for each client that was calibrated, see the function that made it.
    notes : tuple of str
        What could not be reached, a sentence each.
    """

    recipe: Recipe
    table: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def groups(self) -> tuple[ClientGroup, ...]:
        """The groups of clients and their rules."""
        return self.recipe.groups

    def __str__(self) -> str:
        """Return the table and the notes for a terminal."""
        table = self.table
        shown = table.to_string(index=False, float_format="{:.3f}".format, na_rep="-")
        return "\n".join([shown] * (len(table) > 0) + [*self.notes])


def calibrate(
    data: pa.Table | Source,
    recipe: Recipe,
    *,
    floor: float,
    models: Sequence[Model] = ("lr",),
    by: By = "drop",
    beside: float = 0.0,
    step: float = 0.1,
    against: Against = "rest",
    clients: Sequence[str] = (),
    split: RowSplit = OWN_SPLIT,
) -> Calibration:
    """Raise each client's rate, step by step, until its local model is unfair enough.

    Rates go from 0 to 1 in steps and the first that suffices is taken: disparity does not grow
    evenly with the rate, so that bisection could miss a lower one. Draws are nested: a larger
    rate drops the same rows and more. Models see the schema's features and nothing else.

    A client with rules has the rates of its first rule found anew, and its others left as they
    are. A client without rules is left alone where it exceeds the floor, and otherwise gets a
    rule against its most disadvantaged value, as in the paper.

    Parameters
    ----------
    data : pyarrow.Table or Source
        Rows of all clients, or a dataset's source, which is read part by part.
    recipe : Recipe
        Partition, split, seed and the rules to calibrate. Clients cut by ``subdivide`` share
        their parent's rule and cannot be calibrated one by one: use `select_clients`.
    floor : float
        Demographic disparity of the rule's attribute to be exceeded on the client's test rows.
    models : sequence of {"lr", "xgb"}
        Local models, each of which must exceed the floor, so that the smallest figure counts; see
        :func:`feda4fair.evaluate.local_models`.
    by : {"drop", "flip"}
        The rate that is raised.
    beside : float in [0, 1], default 0
        Rate of the other operation, held.
    step : float, default 0.1
        The paper's rates are multiples of 0.1.
    against : {"rest", "pairs"}
        Definition of the disparity; the paper's tables use pairs.
    clients : sequence of str
        Only these; the others keep their rules.
    split : RowSplit
        How clients split their own rows where the recipe splits by client.

    Returns
    -------
    Calibration
        Its table: ``client``, ``rule``, ``DD at 0``, ``rate`` and ``DD`` as found, and of the
        recipe's own first rule ``given drop``, ``given flip`` and ``DD given``. ``rate`` is NaN
        where no rate suffices; the client then has no rule, and a note says so.

    Raises
    ------
    RecipeError
        If the recipe subdivides its clients or is a control, or a number is out of range.
    MeasureError
        If local models cannot be trained on its features.

    References
    ----------
    Feda4Fair, section 4.1 and Table 1.
    """
    _check(recipe)
    if not (0 < floor < 1 and 0 < step <= 1 and 0 <= beside <= 1 and models):
        raise RecipeError(
            f"floor {floor}, step {step}, beside {beside}, {len(models)} models: floor and step "
            "lie between 0 and 1, beside does not exceed 1, and one model is needed."
        )
    search = Search(recipe, floor, tuple(models), by, beside, step, against, split)
    names: tuple[str, ...] = ()
    found: list[Found] = []
    for make, parents in _parts(data, recipe, clients):
        here = [each.name for each in make(replace(recipe, groups=(), keep=None)).clients]
        names = parents or tuple(here)
        rules = rules_of(names, recipe)
        wanted = set(clients or recipe.keep or here)
        found += search.run(make, {name: rules[name] for name in here if name in wanted})
    return Calibration(
        recipe=_with_rules(recipe, names, {each.client: each.rules for each in found}),
        table=pd.DataFrame([each.row for each in found]),
        notes=tuple(each.note for each in found if each.note),
    )


def calibrate_labels(
    federation: Federation,
    *,
    gap: float,
    by: By = "drop",
    beside: float = 0.0,
    against: Against = "rest",
    groups: Mapping[str, Where] | None = None,
) -> Calibration:
    """Give groups of clients a wanted gap of their labels, in closed form.

    Parameters
    ----------
    federation : Federation
        Its rows before injection count, whatever its rules did.
    gap, by, beside, against
        As in :func:`feda4fair.closedform.plan_labels`.
    groups : mapping of str to sequence of (attribute, value), optional
        The group of each client; by default the one that the client's first rule names.

    Returns
    -------
    Calibration
        Its table: ``client``, ``rule``, ``rows`` and ``positives`` of the group, ``dropped`` and
        ``flipped`` counts, the rates ``drop`` and ``flip``, ``gap before``, ``gap``, and
        ``dominant``, the value with the largest disparity then. Notes name clients whose gap
        cannot be reached, with what can, and those in which another value dominates.

    Raises
    ------
    RecipeError
        If the recipe subdivides its clients or is a control, or no client has a group.
    """
    recipe = federation.recipe
    _check(recipe)
    names = tuple(client.name for client in federation.clients)
    if groups is None:
        rules = rules_of(names, recipe)
        groups = {name: own[0].where for name, own in rules.items() if own}
    if not groups:
        raise RecipeError(f"{recipe}: no client has a rule; name a group for each client.")
    labels, _ = count_labels(federation)
    plans, notes = [], []
    for client, where in groups.items():
        try:
            plan = plan_labels(
                labels,
                client,
                where,
                gap=gap,
                by=by,
                beside=beside,
                against=against,
                compare=contenders(recipe),
            )
        except MeasureError as error:
            notes.append(str(error))
            continue
        plans.append(plan)
        notes += [plan.note] if plan.note else []
    found: Rules = dict.fromkeys(groups, ()) | {p.client: (p.rule,) for p in plans}
    return Calibration(
        recipe=_with_rules(recipe, names, found),
        table=pd.DataFrame([_plan_row(plan) for plan in plans]),
        notes=tuple(notes),
    )


def select_clients(reports: Sequence[FairnessReport], *, floor: float) -> tuple[str, ...]:
    """Return the clients that exceed a floor, sorted: what ``Recipe.keep`` takes.

    Parameters
    ----------
    reports : sequence of FairnessReport
        One for each model, of the same clients, e.g. ``score.injected.report`` of local models.
    floor : float
        Demographic disparity that the largest over contending attributes and models exceeds.

    Raises
    ------
    MeasureError
        If no client exceeds the floor, or reports are of different clients.
    """
    if not reports or any(report.clients != reports[0].clients for report in reports):
        raise MeasureError("select: give one report for each model, all of the same clients.")
    sizes = {
        client: max(_largest(report, client) for report in reports)
        for client in reports[0].clients
    }
    kept = tuple(sorted(client for client, size in sizes.items() if size > floor))
    if not kept:
        most = max(sizes, key=lambda client: sizes[client])
        raise MeasureError(
            f"select: none of {len(sizes)} clients exceeds {floor}; the largest disparity is "
            f"{sizes[most]:.3f}, of {most}."
        )
    return kept


def _largest(report: FairnessReport, client: str) -> float:
    size = report.worst(client).disparity.size
    return -math.inf if size is None else size


def _check(recipe: Recipe) -> None:
    if recipe.subdivide is not None:
        raise RecipeError(
            f"{recipe}: its clients are pieces that share their parent's rules; calibrate the "
            "recipe without subdivide, then select the pieces."
        )
    if recipe.control:
        raise RecipeError(
            f"{recipe}: is the control {recipe.control!r}, whose rules are fixed; calibrate the "
            "recipe itself."
        )


def _parts(
    data: pa.Table | Source, recipe: Recipe, clients: Sequence[str]
) -> Iterator[tuple[Make, tuple[str, ...]]]:
    """Yield for each part of the rows what federates it, and all natural clients if known."""
    if isinstance(data, pa.Table):
        yield partial(federate_table, data), ()
        return
    for part in tqdm(parts_of(recipe, data, clients), "calibrating", disable=None, unit="part"):
        table = data.read(part)
        if data.natural:
            yield partial(federate_table, table, client=part, parents=data.parts), data.parts
        else:
            yield partial(federate_table, table), ()


def _with_rules(recipe: Recipe, names: Sequence[str], found: Rules) -> Recipe:
    """Return a recipe whose clients have the rules found, and the others those they had."""
    rules = rules_of(tuple(names), recipe) | found
    groups = [group_of(client, own) for client, own in sorted(rules.items()) if own]
    for group in recipe.groups:
        if isinstance(group.clients, tuple):
            absent = tuple(client for client in group.clients if client not in rules)
            groups += [replace(group, clients=absent)] if absent else []
    return replace(recipe, groups=tuple(groups))


def _plan_row(plan: LabelPlan) -> dict[str, object]:
    lead = plan.dominant
    return {
        "client": plan.client,
        "rule": plan.rule.name,
        "rows": plan.rows,
        "positives": plan.positives,
        "dropped": plan.dropped,
        "flipped": plan.flipped,
        "drop": plan.rule.drop,
        "flip": plan.rule.flip,
        "gap before": plan.before,
        "gap": plan.gap,
        "dominant": f"{lead.attribute}={lead.value}" if plan.note else plan.rule.name,
    }
