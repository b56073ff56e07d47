"""Facts of a built folder in words, for cards and datasheets alike."""

from __future__ import annotations

from typing import assert_never

from feda4fair.facts import AttributeFacts, ConfigFacts, RuleFacts, Stage
from feda4fair.partition import (
    Assigned,
    Dirichlet,
    Iid,
    LogNormal,
    Natural,
    PowerLaw,
    Shards,
    Sizes,
)
from feda4fair.recipe import ClientSplit, Recipe, RowSplit
from feda4fair.split import SPLITS

__all__ = [
    "composition",
    "counted",
    "figure",
    "gap",
    "injected",
    "listed",
    "resolvable",
    "splits",
    "verdict",
]


def figure(value: float | None, digits: int = 3) -> str:
    """Return a rate or disparity with its digits, or a dash where it is undefined."""
    return "-" if value is None else f"{value:.{digits}f}"


def gap(stage: Stage) -> str:
    """Return the lowest signed gap with its interval.

    Examples
    --------
    >>> gap(
    ...     Stage(
    ...         disparity=0.1,
    ...         values=("b",),
    ...         support=9,
    ...         gap=-0.1,
    ...         low=-0.2,
    ...         high=0.004,
    ...         favored=(),
    ...         verdict="undetermined",
    ...         worst_set=("a", "b"),
    ...         groups=(("b", 9, -0.1),),
    ...         dominant=None,
    ...     )
    ... )
    '-0.100 [-0.200, 0.004]'
    """
    if stage.gap is None:
        return "-"
    return f"{stage.gap:.3f} [{figure(stage.low)}, {figure(stage.high)}]"


def verdict(stage: Stage) -> str:
    """Return what the tests leave of a client's most biased value."""
    match stage.verdict:
        case "toward":
            return f"biased toward {' = '.join(stage.worst_set)}"
        case "disparity":
            return f"biased; worst is one of {', '.join(stage.worst_set)}"
        case "small":
            return "small gaps only"
        case "undetermined":
            return "cannot be told"
        case _:
            return "no figure"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "client"), counted(1200, "row")
    ('1 client', '1,200 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(words: list[str]) -> str:
    """Return words as a list in a sentence.

    Examples
    --------
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def splits(config: ConfigFacts) -> str:
    """Return the rows of train, validation and test."""
    found = config.entry["splits"]
    return " / ".join(f"{found[s]['rows']:,}" if s in found else "-" for s in SPLITS)


def injected(config: ConfigFacts, separator: str = "; ") -> str:
    """Return in how many clients each rule acts, and what it did to the gap of its group."""
    if not config.rules:
        return "none"
    parts = [f"{rule.name} in {rule.clients}{_moved(rule)}" for rule in config.rules]
    if config.free_clients:
        parts.append(f"no rule in {config.free_clients}")
    return separator.join(parts)


def _moved(rule: RuleFacts) -> str:
    if rule.gap_before is None and rule.gap_after is None:
        return ""
    return f" ({figure(rule.gap_before, 2)} → {figure(rule.gap_after, 2)})"


def resolvable(config: ConfigFacts) -> str:
    """Return in how many clients a worst value, and a worst attribute, can be told at all."""
    sentences = [_resolvable(attribute) for attribute in config.ruled]
    if config.dominant:
        told = {a.name: config.dominant[a.name] for a in config.ruled}
        clients = len(config.ruled[0].clients)
        which = ", ".join(f"{name} {count}" for name, count in told.items())
        sentences.append(
            f"Which attribute is worse can be told in {sum(told.values())} of {clients} clients "
            f"({which})."
        )
    return " ".join(sentences)


def _resolvable(attribute: AttributeFacts) -> str:
    clients = len(attribute.clients)
    named, several = attribute.verdicts["toward"], attribute.verdicts["disparity"]
    text = f"the worst value of {attribute.name} can be told in {named} of {clients} clients"
    if several:
        text += f"; in {several} more there is bias, but several values may be the worst"
    rest = clients - named - several
    if rest:
        text += f"; in {rest} no bias is established"
    return text[0].upper() + text[1:] + "."


def composition(config: ConfigFacts) -> str:
    """Return how rows became clients and splits, in sentences."""
    recipe, entry = config.recipe, config.entry
    parts = [_partition(recipe, entry["clients"])]
    if isinstance(recipe.partition, Dirichlet | Shards | Assigned):
        parts.append(
            f"The skew that came out: clients' labels lie {config.label_skew:.2f} from the pooled "
            "ones on average (Jensen-Shannon distance; 0 is alike, 1 is disjoint)."
        )
    if entry["left_out"]:
        parts.append(
            f"{entry['left_out']:,} of {entry['source_rows']:,} source rows are in no client."
        )
    parts.append(_split(recipe))
    if entry["empty_cells"]:
        cells = counted(len(entry["empty_cells"]), "combination")
        parts.append(
            f"{cells} of client, value and label occur in test but not in train; `manifest.json` "
            "lists them."
        )
    return " ".join(parts)


def _partition(recipe: Recipe, clients: int) -> str:
    match recipe.partition:
        case Natural(column=column):
            text = f"A client is one {column} of the source"
        case Iid(clients=dealt, sizes=sizes):
            text = f"Rows are dealt at random to {counted(dealt, 'client')} of {_sizes(sizes)}"
        case Dirichlet(clients=dealt, by=by, alpha=alpha):
            text = (
                f"Rows of each level of {listed(list(by))} are shared among "
                f"{counted(dealt, 'client')} by a Dirichlet draw with alpha {alpha:g} "
                "(the smaller, the more skewed)"
            )
        case Shards(clients=dealt, by=by, per_client=shards):
            text = (
                f"Rows sorted by {listed(list(by))} are cut into equal shards, {shards} for "
                f"each of {counted(dealt, 'client')}"
            )
        case Assigned(clients=named):
            text = f"Rows are assigned to {counted(len(named), 'client')} as the recipe lists them"
        case _:
            assert_never(recipe.partition)
    if recipe.subdivide is not None:
        parts, rows = recipe.subdivide.parts, recipe.subdivide.rows
        text += f", cut into {parts} pieces" if parts else f", cut into pieces of {rows} rows"
    if recipe.keep is not None:
        text += f"; {counted(clients, 'client')} of them are kept"
    return f"{text}. Every draw follows seed {recipe.seed}."


def _sizes(sizes: Sizes) -> str:
    match sizes:
        case None:
            return "equal size"
        case PowerLaw(exponent=exponent):
            return f"sizes by a power law with exponent {exponent:g}"
        case LogNormal(sigma=sigma):
            return f"log-normal sizes with sigma {sigma:g}"
        case tuple():
            return "given sizes"
        case _:
            assert_never(sizes)


def _split(recipe: Recipe) -> str:
    match recipe.split:
        case RowSplit(validation=validation, test=test, stratify=stratify):
            shares = " / ".join(
                f"{100 * s:.0f}" for s in (1 - validation - test, validation, test)
            )
            by = f", stratified by {listed(list(stratify))}" if stratify else ""
            return f"Each client's rows are split {shares} into train, validation and test{by}."
        case ClientSplit(test=test_clients, folds=folds):
            text = (
                f"Whole clients are either train or test; test are {', '.join(test_clients)}."
                if test_clients
                else "All clients are train."
            )
            grouped = f" `clients/` assigns {folds} folds for cross-validation." if folds else ""
            return text + grouped
        case _:
            assert_never(recipe.split)
