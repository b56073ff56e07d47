"""Partitions: every row in exactly one client, sizes as promised, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from feda4fair.errors import Feda4FairError, RecipeError, SchemaError
from feda4fair.partition import assign, pieces
from feda4fair.recipe import Iid, Natural

pytestmark = pytest.mark.usefixtures("untouched_random")


def refusal(kind: type[Feda4FairError], act: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        act()
    assert str(caught.value).endswith(".")
    return str(caught.value)


def rows(count: int) -> pa.Table:
    return pa.table({"x": np.arange(count)})


def iid(count: int, clients: int, *, seed: int = 7, scope: str = "demo") -> list[int]:
    names, codes = assign(rows(count), Iid(clients=clients), seed=seed, scope=scope)
    assert list(names) == sorted(names)
    assert len(names) == clients
    return codes.tolist()


sizes = st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(sizes)
def test_iid_clients_share_all_rows_evenly(size: tuple[int, int]) -> None:
    count, clients = size
    held = np.bincount(iid(count, clients), minlength=clients)
    assert held.sum() == count
    assert held.max() - held.min() <= 1


@given(st.lists(st.text("abcé 1", max_size=3), max_size=30))
def test_natural_clients_are_the_values_of_a_column(values: list[str]) -> None:
    table = pa.table({"who": pa.array(values, pa.string())})
    names, codes = assign(table, Natural(column="who"), seed=7, scope="demo")
    assert list(names) == sorted(set(values))
    assert [names[code] for code in codes] == values


def test_natural_clients_of_other_types() -> None:
    values = pa.array([10, 2, 10])
    for column in (values, values.cast(pa.string()).dictionary_encode()):
        table = pa.concat_tables([pa.table({"who": column}), pa.table({"who": column})])
        names, codes = assign(table, Natural(column="who"), seed=7, scope="demo")
        assert names == ("10", "2")
        assert codes.tolist() == [0, 1, 0] * 2


def test_iid_means_shuffled() -> None:
    # Sorted labels, three clients: contiguous slices would give one-label clients.
    labels = np.repeat([0, 1], 1500)
    codes = np.array(iid(3000, 3))
    for client in range(3):
        positives = int(labels[codes == client].sum())
        assert stats.binomtest(positives, 1000, 0.5).pvalue > 0.001


@pytest.mark.parametrize("change", [{"seed": 8}, {"scope": "other"}])
def test_seed_and_config_decide_an_iid_partition(change: dict[str, object]) -> None:
    assert iid(100, 4) == iid(100, 4)
    assert iid(100, 4) != iid(100, 4, **change)  # type: ignore[arg-type]


def test_names_of_iid_clients_sort_as_numbers_do() -> None:
    names, _ = assign(rows(120), Iid(clients=120), seed=7, scope="demo")
    assert names[:2] == ("c000", "c001")
    assert names[-1] == "c119"


@given(st.integers(0, 200), st.integers(2, 20))
def test_balanced_pieces_differ_by_one_row_at_most(count: int, parts: int) -> None:
    codes = pieces(count, parts, "balanced")
    held = np.bincount(codes, minlength=parts)
    assert held.tolist() == [len(part) for part in np.array_split(np.arange(count), parts)]
    assert held.sum() == count
    assert codes.tolist() == sorted(codes.tolist())


@given(st.integers(0, 200), st.integers(2, 20))
def test_floor_pieces_are_equal_and_leave_the_last_rows_out(count: int, parts: int) -> None:
    codes = pieces(count, parts, "floor")
    inside = count - count % parts
    assert np.bincount(codes[:inside], minlength=parts).tolist() == [count // parts] * parts
    assert codes[inside:].tolist() == [-1] * (count % parts)


def test_more_clients_than_rows_is_a_sentence() -> None:
    text = refusal(RecipeError, lambda: iid(3, 4))
    assert "only 3 rows" in text


def test_a_row_without_a_client_is_a_sentence() -> None:
    table = pa.table({"who": ["a", None]})
    text = refusal(SchemaError, lambda: assign(table, Natural(column="who"), seed=7, scope="demo"))
    assert "1 of 2 rows name no client" in text


def test_a_missing_client_column_is_a_sentence() -> None:
    text = refusal(RecipeError, lambda: assign(rows(2), Natural(column="who"), seed=7, scope="x"))
    assert "'who'" in text
    assert "among x" in text
