"""Injection: exact counts, original rows judged, one change a row, and the ledger of it all."""

from __future__ import annotations

from dataclasses import asdict
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from feda4fair.bias import Injection, Sampler, inject, keyed_sampler, released_sampler
from feda4fair.columns import Coding, Column
from feda4fair.partition import Natural
from feda4fair.recipe import BiasRule, ClientGroup, Gaussian, Rate, Recipe
from feda4fair.schema import Schema

pytestmark = pytest.mark.usefixtures("untouched_random")

SCHEMA = Schema(
    columns=(
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
    )
)
FEMALE = {"sex": "Female"}
Rows = list[tuple[int, int, int]]

tables = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(0, 1)), max_size=40)
rates: st.SearchStrategy[Rate] = (
    st.sampled_from([0.0, 0.1, 0.29, 0.5, 1.0])
    | st.floats(0, 1)
    | st.builds(Gaussian, mean=st.floats(0, 1), std=st.floats(0, 2))
)
rules = st.builds(
    BiasRule,
    where=st.sampled_from([FEMALE, {"sex": 1}, {"race": "Black"}, {"sex": 2, "race": 1}]),
    label=st.integers(0, 1),
    drop=rates,
    flip=rates,
)
rule_lists = st.lists(rules, max_size=4).map(tuple)


def recipe(*own: BiasRule, name: str = "demo", seed: int = 7) -> Recipe:
    return Recipe(
        dataset="toy",
        name=name,
        schema=SCHEMA,
        partition=Natural(column="who"),
        groups=(ClientGroup(name="g", rules=own),),
        seed=seed,
    )


def run(
    rows: Rows, own: tuple[BiasRule, ...], *, client: str = "TX", sampler: Sampler | None = None
) -> Injection:
    codes = np.array(rows, dtype=np.int8).reshape(-1, 3)
    made = recipe(*own)
    return inject(
        client,
        {"sex": codes[:, 0], "race": codes[:, 1]},
        codes[:, 2].copy(),
        own,
        made,
        sampler or keyed_sampler(made, client),
    )


def matches(rule: BiasRule, row: tuple[int, int, int]) -> bool:
    value = dict(zip(("sex", "race"), row, strict=False))
    return row[2] == rule.label and all(
        value[name] == SCHEMA.code(name, wanted) for name, wanted in rule.where
    )


@given(tables, rule_lists)
def test_only_rows_that_match_a_rule_change(rows: Rows, own: tuple[BiasRule, ...]) -> None:
    done = run(rows, own)
    for row, rule, flipped in zip(rows, done.rule, done.flipped, strict=True):
        assert rule < 0 or matches(own[rule], row)
        assert not flipped or any(matches(rule, row) for rule in own)
        assert not (flipped and rule >= 0)


@given(tables, rule_lists)
def test_counts_are_exact(rows: Rows, own: tuple[BiasRule, ...]) -> None:
    done = run(rows, own)
    for rule, entry in zip(own, done.ledger, strict=True):
        eligible = np.array([matches(rule, row) for row in rows], dtype=np.bool_)
        assert entry.eligible == eligible.sum()
        assert entry.dropped == int(entry.eligible * entry.drop)
        assert entry.survivors == (eligible & (done.rule < 0)).sum()
        assert entry.flipped == int(entry.survivors * entry.flip)


@given(tables, rules)
def test_one_rule_changes_as_many_rows_as_it_says(rows: Rows, rule: BiasRule) -> None:
    done = run(rows, (rule,))
    (entry,) = done.ledger
    assert (done.rule == 0).sum() == entry.dropped
    assert done.flipped.sum() == entry.flipped


@given(tables, rule_lists)
def test_the_order_of_rules_does_not_matter(rows: Rows, own: tuple[BiasRule, ...]) -> None:
    """The same draws for the same rules, whatever their order: the same rows change."""
    fixed = [
        BiasRule(where=dict(rule.where), label=rule.label, drop=0.5, flip=0.5) for rule in own
    ]
    stream = keyed_sampler(recipe(), "TX")

    def changed(order: tuple[int, ...]) -> tuple[list[bool], list[bool]]:
        def sampler(size: int, count: int, rule: int, operation: str) -> NDArray[np.int64]:
            return stream(size, count, order[rule], operation)

        done = run(rows, tuple(fixed[i] for i in order), sampler=sampler)
        return (done.rule >= 0).tolist(), done.flipped.tolist()

    assert len({repr(changed(order)) for order in permutations(range(len(fixed)))}) == 1


@pytest.mark.parametrize("labels", [(0, 1), (1, 0)])
def test_a_flipped_label_is_never_picked_again(labels: tuple[int, int]) -> None:
    rows = [(2, 1, 1), (2, 1, 0)] * 5
    both = tuple(BiasRule(where=FEMALE, label=label, flip=1.0) for label in labels)
    done = run(rows, both)
    assert done.flipped.all()
    assert [entry.flipped for entry in done.ledger] == [5, 5]
    drop_zeros = BiasRule(where=FEMALE, label=0, drop=1.0)
    for order in ((both[0], drop_zeros), (drop_zeros, both[0])):
        assert (run(rows, order).rule >= 0).tolist() == [label == 0 for _, _, label in rows]


def test_drops_come_first_and_flips_count_the_survivors() -> None:
    rows = [(2, 1, 1)] * 10
    flip, drop = BiasRule(where=FEMALE, flip=0.5), BiasRule(where=FEMALE, drop=0.5)
    done = run(rows, (flip, drop))
    assert [(e.eligible, e.dropped, e.survivors, e.flipped) for e in done.ledger] == [
        (10, 0, 5, 2),
        (10, 5, 5, 0),
    ]


def test_a_row_that_two_rules_draw_goes_once_and_names_the_first() -> None:
    rows = [(2, 2, 1)] * 4
    both = (BiasRule(where={"race": 2}, drop=1.0), BiasRule(where=FEMALE, drop=1.0))
    done = run(rows, both)
    assert done.rule.tolist() == [0] * 4
    assert [entry.dropped for entry in done.ledger] == [4, 4]


@given(tables, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_rate_drops_the_same_rows_and_more(rows: Rows, one: float, other: float) -> None:
    low, high = (
        run(rows, (BiasRule(where=FEMALE, drop=rate),)).rule >= 0 for rate in sorted((one, other))
    )
    assert not (low & ~high).any()


def test_the_label_of_the_rule_decides() -> None:
    rows = [(2, 1, 1), (2, 1, 0), (1, 1, 1)]
    for label in (0, 1):
        done = run(rows, (BiasRule(where=FEMALE, label=label, flip=1.0),))
        assert done.flipped.tolist() == [label == 1, label == 0, False]


def test_an_intersection_needs_both_values() -> None:
    rows = [(2, 2, 1), (2, 1, 1), (1, 2, 1)]
    done = run(rows, (BiasRule(where={"sex": "Female", "race": "Black"}, drop=1.0),))
    assert done.rule.tolist() == [0, -1, -1]
    assert done.ledger[0].rule == "sex=Female & race=Black"


# Rates


@given(st.floats(0, 1), st.floats(0, 5), st.integers(0, 99))
def test_drawn_rates_lie_between_0_and_1_and_are_recorded(
    mean: float, std: float, client: int
) -> None:
    rule = BiasRule(where=FEMALE, drop=Gaussian(mean=mean, std=std))
    entry = run([(2, 1, 1)] * 20, (rule,), client=f"c{client}").ledger[0]
    assert 0 <= entry.drop <= 1
    assert entry.dropped == int(20 * entry.drop)
    assert std or entry.drop == mean


def test_clients_draw_their_own_rates() -> None:
    rule = BiasRule(where=FEMALE, drop=Gaussian(mean=0.5, std=0.1), flip=Gaussian(mean=0.5, std=1))
    drawn = [run([], (rule,), client=f"c{i}").ledger[0] for i in range(400)]
    drops = np.array([entry.drop for entry in drawn])
    assert drops.mean() == pytest.approx(0.5, abs=0.02)
    # A standard deviation, not a variance.
    assert drops.std() == pytest.approx(0.1, abs=0.02)
    assert {entry.flip for entry in drawn} >= {0.0, 1.0}
    assert abs(np.corrcoef(drops, [entry.flip for entry in drawn])[0, 1]) < 0.2


# Streams


@pytest.mark.parametrize("change", [{"name": "other"}, {"seed": 8}])
def test_config_and_seed_key_the_draws(change: dict[str, object]) -> None:
    rule = BiasRule(where=FEMALE, drop=0.5)
    usual = run([(2, 1, 1)] * 60, (rule,))
    other = keyed_sampler(recipe(rule, **change), "TX")  # type: ignore[arg-type]
    assert (run([(2, 1, 1)] * 60, (rule,), sampler=other).rule != usual.rule).any()
    assert (run([(2, 1, 1)] * 60, (rule,), client="RI").rule != usual.rule).any()


def test_the_released_stream_is_a_fresh_random_state_for_each_draw() -> None:
    rows = [(2, 1, 1), (1, 1, 0)] * 10
    rule = BiasRule(where=FEMALE, drop=0.25, flip=0.5)
    done = run(rows, (rule,), sampler=released_sampler(42))
    eligible = np.arange(0, 20, 2)
    victims = eligible[np.random.RandomState(42).choice(10, 2, replace=False)]
    assert np.flatnonzero(done.rule == 0).tolist() == sorted(victims)
    left = np.setdiff1d(eligible, victims)
    turned = left[np.random.RandomState(42).choice(8, 4, replace=False)]
    assert np.flatnonzero(done.flipped).tolist() == sorted(turned)


# The ledger


@pytest.mark.parametrize(
    ("rows", "rule", "note"),
    [
        ([(1, 1, 1)] * 9, BiasRule(where=FEMALE, drop=0.5), "the rule matches no row"),
        ([], BiasRule(where=FEMALE, drop=0.5), "the rule matches no row"),
        ([(2, 1, 1)], BiasRule(where=FEMALE, drop=0.6), "the rates round to no row among 1"),
        ([(2, 1, 1)], BiasRule(where=FEMALE), ""),
        ([(2, 1, 1)] * 2, BiasRule(where=FEMALE, drop=0.5), ""),
    ],
)
def test_a_rule_without_effect_is_noted(rows: Rows, rule: BiasRule, note: str) -> None:
    done = run(rows, (rule,))
    assert done.ledger[0].note == note
    assert (done.rule >= 0).sum() == done.ledger[0].dropped


def test_a_ledger_entry_says_all_of_it() -> None:
    entry = run([(2, 1, 1)] * 10, (BiasRule(where=FEMALE, drop=0.4, flip=0.5),)).ledger[0]
    assert asdict(entry) == {
        "client": "TX",
        "rule": "sex=Female",
        "label": 1,
        "drop": 0.4,
        "flip": 0.5,
        "eligible": 10,
        "dropped": 4,
        "survivors": 6,
        "flipped": 3,
        "note": "",
    }
