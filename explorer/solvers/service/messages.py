"""What a session and its worker process say to each other."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.device_profile import Profile
from explorer.solution import Solution
from explorer.solvers.options import Options
from explorer.solvers.problem.frontier import Point


@dataclass(frozen=True, slots=True)
class SolveEvent:
    """News about a request.

    Attributes:
        request: its number.
        solution: the best known.
        final: the last event of this request.
        restart: why the worker had to be started again just now; empty for all other news.
    """

    request: int
    solution: Solution
    final: bool
    restart: str = ""


@dataclass(frozen=True, slots=True)
class Setup:
    """First message to a worker, and any later one: what to solve from now on.

    Attributes:
        profile: graph and costs.
        options: how to solve.
        known: schedules known from its predecessor.
        remember: whether to use the memory.
    """

    profile: Profile
    options: Options
    known: tuple[Point, ...]
    remember: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """Message to the worker: solve for a budget, and forget the request before.

    Attributes:
        request: its number.
        budget_bytes: peak allowed.
        known: schedules that the worker may not know yet.
        bound_ms: what a worker proved that is no more; 0 for nothing.
    """

    request: int
    budget_bytes: int
    known: tuple[Point, ...] = ()
    bound_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Cancel:
    """Message to the worker: end a request with what is known."""

    request: int
