"""Packing: nothing overlaps, nothing beats an exhaustive search, and hard instances reach the load."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.solvers.placing.packing import pack
from explorer.solvers.placing.rectangles import Rectangles
from tests.solvers.placing.checking import overlapping

SIDES = st.tuples(st.integers(0, 7), st.integers(1, 6), st.integers(1, 9))


def rectangles_of(sides: list[tuple[int, int, int]]) -> Rectangles:
    start, life, size = (np.array(x) for x in zip(*sides, strict=True))
    return Rectangles(start, start + life, size)


def smallest(rectangles: Rectangles) -> int:
    """Of every order, each as low as it rests on those before it: one of these is the best."""
    best = int(rectangles.bytes.sum())
    for order in permutations(range(len(rectangles))):
        offset: dict[int, int] = {}
        for i in order:
            below = [
                offset[j] + rectangles.bytes[j]
                for j in offset
                if rectangles.start[j] < rectangles.end[i] and rectangles.start[i] < rectangles.end[j]
            ]
            offset[i] = int(max(below, default=0))
        best = min(best, max(offset[i] + int(rectangles.bytes[i]) for i in offset))
    return best


@settings(deadline=None, max_examples=300)
@given(st.lists(SIDES, min_size=1, max_size=6))
def test_small_instances_are_packed_as_an_exhaustive_search_packs_them(sides):
    rectangles = rectangles_of(sides)
    found = pack(rectangles, seconds=600)
    assert found.proven
    assert found.buffer_bytes == smallest(rectangles)
    assert not overlapping(rectangles.start, rectangles.end, found.offset_bytes, rectangles.bytes)


def cut_up(rng: np.random.Generator, *, count: int) -> Rectangles:
    """A whole rectangle cut along one side or the other, again and again: it fits again without a gap."""
    pieces = [(0, 4096, 0, 4096)]
    while len(pieces) < count:
        pieces.sort(key=lambda x: (x[1] - x[0]) * (x[3] - x[2]))
        left, right, low, high = pieces.pop()
        if rng.random() < 0.5 and right - left > 1:
            at = int(rng.integers(left + 1, right))
            pieces += [(left, at, low, high), (at, right, low, high)]
        elif high - low > 1:
            at = int(rng.integers(low + 1, high))
            pieces += [(left, right, low, at), (left, right, at, high)]
    table = np.array(pieces)
    rng.shuffle(table)
    return Rectangles(table[:, 0], table[:, 1], table[:, 3] - table[:, 2])


@pytest.mark.parametrize("seed", range(20))
def test_what_was_cut_from_one_rectangle_fits_without_a_gap(seed: int):
    rectangles = cut_up(np.random.default_rng(seed), count=24)
    found = pack(rectangles, seconds=600)
    assert found.buffer_bytes == rectangles.load_bytes == 4096
    assert not overlapping(rectangles.start, rectangles.end, found.offset_bytes, rectangles.bytes)


def test_without_time_there_is_an_answer_all_the_same():
    rectangles = cut_up(np.random.default_rng(0), count=200)
    found = pack(rectangles, seconds=1e-9)
    assert found.bound_bytes == rectangles.load_bytes <= found.buffer_bytes
    assert not overlapping(rectangles.start, rectangles.end, found.offset_bytes, rectangles.bytes)


def test_of_nothing_there_is_nothing():
    found = pack(Rectangles(np.zeros(0), np.zeros(0), np.zeros(0)), seconds=1)
    assert (found.buffer_bytes, found.proven) == (0, True)


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        (([0, 3], [1, 3], [1, 1]), "rectangle 1 ends at 3 and starts at 3"),
        (([0], [1], [0]), "rectangle 0 has 0 bytes; allowed: 1 to"),
        (([0], [1, 2], [1]), "1 starts, 2 ends and 1 sizes"),
    ],
)
def test_what_is_no_rectangle_is_refused(sides, said: str):
    with pytest.raises(ValueError, match=said):
        Rectangles(*map(np.array, sides))
