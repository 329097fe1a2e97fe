"""Schedules that come with the package serve as what earlier solves found, of the very problem that they are of."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

import explorer
from explorer.device_profile import Profile
from explorer.simulation import simulate
from explorer.solution import Finder, Status
from explorer.solvers import SolveEvent, SolveSession, shipped_solutions
from explorer.solvers.monet.recalled import Answer
from explorer.solvers.options import Options
from explorer.solvers.problem.pins import parse_pins
from explorer.solvers.service.cache import AnswerCache, problem_key
from explorer.solvers.service.memory import recalled, shipped
from explorer.zoo.entries import zoo

NAME = "resnet50-a100-80gb"
ENTRIES = {x.share: x for x in zoo() if x.profile == NAME}


@pytest.fixture(scope="module")
def bundled() -> Profile:
    """One that schedules come for."""
    return explorer.load_profile(NAME)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnswerCache:
    """An empty one."""
    monkeypatch.setenv("SCHEDULE_EXPLORER_CACHE", str(tmp_path))
    return AnswerCache()


@pytest.mark.usefixtures("memory")
def test_a_bundled_profile_has_a_curve_before_anything_is_searched(bundled: Profile) -> None:
    curve = shipped_solutions(bundled, Options())
    assert curve
    assert [x.peak_bytes for x in curve] == sorted(
        {x.peak_bytes for x in ENTRIES.values()} & {x.peak_bytes for x in curve}
    )
    assert [x.time_ms for x in curve] == sorted((x.time_ms for x in curve), reverse=True)
    for x in curve:
        assert x.schedule is not None
        line = simulate(bundled, x.schedule)
        assert (line.peak_bytes, line.time_ms) == (x.peak_bytes, pytest.approx(x.time_ms))
        assert x.budget_bytes == x.schedule.budget_bytes == x.peak_bytes
        assert x.status is Status.FEASIBLE
        assert x.bounds == (), "what is proven is of the budget that is asked for"


@pytest.mark.usefixtures("memory")
def test_nothing_comes_with_another_problem(bundled: Profile) -> None:
    operators = bundled.graph.operators
    others = [
        (bundled, Options(exact=True)),
        (bundled, Options(optimizations=frozenset())),
        (bundled, Options(pins=parse_pins({operators[0].name: "keep"}))),
        (replace(bundled, device=replace(bundled.device, name="another")), Options()),
    ]
    assert [shipped_solutions(*x) for x in others] == [()] * len(others)


def test_where_nothing_is_to_be_remembered_nothing_is_recalled(
    bundled: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULE_EXPLORER_CACHE", "off")
    assert shipped_solutions(bundled, Options()) == ()
    assert recalled(AnswerCache(), problem_key(bundled, Options()))[0] == ()


@pytest.mark.parametrize(("factor", "is_own"), [(1.5, False), (0.9999, True)])
def test_of_a_users_answer_and_ours_the_quicker_counts_and_all_that_is_proven(
    bundled: Profile, memory: AnswerCache, *, factor: float, is_own: bool
) -> None:
    problem = problem_key(bundled, Options())
    ours = {x.budget_bytes: x for x in shipped(memory, problem)}
    entry = ENTRIES["0.5"]
    assert entry.time_ms is not None
    assert entry.bound_ms is not None
    answers, schedule_of = recalled(memory, problem)
    assert {x.budget_bytes for x in answers} == set(ours)
    found = schedule_of(entry.budget_bytes)
    assert found is not None
    own = replace(found, method="their own")
    answer = Answer(entry.budget_bytes, 60.0, entry.bound_ms - 1, False, factor * entry.time_ms, entry.peak_bytes)
    memory.remember(problem, answer, own, label="")
    answers, schedule_of = recalled(memory, problem)
    assert len(answers) == len(ours)
    assert (schedule_of(entry.budget_bytes) == own) is is_own
    (merged,) = [x for x in answers if x.budget_bytes == entry.budget_bytes]
    assert (merged.spent_s, merged.bound_ms) == (60.0, entry.bound_ms)
    assert merged.time_ms == pytest.approx(min(1.0, factor) * entry.time_ms)


def test_a_damaged_schedule_is_none(bundled: Profile, memory: AnswerCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.zoo.entries.FOLDER", Path(__file__).parent)  # where there is none of them
    assert shipped(memory, problem_key(bundled, Options()))
    assert shipped_solutions(bundled, Options()) == ()


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("share", ["0.6", "smallest"])
def test_a_solve_begins_with_what_comes_with_the_package(bundled: Profile, share: str) -> None:
    entry = ENTRIES[share]
    assert entry.time_ms is not None
    assert entry.bound_ms is not None
    found = explorer.solve(bundled, budget=entry.budget_bytes, time_limit=1e-3)
    assert found.time_ms is not None
    assert found.time_ms <= entry.time_ms
    assert found.bound_ms() == pytest.approx(entry.bound_ms)
    events: list[SolveEvent] = []
    with SolveSession(bundled, on_event=events.append) as session:
        session.request(entry.budget_bytes)
        until = time.monotonic() + 60
        while not events and time.monotonic() < until:
            time.sleep(0.01)
    first = events[0].solution
    assert first.time_ms == pytest.approx(found.time_ms)
    assert first.finder is Finder.RECALLED
