"""Splits of rows and of clients: shares kept, families together, released draws replayed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.model_selection import train_test_split

from feda4fair.errors import RecipeError
from feda4fair.recipe import RowSplit
from feda4fair.split import (
    SPLITS,
    draw_test_clients,
    folds,
    released_split,
    scatter_split,
    split_rows,
)

pytestmark = pytest.mark.usefixtures("untouched_random")

SCOPE = ("demo", "TX")
TRAIN, VALIDATION, TEST = range(3)
splits = st.builds(RowSplit, validation=st.floats(0, 0.4), test=st.floats(0, 0.5))
strata = st.lists(st.integers(0, 4), max_size=120)


def cut(codes: list[int], split: RowSplit, *, seed: int = 7) -> list[int]:
    return split_rows(np.array(codes, np.int64), split, seed=seed, scope=SCOPE).tolist()


def shares(split: RowSplit) -> dict[int, float]:
    return {
        TRAIN: 1 - split.validation - split.test,
        VALIDATION: split.validation,
        TEST: split.test,
    }


# Rows, keyed


@given(strata, splits)
def test_every_split_has_its_share_within_one_row(codes: list[int], split: RowSplit) -> None:
    held = Counter(cut(codes, split))
    for code, share in shares(split).items():
        assert abs(held[code] - len(codes) * share) <= 1


@given(strata, splits)
def test_every_stratum_has_its_share_too(codes: list[int], split: RowSplit) -> None:
    """Test within one row; validation is cut from what test leaves, so a second row may move."""
    held = Counter(zip(codes, cut(codes, split), strict=True))
    for stratum, size in Counter(codes).items():
        for code, share in shares(split).items():
            within = 1 if code == TEST else 2
            assert abs(held[stratum, code] - size * share) < within + 1e-9


def test_the_default_is_70_10_20() -> None:
    assert np.bincount(cut([0] * 1000, RowSplit())).tolist() == [700, 100, 200]
    assert SPLITS == ("train", "validation", "test")


def test_every_row_may_come_into_every_split() -> None:
    drawn = np.array([cut([0] * 10, RowSplit(), seed=seed) for seed in range(3000)])
    for code, share in shares(RowSplit()).items():
        assert stats.chisquare((drawn == code).sum(axis=0)).pvalue > 0.001
        assert (drawn == code).mean() == pytest.approx(share)


def test_seed_config_and_client_key_the_split() -> None:
    usual = cut([0] * 50, RowSplit())
    assert usual == cut([0] * 50, RowSplit())
    assert usual != cut([0] * 50, RowSplit(), seed=8)
    for scope in (("demo", "RI"), ("other", "TX")):
        other = split_rows(np.zeros(50, np.int64), RowSplit(), seed=7, scope=scope)
        assert usual != other.tolist()


def test_larger_shares_keep_the_test_rows() -> None:
    one, other = (np.array(cut([0] * 99, RowSplit(validation=v))) for v in (0.1, 0.3))
    assert ((one == TEST) == (other == TEST)).all()


# Rows that injection removed


@given(st.sets(st.integers(0, 500)), st.sets(st.integers(0, 500)))
def test_a_removed_row_has_its_split_whatever_others_are_removed(
    one: set[int], other: set[int]
) -> None:
    def drawn(ids: set[int]) -> dict[int, int]:
        row_id = np.array(sorted(ids), np.int64)
        codes = scatter_split(row_id, RowSplit(), seed=7, scope=SCOPE)
        return dict(zip(row_id.tolist(), codes.tolist(), strict=True))

    first, second = drawn(one), drawn(other)
    assert all(first[row] == second[row] for row in one & other)


def test_removed_rows_have_the_same_shares() -> None:
    codes = scatter_split(np.arange(20_000), RowSplit(), seed=7, scope=SCOPE)
    expected = [20_000 * share for share in shares(RowSplit()).values()]
    assert stats.chisquare(np.bincount(codes), expected).pvalue > 0.001


# Rows, as released


def twice_by_sklearn(codes: np.ndarray | None, rows: int, split: RowSplit, seed: int) -> list[int]:
    """Split by scikit-learn: test first, then validation from the rest."""
    drawn = np.zeros(rows, np.int64)
    rest, test = train_test_split(
        np.arange(rows), test_size=split.test, random_state=seed, stratify=codes
    )
    drawn[test] = TEST
    if split.validation:
        _, validation = train_test_split(
            rest,
            test_size=split.validation / (1 - split.test),
            random_state=seed,
            stratify=None if codes is None else codes[rest],
        )
        drawn[validation] = VALIDATION
    return drawn.tolist()


@given(st.integers(20, 300), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 0.25]))
def test_the_released_split_is_that_of_sklearn(rows: int, seed: int, validation: float) -> None:
    split = RowSplit(validation=validation)
    expected = twice_by_sklearn(None, rows, split, seed)
    assert released_split(None, rows, split, seed=seed).tolist() == expected


@given(
    st.lists(st.integers(10, 60), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
    st.integers(0, 2**32 - 1),
    st.sampled_from([(0.1, 0.2), (0.2, 0.25), (0.0, 0.3)]),
)
def test_and_so_is_the_stratified_one(
    sizes: list[int], order: object, seed: int, share: tuple[float, float]
) -> None:
    split = RowSplit(validation=share[0], test=share[1])
    listed = [code for code, size in enumerate(sizes) for _ in range(size)]
    order.shuffle(listed)  # type: ignore[attr-defined]
    codes = np.array(listed, np.int64)
    drawn = released_split(codes, len(codes), split, seed=seed)
    assert drawn.tolist() == twice_by_sklearn(codes, len(codes), split, seed)


# Clients


families = st.dictionaries(
    st.sampled_from("ABCDEFGH"), st.integers(1, 4), min_size=1, max_size=8
).map(lambda sizes: {f"{p}_{i}": p for p, n in sizes.items() for i in range(n)})


@given(families, st.integers(1, 6))
def test_folds_keep_families_together_and_are_balanced(
    clients: dict[str, str], count: int
) -> None:
    fold = folds(clients, count, seed=7, scope="demo")
    assert fold.keys() == clients.keys()
    assert set(fold.values()) <= set(range(count))
    for parent in set(clients.values()):
        assert len({fold[client] for client in clients if clients[client] == parent}) == 1
    sizes = Counter(fold.values())
    largest = max(Counter(clients.values()).values())
    load = [sizes[i] for i in range(count)]
    assert max(load) - min(load) <= largest


@given(families, st.randoms(use_true_random=False))
def test_the_order_of_clients_does_not_change_their_folds(
    clients: dict[str, str], order: object
) -> None:
    listed = list(clients.items())
    order.shuffle(listed)  # type: ignore[attr-defined]
    assert folds(dict(listed), 3, seed=7, scope="d") == folds(clients, 3, seed=7, scope="d")


@settings(max_examples=12)  # a draw that fails tries 10,000 orders
@given(families, st.data())
def test_drawn_test_clients_are_whole_families_in_proportion(
    clients: dict[str, str], data: st.DataObject
) -> None:
    strata = {c: (p, data.draw(st.sampled_from("xy"))) for c, p in clients.items()}
    count = data.draw(st.integers(0, len(clients)))
    try:
        drawn = draw_test_clients(strata, count, seed=7, scope="demo")
    except RecipeError:
        reject()
    assert len(drawn) == len(set(drawn)) == count
    assert list(drawn) == sorted(drawn)
    chosen = {clients[client] for client in drawn}
    assert {client for client in clients if clients[client] in chosen} == set(drawn)
    sizes = Counter(stratum for _, stratum in strata.values())
    held = Counter(strata[client][1] for client in drawn)
    for stratum, size in sizes.items():
        assert abs(held[stratum] - count * size / len(clients)) < 1


@pytest.mark.parametrize(("count", "words"), [(5, "5 test clients wanted of 4"), (1, "no choice")])
def test_test_clients_that_cannot_be_drawn_are_a_sentence(count: int, words: str) -> None:
    clients = {f"{parent}_{i}": (parent, "x") for parent in "AB" for i in range(2)}
    with pytest.raises(RecipeError, match=words) as caught:
        draw_test_clients(clients, count, seed=7, scope="demo")
    assert str(caught.value).endswith(".")
