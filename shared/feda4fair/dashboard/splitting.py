"""Step 2, Split: how rows become clients, and how clients are split."""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from feda4fair.dashboard import charts
from feda4fair.dashboard.rows import Counted, Rows
from feda4fair.dashboard.state import Session, result, start
from feda4fair.errors import RecipeError
from feda4fair.partition import (
    Dirichlet,
    Iid,
    LogNormal,
    Natural,
    Partition,
    PowerLaw,
    Shards,
    Sizes,
    Subdivide,
)
from feda4fair.recipe import ClientSplit, Recipe, RowSplit, Split
from feda4fair.split import draw_test_clients

__all__ = ["counted", "show"]

MOST_CLIENTS: Final = 10_000
BENCHMARK, NATURAL = "As in the benchmark", "One client for each value of a column"
IID, DIRICHLET, SHARDS = "At random (IID)", "Skewed by a Dirichlet draw", "Shards of sorted rows"
EQUAL, POWER, LOG, GIVEN = "equal", "power law", "log-normal", "given"


def show(here: Session) -> None:
    """Show the step: choices, then what they give, before any bias is injected."""
    st.subheader("Split: who gets which rows?")
    assert here.rows is not None, "the step is open once there are rows"
    assert here.base is not None, "the step is open once there is a schema"
    here.layout = _choose(here, here.rows, here.base)
    found = counted(here, here.clean)
    if found is None:
        return
    _show_clients(found)


def counted(here: Session, recipe: Recipe) -> Counted | None:
    """Return the counts of a recipe, made now unless they are there."""
    rows = here.rows
    assert rows is not None, "the step is open once there are rows"
    return result("counts", recipe, "Making clients", lambda tick: rows.count_labels(recipe, tick))


def _choose(here: Session, rows: Rows, base: Recipe) -> dict[str, Any]:
    kinds = [NATURAL, IID, DIRICHLET, SHARDS]
    first = IID
    if rows.base is not None:
        first = BENCHMARK
        kinds = [BENCHMARK, *([NATURAL] if here.natural() else kinds)]
    tag = here.tag
    one, two = st.columns([3, 1])
    kind = one.selectbox("Partition", kinds, key=start(f"{tag}partition", first))
    seed = two.number_input("Seed", 0, 2**32 - 1, step=1, key=start(f"{tag}seed", base.seed))
    if kind == BENCHMARK:
        st.caption(base.description)
        return {} if seed == base.seed else {"seed": seed}
    partition = here.natural() or _partition(kind, rows, base, tag)
    if here.natural():
        st.caption(
            f"One client for each {rows.source.natural}, as the source is divided. To deal its "
            "rows otherwise, load them as one table by a path."
        )
    subdivide = _subdivide(rows, tag)
    layout = {
        "partition": partition,
        "subdivide": subdivide,
        "seed": int(seed),
        "keep": None,
        "split": RowSplit(),
    }
    here.layout = layout
    return {**layout, "split": _split(here, base, tag)}


def _partition(kind: str, rows: Rows, base: Recipe, tag: str) -> Partition:
    if kind == NATURAL:
        return _natural(rows, base, tag)
    one, two, three = st.columns(3)
    clients = int(one.number_input("Clients", 1, MOST_CLIENTS, key=start(f"{tag}clients", 10)))
    if kind == IID:
        sizes = _sizes(two, three, clients, tag)
        return Iid(clients, sizes=sizes)
    by = two.multiselect(
        "By",
        ["label", *base.schema.sensitive],
        key=start(f"{tag}by", ["label"]),
        help="Several: each combination of their values is dealt on its own.",
    )
    if not by:
        raise RecipeError(f"{kind}: choose the label or a sensitive attribute.")
    if kind == SHARDS:
        each = three.number_input("Shards for each client", 1, 100, key=start(f"{tag}shards", 2))
        return Shards(clients, by=tuple(by), per_client=int(each))
    alpha = three.number_input(
        "Alpha",
        min_value=0.001,
        max_value=1e6,
        format="%g",
        key=start(f"{tag}alpha", 0.5),
        help="Small: skewed, near 0 each value lies with one client. Large: clients are alike.",
    )
    smallest = st.number_input(
        "Fewest rows of a client", 1, 1_000_000, key=start(f"{tag}smallest", 1)
    )
    return Dirichlet(clients, by=tuple(by), alpha=alpha, smallest=int(smallest))


def _natural(rows: Rows, base: Recipe, tag: str) -> Natural:
    names = [name for name in rows.countable if name != base.schema.label.column]
    column = st.selectbox(
        "Column that names the client",
        names,
        index=None,
        placeholder="choose a column",
        key=f"{tag}natural",
    )
    if column is None:
        raise RecipeError("clients: choose the column that names them.")
    found = rows.values(column)
    if found > MOST_CLIENTS:
        raise RecipeError(
            f"{column}: {found:,} values are too many clients for this page (at most "
            f"{MOST_CLIENTS:,}); choose another column."
        )
    return Natural(column)


def _sizes(one: Any, two: Any, clients: int, tag: str) -> Sizes:
    kind = one.selectbox("Sizes", [EQUAL, POWER, LOG, GIVEN], key=f"{tag}sizes")
    match kind:
        case "power law":
            text = "Exponent: 0 is equal"
            return PowerLaw(two.number_input(text, 0.0, 10.0, key=start(f"{tag}exponent", 1.0)))
        case "log-normal":
            text = "Sigma: 0 is equal"
            return LogNormal(two.number_input(text, 0.0, 10.0, key=start(f"{tag}sigma", 1.0)))
        case "given":
            text = two.text_input(
                "Relative sizes", key=f"{tag}given", placeholder="3, 2, 1", help="One per client."
            )
            return _given(text, clients)
        case _:
            return None


def _given(text: str, clients: int) -> tuple[float, ...]:
    try:
        return tuple(float(size) for size in text.split(",") if size.strip())
    except ValueError:
        raise RecipeError(
            f"sizes {text!r}: are not {clients} numbers with commas between them; type 3, 2, 1."
        ) from None


def _subdivide(rows: Rows, tag: str) -> Subdivide | None:
    one, two = st.columns(2)
    kinds = ["no", "into equal parts", "into pieces of so many rows"]
    kind = one.selectbox(
        "Cut each client into smaller ones, after injection", kinds, key=f"{tag}cut"
    )
    if kind == "no":
        return None
    if kind == "into equal parts":
        return Subdivide(int(two.number_input("Parts", 2, 1000, key=start(f"{tag}parts", 5))))
    least = max(1, rows.count // MOST_CLIENTS)
    size = two.number_input(
        "Rows of a piece", least, 10_000_000, key=start(f"{tag}rows", max(100, least))
    )
    return Subdivide(rows=int(size))


def _split(here: Session, base: Recipe, tag: str) -> Split:
    one, two, three = st.columns(3)
    kind = one.selectbox(
        "Test data",
        ["rows of every client", "whole clients"],
        key=f"{tag}split",
        help="Rows of every client: cross-silo. Whole clients: cross-device.",
    )
    if kind == "whole clients":
        found = counted(here, here.clean)
        most = len(found.before.clients) - 1 if found else 0
        if found is None or most < 1:
            raise RecipeError("whole clients as test data: two clients or more are needed.")
        first = max(1, (most + 1) // 5)
        count = two.number_input("Test clients", 1, most, key=start(f"{tag}tests-{most}", first))
        names = {name: (here.clean.parent(name), "all") for name in found.before.clients}
        scope = here.clean.name
        return ClientSplit(
            test=draw_test_clients(names, int(count), seed=here.clean.seed, scope=scope)
        )
    test = two.slider("Test share", 0.0, 0.5, step=0.05, key=start(f"{tag}test", 0.2))
    held = three.slider("Validation share", 0.0, 0.4, step=0.05, key=start(f"{tag}valid", 0.1))
    stratify = st.multiselect(
        "Keep these in equal shares in each split",
        ["label", *base.schema.sensitive],
        key=f"{tag}stratify",
    )
    return RowSplit(validation=held, test=test, stratify=tuple(stratify))


def _show_clients(found: Counted) -> None:
    one, two, three = st.columns(3)
    rows = found.before.rows()
    one.metric("Clients", f"{len(rows):,}", border=True)
    two.metric("Smallest client", f"{rows.min():,} rows", border=True)
    three.metric("Largest client", f"{rows.max():,} rows", border=True)
    if found.left_out:
        st.caption(f"{found.left_out:,} rows go to no client.")
    label = found.recipe.schema.label
    chart = charts.sizes(found.before, label.names)
    st.altair_chart(chart, alt="Rows of each client by label, bars")
    for attribute in found.before.attributes:
        chart = charts.shares(found.before, attribute.name)
        st.altair_chart(chart, alt=f"Shares of {attribute.name} in each client, bars")
    if len(rows) > charts.MOST_BARS:
        st.caption(
            f"Bars show {charts.MOST_BARS} of {len(rows):,} clients, evenly spaced by size; "
            "figures count all."
        )
