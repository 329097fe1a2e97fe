"""The set of schedules worth remembering."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from explorer.graph import Identity
from explorer.schedule import Schedule
from explorer.solvers.problem.frontier import Frontier, Point

SCHEDULE = Schedule(Identity("none", (), "", ""), (), "test")
POINTS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), max_size=30)


@given(POINTS, st.integers(0, 21))
def test_it_answers_what_a_search_through_everything_added_would(pairs, budget):
    frontier = Frontier()
    for peak, time in pairs:
        frontier.add(Point(peak, time, SCHEDULE))
    fitting = [time for peak, time in pairs if peak <= budget]
    best = frontier.best(budget)
    assert (best.time_ms if best else None) == min(fitting, default=None)


@given(POINTS)
def test_peaks_increase_and_times_decrease_whatever_the_order_of_adding(pairs):
    frontier = Frontier()
    for peak, time in pairs:
        known = frontier.best(peak)
        assert frontier.add(Point(peak, time, SCHEDULE)) == (known is None or time < known.time_ms)
    points = frontier.points()
    assert all(a.peak_bytes < b.peak_bytes and a.time_ms > b.time_ms for a, b in pairwise(points))
