"""What is taken over from quicker schedules for which a budget is not enough."""

from __future__ import annotations

import math

import pytest

from explorer import load_profile
from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.simulation import simulate
from explorer.solvers.options import Options
from explorer.solvers.search.mixing import mixed
from explorer.solvers.search.plan_search import PlanSearch


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile("resnet50-small-cpu")


@pytest.fixture(scope="module")
def search(profile: Profile) -> PlanSearch:
    found = PlanSearch(Options().problem(profile))
    assert found.ready()
    for budget_bytes in found.budgets(8):
        found.improve(budget_bytes, effort=0.2)
    return found


def test_what_there_is_room_for_is_taken_over(profile: Profile, search: PlanSearch) -> None:
    """Room for less than the peaks of quicker schedules stands for what an allocator needs beyond them."""
    budget_bytes = search.budgets(8)[2]
    room_bytes = int(0.93 * budget_bytes)
    points = search.collect().points()
    best = [x for x in points if x.peak_bytes <= 0.8 * budget_bytes][-1]
    asked: list[Schedule] = []

    def enough(schedule: Schedule) -> bool:
        asked.append(schedule)
        return simulate(profile, schedule).peak_bytes <= room_bytes

    found = mixed(search, best, budget_bytes=budget_bytes, enough=enough, until=math.inf)
    assert enough(found.schedule)
    assert found.time_ms < best.time_ms
    timeline = simulate(profile, found.schedule)
    assert (timeline.peak_bytes, timeline.time_ms) == (found.peak_bytes, pytest.approx(found.time_ms))
    again = mixed(search, best, budget_bytes=budget_bytes, enough=enough, until=math.inf)
    assert (again.peak_bytes, again.time_ms) == (found.peak_bytes, found.time_ms)


def test_nothing_is_mixed_without_a_quicker_schedule_or_time(search: PlanSearch) -> None:
    def never(schedule: Schedule) -> bool:
        raise AssertionError(schedule)

    points = search.collect().points()
    quickest = points[-1]
    assert mixed(search, quickest, budget_bytes=quickest.peak_bytes, enough=never, until=math.inf) is quickest
    assert mixed(search, points[0], budget_bytes=quickest.peak_bytes, enough=never, until=-math.inf) is points[0]


def test_what_is_remembered_comes_by_time_and_fits(profile: Profile, search: PlanSearch) -> None:
    budget_bytes = search.budgets(8)[3]
    known = search.quickest_first(budget_bytes)
    assert len(known) > 3
    assert [x.time_ms for x in known] == sorted(x.time_ms for x in known)
    for one in known:
        point = one.schedule()
        assert point is not None
        timeline = simulate(profile, point.schedule)
        assert timeline.peak_bytes == point.peak_bytes <= budget_bytes
        assert timeline.time_ms == pytest.approx(point.time_ms)
        assert point.time_ms <= one.time_ms * (1 + 1e-9)
