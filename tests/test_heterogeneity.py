from __future__ import annotations

import gzip

import numpy as np
import pytest

from feda4fair.cube import Cube
from feda4fair.heterogeneity import heterogeneity


def federation(factor, clients=30, rows=600, seed=0):
    """Return clients whose rate is 0.5, times ``factor(client, sex, race)``."""
    rng = np.random.RandomState(seed)
    client = np.repeat(np.arange(clients), rows)
    sex, race = rng.randint(0, 2, len(client)), rng.randint(0, 3, len(client))
    return Cube.count(
        clients=client,
        client_names=[f"c{k:02}" for k in range(clients)],
        attributes={
            "SEX": (sex, {0: "male", 1: "female"}),
            "RAC1P": (race, {0: "a", 1: "b", 2: "c"}),
        },
        y_true=rng.rand(len(client)) < 0.5 * factor(client, sex, race),
    )


def by_figure(cube, attribute, **options):
    return {
        (s.figure, s.value): s for s in heterogeneity(cube, **options) if s.attribute == attribute
    }


def test_a_homogeneous_federation_stays_within_its_null():
    cube = federation(lambda client, sex, race: 1 - 0.3 * (race == 1))
    found = by_figure(cube, "RAC1P")
    for figure in ("H1 tau", "H4 cancellation"):
        one = found[figure, "b"]
        assert one.null_low <= one.estimate <= one.null_high
    for figure in ("H2 value conflict", "H5 agreement"):
        one = found[figure, None]
        assert one.null_low <= one.estimate <= one.null_high
        assert one.clients == 30
    label = by_figure(cube, "label")["skew", None]
    assert label.null_low <= label.estimate <= label.null_high


def test_value_conflict_rises_above_its_null():
    cube = federation(lambda client, sex, race: 1 - 0.5 * (race == client % 3))
    found = by_figure(cube, "RAC1P")
    conflict = found["H2 value conflict", None]
    assert conflict.estimate == pytest.approx(2 / 3, abs=0.01)
    assert found["H1 tau", "a"].estimate > found["H1 tau", "a"].null_high
    assert found["H5 agreement", None].estimate < found["H5 agreement", None].null_low + 1e-9


def test_opposed_clients_are_an_illusion_of_fairness():
    cube = federation(lambda client, sex, race: 1 - 0.5 * (sex == client % 2))
    found = by_figure(cube, "SEX")
    assert abs(found["H4 pooled gap", "male"].estimate) < 0.02
    assert found["H4 cancellation", "male"].estimate > 0.9
    # Cancellation of noise is high too, which is why tau and the agreement stand beside it.
    assert found["H1 tau", "male"].estimate > found["H1 tau", "male"].null_high
    assert found["H5 agreement", None].estimate == pytest.approx(-1 / 29, abs=1e-6)


def test_attribute_conflict_rises_above_its_null():
    cube = federation(
        lambda client, sex, race: np.where(client % 2, 1 - 0.5 * (sex == 1), 1 - 0.5 * (race == 1))
    )
    found = by_figure(cube, "SEX vs RAC1P")
    conflict = found["H3 attribute conflict", None]
    assert conflict.clients >= 25
    assert conflict.estimate == pytest.approx(0.5, abs=0.05)
    assert found["H3 mean contrast", None].estimate > found["H3 mean contrast", None].null_high


def test_one_attribute_has_no_attribute_conflict():
    cube = federation(lambda client, sex, race: 1 + 0 * sex, clients=4).on("SEX")
    assert not [s for s in heterogeneity(cube) if s.figure.startswith("H3")]


def test_figures_are_the_same_in_every_call():
    cube = federation(lambda client, sex, race: 1 - 0.3 * (race == 1), clients=5)
    assert heterogeneity(cube) == heterogeneity(cube)


def test_empty_and_one_class_clients_leave_no_figure_and_no_nan():
    cube = federation(lambda client, sex, race: 1 + 0 * sex, clients=3)
    counts = cube.counts.copy()
    counts[0] = 0
    counts[1, :, 1] = 0
    odd = Cube(clients=cube.clients, attributes=cube.attributes, counts=counts)
    for spread in heterogeneity(odd):
        for number in (spread.estimate, spread.null, spread.null_low, spread.null_high):
            assert number is None or np.isfinite(number)
    tau = by_figure(odd, "SEX")["H1 tau", "male"]
    assert (tau.estimate, tau.clients) == (None, 1)
    nothing = Cube(clients=cube.clients, attributes=cube.attributes, counts=counts * 0)
    assert {spread.estimate for spread in heterogeneity(nothing)} == {None}


@pytest.mark.slow
def test_dutch_value_silo_conflicts_where_an_iid_deal_does_not(shared_data):
    with gzip.open(shared_data / "dutch" / "dutch_census_2001.arff.gz", "rt") as lines:
        rows = np.array([line.strip().split(",")[-2:] for line in lines if line[:1].isdigit()])
    marital, label = rows[:, 0].astype(int), rows[:, 1] == "2_1"
    rng = np.random.RandomState(5)
    client = rng.permutation(len(label)) % 50

    def conflict(labels, kept):
        cube = Cube.count(
            clients=client[kept],
            client_names=[str(k) for k in range(50)],
            attributes={"MAR": (marital[kept], {1: "never", 2: "mar", 3: "wid", 4: "div"})},
            y_true=labels[kept],
        )
        return by_figure(cube, "MAR")["H2 value conflict", None]

    kept, biased = np.ones(len(label), bool), label.copy()
    for k, value in enumerate(np.array([1, 3, 4])[np.arange(50) % 3]):
        group = rng.permutation(np.flatnonzero((client == k) & (marital == value) & label))
        dropped, left = np.split(group, [len(group) // 2])
        kept[dropped] = False
        biased[left[: int(0.4 * len(left))]] = False
    iid, injected = conflict(label, label | True), conflict(biased, kept)
    assert iid.null_low <= iid.estimate <= iid.null_high
    assert iid.estimate == pytest.approx(0.43, abs=0.07)
    assert iid.null == pytest.approx(0.42, abs=0.05)
    assert injected.estimate == pytest.approx(0.66, abs=0.02)
    assert injected.estimate > injected.null_high
    assert injected.null == pytest.approx(0.36, abs=0.1)
