"""A federation: clients are zero-copy slices, parts join, and unknown names are named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from feda4fair.columns import PROVENANCE, Coding, Column, Label
from feda4fair.errors import RecipeError
from feda4fair.federation import Federation, concat
from feda4fair.partition import Natural
from feda4fair.recipe import BiasRule, ClientGroup, Recipe
from feda4fair.schema import Schema
from feda4fair.steps import federate_table

SCHEMA = Schema(
    columns=(
        Column(name="x", dtype="int16"),
        Column(
            name="sex",
            dtype="int8",
            role="sensitive",
            coding=Coding(names=((1, "Male"), (2, "Female"))),
        ),
    ),
    label=Label(column="y"),
)
RECIPE = Recipe(
    dataset="toy",
    name="demo",
    schema=SCHEMA,
    partition=Natural(column="who"),
    groups=(
        ClientGroup(
            name="g",
            clients=("a", "c"),
            rules=(BiasRule(where={"sex": "Female"}, drop=0.4, flip=0.5),),
        ),
    ),
)


def source(who: str = "cabbac") -> pa.Table:
    rows = np.arange(60)
    return pa.table(
        {
            "who": [who[i % len(who)] for i in rows],
            "x": rows,
            "sex": rows % 3 % 2 + 1,
            "y": rows // 2 % 2,
        }
    )


@pytest.fixture(scope="module")
def made() -> Federation:
    return federate_table(source(), RECIPE)


def test_clients_follow_each_other_in_the_table(made: Federation) -> None:
    assert [client.name for client in made.clients] == ["a", "b", "c"]
    assert made.offsets.tolist() == [0, *(client.stop for client in made.clients)]
    assert made.offsets[-1] == made.table.num_rows == len(made.split)
    for client, rows in made:
        assert rows.num_rows == client.rows
        assert set(rows["client_id"].to_pylist()) == {client.name}
        places = list(zip(made.split_of(client), rows["row_id"].to_pylist(), strict=True))
        assert places == sorted(places)


def test_a_client_is_a_slice_without_a_copy(made: Federation) -> None:
    for client in made.clients:
        for column in ("x", "sex", "label"):
            (whole,), (own,) = made.table[column].chunks, made.client(client.name)[column].chunks
            assert own.buffers()[1].address == whole.buffers()[1].address
            assert own.offset == whole.offset + client.start


def test_splits_of_a_client_make_the_client(made: Federation) -> None:
    parts = [made.client("a", split) for split in ("train", "validation", "test")]
    rows = [row for part in parts for row in part["row_id"].to_pylist()]
    assert rows == made.client("a")["row_id"].to_pylist()
    assert min(part.num_rows for part in parts) > 0


def test_provenance_is_left_out_on_demand(made: Federation) -> None:
    plain = made.client("a", provenance=False)
    assert plain.column_names == ["x", "sex", "label"]
    assert not set(plain.column_names) & set(PROVENANCE)


def test_removed_rows_are_found_by_client(made: Federation) -> None:
    gone = {name: made.dropped_of(name) for name in "abc"}
    assert {name: table.num_rows for name, table in gone.items()} == {
        entry.client: entry.dropped for entry in made.ledger
    } | {"b": 0}
    assert gone["a"].num_rows > 0
    assert set(gone["a"]["client_id"].to_pylist()) == {"a"}


def test_parts_read_one_by_one_join_to_the_whole(made: Federation) -> None:
    table = source()
    parts = [
        federate_table(
            table.filter(pa.array([w == name for w in table["who"].to_pylist()])).append_column(
                "row_id", pa.array([i for i in range(60) if table["who"][i].as_py() == name])
            ),
            RECIPE,
            client=name,
        )
        for name in "abc"
    ]
    joined = concat(parts)
    assert joined.clients == made.clients
    assert joined.table.equals(made.table)
    assert joined.dropped.equals(made.dropped)
    assert (joined.split == made.split).all()
    assert joined.ledger == made.ledger
    assert (joined.source_rows, joined.left_out) == (60, 0)


@pytest.mark.parametrize("names", [["b"], ["a", "c"], ["c", "a"], ["a", "b", "c"], []])
def test_some_clients_are_as_among_all(made: Federation, names: list[str]) -> None:
    some = made.only(names)
    assert [client.name for client in some.clients] == sorted(names)
    for name in names:
        assert some.client(name).equals(made.client(name))
        assert some.dropped_of(name).equals(made.dropped_of(name))
        assert (some.split_of(some.find(name)) == made.split_of(made.find(name))).all()
    assert {entry.client for entry in some.ledger} == {"a", "c"} & set(names)
    assert some.source_rows == some.table.num_rows + some.dropped.num_rows + some.left_out


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda made: made.client("TX"), "no client 'TX' among 3, a to c"),
        (lambda made: made.dropped_of("TX"), "no client 'TX'"),
        (lambda made: made.client("a", "dev"), "dev"),
        (lambda made: concat([]), "no part to join"),
        (lambda made: made.only([]).find("a"), "no client 'a' among 0"),
    ],
)
def test_a_name_that_is_not_there_is_a_sentence(
    made: Federation, act: Callable[[Federation], object], words: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        act(made)
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")


def test_it_says_what_it_is_in_one_line(made: Federation) -> None:
    gone = sum(entry.dropped for entry in made.ledger)
    kept = 60 - gone
    assert repr(made) == f"Federation(toy/demo: 3 clients, {kept} rows, {gone} dropped)"
