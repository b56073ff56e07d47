"""What a program can answer of a datasheet's questions, from the files of a build."""

from __future__ import annotations

from typing import Any

from feda4fair.facts import ConfigFacts, Facts
from feda4fair.phrases import composition, counted, figure, injected, listed, resolvable, splits

__all__ = [
    "citation",
    "content",
    "dealt",
    "effects",
    "form",
    "groups",
    "hashes",
    "injection",
    "label",
    "ledger",
    "limits",
    "measured",
    "missing",
    "noise",
    "raw",
    "recommended_splits",
    "relations",
    "rows",
    "sample",
    "self_contained",
    "sensitive",
    "software",
    "sources",
    "version",
]


def rows(facts: Facts, config: ConfigFacts) -> str:
    """Return how many rows and clients there are."""
    entry = config.entry
    return (
        f"{counted(entry['rows'], 'row')} of {counted(entry['clients'], 'client')}; train / "
        f"validation / test: {splits(config)}. {entry['positives']:,} rows carry the favorable "
        f"label ({100 * entry['positives'] / entry['rows']:.1f} %)."
    )


def sample(facts: Facts, config: ConfigFacts) -> str:
    """Return what became of the rows that were read."""
    entry = config.entry
    text = f"Of {entry['source_rows']:,} rows that were read, {entry['dropped']:,} were removed"
    left = (
        f", and {entry['left_out']:,} are in no client of this config" if entry["left_out"] else ""
    )
    return f"{text} by injection{left}."


def content(facts: Facts, config: ConfigFacts) -> str:
    """Return the columns with their codes."""
    return "\n".join(
        f"- `{column['name']}` ({column['role']}): {column['description']}{_codes(column)}"
        for column in config.entry["columns"]
    )


def _codes(column: dict[str, Any]) -> str:
    names = "; ".join(f"{code} {name}" for code, name in column.get("names", {}).items())
    return f" {names}." if names else ""


def label(facts: Facts, config: ConfigFacts) -> str:
    """Return what the label is."""
    column = config.recipe.schema.label
    text = f"Yes: `label`, 1 {column.names[1]} (favorable) and 0 {column.names[0]}."
    text += f" {column.description}"
    if facts.index_only:
        text += " The index does not hold it; rebuilt rows do."
    return text.strip()


def missing(facts: Facts, config: ConfigFacts) -> str:
    """Return what is missing on purpose."""
    if facts.index_only:
        return "The index holds no attributes and no labels, since they may not be passed on."
    if not config.entry["dropped"]:
        return "Injection removed nothing from this config."
    return (
        f"Injection removed {counted(config.entry['dropped'], 'row')} on purpose; they are in "
        f"`dropped/{config.name}.parquet`."
    )


def relations(facts: Facts, config: ConfigFacts) -> str:
    """Return how rows belong together."""
    text = "`client_id` says which rows belong to one client."
    if config.recipe.subdivide is not None:
        text += " `parent` in `clients/` says which clients were cut from one."
    return text


def recommended_splits(facts: Facts, config: ConfigFacts) -> str:
    """Return how rows were split."""
    return composition(config)


def noise(facts: Facts, config: ConfigFacts) -> str:
    """Return how many labels were changed."""
    flipped = config.entry["flipped"]
    if not flipped:
        return "No label was changed by injection in this config."
    return (
        f"Injection changed {counted(flipped, 'label')} on purpose; `flipped` marks them, and the "
        "clean label is `label XOR flipped`."
    )


def self_contained(facts: Facts, config: ConfigFacts) -> str:
    """Return whether the files stand alone."""
    if facts.index_only:
        return "No. The rows are rebuilt from the user's own copy of the source."
    return "Yes. Files hold all values, and nothing is linked."


def groups(facts: Facts, config: ConfigFacts) -> str:
    """Return the rows of every group."""
    lines = []
    for attribute in config.attributes:
        groups = "; ".join(f"{name} {count:,}" for name, count, _ in attribute.pooled.after.groups)
        lines.append(f"- {attribute.name}: {groups}")
    return "Rows by sensitive attribute, after injection:\n\n" + "\n".join(lines)


def sensitive(facts: Facts, config: ConfigFacts) -> str:
    """Return which columns are sensitive."""
    names = [f"`{name}`" for name in config.recipe.schema.sensitive]
    return f"Sensitive attributes: {listed(names)}." if names else ""


def measured(facts: Facts, config: ConfigFacts) -> str:
    """Return the bias of the labels."""
    lines = [
        f"- {a.name}: mean demographic disparity {figure(a.mean_before)} before and "
        f"{figure(a.mean_after)} after injection, over {counted(len(a.clients), 'client')}"
        for a in config.attributes
    ]
    return "\n".join(["Bias of the labels:", "", *lines, "", resolvable(config)])


def sources(facts: Facts, config: ConfigFacts) -> str:
    """Return which sources were read."""
    sources = facts.manifest["sources"]
    names = [source["name"] for source in sources]
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"Read were {shown}; `manifest.json` holds the hash of each." if names else ""


def dealt(facts: Facts, config: ConfigFacts) -> str:
    """Return how rows came to clients."""
    return "Nothing was drawn for this config but what its recipe says, see the splits above."


def injection(facts: Facts, config: ConfigFacts) -> str:
    """Return what injection did."""
    if not config.rules:
        return "No bias was injected into this config."
    return (
        f"Bias was injected ({injected(config)}): "
        f"{counted(config.entry['dropped'], 'row')} removed and "
        f"{counted(config.entry['flipped'], 'label')} changed. The recipe is "
        f"`recipes/{config.name}.json`."
    )


def raw(facts: Facts, config: ConfigFacts) -> str:
    """Return whether the rows can be restored."""
    kept = "" if facts.index_only else " The rows before injection can be restored from the files."
    return f"Sources are not part of the files; their hashes are in `manifest.json`.{kept}"


def software(facts: Facts, config: ConfigFacts) -> str:
    """Return what wrote the files."""
    return (
        f"Yes, `feda4fair` {facts.manifest['versions']['feda4fair']}, under Apache-2.0; "
        "`manifest.json` names the versions that this build used."
    )


def ledger(facts: Facts, config: ConfigFacts) -> str:
    """Return where every rule is accounted for."""
    notes = sum(bool(entry["note"]) for entry in config.entry["ledger"])
    text = "What every rule did in every client is in `manifest.json`."
    return f"{text} {counted(notes, 'rule')} came to nothing, as noted there." if notes else text


def limits(facts: Facts, config: ConfigFacts) -> str:
    """Return the limits that a person wrote down."""
    return "\n".join(f"- {limit.strip()}" for limit in facts.prose.get("limits", []))


def effects(facts: Facts, config: ConfigFacts) -> str:
    """Return what injection means for later uses."""
    if not config.rules:
        return ""
    return (
        "Rows and labels were changed on purpose, so no figure on these data describes the people "
        "or places they come from."
    )


def form(facts: Facts, config: ConfigFacts) -> str:
    """Return in which form the data are given."""
    return "As Parquet files with a card, in a folder in the layout of the Hugging Face Hub."


def version(facts: Facts, config: ConfigFacts) -> str:
    """Return the version."""
    date = f" of {facts.prose['published']}" if "published" in facts.prose else ""
    return (
        f"This is version {facts.manifest['version']}{date}; a published version has a tag of "
        "that name."
    )


def citation(facts: Facts, config: ConfigFacts) -> str:
    """Return where the citation is."""
    return "How to cite is in `CITATION.bib`." if facts.manifest["citation"] else ""


def hashes(facts: Facts, config: ConfigFacts) -> str:
    """Return the content hash."""
    return f"The content hash of this config is `{config.entry['content_sha256']}`."
