"""Closed-form rates against brute force, against injection, and against hand-worked numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feda4fair import (
    BiasRule,
    ClientGroup,
    Coding,
    Column,
    Federation,
    Label,
    Natural,
    Recipe,
    Schema,
    federate_table,
    measure,
)
from feda4fair.closedform import By, LabelPlan, plan_labels, short_rate
from feda4fair.cube import Attribute, Cube
from feda4fair.errors import MeasureError
from feda4fair.measurement import count_labels
from feda4fair.rates import Against


def cube_of(counts: Any, *, second: int = 1) -> Cube:
    """Return one client whose first attribute r has values v0, v1, ... and whose second is s."""
    cells = np.asarray(counts, dtype=np.int64).reshape(1, -1, 2, 1)
    first = cells.shape[1] // second
    attributes = (
        Attribute(
            name="r", values=tuple(f"v{i}" for i in range(first)), codes=tuple(range(first))
        ),
        Attribute(
            name="s", values=tuple(f"w{i}" for i in range(second)), codes=tuple(range(second))
        ),
    )
    return Cube(clients=("c",), attributes=attributes, counts=cells)


def gap_after(counts: Any, dropped: int, flipped: int, against: Against) -> float:
    """Return how far the rate of the first value lies below, counted here anew."""
    counts = np.asarray(counts)
    rows, favorable = counts.sum(axis=1), counts[:, 1]
    own = (favorable[0] - dropped - flipped) / (rows[0] - dropped)
    if against == "rest":
        return float(favorable[1:].sum() / rows[1:].sum() - own)
    others = [favorable[i] / rows[i] for i in range(1, len(rows)) if rows[i]]
    return float(max(others) - own)


def random_case(rng: np.random.RandomState) -> dict[str, Any]:
    size = (30, 300, 3_000, 30_000)[rng.randint(4)]
    return {
        "counts": rng.randint(1, size, (rng.randint(2, 6), 2)),
        "by": ("drop", "flip")[rng.randint(2)],
        "beside": (0.0, 0.0, float(rng.uniform(0, 0.6)))[rng.randint(3)],
        "against": ("rest", "pairs")[rng.randint(2)],
        "gap": float(rng.uniform(0.005, 0.7)),
    }


def test_a_thousand_random_gaps_are_hit_within_one_row() -> None:
    rng = np.random.RandomState(7)
    hit = 0
    while hit < 1_000:
        case = random_case(rng)
        counts = case.pop("counts")
        try:
            plan = plan_labels(cube_of(counts), "c", [("r", "v0")], **case)
        except MeasureError:
            continue
        hit += 1
        left = plan.rows - plan.dropped
        over = gap_after(counts, plan.dropped, plan.flipped, case["against"]) - case["gap"]
        assert -1e-9 <= over < 1 / left + 1e-9, (case, plan)
        # the rates come to these counts in the very arithmetic of injection
        assert isinstance(plan.rule.drop, float)
        assert isinstance(plan.rule.flip, float)
        assert int(plan.positives * plan.rule.drop) == plan.dropped
        assert int((plan.positives - plan.dropped) * plan.rule.flip) == plan.flipped


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=4),
    gap=st.floats(0.01, 0.99),
    by=st.sampled_from(["drop", "flip"]),
    against=st.sampled_from(["rest", "pairs"]),
)
def test_a_plan_exists_exactly_where_brute_force_finds_one(
    rows: list[tuple[int, int]], gap: float, by: By, against: Against
) -> None:
    counts = np.array(rows)
    own, rest = counts[0].sum(), counts[1:].sum()
    try:
        plan: LabelPlan | None = plan_labels(
            cube_of(counts), "c", [("r", "v0")], gap=gap, by=by, against=against
        )
    except MeasureError:
        plan = None
    if not own or not rest:
        assert plan is None
        return
    most = min(int(counts[0, 1]), int(own) - (by == "drop"))
    tried = [(k, 0) if by == "drop" else (0, k) for k in range(most + 1)]
    gaps = [gap_after(counts, *each, against) for each in tried]
    fit = [(value, each) for value, each in zip(gaps, tried, strict=True) if value >= gap - 1e-12]
    others = [a / (a + u) for u, a in rows[1:] if a + u]
    least = max(gaps[0], max(others) - min(others) if against == "pairs" else 0.0)
    if not fit or gap < least - 1e-12:
        assert plan is None
        return
    assert plan is not None
    assert plan.gap == pytest.approx(min(fit)[0], abs=1e-12)


def federation_of(rules: tuple[BiasRule, ...], seed: int = 1) -> Federation:
    """Return one client of 600 rows, race of three values and sex, with some rules."""
    rng = np.random.RandomState(3)
    n = 600
    race = rng.choice([1, 2, 3], n, p=[0.6, 0.25, 0.15])
    sex = np.where(rng.rand(n) < 0.3 + 0.3 * (race == 2), 2, 1)
    label = (rng.rand(n) < 0.5 - 0.1 * (sex == 2)).astype(int)
    table = pa.table({"who": ["WY"] * n, "sex": sex, "race": race, "y": label})
    columns = (
        Column(name="sex", dtype="int8", role="sensitive", coding=SEX),
        Column(name="race", dtype="int8", role="sensitive", coding=RACE),
    )
    recipe = Recipe(
        dataset="demo",
        name="demo",
        schema=Schema(columns=columns, label=Label(column="y")),
        partition=Natural(column="who"),
        groups=(ClientGroup(name="all", rules=rules),) if rules else (),
        seed=seed,
    )
    return federate_table(table, recipe)


SEX = Coding(names=((1, "male"), (2, "female")))
RACE = Coding(names=((1, "white"), (2, "black"), (3, "asian")))


@pytest.mark.parametrize("against", ["rest", "pairs"])
@pytest.mark.parametrize("by", ["drop", "flip"])
@pytest.mark.parametrize("beside", [0.0, 0.25])
@pytest.mark.parametrize(
    "where", [[("race", "black")], [("race", 3)], [("sex", "female"), ("race", 2)]]
)
def test_injection_gives_the_planned_gap(
    where: list[tuple[str, str | int]], by: By, beside: float, against: Against
) -> None:
    labels, _ = count_labels(federation_of(()))
    plan = plan_labels(labels, "WY", where, gap=0.33, by=by, beside=beside, against=against)
    biased = federation_of((plan.rule,))
    (entry,) = biased.ledger
    assert (entry.eligible, entry.dropped) == (plan.positives, plan.dropped)
    assert entry.flipped == plan.flipped
    after = count_labels(biased)[1].on(*(name for name, _ in where))
    counts = after.counts[0, :, :, 0]
    names = {1: {"black": 1, 3: 2}, 2: {"female": 4}}[len(where)]
    own = names[where[0][1]]
    order = [own, *(i for i in range(len(counts)) if i != own)]
    assert gap_after(counts[order], 0, 0, against) == pytest.approx(plan.gap, abs=1e-12)
    if against == "pairs" and len(where) == 1:
        found = measure(biased, against="pairs").finding("WY", "race")
        assert found.disparity.size == pytest.approx(plan.gap, abs=1e-12)


def test_gaps_of_all_values_are_recomputed_exactly_where_the_rule_names_them() -> None:
    labels, _ = count_labels(federation_of(()))
    plan = plan_labels(labels, "WY", [("race", "black")], gap=0.3)
    after = measure(federation_of((plan.rule,)))
    for shift in plan.shifts:
        part = after.assessments[shift.attribute, "DD"].part
        measured = part.gap()[0, part.attribute.index(shift.value)]
        assert shift.exact == (shift.attribute == "race")
        if shift.exact:
            assert shift.after == pytest.approx(measured, abs=1e-12)


def test_a_second_attribute_shifts_as_expected() -> None:
    labels, _ = count_labels(federation_of(()))
    plan = plan_labels(labels, "WY", [("race", "black")], gap=0.3, by="flip", beside=0.4)
    counts = labels.counts[0, :, :, 0].reshape(2, 3, 2)
    a, k_d, k_f = plan.positives, plan.dropped, plan.flipped
    rates = []
    for v in range(2):  # the formula: E rate_v = (a_v - (k_d + k_f) b/a) / (n_v - k_d b/a)
        b = counts[v, 1, 1]
        rates.append(
            (counts[v, :, 1].sum() - (k_d + k_f) * b / a) / (counts[v].sum() - k_d * b / a)
        )
    expected = {s.value: s.after for s in plan.shifts if s.attribute == "sex"}
    assert expected["female"] == pytest.approx(rates[1] - rates[0], abs=1e-12)
    drawn = []
    for seed in range(200):
        part = count_labels(federation_of((plan.rule,), seed))[1].on("sex").counts[0, :, :, 0]
        share = part[:, 1] / part.sum(axis=1)
        drawn.append(share[1] - share[0])
    error = np.std(drawn) / np.sqrt(len(drawn))
    assert abs(np.mean(drawn) - expected["female"]) < 4 * error + 1e-3


def test_the_one_positive_row_among_thirteen() -> None:
    # any drop rate below 1 rounds to no row; the one row makes the gap .106 (value-silo, PR)
    labels = cube_of([[12, 1], [8_100, 958]])
    plan = plan_labels(labels, "c", [("r", "v0")], gap=0.09)
    assert (plan.positives, plan.dropped, plan.rule.drop) == (1, 1, 1.0)
    assert plan.before == pytest.approx(0.029, abs=5e-4)
    assert plan.gap == pytest.approx(0.106, abs=5e-4)
    with pytest.raises(MeasureError, match=r"0\.110 is out of reach, drop gives 0\.106 at most"):
        plan_labels(labels, "c", [("r", "v0")], gap=0.11)


def test_another_value_that_dominates_is_named() -> None:
    labels = cube_of([[50, 50], [80, 120], [19, 1]])
    plan = plan_labels(labels, "c", [("r", "v0")], gap=0.2)
    assert plan.dominant.value == "v2"
    assert plan.note == (
        f"c: r=v2 dominates with a gap of {plan.dominant.after:+.3f}, larger than the "
        f"{-plan.gap:+.3f} of r=v0."
    )
    assert plan_labels(labels, "c", [("r", "v2")], gap=0.53).note == ""


def test_only_contending_attributes_dominate() -> None:
    counts = [[[30, 30], [60, 5]], [[30, 60], [60, 10]]]  # s is worse than r
    labels = cube_of(counts, second=2)
    plan = plan_labels(labels, "c", [("r", "v0")], gap=0.2)
    assert "s=w1 dominates with an expected gap" in plan.note
    assert plan_labels(labels, "c", [("r", "v0")], gap=0.2, compare=["r"]).note == ""


@pytest.mark.parametrize(
    ("counts", "options", "said"),
    [
        ([[5, 5], [5, 5]], {"gap": 0.6}, "0.600 is out of reach, drop gives 0.500 at most"),
        ([[9, 1], [1, 9]], {"gap": 0.2}, "drop gives 0.800 at least, since bias is only added"),
        ([[0, 9], [0, 9]], {"gap": 0.2}, "drop gives 0.000 at most"),
        ([[5, 5], [5, 5]], {"gap": 0.6, "by": "flip", "beside": 0.5}, "flip beside a drop rate"),
        (
            [[5, 5], [5, 5], [9, 1]],
            {"gap": 0.2, "against": "pairs"},
            "not the disparity of r, since other values lie 0.400 apart",
        ),
        ([[0, 0], [5, 5]], {"gap": 0.2}, "no row of this group"),
        ([[5, 5], [0, 0]], {"gap": 0.2}, "no other row"),
        ([[5, 5], [5, 5]], {"gap": 0.0}, "must lie in (0, 1]"),
    ],
)
def test_what_cannot_be_reached_is_said_in_one_sentence(
    counts: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(MeasureError) as caught:
        plan_labels(cube_of(counts), "c", [("r", "v0")], **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_value_is_named() -> None:
    with pytest.raises(MeasureError, match="r=v9: no such value; r has v0, v1"):
        plan_labels(cube_of([[5, 5], [5, 5]]), "c", [("r", "v9")], gap=0.2)


@given(size=st.integers(1, 10**7), share=st.floats(0, 1))
def test_short_rates_come_to_their_count(size: int, share: float) -> None:
    count = int(size * share)
    rate = short_rate(count, size)
    assert int(size * rate) == count
    assert 0 <= rate <= 1
