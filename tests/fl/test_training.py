"""A client's training and counting: degenerate clients, determinism, the rows it may see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (extra fl)")
pytest.importorskip("flwr", reason="flwr is not installed (extra fl)")

from feda4fair import (  # noqa: E402
    BiasRule,
    ClientGroup,
    ClientSplit,
    Coding,
    Column,
    Federation,
    Label,
    Natural,
    Recipe,
    Schema,
    federate_table,
)
from feda4fair.fl.experiment import degenerate  # noqa: E402
from feda4fair.fl.history import History  # noqa: E402
from feda4fair.fl.methods import method_names  # noqa: E402
from feda4fair.fl.models import Cnn, arrays, build  # noqa: E402
from feda4fair.fl.rows import PIXELS, Rows, clean, prepare  # noqa: E402
from feda4fair.fl.settings import Settings  # noqa: E402
from feda4fair.fl.training import count, predict, train  # noqa: E402
from feda4fair.measurement import count_labels  # noqa: E402

GROUPS = Coding(names=((1, "A"), (2, "B"), (3, "C")))


@pytest.fixture
def untouched_torch() -> Iterator[None]:
    before = torch.get_rng_state(), torch.get_num_threads()
    yield
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]


def federation(*, by_client: bool = False, rules: bool = True) -> Federation:
    """Return one plain client and one of each degenerate kind, 60 rows each."""
    rng = np.random.default_rng(3)
    names = ("empty", "one class", "one group", "plain", "tiny")
    clients = np.repeat(names, (60, 60, 60, 60, 6))
    n = len(clients)
    group = rng.integers(1, 4, n)
    group[clients == "one group"] = 2
    x = rng.integers(0, 9, n)
    label = (x + group + rng.integers(0, 3, n) > 7).astype(int)
    label[clients == "one class"] = 0
    recipe = Recipe(
        dataset="demo",
        name="demo",
        schema=Schema(
            columns=(
                Column(name="x", dtype="int8"),
                Column(name="z", dtype="float64"),
                Column(name="g", dtype="int8", role="sensitive", coding=GROUPS),
                Column(name="h", dtype="int8", role="sensitive"),
            ),
            label=Label(column="y"),
        ),
        partition=Natural(column="who"),
        groups=(
            ClientGroup(
                name="ruled",
                clients=("plain",),
                rules=(BiasRule(where={"g": "A"}, drop=0.5, flip=0.5),),
            ),
        )
        if rules
        else (),
        **({"split": ClientSplit(test=("plain", "tiny"), folds=3)} if by_client else {}),
    )
    table = {"who": clients, "x": x, "z": rng.normal(size=n), "g": group, "h": x % 2, "y": label}
    return federate_table(pa.table(table), recipe)


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Return these clients, the first without any training row."""
    made = prepare(federation())
    bounds = made.bounds.copy()
    bounds[1] = bounds[0]  # its training rows are in no part
    return replace(made, bounds=bounds)


def settings(method: str, **changes: Any) -> Settings:
    return Settings(method=method, mitigate="g", **{"batch": 4, "rate": 0.1, **changes})


def pooled(rows: Rows, values: Any) -> Any:
    return sum(count(rows, client, values)["train"] for client in range(len(rows.clients)))


@pytest.mark.parametrize("options", [{}, {"weight": 1.0}, {"weight": "tunable"}])
@pytest.mark.parametrize("client", range(5))
@pytest.mark.usefixtures("untouched_random", "untouched_torch")
def test_degenerate_clients_give_finite_weights(
    rows: Rows, client: int, options: dict[str, Any]
) -> None:
    start = arrays(build(rows, 0))
    for method in ("puffle",) if options else method_names():
        chosen = settings(method, options=options)
        for batch in (1, 4, 512):
            trained, report = train(
                rows,
                client,
                start,
                replace(chosen, batch=batch),
                round_number=1,
                pooled=pooled(rows, start),
            )
            assert all(np.isfinite(array).all() for array in trained)
            assert all(np.isfinite(value) for value in report.values())
            same = all(map(np.array_equal, trained, start))
            # PUFFLE with nothing but the penalty may rest at a model without disparity.
            assert same == (client == 0) or options == {"weight": 1.0}


def test_degenerate_clients_are_listed(rows: Rows) -> None:
    start = arrays(build(rows, 0))
    counts = [count(rows, client, start)["train"] for client in range(len(rows.clients))]
    history = History(
        run={},
        clients=rows.clients,
        attributes=rows.attributes,
        counts=[{"train": np.stack(counts)}],
    )
    assert degenerate(history, federation(), "g") == {
        "one class": ["one class"],
        "one value of g": ["one group", "tiny"],
        "no training rows": ["empty"],
    }
    assert "no training rows" not in degenerate(history, federation(by_client=True), "g")


def test_same_seed_client_and_round_give_the_same_weights(rows: Rows) -> None:
    start = arrays(build(rows, 0))

    def trained(round_number: int = 1, **changes: Any) -> list[Any]:
        chosen = settings("puffle", **changes)
        table = pooled(rows, start)
        return train(rows, 3, start, chosen, round_number=round_number, pooled=table)[0]

    first = trained()
    torch.rand(3)  # moves the global state, on which nothing depends
    assert all(map(np.array_equal, first, trained()))
    assert not all(map(np.array_equal, first, trained(round_number=2)))
    assert not all(map(np.array_equal, first, trained(seed=1)))


def test_training_lowers_the_loss(rows: Rows) -> None:
    start = arrays(build(rows, 0))
    table = pooled(rows, start)
    after, _ = train(rows, 3, start, settings("fedavg"), round_number=1, pooled=table)

    def right(values: Any) -> float:
        cells = count(rows, 3, values)["train"].sum(axis=0)
        return float(np.trace(cells) / cells.sum())

    assert right(after) > right(start)


def test_counts_are_those_of_the_rows(rows: Rows) -> None:
    values = arrays(build(rows, 0))
    guess = predict(rows, slice(0, len(rows.label)), values)
    counted = count(rows, 3, values)
    where = rows.part(3, "test")
    for cell in np.ndindex(rows.groups, 2, 2):
        mask = (rows.group[where], rows.label[where], guess[where]) == np.array(cell)[:, None]
        assert counted["injected"][cell] == mask.all(axis=0).sum()


def test_restored_counts_are_those_before_injection() -> None:
    before, after = (cube.counts[..., 0] for cube in count_labels(federation()))
    rows = prepare(federation())
    counted = [count(rows, client, arrays(build(rows, 0))) for client in range(5)]
    parts = np.array(
        [[c[v].sum(axis=2) for v in ("train", "validation", "injected")] for c in counted]
    )
    assert np.array_equal(parts.sum(axis=1), after)
    control = prepare(clean(federation()))
    clean_counts = [count(control, client, arrays(build(control, 0))) for client in range(5)]
    for view in ("injected", "restored"):
        assert all(
            np.array_equal(here[view].sum(axis=2), there["restored"].sum(axis=2))
            for here, there in zip(clean_counts, counted, strict=True)
        )
    whole = sum(
        np.array([c[view].sum(axis=2) for c in clean_counts])
        for view in ("train", "validation", "injected")
    )
    assert np.array_equal(whole, before)


def test_the_control_equals_a_federation_without_rules() -> None:
    control, without = clean(federation()), federation(rules=False)
    assert control.table.equals(without.table)
    assert np.array_equal(control.split, without.split)
    assert control.recipe.control == "none"
    assert control.dropped.num_rows == 0


def test_whole_clients_validate_where_whole_clients_test() -> None:
    made = federation(by_client=True)
    rows = prepare(made)
    for position, client in enumerate(made.clients):
        sizes = {part: int(rows.count(part)[position]) for part in ("train", "validation", "test")}
        used = "test" if client.name in ("plain", "tiny") else "train"
        if used == "train" and client.fold == 0:
            used = "validation"
        assert sizes == dict.fromkeys(sizes, 0) | {used: client.rows}


@pytest.mark.usefixtures("untouched_random", "untouched_torch")
def test_the_network_has_ten_thousand_parameters_of_its_seed() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (6, 3, PIXELS, PIXELS), dtype=np.uint8)
    plain = prepare(federation())
    rows = replace(
        plain, encoding=None, pictures=np.resize(pictures, (len(plain.label), 3, PIXELS, PIXELS))
    )
    first, again, other = (arrays(build(rows, seed)) for seed in (0, 0, 1))
    assert sum(array.size for array in first) == 10_130
    assert all(map(np.array_equal, first, again))
    assert not np.array_equal(first[0], other[0])
    assert isinstance(build(rows, 0), Cnn)
    trained, _ = train(
        rows, 3, first, settings("fedavg"), round_number=1, pooled=pooled(rows, first)
    )
    assert all(np.isfinite(array).all() for array in trained)
