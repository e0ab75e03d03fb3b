"""Reciprocal rank fusion: worked example, ties, and what must not matter."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragkit.errors import InputError
from ragkit.retrieval import fuse

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=5)


def test_worked_example():
    fused = fuse([["a", "b", "c"], ["b", "d"]], c=60)
    assert [key for key, _ in fused] == ["b", "a", "d", "c"]
    assert [score for _, score in fused] == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63], abs=1e-16)


def test_c_decides_between_one_first_place_and_two_low_ones():
    lists = [["a", "x", "b"], ["c", "y", "b"]]  # b is third twice, a is first once: 2/(c + 3) against 1/(c + 1)
    assert fuse(lists, c=0)[0][0] == "a"
    assert fuse(lists, c=60)[0][0] == "b"


def test_ties_go_by_id():
    assert [key for key, _ in fuse([["z", "a"], ["a", "z"]])] == ["a", "z"]
    assert [key for key, _ in fuse([[10, 2], [2, 10]])] == [2, 10]


def test_a_repeated_id_counts_once_at_its_first_place():
    assert fuse([["a", "b", "a", "c"]]) == fuse([["a", "b", "c"]])


def test_nothing_in_nothing_out():
    assert fuse([]) == []
    assert fuse([[], []]) == []


@given(RANKINGS, st.integers(0, 100))
def test_equals_the_sum_of_reciprocal_ranks(rankings, c):
    exact: dict[str, Fraction] = {}
    for ranking in rankings:
        for key in set(ranking):
            place = list(dict.fromkeys(ranking)).index(key) + 1
            exact[key] = exact.get(key, Fraction(0)) + Fraction(1, c + place)
    fused = fuse(rankings, c)
    assert dict(fused) == pytest.approx({key: float(score) for key, score in exact.items()}, rel=1e-14)
    assert fused == sorted(fused, key=lambda pair: (-pair[1], pair[0]))


@given(RANKINGS, st.randoms())
def test_order_of_the_lists_is_irrelevant(rankings, chance: random.Random):
    shuffled = rankings[:]
    chance.shuffle(shuffled)
    assert fuse(shuffled) == fuse(rankings)


@given(st.lists(st.sampled_from("abcdefgh"), unique=True))
def test_one_list_keeps_its_order(ranking):
    assert [key for key, _ in fuse([ranking])] == ranking


@pytest.mark.parametrize("c", [float("nan"), float("inf"), -1, -2.5, True, "60", None])
def test_c_out_of_range_is_refused(c):
    with pytest.raises(InputError, match="c is"):
        fuse([["a"]], c=c)


def test_a_string_is_not_a_ranking():
    with pytest.raises(InputError, match="is a string"):
        fuse(["abc"])
