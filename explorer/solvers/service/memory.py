"""What earlier solves found of a problem: this user's, and those whose schedules come with the package."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from explorer.device_profile import Profile
from explorer.schedule import Schedule, read_schedule
from explorer.solution import Bound, BoundScope, Finder, Solution, Status, message_of
from explorer.solvers.monet.recalled import Answer
from explorer.solvers.options import Options
from explorer.solvers.problem.frontier import Frontier, Point
from explorer.solvers.service.cache import AnswerCache, problem_key
from explorer.zoo.entries import Entry, entries_of


def recalled(cache: AnswerCache, problem: str) -> tuple[tuple[Answer, ...], Callable[[int], Schedule | None]]:
    """What ``Knowledge.recall`` takes; nothing where the memory is off.

    Args:
        cache: this user's.
        problem: see ``problem_key``.
    """
    found: dict[int, tuple[Answer, Callable[[int], Schedule | None]]] = {}
    for answer in cache.recall(problem):
        found[answer.budget_bytes] = answer, partial(cache.schedule, problem)
    for entry in shipped(cache, problem):
        own, answer = found.get(entry.budget_bytes), _answer(entry)
        if own is None or _slower(own[0], answer):
            found[entry.budget_bytes] = answer, partial(_schedule, entry)
    return tuple(answer for answer, _ in found.values()), lambda budget: found[budget][1](budget)


def shipped(cache: AnswerCache, problem: str) -> tuple[Entry, ...]:
    """The schedules of a problem that come with the package; none where the memory is off."""
    return () if cache.folder is None else entries_of(problem)


def shipped_solutions(profile: Profile, options: Options) -> tuple[Solution, ...]:
    """Those that no other beats in time and memory, by increasing peak: a curve before anything was searched.

    Args:
        profile: graph and costs; there are some of bundled ones alone.
        options: what may be chosen; there are some of the defaults alone.
    """
    entries = {x.peak_bytes: x for x in shipped(AnswerCache(), problem_key(profile, options))}
    frontier = Frontier()
    for entry in entries.values():
        schedule = _schedule(entry)
        if schedule is not None and entry.peak_bytes is not None and entry.time_ms is not None:
            frontier.add(Point(entry.peak_bytes, entry.time_ms, schedule, Finder.RECALLED))
    return tuple(_solution(x, entries[x.peak_bytes].bound_ms) for x in frontier.points())


def _solution(point: Point, bound_ms: float | None) -> Solution:
    """As an answer for its own peak, for which what is proven of larger budgets holds too."""
    bounds = () if bound_ms is None else (Bound(bound_ms, BoundScope.PROBLEM),)
    asked = Solution(Status.UNKNOWN, point.peak_bytes, bounds=bounds)
    solution = point.in_answer(asked, status=Status.FEASIBLE)
    return replace(solution, message=message_of(solution))


def _answer(entry: Entry) -> Answer:
    return Answer(entry.budget_bytes, 0.0, entry.bound_ms or 0.0, False, entry.time_ms, entry.peak_bytes)


def _slower(one: Answer, other: Answer) -> bool:
    return other.time_ms is not None and (one.time_ms is None or one.time_ms > other.time_ms)


def _schedule(entry: Entry, _: int = 0) -> Schedule | None:
    """None where its file is damaged."""
    with suppress(ValueError):
        return read_schedule(entry.path)
    return None
