from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feda4fair.cube import MAX_VALUES, Attribute, Cube, concatenate
from feda4fair.errors import MeasureError

SEX = {1: "male", 2: "female"}
RACE = {1: "White", 2: "Black", 3: "Asian"}

rows = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([1, 2]),
        st.sampled_from([1, 2, 3]),
        st.integers(0, 1),
        st.integers(0, 1),
    ),
    max_size=40,
)


def count(data, *, predictions=True, names=("a", "b", "c")):
    table = np.array(data, dtype=np.int64).reshape(-1, 5)
    return Cube.count(
        clients=table[:, 0],
        client_names=names,
        attributes={"SEX": (table[:, 1], SEX), "RAC1P": (table[:, 2], RACE)},
        y_true=table[:, 3],
        y_pred=table[:, 4] if predictions else None,
    )


@settings(deadline=None)
@given(rows)
def test_every_cell_counts_its_rows(data):
    cube = count(data)
    expected = Counter(data)
    for client in range(3):
        for cell, (sex, race) in enumerate((s, r) for s in SEX for r in RACE):
            for y in (0, 1):
                for p in (0, 1):
                    got = cube.counts[client, cell, y, p]
                    assert got == expected[(client, sex, race, y, p)]


@settings(deadline=None)
@given(rows, rows)
def test_cubes_of_two_workers_add_up(one, other):
    assert count(one) + count(other) == count(one + other)


@settings(deadline=None)
@given(rows)
def test_clients_side_by_side_equal_one_count(data):
    whole = count(data)
    parts = [whole.select([name]) for name in whole.clients]
    assert concatenate(parts) == whole
    assert whole.pooled().rows().sum() == len(data)


@settings(deadline=None)
@given(rows)
def test_marginals_and_intersections_follow_from_the_joint_counts(data):
    cube = count(data)
    crossed = cube.on("RAC1P", "SEX")
    assert crossed.attributes[0].name == "RAC1P & SEX"
    assert crossed.attributes[0].values[:2] == ("White & male", "White & female")
    expected = Counter((c, r, s) for c, s, r, _, _ in data)
    for client in range(3):
        for cell, (race, sex) in enumerate((r, s) for r in RACE for s in SEX):
            assert crossed.counts[client, cell].sum() == expected[(client, race, sex)]
    assert cube.on("SEX").rows().tolist() == cube.rows().tolist()


def test_a_declared_value_and_a_named_client_without_rows_keep_their_place():
    cube = count([(0, 1, 1, 1, 1)])
    assert cube.on("RAC1P").counts.sum(axis=(2, 3)).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_three_attributes_are_crossed_in_any_order():
    rng = np.random.RandomState(0)
    columns = {
        n: (rng.randint(0, w, 500), {i: f"{n}{i}" for i in range(w)})
        for n, w in {"A": 2, "B": 3, "C": 4}.items()
    }
    cube = Cube.count(
        clients=np.zeros(500, int),
        client_names=["k"],
        attributes=columns,
        y_true=rng.randint(0, 2, 500),
    )
    crossed = cube.on("C", "A", "B")
    for cell, value in enumerate(crossed.attributes[0].values):
        c, a, b = (int(part[1]) for part in value.split(" & "))
        mask = (columns["C"][0] == c) & (columns["A"][0] == a) & (columns["B"][0] == b)
        assert crossed.counts[0, cell].sum() == mask.sum()


def test_accuracy_stands_beside_disparity():
    cube = count([(0, 1, 1, 1, 1), (0, 1, 1, 1, 0), (0, 1, 1, 0, 0), (0, 1, 1, 0, 0)])
    assert cube.accuracy()[0] == 0.75
    assert np.isnan(cube.accuracy()[1:]).all()
    with pytest.raises(MeasureError, match="needs predictions"):
        count([], predictions=False).accuracy()


def test_labels_alone_are_the_cube_without_predictions():
    data = [(0, 1, 1, 1, 0), (0, 1, 1, 1, 1), (2, 2, 3, 0, 1)]
    assert count(data).labels() == count(data, predictions=False)
    assert not count(data).labels().has_predictions


def test_counts_below_zero_are_refused():
    cube = count([])
    with pytest.raises(MeasureError, match="minimum -1, expected int64 without negative"):
        Cube(clients=cube.clients, attributes=cube.attributes, counts=cube.counts - 1)


def test_counts_cannot_be_changed_after_the_fact():
    with pytest.raises(ValueError, match="read-only"):
        count([]).counts[0, 0, 0, 0] = 1


def test_a_count_too_large_to_keep_is_refused_before_it_is_made():
    with pytest.raises(
        MeasureError, match=r"10000 clients x A \(100\) x B \(100\) need 200000000"
    ):
        Cube.count(
            clients=np.zeros(1, int),
            client_names=[str(i) for i in range(10_000)],
            attributes={n: (np.zeros(1, int), {i: str(i) for i in range(100)}) for n in "AB"},
            y_true=[1],
        )


def test_an_intersection_too_wide_to_name_is_refused():
    wide = Attribute(name="A", values=tuple(map(str, range(200))), codes=tuple(range(200)))
    with pytest.raises(MeasureError, match=rf"40000 cells, at most {MAX_VALUES} are measured"):
        Attribute.crossed([wide, wide])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_true": [1, 0, 1]}, r"shapes clients \(2,\).*y_true \(3,\)"),
        ({"clients": np.array([0, 7])}, "clients: expected integers from 0 to 0"),
        ({"clients": np.array([0.0, 0.0])}, "clients: expected integers"),
        ({"client_names": ["a", "a"]}, "client 'a' is named twice"),
        ({"attributes": {"SEX": (np.array([1, 3]), SEX)}}, "attribute SEX: 1 rows hold 3"),
        ({"attributes": {"SEX": (np.array([1, 1]), {1: "x", 2: "x"})}}, "share the name 'x'"),
        ({"attributes": {"SEX": (np.array([1, 1]), {})}}, "got 0 codes for 0 value names"),
        ({"y_true": [1, 2]}, "y_true: got the labels 1, 2"),
        ({"y_pred": [0, 5]}, "y_pred: got the labels 0, 5"),
    ],
)
def test_bad_columns_are_refused_in_one_sentence(change, message):
    good = {
        "clients": np.array([0, 0]),
        "client_names": ["a"],
        "attributes": {"SEX": (np.array([1, 2]), SEX)},
        "y_true": [0, 1],
    }
    with pytest.raises(MeasureError, match=message):
        Cube.count(**{**good, **change})


def test_cubes_that_do_not_fit_are_refused():
    cube = count([])
    with pytest.raises(MeasureError, match="different clients"):
        cube + count([], names=("a", "b", "d"))
    with pytest.raises(MeasureError, match="different attributes"):
        cube + count([], predictions=False)
    with pytest.raises(MeasureError, match="named twice"):
        concatenate([cube, cube])
    with pytest.raises(MeasureError, match="no cube"):
        concatenate([])
    with pytest.raises(
        MeasureError, match="no sensitive attribute 'Sex'; the cube has SEX, RAC1P"
    ):
        cube.on("Sex")
    with pytest.raises(MeasureError, match="different attributes"):
        cube.on("SEX", "SEX")
    with pytest.raises(MeasureError, match="no client 'z' among 3"):
        cube.client("z")
    with pytest.raises(MeasureError, match="do not fit"):
        Cube(clients=("a",), attributes=cube.attributes, counts=cube.counts)
