"""Step 3, Inject: which clients are biased against whom, how much, and what that touches."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import streamlit as st

from feda4fair.columns import Value
from feda4fair.dashboard.rows import Counted
from feda4fair.dashboard.splitting import counted
from feda4fair.dashboard.state import Session, plain, show_table, start
from feda4fair.errors import RecipeError
from feda4fair.recipe import BiasRule, ClientGroup, Gaussian, Rate
from feda4fair.scenarios import attribute_bias, homogeneous, opposed, value_bias
from feda4fair.schema import Schema

__all__ = ["show", "touched"]

MOST_GROUPS: Final = 12
MOST_RULES: Final = 6
BENCHMARK, NONE = "As in the benchmark", "No bias"
SAME = "Same for all: every client against one group of people"
VALUES = "Value bias: clients against different values of one attribute"
ATTRIBUTES = "Attribute bias: clients against different attributes"
OPPOSED = "Opposed: half against a value, half against all others"
FREE = "Groups of my own"
EVERY, SHARE, NAMED = "all clients", "a share of the clients", "named clients"


def show(here: Session) -> None:
    """Show the step: the groups, and what each of their rules touches."""
    st.subheader("Inject: who is biased against whom?")
    assert here.base is not None, "the step is open once there is a schema"
    schema, tag = here.base.schema, f"{here.tag}inject-"
    kinds = [NONE, SAME, VALUES, ATTRIBUTES, OPPOSED, FREE]
    if here.base.groups and not here.is_moved:
        kinds.insert(0, BENCHMARK)
    kind = st.selectbox("Scenario", kinds, key=start(f"{tag}kind", kinds[0]))
    here.groups = _groups(here, kind, schema, tag)
    found = counted(here, here.recipe)
    if found is not None:
        _show_touched(found)


def _groups(here: Session, kind: str, schema: Schema, tag: str) -> tuple[ClientGroup, ...] | None:
    match kind:
        case "As in the benchmark":
            return None
        case "No bias":
            return ()
        case _ if kind == FREE:
            return _free(here, schema, tag)
    if kind in (SAME, OPPOSED):
        attribute, value = _who(schema, tag)
        where: dict[str, Value] = {attribute: value}
        if kind == SAME:
            where |= _second(schema, attribute, tag)
        drop, flip = _rates(tag)
        if kind == SAME:
            return homogeneous(where, drop=drop, flip=flip)
        return opposed(schema, attribute, value, drop=drop, flip=flip)
    if kind == VALUES:
        attribute = st.selectbox("Attribute", schema.sensitive, key=f"{tag}attribute")
        values = st.multiselect(
            "Values: one group of clients for each",
            _names(schema, attribute),
            key=start(f"{tag}values-{attribute}", _names(schema, attribute)[:2]),
        )
        drop, flip = _rates(tag)
        return value_bias(attribute, values, drop=drop, flip=flip)
    targets: dict[str, Value] = {}
    for name, column in zip(schema.sensitive, st.columns(len(schema.sensitive)), strict=True):
        value = column.selectbox(
            plain(name), ["—", *_names(schema, name)], key=f"{tag}target-{name}"
        )
        targets |= {} if value == "—" else {name: value}
    drop, flip = _rates(tag)
    if not targets:
        raise RecipeError("attribute bias: choose a value of at least one attribute.")
    return attribute_bias(targets, drop=drop, flip=flip)


def _names(schema: Schema, attribute: str) -> list[str]:
    coding = schema[attribute].coding
    if coding is None:
        raise RecipeError(f"{attribute}: its values are not listed; load it with a schema.")
    return [name for _, name in coding.names]


def _who(schema: Schema, tag: str) -> tuple[str, str]:
    one, two = st.columns(2)
    attribute = one.selectbox("Against: attribute", schema.sensitive, key=f"{tag}who")
    names = _names(schema, attribute)
    value = two.selectbox("Value", names, key=start(f"{tag}value-{attribute}", names[-1]))
    return attribute, value


def _second(schema: Schema, first: str, tag: str) -> dict[str, Value]:
    """Return a second attribute and value that the rule also asks for, if one is wanted."""
    others = [name for name in schema.sensitive if name != first]
    if not others:
        return {}
    one, two = st.columns(2)
    attribute = one.selectbox("And: second attribute", ["—", *others], key=f"{tag}and-{first}")
    if attribute == "—":
        return {}
    value = two.selectbox("Value ", _names(schema, attribute), key=f"{tag}and-value-{attribute}")
    return {attribute: value}


def _rates(tag: str) -> tuple[Rate, Rate]:
    """Return the drop and the flip rate, each fixed or drawn for each client."""
    kind = st.radio(
        "Rates", ["fixed", "Gaussian, drawn for each client"], horizontal=True, key=f"{tag}rates"
    )
    drawn = kind != "fixed"
    columns = st.columns(4 if drawn else 2)
    drop = columns[0].number_input(
        "Drop: share of the eligible rows that is removed",
        *(0.0, 1.0),
        step=0.05,
        key=start(f"{tag}drop", 0.3),
    )
    flip = columns[-2 if drawn else -1].number_input(
        "Flip: share of those left whose label is changed",
        *(0.0, 1.0),
        step=0.05,
        key=start(f"{tag}flip", 0.0),
    )
    if not drawn:
        return drop, flip
    one, two = (
        columns[at].number_input(
            f"{name}: standard deviation", 0.0, 1.0, step=0.01, key=start(f"{tag}{name}-std", 0.05)
        )
        for at, name in ((1, "Drop"), (3, "Flip"))
    )
    return Gaussian(mean=drop, std=one), Gaussian(mean=flip, std=two)


def _free(here: Session, schema: Schema, tag: str) -> tuple[ClientGroup, ...]:
    """Return groups that the person makes up, each with rules of its own."""
    count = int(st.number_input("Groups", 1, MOST_GROUPS, key=start(f"{tag}count", 1)))
    groups = []
    for number in range(count):
        own = f"{tag}group-{number}-"
        with st.expander(f"Group {number + 1}", expanded=True):
            one, two, three = st.columns(3)
            name = one.text_input("Name", key=start(f"{own}name", f"group {number + 1}"))
            kind = two.selectbox("Clients", [SHARE, EVERY, NAMED], key=f"{own}kind")
            members = _members(here, three, kind, own, 0.5 ** (number + 1))
            rules = int(st.number_input("Rules", 1, MOST_RULES, key=start(f"{own}rules", 1)))
            made = tuple(_rule(schema, f"{own}rule-{rule}-") for rule in range(rules))
            groups.append(ClientGroup(name=name, rules=made, clients=members))
    return tuple(groups)


def _members(
    here: Session, place: Any, kind: str, own: str, share: float
) -> tuple[str, ...] | float | None:
    if kind == EVERY:
        return None
    if kind == SHARE:
        text = "Share, in client order"
        return float(
            place.number_input(
                text, 0.0001, 1.0, step=0.05, format="%g", key=start(f"{own}share", share)
            )
        )
    found = counted(here, here.clean)
    clients = sorted({here.clean.parent(name) for name in found.before.clients}) if found else []
    return tuple(place.multiselect("Names", clients, key=f"{own}names"))


def _rule(schema: Schema, tag: str) -> BiasRule:
    attribute, value = _who(schema, tag)
    where: dict[str, Value] = {attribute: value, **_second(schema, attribute, tag)}
    label = st.radio(
        "Acts on rows labeled",
        [1, 0],
        format_func=lambda label: plain(schema.label.names[label]),
        horizontal=True,
        key=f"{tag}label",
    )
    drop, flip = _rates(tag)
    return BiasRule(where=tuple(where.items()), label=int(label), drop=drop, flip=flip)


def touched(found: Counted) -> pd.DataFrame:
    """Return what each rule did, all its clients together.

    Returns
    -------
    pandas.DataFrame
        One row for each rule: ``against``, ``label``, ``clients``, ``eligible``, ``dropped``,
        ``flipped``, and the smallest and largest drawn rates.
    """
    names = found.recipe.schema.label.names
    frame = pd.DataFrame(
        [
            {
                "against": entry.rule,
                "label": names[entry.label],
                "clients": 1,
                "eligible": entry.eligible,
                "dropped": entry.dropped,
                "flipped": entry.flipped,
                "drop": entry.drop,
                "flip": entry.flip,
            }
            for entry in found.ledger
        ]
    )
    if frame.empty:
        return frame
    rates = {f"{rate} {end}": (rate, end) for rate in ("drop", "flip") for end in ("min", "max")}
    sums = {name: (name, "sum") for name in ("clients", "eligible", "dropped", "flipped")}
    return frame.groupby(["against", "label"], sort=False).agg(**sums, **rates).reset_index()


def _show_touched(found: Counted) -> None:
    flipped = sum(entry.flipped for entry in found.ledger)
    one, two, three = st.columns(3)
    one.metric("Clients with a rule", f"{len({e.client for e in found.ledger}):,}", border=True)
    two.metric("Rows dropped", f"{found.dropped:,}", border=True)
    three.metric("Labels flipped", f"{flipped:,}", border=True)
    frame = touched(found)
    if frame.empty:
        st.caption("No rule: the clients stay as they are.")
        return
    st.markdown("**What each rule touches**")
    shown = pd.DataFrame(
        {
            "Against": frame["against"],
            "Label": frame["label"],
            "Clients": frame["clients"].map("{:,}".format),
            "Eligible rows": frame["eligible"].map("{:,}".format),
            "Dropped": frame["dropped"].map("{:,}".format),
            "Flipped": frame["flipped"].map("{:,}".format),
            "Drop rate": _range(frame, "drop"),
            "Flip rate": _range(frame, "flip"),
        }
    )
    show_table(shown)
    notes = [entry for entry in found.ledger if entry.note]
    if notes:
        with st.expander(f"Rules that did nothing in a client: {len(notes)}"):
            lines = [
                f"- {plain(f'{entry.client}, {entry.rule}: {entry.note}')}" for entry in notes[:50]
            ]
            more = [f"- and {len(notes) - 50} more"] if len(notes) > 50 else []
            st.markdown("\n".join(lines + more))


def _range(frame: pd.DataFrame, rate: str) -> list[str]:
    pairs = zip(frame[f"{rate} min"], frame[f"{rate} max"], strict=True)
    return [f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}" for low, high in pairs]
