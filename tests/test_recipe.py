"""Recipes: an exact JSON round trip, and every contradiction in one sentence."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feda4fair.columns import Coding, Column, Label
from feda4fair.errors import Feda4FairError, RecipeError
from feda4fair.partition import Iid, Natural, Partition, Subdivide
from feda4fair.recipe import (
    BiasRule,
    ClientGroup,
    ClientSplit,
    Gaussian,
    Rate,
    Recipe,
    RowSplit,
    Split,
    homogeneous_rule,
)
from feda4fair.schema import Schema

SCHEMA = Schema(
    columns=(
        Column(name="age", dtype="int8"),
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
            coding=Coding(names=((1, "White"), (2, "Black"), (3, "Asian"))),
        ),
    ),
)
FEMALE = {"sex": "Female"}


def recipe(**change: Any) -> Recipe:
    usual = {"dataset": "toy", "name": "demo", "partition": Natural(column="who")}
    return Recipe(**{**usual, "schema": SCHEMA, **change})


def group(*rules: BiasRule, **change: Any) -> ClientGroup:
    return ClientGroup(**({"name": "g", "rules": rules} | change))


def refusal(act: Callable[[], object]) -> str:
    """Return the message of the error that an act must raise: one sentence."""
    with pytest.raises(RecipeError) as caught:
        act()
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


# Arbitrary recipes

words = st.text(min_size=1, max_size=8)
identifiers = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
shares = st.floats(0, 1)
rates: st.SearchStrategy[Rate] = shares | st.builds(Gaussian, mean=shares, std=st.floats(0, 10))
partitions: st.SearchStrategy[Partition] = st.builds(Natural, column=words) | st.builds(
    Iid, clients=st.integers(1, 10**6)
)
splits: st.SearchStrategy[Split] = st.builds(
    RowSplit,
    validation=st.floats(0, 0.4),
    test=st.floats(0, 0.5),
    stratify=st.sampled_from([(), ("label",), ("sex", "race"), ("race", "label")]),
) | st.builds(ClientSplit, test=st.lists(words, unique=True).map(tuple), folds=st.integers(0, 9))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    extra = draw(st.lists(words, unique=True, max_size=3).filter(lambda n: "sex" not in n))
    codes = draw(st.lists(st.integers(-9, 9), unique=True, min_size=1, max_size=3))
    free = Coding(
        names=tuple((code, f"value {code}") for code in codes),
        recode=tuple((source, draw(st.sampled_from(codes))) for source in range(2)),
    )
    reserved = {"client_id", "row_id", "flipped", "label", "rule", "split", "age", "sex", "race"}
    return Schema(
        columns=(
            *SCHEMA.columns,
            *(
                Column(
                    name=name,
                    dtype=draw(st.sampled_from(["int16", "float32", "string", "bool"])),
                    role=draw(st.sampled_from(["feature", "sensitive", "provenance"])),
                    coding=draw(st.none() | st.just(free)),
                    description=draw(st.text(max_size=20)),
                )
                for name in extra
                if name not in reserved
            ),
        ),
        label=Label(
            column=draw(words),
            favorable=tuple(draw(st.lists(st.integers() | words, min_size=1, max_size=3))),
            names=draw(st.tuples(words, words).filter(lambda names: names[0] != names[1])),
        ),
    )


@st.composite
def rules(draw: st.DrawFn) -> BiasRule:
    where = draw(
        st.sampled_from(
            [{"sex": "Female"}, {"race": 3}, {"sex": 1, "race": "Black"}, {"race": "White"}]
        )
    )
    return BiasRule(where=where, label=draw(st.integers(0, 1)), drop=draw(rates), flip=draw(rates))


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    clients = draw(st.lists(words, unique=True, max_size=6))
    cut = draw(st.integers(0, len(clients)))
    members = (tuple(clients[:cut]), tuple(clients[cut:]), None, draw(shares.filter(bool)))
    return Recipe(
        dataset=draw(identifiers),
        name=draw(identifiers),
        schema=draw(schemas()),
        partition=draw(partitions),
        groups=tuple(
            ClientGroup(
                name=draw(words), clients=who, rules=tuple(draw(st.lists(rules(), max_size=3)))
            )
            for who in members[: draw(st.integers(0, 4))]
        ),
        subdivide=draw(
            st.none()
            | st.builds(
                Subdivide,
                parts=st.integers(2, 99),
                cut=st.sampled_from(["balanced", "floor"]),
            )
        ),
        select=draw(st.sampled_from([(), (("race", ("White", 2)),)])),
        split=draw(splits),
        seed=draw(st.integers(0, 2**32 - 1)),
        sampler=draw(st.sampled_from(["keyed", "released"])),
        control=draw(st.sampled_from(["", "none", "homogeneous"])),
        description=draw(st.text(max_size=30)),
    )


@given(recipes())
def test_json_gives_the_same_recipe_back(made: Recipe) -> None:
    text = made.to_json()
    again = Recipe.from_json(text)
    assert again == made
    assert again.to_json() == text
    assert hash(again) == hash(made)


@given(recipes())
def test_recipes_can_be_copied_and_sent(made: Recipe) -> None:
    # datasets copies a config deeply, and worker processes receive it pickled.
    assert copy.deepcopy(made) == made
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_file_is_read_like_its_text(tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(recipe().to_json(), "utf-8")
    assert Recipe.from_json(path) == recipe()


def test_numbers_without_a_point_are_rates_too() -> None:
    made = recipe(groups=(group(BiasRule(where=FEMALE, drop=1.0)),))
    text = made.to_json().replace('"drop": 1.0', '"drop": 1')
    assert Recipe.from_json(text) == made


@pytest.mark.parametrize(
    "made",
    [
        lambda: recipe(groups=(group(BiasRule(where=FEMALE, label=True, drop=1)),)),
        lambda: recipe(groups=(group(clients=1),)),
    ],
)
def test_what_python_takes_for_a_number_survives_json(made: Callable[[], Recipe]) -> None:
    assert Recipe.from_json(made().to_json()) == made()


# Malformed JSON


def paths(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places of all values inside JSON data."""
    items: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        items = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    return [at, *(path for key, value in items for path in paths(value, (*at, key)))]


COMPLETE = json.loads(
    recipe(
        groups=(
            group(
                BiasRule(where={"sex": 2, "race": "Black"}, drop=Gaussian(mean=0.1, std=0.2)),
                clients=("a", "b"),
            ),
            group(BiasRule(where=FEMALE, flip=0.5), clients=0.5),
        ),
        partition=Iid(clients=5),
        subdivide=Subdivide(parts=3),
        keep=("a_1",),
        select=(("race", ("White",)),),
        split=ClientSplit(test=("a_1",)),
    ).to_json()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def exchanged(at: tuple[Any, ...], value: Any) -> str:
    """Return the text of the complete recipe with another value at one place."""
    changed = copy.deepcopy(COMPLETE)
    target = changed
    for key in at[:-1]:
        target = target[key]
    target[at[-1]] = value
    return json.dumps(changed)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, -1, 0, 1, 2**32, 10**400, -0.5, 0.5, 2.5, math.nan, math.inf),
        *("", "label", "row_id", "kind", "\ud800"),
        *([], [[]], {}, {"kind": "Coding"}, {"kind": []}),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_no_value_at_any_place_breaks_the_reader(value: Any) -> None:
    for at in paths(COMPLETE)[1:]:
        assert_recipe_or_sentence(exchanged(at, value))


@given(st.sampled_from(paths(COMPLETE)[1:]), JSON)
def test_any_value_at_any_place_is_a_recipe_or_a_sentence(at: tuple[Any, ...], value: Any) -> None:
    assert_recipe_or_sentence(exchanged(at, value))


@given(st.data())
def test_a_field_left_out_or_added_is_a_recipe_or_a_sentence(data: st.DataObject) -> None:
    changed = copy.deepcopy(COMPLETE)
    target = changed
    for key in data.draw(st.sampled_from(paths(changed))):
        target = target[key]
    if isinstance(target, dict):
        target.pop(data.draw(st.sampled_from([*target])), None)
        target[data.draw(st.text(max_size=3))] = 0
    elif isinstance(target, list):
        target.append(data.draw(JSON))
    assert_recipe_or_sentence(json.dumps(changed))


@given(st.text() | JSON.map(json.dumps))
def test_any_other_text_is_a_sentence(text: str) -> None:
    with pytest.raises(RecipeError):
        Recipe.from_json(text)


def assert_recipe_or_sentence(text: str) -> None:
    """Read a text: no error but RecipeError, and an exact round trip of what was read."""
    try:
        made = Recipe.from_json(text)
    except RecipeError:
        return
    assert Recipe.from_json(made.to_json()) == made


@pytest.mark.parametrize("name", ["con", "NUL.x", "../x", "a/b", "", "-a", "\u00fc", "a" * 97])
def test_a_name_that_no_folder_can_have_is_refused(name: str) -> None:
    assert "config name" in refusal(lambda: recipe(name=name))


def test_half_a_character_is_refused() -> None:
    assert "half of a character" in refusal(lambda: recipe(description="\ud800"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"format": 1', '"format": 2', "format 2 where 1 is expected"),
        ('"seed": 42', '"seed": "42"', "recipe.seed: '42' is not of type int"),
        ('"seed": 42', '"seed": true', "recipe.seed: True is not of type int"),
        ('"seed": 42', '"sead": 42', "Recipe has no field sead"),
        ('"sampler": "keyed"', '"sampler": "best"', "'best' is not one of 'keyed', 'released'"),
        ('"kind": "Natural"', '"kind": "Zipf"', "kind 'Zipf' is unknown"),
        ('"column": "who"', '"column": "who", "clients": 3', "Natural has no field clients"),
        ('"name": "demo",', "", "Recipe is incomplete"),
        ('"name": "age"', '"name": "label"', "reserved"),
    ],
)
def test_a_slip_in_a_file_is_named(old: str, new: str, words: str) -> None:
    text = recipe().to_json()
    assert old in text
    assert words in refusal(lambda: Recipe.from_json(text.replace(old, new)))


def test_what_a_file_holds_is_shown_in_short() -> None:
    data = json.loads(recipe().to_json())
    for value in ("A" * 10**6, [[0] * 10**6], 10**4000, {"kind": "A" * 10**6}):
        data["recipe"]["partition"] = value
        assert len(refusal(lambda: Recipe.from_json(json.dumps(data)))) < 300


def test_a_file_may_begin_as_windows_writes_it(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(recipe().to_json(), "utf-8-sig")
    assert Recipe.from_json(tmp_path / "r.json") == recipe()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_bytes(b"\xff\xfe{")
    for path in (broken, tmp_path / "absent.json", tmp_path):
        assert str(path) in refusal(lambda path=path: Recipe.from_json(path))  # type: ignore[misc]


def test_nesting_without_end_is_a_sentence() -> None:
    assert "JSON" in refusal(lambda: Recipe.from_json("[" * 100_000))


# Contradictions


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BiasRule(where=FEMALE, drop=1.01), "drop rate 1.01 lies outside [0, 1]"),
        (lambda: BiasRule(where=FEMALE, flip=-0.1), "flip rate -0.1 lies outside [0, 1]"),
        (lambda: BiasRule(where=FEMALE, drop=math.nan), "drop rate nan"),
        (lambda: BiasRule(where={}), "no attribute"),
        (lambda: BiasRule(where=FEMALE, label=2), "label 2 is not 0"),
        (lambda: Gaussian(mean=1.2, std=0.1), "mean=1.2"),
        (lambda: Gaussian(mean=0.2, std=-0.1), "std=-0.1"),
        (lambda: Gaussian(mean=0.2, std=math.nan), "std=nan"),
        (lambda: Gaussian(mean=0.2, std=math.inf), "std=inf"),
        (lambda: group(clients=0.0), "share 0.0"),
        (lambda: group(clients=1.5), "share 1.5"),
        (lambda: group(clients=math.nan), "share nan"),
        (lambda: group(clients="AB"), "AB"),
        (lambda: Iid(clients=0), "clients=0"),
        (lambda: Subdivide(parts=1), "parts=1"),
        (lambda: Iid(clients=10**9), "clients=1000000000"),
        (lambda: Subdivide(parts=10**9), "parts=1000000000"),
        (lambda: Subdivide(parts=3, cut="even"), "even"),
        (lambda: RowSplit(validation=0.5, test=0.5), "leave rows for train"),
        (lambda: RowSplit(validation=-0.1), "at least 0"),
        (lambda: RowSplit(validation=math.nan), "nan"),
        (lambda: ClientSplit(test="AB"), "AB"),
        (lambda: ClientSplit(test=(), folds=-1), "-1"),
        (lambda: recipe(name="a/b"), "config name 'a/b'"),
        (lambda: recipe(name=""), "config name ''"),
        (lambda: recipe(name="../x"), "config name"),
        (lambda: recipe(name="a\n"), "config name"),
        (lambda: recipe(dataset="é"), "dataset name"),
        (lambda: recipe(seed=-1), "seed -1"),
        (lambda: recipe(seed=2**32), "seed 4294967296"),
        (lambda: recipe(sampler="best"), "best"),
        (lambda: recipe(control="half"), "half"),
        (lambda: recipe().with_control("half"), "half"),  # type: ignore[arg-type]
        (lambda: recipe(groups=(group(BiasRule(where={"SEX": 1})),)), "SEX: no such column"),
        (lambda: recipe(groups=(group(BiasRule(where={"sex": "Femal"})),)), "has Male, Female"),
        (lambda: recipe(groups=(group(BiasRule(where={"age": 3})),)), "not a sensitive attribute"),
        (lambda: recipe(groups=(group(clients=("a",)),) * 2), "client a is in two groups"),
        (lambda: recipe(keep=("a",), split=ClientSplit(test=("b",))), "test client b"),
        (lambda: recipe(subdivide=Subdivide(parts=3), keep=("a_7",)), "a_7"),
        (lambda: recipe(split=RowSplit(stratify=("age",))), "age"),
        (lambda: recipe(split=RowSplit(stratify=("nope",))), "nope"),
    ],
)
def test_contradictions(make: Callable[[], object], words: str) -> None:
    assert words in refusal(make)


def test_all_problems_of_a_recipe_are_told_at_once() -> None:
    wrong = (
        group(BiasRule(where={"sex": "Femal"}), BiasRule(where={"rase": 1}), clients=("a",)),
        group(clients=("a",)),
    )
    text = refusal(lambda: recipe(groups=wrong))
    assert all(word in text for word in ("Femal", "rase", "two groups"))


def test_a_recipe_cannot_be_changed() -> None:
    made = recipe()
    with pytest.raises(FrozenInstanceError):
        made.seed = 1  # type: ignore[misc]


def test_errors_are_of_one_family() -> None:
    assert issubclass(RecipeError, Feda4FairError)
    assert issubclass(RecipeError, ValueError)


# What a recipe says of itself


def test_the_seed_is_fixed_where_none_is_given_and_written_down() -> None:
    assert recipe().seed == 42
    assert json.loads(recipe().to_json())["recipe"]["seed"] == 42


def test_the_parent_of_a_piece() -> None:
    assert recipe().parent("a_0") == "a_0"
    cut = recipe(subdivide=Subdivide(parts=3))
    assert [cut.parent(client) for client in ("a_0", "a_b_2")] == ["a", "a_b"]


def test_a_homogeneous_control_takes_the_commonest_group_with_its_mean_rates() -> None:
    made = recipe(
        groups=(
            group(BiasRule(where={"race": 2}, drop=0.9), clients=("a",)),
            group(BiasRule(where=FEMALE, drop=0.2), clients=("b",)),
            group(BiasRule(where=FEMALE, drop=Gaussian(mean=0.4, std=1)), clients=("c",)),
        )
    )
    assert homogeneous_rule(made) == BiasRule(where=FEMALE, drop=0.3)
    assert made.with_control("homogeneous") == replace(made, control="homogeneous")


def test_a_recipe_without_rules_has_no_homogeneous_control() -> None:
    assert "without rules" in refusal(lambda: homogeneous_rule(recipe()))
