"""Partitions: every row in exactly one client, sizes as promised, the same for the same seed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from feda4fair.assign import assign, pieces
from feda4fair.errors import Feda4FairError, RecipeError, SchemaError
from feda4fair.partition import (
    Assigned,
    Dirichlet,
    Iid,
    LogNormal,
    Natural,
    Partition,
    PowerLaw,
    Shards,
    Sizes,
)

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
    assert "but there are 3" in text


def test_a_row_without_a_client_is_a_sentence() -> None:
    table = pa.table({"who": ["a", None]})
    text = refusal(SchemaError, lambda: assign(table, Natural(column="who"), seed=7, scope="demo"))
    assert "1 of 2 rows name no client" in text


def test_a_missing_client_column_is_a_sentence() -> None:
    text = refusal(RecipeError, lambda: assign(rows(2), Natural(column="who"), seed=7, scope="x"))
    assert "'who'" in text
    assert "among x" in text


# Partitions by level


def levels(*counts: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.repeat(np.arange(len(counts)), counts)


def dealt(partition: Partition, strata: np.ndarray, seed: int = 7) -> np.ndarray:  # type: ignore[type-arg]
    names, codes = assign(rows(len(strata)), partition, seed=seed, scope="demo", strata=strata)
    assert len(names) == partition.clients  # type: ignore[union-attr]
    return codes


@given(
    st.lists(st.integers(1, 80), min_size=1, max_size=5),
    st.integers(1, 8),
    st.sampled_from([0.01, 0.1, 1.0, 100.0]),
    st.integers(0, 3),
)
def test_dirichlet_gives_every_row_to_one_client(
    counts: list[int], clients: int, alpha: float, seed: int
) -> None:
    strata = levels(*counts)
    try:
        codes = dealt(Dirichlet(clients, alpha=alpha), strata, seed)
    except RecipeError as error:
        if not re.search("larger alpha or fewer clients|use at most", str(error)):
            raise
        return
    held = np.bincount(codes, minlength=clients)
    assert held.sum() == len(strata)
    assert held.min() >= 1


def test_a_small_alpha_is_skewed_and_a_large_one_is_not() -> None:
    strata = levels(5_000, 5_000)

    def spread(alpha: float) -> float:
        codes = dealt(Dirichlet(10, alpha=alpha), strata)
        share = np.bincount(codes, weights=strata, minlength=10) / np.bincount(codes)
        return float(share.std())

    assert spread(0.1) > 0.3 > 0.05 > spread(1_000.0)


def test_dirichlet_shares_follow_the_dirichlet_law() -> None:
    strata = levels(100_000)
    shares = np.concatenate(
        [
            np.bincount(dealt(Dirichlet(3, alpha=0.5), strata, seed), minlength=3)[:1] / 100_000
            for seed in range(300)
        ]
    )
    assert stats.kstest(shares, stats.beta(0.5, 1.0).cdf).pvalue > 0.01


def test_rows_of_a_level_go_to_clients_in_random_order() -> None:
    codes = dealt(Dirichlet(2, alpha=100.0), levels(1_000))
    early = (codes[:500] == 0).mean()
    assert 0.35 < early < 0.65


@pytest.mark.parametrize(
    ("partition", "counts", "words"),
    [
        (Dirichlet(20, alpha=0.05, smallest=10), (190, 10), "alpha=0.05.*smallest=10.*at best"),
        (Dirichlet(20, alpha=0.01), (190, 10), "alpha=0.01.*at best 0; use a larger alpha"),
        (Dirichlet(300), (190, 10), "300 clients of at least 1 rows need 300, but there are 200"),
        (Iid(4, sizes=(1.0, 1.0, 1.0, 1e-9)), (40,), "smallest of 4 clients gets 0"),
        (Iid(10, sizes=PowerLaw(3.0), smallest=5), (400,), "fewer than smallest=5"),
        (Shards(50, per_client=5), (200,), "use at most 40 clients"),
    ],
)
def test_too_small_clients_are_refused_with_what_is_feasible(
    partition: Partition, counts: tuple[int, ...], words: str
) -> None:
    text = refusal(RecipeError, lambda: dealt(partition, levels(*counts)))
    assert re.search(words, text)


def test_the_feasible_smallest_size_that_an_error_names_is_feasible() -> None:
    strata = levels(190, 10)
    text = refusal(RecipeError, lambda: dealt(Dirichlet(6, alpha=0.5, smallest=30), strata))
    best = int(re.findall(r"use smallest=(\d+)", text)[0])
    codes = dealt(Dirichlet(6, alpha=0.5, smallest=best), strata)
    assert np.bincount(codes).min() >= best


@pytest.mark.parametrize("law", [PowerLaw(1.2), LogNormal(1.0), (1.0, 2.0, 3.0, 4.0, 5.0)])
def test_sizes_follow_their_law(law: Sizes) -> None:
    held = np.bincount(dealt(Iid(5, sizes=law), levels(15_000)), minlength=5)
    assert held.sum() == 15_000
    if isinstance(law, tuple):
        assert held.tolist() == [1_000, 2_000, 3_000, 4_000, 5_000]
    if isinstance(law, PowerLaw):
        rank = np.arange(1, 6) ** -1.2
        assert np.abs(np.sort(held)[::-1] - 15_000 * rank / rank.sum()).max() <= 1
    assert held.max() > 1.5 * held.min()


def test_sorted_labels_dealt_iid_stay_in_the_binomial_band() -> None:
    strata = levels(3_000, 1_000)
    codes = dealt(Iid(4), strata)
    positives = np.bincount(codes, weights=strata)
    low, high = stats.binom(1_000, 0.25).ppf([1e-4, 1 - 1e-4])
    assert ((low <= positives) & (positives <= high)).all()


def test_a_client_of_one_shard_holds_at_most_two_levels() -> None:
    strata = levels(100, 100, 100)
    codes = dealt(Shards(10, per_client=1), strata)
    assert np.bincount(codes).tolist() == [30] * 10
    assert all(len(np.unique(strata[codes == client])) <= 2 for client in range(10))


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=50))
def test_an_assignment_is_kept_as_it_is(codes: list[int]) -> None:
    kept = Assigned.of(("b", "a", "e", "d", "c"), np.array(codes, np.int32))
    names, found = assign(rows(len(codes)), kept, seed=0, scope="x")
    assert names == ("a", "b", "c", "d", "e")
    assert [names[c] if c >= 0 else None for c in found] == [
        "baedc"[c] if c >= 0 else None for c in codes
    ]


@pytest.mark.parametrize(
    "codes", [np.array([0, 2]), np.array([0, -2]), np.array([0.5, 1.0]), np.array([[0, 1]])]
)
def test_an_assignment_to_no_client_is_refused(codes: NDArray[Any]) -> None:
    assert "whole numbers from -1 to 1" in refusal(
        RecipeError, lambda: Assigned.of(("a", "b"), codes)
    )


@pytest.mark.parametrize("alpha", [1e-300, 1e-6, 1e6, 1e308])
def test_any_concentration_deals_all_rows(alpha: float) -> None:
    strata = np.arange(200) % 2
    partition = Dirichlet(2, alpha=alpha)
    _, codes = assign(rows(200), partition, seed=0, scope="x", strata=strata)
    assert np.bincount(codes).sum() == 200
    assert "1e-300 or more" in refusal(RecipeError, lambda: Dirichlet(2, alpha=5e-324))


def test_a_column_that_stands_twice_names_no_client() -> None:
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["who", "who"])
    text = refusal(RecipeError, lambda: assign(table, Natural("who"), seed=7, scope="x"))
    assert "two such columns" in text


def test_an_assignment_needs_its_source() -> None:
    kept = Assigned.of(("a", "b"), np.array([0, 1, 0], np.int32))
    text = refusal(RecipeError, lambda: assign(rows(4), kept, seed=0, scope="x"))
    assert "made for 3 rows, but the source has 4" in text
    for codes in ("!", "AAE", "AAEF", ""):
        refusal(RecipeError, lambda: Assigned(clients=("a", "b"), rows=3, codes=codes))  # noqa: B023
