"""Merging a generated card into one that people have written on.

Generated text lies between ``<!-- feda4fair:begin NAME -->`` and ``<!-- feda4fair:end NAME -->``;
what stands outside of such blocks is somebody's own. The block of a config is named
``config:NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from feda4fair.errors import OutputError

__all__ = ["SIZES", "assemble", "block", "merge_card", "read_card"]

SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
)
"""Row limits and what the Hub calls them."""

OWNED = frozenset(
    {
        *("pretty_name", "license", "license_name", "license_link", "language"),
        *("size_categories", "task_categories", "tags", "annotations_creators"),
        *("source_datasets", "configs", "dataset_info"),
    }
)
"""YAML keys that a generated card decides; all others of an existing card are kept."""

CONDITIONAL_TAG = "synthetic"
"""The one tag that a later card may take back."""

_FRONT = re.compile(r"---\n(?P<yaml>.*?)^---[ \t]*\n?", re.DOTALL | re.MULTILINE)
_MARKER = re.compile(r"<!-- feda4fair:(?P<kind>begin|end) (?P<name>\S+) -->")
_KEYED_ROW = re.compile(r"(\| |- )(?P<key>`[^`]+`)( \||:)")


def block(name: str, text: str) -> str:
    """Return generated text between its markers; what looks like a marker in it is none."""
    text = _MARKER.sub(lambda marker: f"&lt;{marker[0][1:]}", text)
    return f"<!-- feda4fair:begin {name} -->\n{text.strip()}\n<!-- feda4fair:end {name} -->"


def assemble(metadata: Mapping[str, Any], body: str) -> str:
    """Return a card from its YAML data and its generated blocks."""
    return _front_matter(metadata) + _joined(_pieces(body))


def _front_matter(metadata: Mapping[str, Any]) -> str:
    text = yaml.safe_dump(dict(metadata), sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{text}---\n"


def read_card(card: str) -> tuple[dict[str, Any], str]:
    """Return the YAML block of a card as data, and the text below it.

    Raises
    ------
    OutputError
        If the block is not valid YAML or not a mapping.
    """
    text = card.removeprefix("\ufeff").replace("\r\n", "\n")
    front = _FRONT.match(text)
    if front is None:
        return {}, text
    try:
        metadata = yaml.safe_load(front["yaml"]) or {}
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise OutputError(
            f"README.md: its YAML block cannot be read ({reason}); mend it or remove the file."
        ) from None
    if not isinstance(metadata, dict):
        raise OutputError(
            f"README.md: its YAML block is a {type(metadata).__name__} where keys and values are "
            "expected; mend it or remove the file."
        )
    return metadata, text[front.end() :]


def merge_card(existing: str, generated: str, *, whole: bool = False) -> str:
    """Return a generated card with what people wrote into the existing one.

    Kept from the existing card are text outside of generated blocks, YAML keys that no generated
    card has, tags, and configs that were not built this time: their YAML entries, their blocks
    and their rows in tables. Everything else is the generated card's; text that people wrote
    into that one, and that the existing card lacks, is added at its place.

    Parameters
    ----------
    existing : str
        The card that people may have edited; empty where there is none.
    generated : str
        The card of the new build.
    whole : bool, default False
        The generated card describes every config there is, so that those it lacks go.

    Returns
    -------
    str
        The merged card; merging the same card again changes nothing.

    Raises
    ------
    OutputError
        If the existing card has a broken YAML block, or a marker without its partner.

    Examples
    --------
    >>> new = block("head", "# Title")
    >>> print(merge_card("## My notes", new))
    <!-- feda4fair:begin head -->
    # Title
    <!-- feda4fair:end head -->
    <BLANKLINE>
    ## My notes
    """
    old_metadata, old_body = read_card(existing)
    metadata, body = read_card(generated)
    lacking = [name for name in _configs(old_metadata) if name not in _configs(metadata)]
    kept = [] if whole else lacking
    merged = _merge_metadata(old_metadata, metadata, kept)
    front = _front_matter(merged) if merged else ""
    return front + _merge_body(old_body, body, kept)


def _configs(metadata: Mapping[str, Any]) -> list[str]:
    entries = metadata.get("configs")
    if not isinstance(entries, list):
        return []
    return [str(e["config_name"]) for e in entries if isinstance(e, dict) and "config_name" in e]


def _merge_metadata(
    old: Mapping[str, Any], new: Mapping[str, Any], kept: Sequence[str]
) -> dict[str, Any]:
    merged = dict(new)
    if "tags" in new:
        known = {*new["tags"], CONDITIONAL_TAG}
        merged["tags"] = [*new["tags"], *(t for t in _listed(old, "tags") if t not in known)]
    if kept:
        order = [*_configs(old), *(name for name in _configs(new) if name not in _configs(old))]
        for key in ("configs", "dataset_info"):
            merged[key] = _merge_entries(_listed(old, key), _listed(new, key), order, kept)
        _one_default(merged["configs"], old)
        sizes = [*_listed(old, "size_categories"), *_listed(new, "size_categories")]
        known_sizes = [name for _, name in SIZES if name in sizes]
        merged["size_categories"] = known_sizes[-1:] or _listed(new, "size_categories")
    return merged | {key: value for key, value in old.items() if key not in {*OWNED, *new}}


def _listed(metadata: Mapping[str, Any], key: str) -> list[Any]:
    value = metadata.get(key, [])
    return list(value) if isinstance(value, list) else [value]


def _merge_entries(
    old: Sequence[Any], new: Sequence[Any], order: Sequence[str], kept: Sequence[str]
) -> list[Any]:
    """Return the entries of rebuilt configs from ``new`` and of the others from ``old``."""
    entries = {e["config_name"]: e for e in old if isinstance(e, dict) and "config_name" in e}
    entries = {name: entries[name] for name in kept if name in entries}
    entries |= {e["config_name"]: e for e in new}
    return [entries[name] for name in order if name in entries]


def _one_default(entries: list[Any], old: Mapping[str, Any]) -> None:
    """Make the default of the existing card the only one, else the first config."""
    before = [e.get("config_name") for e in _listed(old, "configs") if e.get("default")]
    names = [entry["config_name"] for entry in entries]
    default = before[0] if before and before[0] in names else names[0]
    for position, entry in enumerate(entries):
        plain = {key: value for key, value in entry.items() if key != "default"}
        chosen = entry["config_name"] == default
        entries[position] = plain | ({"default": True} if chosen else {})


def _merge_body(old: str, new: str, kept: Sequence[str]) -> str:
    pieces, fresh = _pieces(old), _pieces(new)
    blocks = {name: text for name, text in fresh if name}
    own = [text for name, text in pieces if not name]
    if len(own) == len(pieces):
        text = "".join(own).strip()
        return new if not text else f"{new.rstrip()}\n\n{text}\n"
    merged = [
        (name, _keep_rows(text, blocks[name]) if kept else blocks[name])
        if name in blocks
        else (name, text)
        for name, text in pieces
        if not name or name in blocks or name.removeprefix("config:") in kept
    ]
    return _joined(
        _insert(merged, [(n, text) for n, text in fresh if n or text.strip() not in old])
    )


def _insert(merged: list[tuple[str, str]], fresh: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Put new blocks, and new words of people, behind what precedes them in the generated card."""
    position = 0
    for name, text in fresh:
        names = [known for known, _ in merged]
        if name and name in names:
            position = names.index(name) + 1
            continue
        merged.insert(position, (name, text))
        position += 1
    return merged


def _joined(pieces: Sequence[tuple[str, str]]) -> str:
    """Join pieces with a blank line around blocks; the lines of people's text stay as they are."""
    texts = [text if name else text.strip("\n") for name, text in pieces]
    return "\n" + "\n\n".join(text for text in texts if text.strip()) + "\n"


def _pieces(body: str) -> list[tuple[str, str]]:
    """Cut a body into (block name, text with markers) and ("", text of people)."""
    pieces: list[tuple[str, str]] = []
    position, opened = 0, None
    for marker in _MARKER.finditer(body):
        name = marker["name"]
        if opened is None and marker["kind"] == "begin":
            pieces.append(("", body[position : marker.start()]))
            position, opened = marker.start(), name
        elif opened == name and marker["kind"] == "end":
            pieces.append((name, body[position : marker.end()]))
            position, opened = marker.end(), None
        else:
            raise OutputError(_unpaired(marker["kind"], name, opened))
    if opened is not None:
        raise OutputError(_unpaired("begin", opened, None))
    pieces.append(("", body[position:]))
    named = [name for name, _ in pieces if name]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise OutputError(f"README.md: block {twice[0]} stands twice; remove one of them.")
    return [piece for piece in pieces if piece[0] or piece[1].strip()]


def _unpaired(kind: str, name: str, opened: str | None) -> str:
    inside = f" inside block {opened}" if opened else ""
    return (
        f"README.md: the {kind} marker of block {name}{inside} has no partner; restore the "
        "markers or remove the block."
    )


def _keep_rows(old: str, new: str) -> str:
    """Return a block with the rows of configs (or columns) that the new one lacks.

    A row is a line of a table or of a list that begins with a name written as code. Only tables
    with the same header are merged.
    """
    before = {_head(group): group for group in _groups(old) if _head(group)}
    lines: list[str] = []
    for group in _groups(new):
        found = before.get(_head(group), [])
        start = _rows_from(group)
        lines += [*group[:start], *_merge_rows(found[start:], group[start:])]
    return "\n".join(lines)


def _groups(text: str) -> list[list[str]]:
    """Cut a text into tables, lists and single lines."""
    groups: list[list[str]] = []
    for line in text.split("\n"):
        mark = _mark(line)
        if mark and groups and _mark(groups[-1][0]) == mark:
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _mark(line: str) -> str:
    return next((mark for mark in ("|", "- `") if line.startswith(mark)), "")


def _head(group: Sequence[str]) -> str:
    """Return what tells a group from others: the table's header or the mark of a list."""
    return group[0] if _mark(group[0]) == "|" else _mark(group[0])


def _rows_from(group: Sequence[str]) -> int:
    return 2 if _mark(group[0]) == "|" else 0


def _merge_rows(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the new rows, and of the old ones those whose key has no new row, in old order."""
    by_key: dict[str, list[str]] = {}
    for row in new:
        by_key.setdefault(_key(row), []).append(row)
    fresh = set(by_key)
    rows: list[str] = []
    for row in old:
        key = _key(row)
        if key in fresh:
            rows += by_key.pop(key, [])
        elif key:
            rows.append(row)
    return rows + [row for group in by_key.values() for row in group]


def _key(row: str) -> str:
    found = _KEYED_ROW.match(row)
    return found["key"] if found else ""
