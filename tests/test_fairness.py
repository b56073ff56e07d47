from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fairlearn.metrics import demographic_parity_difference
from fairlearn.metrics import equalized_odds_difference as fairlearn_odds
from hypothesis import given, settings
from hypothesis import strategies as st

from feda4fair.errors import MeasureError
from feda4fair.fairness import (
    Cube,
    demographic_disparity,
    disparities,
    equalized_odds_difference,
    rates,
)


def outcomes(**groups):
    """Return outcomes and groups from ``name=(rows, positives)``."""
    labels, names = [], []
    for name, (n, positive) in groups.items():
        labels += [1] * positive + [0] * (n - positive)
        names += [name] * n
    return labels, names


def gaps(found):
    return {group.value: group.gap for group in found.groups}


def test_paper_definition_is_one_against_the_rest():
    labels, groups = outcomes(A=(100, 50), B=(10, 2), C=(10, 8))
    found = demographic_disparity(labels, sensitive_features=groups)
    assert (found.against, found.outcome, found.attribute) == (
        "rest",
        "label",
        "sensitive_feature",
    )
    assert found.size == pytest.approx(0.327273, abs=5e-7)
    assert gaps(found) == pytest.approx({"A": 0.0, "B": -0.327273, "C": 0.327273}, abs=5e-7)
    assert [(w.value, w.other) for w in found.attained] == [("B", None), ("C", None)]
    assert found.attained[0].gap < 0 < found.attained[1].gap
    b = found.groups[1]
    assert (b.support, b.positives, b.rest_support, b.rest_positives) == (10, 2, 110, 58)


def test_pairs_definition_is_the_range_of_rates():
    labels, groups = outcomes(A=(100, 50), B=(10, 2), C=(10, 8))
    found = demographic_disparity(labels, sensitive_features=groups, against="pairs")
    assert found.size == pytest.approx(0.6, abs=5e-7)
    assert [(w.value, w.other, round(w.gap, 6)) for w in found.attained] == [("B", "C", -0.6)]


def test_the_definitions_differ_on_three_groups():
    labels, groups = outcomes(A=(50, 30), B=(30, 12), C=(20, 4))
    rest = demographic_disparity(labels, sensitive_features=groups)
    pairs = demographic_disparity(labels, sensitive_features=groups, against="pairs")
    assert (round(rest.size, 6), rest.attained[0].value) == (0.325, "C")
    assert round(pairs.size, 6) == 0.4
    whole = sum(group.positives for group in rest.groups) / 100
    assert round(max(abs(group.rate - whole) for group in rest.groups), 6) == 0.26


def test_a_declared_value_without_rows_has_no_gap_and_enters_no_maximum():
    labels, groups = outcomes(A=(10, 5), B=(10, 2))
    column = pd.Series(pd.Categorical(groups, categories=["A", "B", "C"]), name="Race")
    found = demographic_disparity(labels, sensitive_features=column)
    assert found.attribute == "Race"
    assert found.size == pytest.approx(0.3)
    absent = found.groups[2]
    assert (absent.support, absent.rate, absent.gap) == (0, None, None)
    assert absent.reason == "no rows of this value"
    assert found.reason == "DD of C: no rows of this value"


def test_an_empty_intersection_cell_is_listed_and_enters_no_maximum():
    frame = pd.DataFrame({"Sex": ["m", "m", "f", "f"], "Race": ["w", "b", "w", "w"]})
    found = demographic_disparity([1, 0, 1, 0], sensitive_features=frame)
    assert found.attribute == "Sex & Race"
    assert [g.value for g in found.groups] == ["f & b", "f & w", "m & b", "m & w"]
    assert found.groups[0].support == 0
    assert found.groups[0].gap is None
    assert {w.value for w in found.attained} == {"m & b", "m & w"}


def test_exact_ties_survive_floating_point():
    labels, groups = outcomes(A=(10, 1), B=(10, 2), C=(10, 3))
    found = demographic_disparity(labels, sensitive_features=groups)
    assert [w.value for w in found.attained] == ["A", "C"]
    tied, names = outcomes(A=(3, 1), B=(6, 2), C=(9, 6), D=(3, 2))
    pairs = demographic_disparity(tied, sensitive_features=names, against="pairs")
    assert [(w.value, w.other) for w in pairs.attained] == [
        ("A", "C"),
        ("A", "D"),
        ("B", "C"),
        ("B", "D"),
    ]


def arrays(most=9):
    return st.integers(2, most).flatmap(
        lambda groups: st.lists(
            st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, groups - 1)),
            min_size=1,
            max_size=120,
        )
    )


@settings(deadline=None)
@given(arrays())
def test_pairs_equal_fairlearn_wherever_it_is_right(data):
    y_true, y_pred, groups = (list(column) for column in zip(*data, strict=True))
    found = demographic_disparity(y_true, y_pred, sensitive_features=groups, against="pairs")
    theirs = demographic_parity_difference(y_true, y_pred, sensitive_features=groups)
    if len(set(groups)) == 1:
        assert (found.size, theirs) == (None, 0.0)
        assert "no rows of any other value" in found.reason
    else:
        assert found.size == pytest.approx(theirs, abs=1e-12)

    odds = equalized_odds_difference(y_true, y_pred, sensitive_features=groups, against="pairs")
    cells = {(z, y) for z, y in zip(groups, y_true, strict=True)}
    if all((z, y) in cells for z in set(groups) for y in (0, 1)) and len(set(groups)) > 1:
        theirs = fairlearn_odds(y_true, y_pred, sensitive_features=groups)
        assert odds.size == pytest.approx(theirs, abs=1e-12)
    else:
        # Fairlearn gives a group without such rows the rate 0, or one group the disparity 0.
        assert "no rows of label" in odds.reason


@settings(deadline=None)
@given(arrays())
def test_laws_of_the_two_definitions(data):
    y_true, y_pred, groups = (list(column) for column in zip(*data, strict=True))
    for function in (demographic_disparity, equalized_odds_difference):
        rest = function(y_true, y_pred, sensitive_features=groups)
        pairs = function(y_true, y_pred, sensitive_features=groups, against="pairs")
        assert (rest.size is None) == (pairs.size is None)
        if rest.size is not None:
            assert pairs.size >= rest.size - 1e-15
            assert 0 <= rest.size <= 1
            if len(set(groups)) == 2 and rest.figure == "DD":
                assert pairs.size == pytest.approx(rest.size, abs=1e-15)
        order = np.argsort(np.sin(np.arange(len(groups)) * 7.3))
        shuffled = function(
            np.array(y_true)[order],
            np.array(y_pred)[order],
            sensitive_features=np.array(groups)[order],
        )
        assert shuffled == rest


@settings(deadline=None)
@given(arrays(most=5))
def test_gaps_are_the_definition_written_out(data):
    y_true, y_pred, groups = (np.array(column) for column in zip(*data, strict=True))
    found = equalized_odds_difference(y_true, y_pred, sensitive_features=groups)
    for group in found.groups:
        stratum = y_true == (group.metric == "TPR")
        inside = y_pred[stratum & (groups == int(group.value))]
        outside = y_pred[stratum & (groups != int(group.value))]
        if len(inside) and len(outside):
            assert group.gap == pytest.approx(inside.mean() - outside.mean(), abs=1e-12)
            assert group.reason is None
        else:
            assert group.gap is None
            assert group.reason
    defined = [abs(g.gap) for g in found.groups if g.gap is not None]
    assert found.size == (max(defined) if defined else None)


@pytest.mark.parametrize("value", [0, 1])
def test_labels_of_one_class_show_no_proud_zero(value):
    found = demographic_disparity([value] * 4, sensitive_features=list("aabb"))
    assert found.size is None
    assert found.attained == ()
    assert f"one class: every label is {value}" in found.reason
    assert "undefined" in str(found)
    with pytest.raises(MeasureError, match="one class"):
        float(found)


def test_a_constant_prediction_has_disparity_zero():
    found = demographic_disparity([0, 1, 0, 1], [1, 1, 1, 1], sensitive_features=list("aabb"))
    assert found.size == 0.0


def test_one_group_has_no_disparity():
    found = demographic_disparity([0, 1], sensitive_features=["a", "a"])
    assert found.size is None
    assert found.reason == "DD of a: no rows of any other value"


def test_odds_without_a_label_class_rest_on_the_other_and_say_so():
    found = equalized_odds_difference([1, 1, 1, 1], [1, 1, 0, 1], sensitive_features=list("aabb"))
    assert found.size == 0.5
    assert {w.metric for w in found.attained} == {"TPR"}
    assert "FPR of a: the client has no rows of label 0" in found.reason


def test_spelling_of_labels_does_not_change_the_figure():
    labels, groups = outcomes(A=(10, 5), B=(10, 2))
    plain = demographic_disparity(labels, sensitive_features=groups)
    for names in (("<=50K", ">50K"), (1, 2), (-1, 1), (False, True)):
        spelled = [names[y] for y in labels]
        found = demographic_disparity(spelled, sensitive_features=groups, pos_label=names[1])
        assert found == plain
        swapped = demographic_disparity(spelled, sensitive_features=groups, pos_label=names[0])
        assert gaps(swapped) == pytest.approx({k: -v for k, v in gaps(plain).items()})


@pytest.mark.parametrize("shape", ["mapping", "frame", "matrix", "arrow", "polars"])
def test_columns_are_crossed_whatever_holds_them(shape):
    sex, race = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 1])
    columns = {
        "mapping": {"s": sex, "r": race},
        "frame": pd.DataFrame({"s": sex, "r": race}),
        "matrix": np.column_stack([sex, race]),
        "arrow": pa.table({"s": pa.chunked_array([sex[:2], sex[2:]]), "r": race}),
        "polars": pl.DataFrame({"s": sex, "r": race}),
    }
    found = demographic_disparity([1, 0, 0, 1, 0], sensitive_features=columns[shape])
    assert [g.support for g in found.groups] == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1, 2], None, ["a", "b", "a"]), "y_true: got the labels 0, 1, 2"),
        (([0, 1], [0, 1, 1], ["a", "b"]), "give one prediction for each row"),
        (([0, 1], None, ["a", "b", "b"]), "one length"),
        (([0, 1], None, ["a", None]), "1 of 2 rows hold no value"),
        (([0, 1], None, np.array([0.0, np.nan])), "1 of 2 rows hold no value"),
        (([], None, []), "got no row"),
        ((None, None, ["a"]), "got neither"),
        (([[0, 1]], None, ["a", "b"]), "one dimension"),
        (
            ([0] * 200, None, {"a": range(200), "b": range(200)}),
            "40000 cells, at most 10000",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments, message):
    y_true, y_pred, features = arguments
    with pytest.raises(MeasureError, match=message):
        demographic_disparity(y_true, y_pred, sensitive_features=features)


def federation(seed=1, clients=12, rows=3000, values=5):
    rng = np.random.RandomState(seed)
    table = {
        "client": rng.randint(0, clients, rows),
        "sex": rng.randint(1, 3, rows),
        "race": rng.randint(0, values, rows) % (1 + rng.randint(0, values, rows)),
        "y": rng.randint(0, 2, rows),
        "p": rng.randint(0, 2, rows),
    }
    cube = Cube.count(
        clients=table["client"],
        client_names=[f"c{i}" for i in range(clients + 1)],
        attributes={
            "SEX": (table["sex"], {1: "male", 2: "female"}),
            "RAC1P": (table["race"], {i: str(i) for i in range(values)}),
        },
        y_true=table["y"],
        y_pred=table["p"],
    )
    return table, cube


@pytest.mark.parametrize("against", ["rest", "pairs"])
@pytest.mark.parametrize("figure", ["DD", "EOD"])
@pytest.mark.parametrize("attribute", ["SEX", "RAC1P", ("SEX", "RAC1P")])
def test_a_federation_measures_as_its_clients_do_alone(against, figure, attribute):
    table, cube = federation()
    found = disparities(cube, figure, attribute=attribute, against=against)
    function = demographic_disparity if figure == "DD" else equalized_odds_difference
    names = {"SEX": "sex", "RAC1P": "race"}
    for k in range(12):
        mine = table["client"] == k
        columns = [attribute] if isinstance(attribute, str) else attribute
        alone = function(
            table["y"][mine],
            table["p"][mine],
            against=against,
            sensitive_features={n: table[names[n]][mine] for n in columns},
        )
        assert found[f"c{k}"].size == alone.size
        ours = [g.gap for g in found[f"c{k}"].groups if g.support]
        assert ours == [g.gap for g in alone.groups if g.support]
    empty = found["c12"]
    assert empty.size is None
    assert "the client has no rows" in empty.reason


def test_vectors_agree_with_single_figures():
    _, cube = federation()
    for metric in ("DD", "TPR", "FPR"):
        part = rates(cube.on("RAC1P"), metric)
        sizes = part.size("rest")
        assert np.isnan(sizes[12])
        assert not np.isnan(sizes[:12]).any()
        gap = part.gap()
        assert (sizes[:12] == np.nanmax(np.abs(gap[:12]), axis=1)).all()
        assert (gap[:12][part.worst()[:12]] == np.nanmin(gap[:12], axis=1)).all()


def test_pair_gaps_hold_the_disparity_of_pairs():
    _, cube = federation()
    part = rates(cube.on("RAC1P"))
    for k in range(12):
        gaps = part.pair_gaps(k)
        assert np.nanmax(gaps) == pytest.approx(part.size("pairs")[k])
        np.testing.assert_array_equal(gaps, -gaps.T)
    assert np.isnan(part.pair_gaps(12)).all()


def test_odds_of_labels_alone_are_refused():
    cube = Cube.count(
        clients=np.zeros(2, int),
        client_names=["a"],
        attributes={"SEX": (np.array([1, 2]), {1: "m", 2: "f"})},
        y_true=[0, 1],
    )
    with pytest.raises(MeasureError, match="TPR of SEX needs predictions"):
        disparities(cube, "EOD", attribute="SEX")
    with pytest.raises(MeasureError, match=r"one attribute; choose it with cube\.on"):
        rates(federation()[1])
