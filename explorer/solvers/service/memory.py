"""What earlier solves found of a problem: this user's, and those whose schedules come with the package."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from explorer.device_profile import Profile
from explorer.schedule import Schedule, read_schedule
from explorer.solution import Finder, Solution, Status, message_of
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
    answers = {x.budget_bytes: x for x in cache.recall(problem)}
    schedules = {budget: partial(cache.schedule, problem, budget) for budget in answers}
    for entry in shipped(cache, problem):
        own, answer = answers.get(entry.budget_bytes), _answer(entry)
        if own is None or _slower(own, answer):
            schedules[entry.budget_bytes] = partial(_schedule, entry)
        answers[entry.budget_bytes] = answer if own is None else _together(own, answer)
    return tuple(answers.values()), lambda budget: schedules[budget]()


def shipped(cache: AnswerCache, problem: str) -> tuple[Entry, ...]:
    """The schedules of a problem that come with the package; none where the memory is off."""
    return () if cache.folder is None else entries_of(problem)


def shipped_solutions(profile: Profile, options: Options) -> tuple[Solution, ...]:
    """Those that no other beats in time and memory, by increasing peak: a curve before anything was searched.

    Args:
        profile: graph and costs; there are some of bundled ones alone.
        options: what may be chosen; there are some of the defaults alone.
    """
    frontier = Frontier()
    for entry in shipped(AnswerCache(), problem_key(profile, options)):
        schedule = _schedule(entry)
        if schedule is not None and entry.peak_bytes is not None and entry.time_ms is not None:
            frontier.add(Point(entry.peak_bytes, entry.time_ms, schedule, Finder.RECALLED))
    return tuple(map(_solution, frontier.points()))


def _solution(point: Point) -> Solution:
    """As an answer for its own peak; what is proven is told by who solves, for the budget and the orders asked for."""
    solution = point.in_answer(Solution(Status.UNKNOWN, point.peak_bytes), status=Status.FEASIBLE)
    return replace(solution, message=message_of(solution))


def _answer(entry: Entry) -> Answer:
    return Answer(entry.budget_bytes, 0.0, entry.bound_ms or 0.0, False, entry.time_ms, entry.peak_bytes)


def _together(one: Answer, other: Answer) -> Answer:
    """Of one budget: the quicker's schedule, and all that is proven."""
    best = other if _slower(one, other) else one
    bound_ms = max(one.bound_ms, other.bound_ms)
    return replace(best, spent_s=max(one.spent_s, other.spent_s), bound_ms=min(bound_ms, best.time_ms or bound_ms))


def _slower(one: Answer, other: Answer) -> bool:
    return other.time_ms is not None and (one.time_ms is None or one.time_ms > other.time_ms)


def _schedule(entry: Entry) -> Schedule | None:
    """None where its file is damaged."""
    with suppress(ValueError):
        return read_schedule(entry.path)
    return None
