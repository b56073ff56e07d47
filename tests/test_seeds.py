"""Streams keyed by names: stable, independent, nested, and apart from every global state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from feda4fair import seeds

pytestmark = pytest.mark.usefixtures("untouched_random")

names = st.lists(st.text(max_size=5) | st.integers(-5, 5), max_size=4)


def test_the_streams_are_those_of_the_first_release() -> None:
    assert seeds.raw_bits(42, "value-silo", "TX", 0, "drop", size=3).tolist() == [
        8740548828965814682,
        2905923003356975790,
        3473522708372500577,
    ]
    assert seeds.uniforms(42, "demo", size=2).tolist() == [0.8626294711598048, 0.04416389190238246]
    assert seeds.permutation(42, "demo", size=8).tolist() == [1, 7, 5, 6, 3, 2, 0, 4]
    assert seeds.choice(42, "demo", size=8, count=3).tolist() == [1, 7, 5]
    assert seeds.normal(42, "demo", mean=0.3, std=0.1) == pytest.approx(0.4092209431976201, 1e-14)


@given(st.integers(0, 2**32 - 1), names, st.integers(0, 50), st.integers(0, 50))
def test_a_longer_draw_begins_with_the_shorter(
    seed: int, key: list[str | int], size: int, more: int
) -> None:
    short, long = (seeds.raw_bits(seed, *key, size=n) for n in (size, size + more))
    assert long[:size].tolist() == short.tolist()


@given(names, names)
def test_another_key_is_another_stream(one: list[str | int], other: list[str | int]) -> None:
    first, second = (seeds.raw_bits(7, *key, size=4).tolist() for key in (one, other))
    assert (first == second) == (one == other)


@pytest.mark.parametrize("key", [(8, "TX"), (7, "TX", 0), (7, "XT"), (7, "T", "X")])
def test_every_part_of_a_key_counts(key: tuple[int, str | int]) -> None:
    assert seeds.raw_bits(*key, size=2).tolist() != seeds.raw_bits(7, "TX", size=2).tolist()


def test_a_number_and_its_text_are_different_names() -> None:
    assert seeds.raw_bits(7, 1, size=1) != seeds.raw_bits(7, "1", size=1)


def test_uniforms_are_uniform() -> None:
    drawn = seeds.uniforms(7, "law", size=20_000)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert stats.kstest(drawn, "uniform").pvalue > 0.001


@given(st.integers(0, 200))
def test_a_permutation_holds_every_position_once(size: int) -> None:
    assert sorted(seeds.permutation(7, "law", size=size).tolist()) == list(range(size))


@given(st.integers(0, 100).flatmap(lambda n: st.tuples(st.just(n), *[st.integers(0, n)] * 2)))
def test_choices_are_nested_and_without_repetition(sizes: tuple[int, int, int]) -> None:
    size, one, other = sizes
    small, large = (
        seeds.choice(7, "law", size=size, count=count).tolist() for count in sorted((one, other))
    )
    assert len(set(large)) == len(large) == max(one, other)
    assert set(small) <= set(large) <= set(range(size))


def test_every_position_is_chosen_equally_often() -> None:
    chosen = [seeds.choice(7, "law", draw, size=10, count=3) for draw in range(2000)]
    assert stats.chisquare(np.bincount(np.concatenate(chosen))).pvalue > 0.001


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_normal_draw_is_the_inverse_of_its_uniform(mean: float, std: float) -> None:
    unit = seeds.uniforms(7, "law", size=1)[0] + 2.0**-54
    expected = stats.norm.ppf(unit) * std + mean
    assert seeds.normal(7, "law", mean=mean, std=std) == pytest.approx(expected, rel=1e-9)


def test_normal_draws_have_mean_and_standard_deviation() -> None:
    drawn = [seeds.normal(7, "law", i, mean=0.4, std=0.05) for i in range(2000)]
    assert stats.kstest(drawn, stats.norm(0.4, 0.05).cdf).pvalue > 0.001


def test_no_spread_gives_the_mean() -> None:
    assert seeds.normal(7, "law", mean=0.25, std=0) == 0.25
