"""The whole chain, from rows to clients: conservation, provenance, independence, controls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from feda4fair.build import federations
from feda4fair.columns import Coding, Column, Label
from feda4fair.content import SourceFile
from feda4fair.encode import encode
from feda4fair.errors import RecipeError
from feda4fair.federation import Federation
from feda4fair.partition import Iid, Natural, Subdivide
from feda4fair.recipe import (
    BiasRule,
    ClientGroup,
    ClientSplit,
    Gaussian,
    Recipe,
    RowSplit,
    homogeneous_rule,
)
from feda4fair.schema import Schema
from feda4fair.split import SPLITS
from feda4fair.steps import chosen_clients, federate_table, known_clients

pytestmark = pytest.mark.usefixtures("untouched_random")

SCHEMA = Schema(
    columns=(
        Column(name="x", dtype="int16"),
        Column(
            name="sex",
            dtype="int8",
            role="sensitive",
            coding=Coding(names=((1, "Male"), (2, "Female"))),
        ),
        Column(
            name="race",
            dtype="int8",
            role="sensitive",
            coding=Coding(names=((1, "White"), (2, "Others")), recode=((1, 1), (2, 2), (6, 2))),
        ),
    ),
    label=Label(column="y"),
)
CLIENTS = ("a", "b", "c", "d")
FEMALE = {"sex": "Female"}
DROP = BiasRule(where=FEMALE, drop=0.5)


def source(rows: int, *, seed: int = 0) -> pa.Table:
    drawn = np.random.Generator(np.random.PCG64(seed))
    return pa.table(
        {
            "who": pa.array(np.array(CLIENTS)[drawn.integers(0, len(CLIENTS), rows)]),
            "x": np.arange(rows),
            "sex": drawn.integers(1, 3, rows),
            "race": np.array([1, 2, 6])[drawn.integers(0, 3, rows)],
            "y": drawn.integers(0, 2, rows),
        }
    )


def recipe(**change: Any) -> Recipe:
    usual = {"dataset": "toy", "name": "demo", "partition": Natural(column="who")}
    return Recipe(**{**usual, "schema": SCHEMA, **change})


def group(*rules: BiasRule, clients: Any = None) -> ClientGroup:
    return ClientGroup(name=f"of {clients}", clients=clients, rules=rules)


rates = st.sampled_from([0.0, 0.2, 0.5, 0.9]) | st.builds(
    Gaussian, mean=st.floats(0, 0.9), std=st.floats(0, 0.2)
)
rules = st.builds(
    BiasRule,
    where=st.sampled_from([FEMALE, {"race": "Others"}, {"sex": 1, "race": 1}]),
    label=st.integers(0, 1),
    drop=rates,
    flip=rates,
)
splits = st.sampled_from(
    [
        RowSplit(),
        RowSplit(validation=0.25, test=0.3, stratify=("label", "sex")),
        ClientSplit(test=()),
        ClientSplit(test=(), folds=2),
    ]
)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    iid = draw(st.booleans())
    own = draw(st.lists(rules, max_size=2))
    groups: tuple[ClientGroup, ...] = (group(*own),) if own else ()
    if own and not iid:
        some = (group(*own, clients=("a",)), group(*own[::-1], clients=("b", "d")))
        groups = draw(st.sampled_from([groups, some]))
    return recipe(
        partition=Iid(clients=draw(st.integers(1, 5))) if iid else Natural(column="who"),
        groups=groups,
        subdivide=draw(
            st.none()
            | st.builds(
                Subdivide, parts=st.integers(2, 3), cut=st.sampled_from(["balanced", "floor"])
            )
        ),
        select=draw(st.sampled_from([(), (("race", ("White",)),)])),
        split=draw(splits),
        seed=draw(st.integers(0, 9)),
        sampler=draw(st.sampled_from(["keyed", "released"])),
        control=draw(st.sampled_from(["", "none", "homogeneous"] if own else ["", "none"])),
    )


sizes = st.integers(60, 120)


def federated(table: pa.Table, made: Recipe) -> Federation:
    """Federate, or pass over examples in which a client has too few rows."""
    try:
        return federate_table(table, made)
    except RecipeError as error:
        if not any(
            words in str(error)
            for words in ("has no rows", "keeps none of its", "too few for a strat")
        ):
            raise
        reject()


# Laws


@given(sizes, recipes())
def test_rows_are_conserved(rows: int, made: Recipe) -> None:
    fed = federated(source(rows), made)
    kept, gone = (t["row_id"].to_pylist() for t in (fed.table, fed.dropped))
    assert len({*kept, *gone}) == len(kept) + len(gone)
    assert {*kept, *gone} <= set(range(rows))
    assert fed.source_rows == rows == len(kept) + len(gone) + fed.left_out
    if not made.select and (made.subdivide is None or made.subdivide.cut == "balanced"):
        assert fed.left_out == 0


@given(sizes, recipes())
def test_the_source_can_be_restored_from_what_is_kept_and_what_was_dropped(
    rows: int, made: Recipe
) -> None:
    table = source(rows)
    fed = federated(table, made)
    encoded = encode(table, SCHEMA)
    clean = fed.table.set_column(
        fed.table.column_names.index("label"),
        "label",
        pc.bit_wise_xor(fed.table["label"], fed.table["flipped"].cast(pa.int64())),
    )
    for part in (clean, fed.dropped):
        original = encoded.take(part["row_id"])
        for column in encoded.column_names:
            assert part[column].cast(original[column].type).equals(original[column])


@given(sizes, recipes())
def test_only_rows_that_match_a_rule_of_their_client_change(rows: int, made: Recipe) -> None:
    fed = federated(source(rows), made)
    parents = {client.name: client.parent for client in fed.clients}

    def matched_by(row: dict[str, Any], label: int) -> set[str]:
        return {
            rule.name
            for rule in rules_of(made, parents[row["client_id"]])
            if rule.label == label
            and all(row[name] == SCHEMA.code(name, value) for name, value in rule.where)
        }

    for row in fed.table.filter(fed.table["flipped"]).to_pylist():
        assert matched_by(row, 1 - row["label"])
    for row in fed.dropped.to_pylist():
        assert row["rule"] in matched_by(row, row["label"])


def rules_of(made: Recipe, parent: str) -> tuple[BiasRule, ...]:
    match made.control:
        case "none":
            return ()
        case "homogeneous":
            return (homogeneous_rule(made),)
        case _:
            return tuple(
                rule
                for own in made.groups
                if own.clients is None or parent in own.clients  # type: ignore[operator]
                for rule in own.rules
            )


@given(sizes, recipes())
def test_counts_in_the_ledger_are_exact_and_those_of_the_rows(rows: int, made: Recipe) -> None:
    fed = federated(source(rows), made)
    for entry in fed.ledger:
        assert entry.dropped == int(entry.eligible * entry.drop)
        assert entry.flipped == int(entry.survivors * entry.flip)
    everything = not made.select and made.subdivide is None
    names = [c.name if made.control else c.parent for c in fed.clients]
    if everything and len(fed.ledger) == len({entry.client for entry in fed.ledger}):
        dropped = fed.dropped["client_id"].to_pylist()
        flipped = fed.table.filter(fed.table["flipped"])["client_id"].to_pylist()
        for entry in fed.ledger:
            assert entry.client in names
            assert dropped.count(entry.client) == entry.dropped
            assert flipped.count(entry.client) == entry.flipped


@given(sizes, recipes())
def test_clients_are_sorted_and_their_rows_too(rows: int, made: Recipe) -> None:
    fed = federated(source(rows), made)
    kept, gone = fed.table["client_id"].to_pylist(), fed.dropped["client_id"].to_pylist()
    keys = list(zip(kept, fed.split.tolist(), fed.table["row_id"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    dropped = list(zip(gone, fed.dropped["row_id"].to_pylist(), strict=True))
    assert dropped == sorted(dropped)
    assert fed.table.column_names == [
        "client_id",
        "row_id",
        "x",
        "sex",
        "race",
        "label",
        "flipped",
    ]
    assert fed.dropped.column_names == [*fed.table.column_names[:-1], "rule", "split"]
    assert {c.name for c in fed.clients} <= set(known_clients(made, CLIENTS))


@given(sizes, recipes(), st.sampled_from(CLIENTS))
def test_a_natural_client_alone_is_as_among_all(rows: int, made: Recipe, name: str) -> None:
    if isinstance(made.partition, Iid):
        made = replace(made, partition=Natural(column="who"))
    table = source(rows).append_column("row_id", pa.array(range(rows)))
    fed = federated(table, made)
    own = table.filter(pc.equal(table["who"], name)).drop_columns(["who"])
    alone = federate_table(own, made, client=name)
    family = [client for client in fed.clients if client.parent == name]
    assert [client.name for client in alone.clients] == [client.name for client in family]
    for client in family:
        assert alone.client(client.name).equals(fed.client(client.name))
        assert alone.dropped_of(client.name).equals(fed.dropped_of(client.name))
        split = alone.split_of(alone.find(client.name))
        assert (split == fed.split_of(client)).all()


@given(sizes, recipes())
def test_splits_do_not_depend_on_the_rates(rows: int, made: Recipe) -> None:
    """Ours are drawn on the un-injected client, so that both protocols share them."""
    keyed = replace(made, sampler="keyed", control="")
    plain = federated(source(rows), replace(keyed, groups=()))
    assert split_of_rows(federated(source(rows), keyed)) == split_of_rows(plain)


@settings(max_examples=40)
@given(sizes, recipes())
def test_a_control_has_the_same_clients_rows_and_splits(rows: int, made: Recipe) -> None:
    fed = federated(source(rows), replace(made, control=""))
    for control in ("none", "homogeneous") if made.rules else ("none",):
        other = federated(source(rows), replace(made, control=control))
        assert split_of_rows(other) == split_of_rows(fed)
    unbiased = federated(source(rows), replace(made, control="none"))
    assert unbiased.dropped.num_rows == 0
    assert not pc.any(unbiased.table["flipped"]).as_py()
    assert unbiased.ledger == ()


def split_of_rows(fed: Federation) -> dict[int, tuple[str, str]]:
    """Return client and split of every row, whether or not injection removed it."""
    kept = zip(
        fed.table["row_id"].to_pylist(),
        fed.table["client_id"].to_pylist(),
        [SPLITS[code] for code in fed.split],
        strict=True,
    )
    gone = zip(
        *(fed.dropped[name].to_pylist() for name in ("row_id", "client_id", "split")), strict=True
    )
    return {row: (client, split) for row, client, split in (*kept, *gone)}


@given(sizes, st.floats(0, 1), st.floats(0, 1))
def test_draws_are_nested(rows: int, one: float, other: float) -> None:
    low, high = (
        set(
            federated(source(rows), recipe(groups=(group(replace(DROP, drop=rate)),)))
            .dropped["row_id"]
            .to_pylist()
        )
        for rate in sorted((one, other))
    )
    assert low <= high


@given(st.sampled_from(CLIENTS), st.sampled_from(["keyed", "released"]))
def test_another_rate_for_one_client_changes_no_other(changed: str, sampler: str) -> None:
    table = source(80)
    one, other = (
        federate_table(
            table,
            recipe(
                sampler=sampler,
                groups=tuple(
                    group(replace(DROP, drop=rate if name == changed else 0.5), clients=(name,))
                    for name in CLIENTS
                ),
            ),
        )
        for rate in (0.1, 0.8)
    )
    for name in CLIENTS:
        assert one.client(name).equals(other.client(name)) == (name != changed)


# Which clients a recipe has


def test_pieces_are_named_after_their_parent() -> None:
    fed = federate_table(source(60), recipe(subdivide=Subdivide(parts=12)))
    assert [c.name for c in fed.clients][:4] == ["a_0", "a_1", "a_10", "a_11"]
    assert {c.parent for c in fed.clients} == set(CLIENTS)
    assert known_clients(recipe(subdivide=Subdivide(parts=12)), CLIENTS) == tuple(
        c.name for c in fed.clients
    )


def test_pieces_are_random_and_cut_after_injection() -> None:
    made = recipe(subdivide=Subdivide(parts=3), groups=(group(DROP, clients=("a",)),))
    fed = federate_table(source(300), made)
    whole = federate_table(source(300), replace(made, subdivide=None))
    rows = [row for i in range(3) for row in fed.client(f"a_{i}")["row_id"].to_pylist()]
    assert sorted(rows) == sorted(whole.client("a")["row_id"].to_pylist())
    assert rows != sorted(rows)
    assert fed.ledger == whole.ledger


@pytest.mark.parametrize("cut", [None, Subdivide(parts=2), Subdivide(rows=5)])
def test_a_client_that_select_empties_does_not_vanish_silently(cut: Subdivide | None) -> None:
    columns = {"state": ["a", "b"], "race": [1, 2], "sex": [1, 1], "x": [1, 1], "y": [1, 1]}
    table = pa.table({name: values * 20 for name, values in columns.items()})
    made = recipe(partition=Natural(column="state"), select=(("race", (1,)),), subdivide=cut)
    with pytest.raises(RecipeError, match=r"client b.* has no rows"):
        federate_table(table, made)


def test_only_kept_clients_are_there() -> None:
    made = recipe(
        subdivide=Subdivide(parts=3), keep=("b_2", "a_0"), split=ClientSplit(test=("b_2",))
    )
    fed = federate_table(source(90), made)
    whole = federate_table(source(90), replace(made, keep=None, split=RowSplit()))
    assert [client.name for client in fed.clients] == ["a_0", "b_2"]
    assert known_clients(made) == ("a_0", "b_2")
    for name in ("a_0", "b_2"):
        assert fed.client(name).equals(whole.client(name).sort_by("row_id"))
    assert fed.left_out == 90 - fed.table.num_rows
    assert set(fed.split_of(fed.find("b_2")).tolist()) == {SPLITS.index("test")}
    assert set(fed.split_of(fed.find("a_0")).tolist()) == {SPLITS.index("train")}


def test_iid_clients_are_known_before_any_row_is_read() -> None:
    made = recipe(partition=Iid(clients=11))
    fed = federate_table(source(60), made)
    assert known_clients(made) == tuple(client.name for client in fed.clients)
    assert chosen_clients(made, ["c10", "c00"], ()) == ("c00", "c10")


def test_groups_may_take_shares_of_the_clients() -> None:
    shares = (group(DROP, clients=0.25), group(DROP, clients=0.5))
    fed = federate_table(source(90), recipe(groups=shares))
    assert [entry.client for entry in fed.ledger] == ["a", "b", "c"]


# The same, read one natural client at a time


class Parts:
    """A source whose parts are the natural clients of a table."""

    natural = "who"
    synthetic = True

    def __init__(self, table: pa.Table) -> None:
        self.table = table.append_column("row_id", pa.array(range(table.num_rows)))
        self.parts = tuple(sorted(set(table["who"].to_pylist())))

    def read(self, part: str) -> pa.Table:
        return self.table.filter(pc.equal(self.table["who"], part))

    def attach(self, table: pa.Table) -> pa.Table:
        return table

    def files(self) -> tuple[SourceFile, ...]:
        return ()


def part_by_part(table: pa.Table, made: Recipe) -> list[Federation]:
    return list(federations(made, Parts(table)))


def test_share_of_clients_read_part_by_part() -> None:
    made = recipe(groups=(group(DROP, clients=0.5),))
    whole = federate_table(source(90), made)
    read = part_by_part(source(90), made)
    assert [e.client for fed in read for e in fed.ledger] == [e.client for e in whole.ledger]


@pytest.mark.parametrize("change", [{}, {"subdivide": Subdivide(parts=2)}])
def test_folds_read_part_by_part(change: dict[str, Any]) -> None:
    made = recipe(split=ClientSplit(test=(), folds=4), **change)
    whole = {client.name: client.fold for client in federate_table(source(90), made).clients}
    assert set(whole.values()) == {0, 1, 2, 3}
    read = part_by_part(source(90), made)
    assert {client.name: client.fold for fed in read for client in fed.clients} == whole


def test_some_clients_read_part_by_part() -> None:
    made = recipe(subdivide=Subdivide(parts=2), groups=(group(DROP),))
    whole = federate_table(source(90), made)
    (read,) = federations(made, Parts(source(90)), ["c_1"])
    assert read.client("c_1").equals(whole.client("c_1"))


# What is refused


def emptied() -> pa.Table:
    """Return a table whose client z holds only rows that a rule takes away."""
    own = pa.table({"who": ["z"] * 3, "x": [0] * 3, "sex": [2] * 3, "race": [1] * 3, "y": [1] * 3})
    return pa.concat_tables([source(40).cast(own.schema), own])


ALL = BiasRule(where=FEMALE, drop=1.0)


@pytest.mark.parametrize(
    ("table", "made", "words"),
    [
        (emptied(), recipe(groups=(group(ALL),)), "client z keeps none of its 3 rows"),
        (
            emptied(),
            recipe(groups=(group(ALL, clients=("a",)),), control="homogeneous"),
            "client z keeps none of its 3 rows",
        ),
        (source(3), recipe(subdivide=Subdivide(parts=5)), "has no rows"),
        (
            source(40),
            recipe(schema=replace(SCHEMA, label=Label(column="y", favorable=(5,)))),
            "no row has the favorable label 5",
        ),
        (source(3), recipe(partition=Iid(clients=4)), "but there are 3"),
        (
            source(9),
            recipe(sampler="released", split=RowSplit(stratify=("sex", "race"))),
            "too few for a stratified split",
        ),
        (source(9), recipe(partition=Natural(column="state")), "no such column"),
        (
            source(40),
            recipe(groups=(group(DROP, clients=0.6), group(DROP, clients=0.6))),
            "more than 1",
        ),
        (source(40), recipe(groups=(group(DROP), group(DROP, clients=("a",)))), "in two groups"),
        (source(40), recipe(select=(("x", ("seven",)),)), "x"),
        (source(40), recipe(select=(("x", (999,)),)), "no row of 40 is left"),
        (source(40), recipe(select=(("x", (10**30,)),)), "select x in"),
        (source(40), recipe(select=(("race", ("Purple",)),)), "race=Purple: no such value"),
        (source(40), recipe(select=(("nope", (1,)),)), "nope: no such column"),
    ],
)
def test_a_recipe_that_does_not_fit_the_rows(table: pa.Table, made: Recipe, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        federate_table(table, made)
    assert type(caught.value).__module__ == "feda4fair.errors"
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"groups": (group(DROP, clients=("zz",)),)},
        {"groups": (group(DROP, clients=("a_0",)),), "subdivide": Subdivide(parts=2)},
        {"keep": ("a", "zz")},
        {"split": ClientSplit(test=("zz",))},
    ],
)
def test_unknown_clients_are_named(change: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"zz|a_0"):
        federate_table(source(40), recipe(**change))


def test_rows_of_one_client_need_a_natural_partition() -> None:
    with pytest.raises(RecipeError, match=r"natural client a came to a recipe .* Iid"):
        federate_table(source(9), recipe(partition=Iid(clients=2)), client="a")


def test_a_rule_without_rows_is_a_note_and_not_an_error() -> None:
    table = source(60).filter(pc.equal(source(60)["sex"], 1))
    fed = federate_table(table, recipe(groups=(group(DROP),)))
    assert {entry.note for entry in fed.ledger} == {"the rule matches no row"}
    assert fed.dropped.num_rows == 0


@pytest.mark.parametrize(
    ("clients", "words"), [(["zz"], "no client zz; it has 4, a to d"), (["a", "a_0"], "a_0")]
)
def test_wanted_clients_must_exist(clients: list[str], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        chosen_clients(recipe(), clients, CLIENTS)
