"""What solvers claim of a random graph, held against the judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from explorer.device_profile import Profile
from explorer.graph import FAITHFUL, Optimization
from explorer.simulation import simulate
from explorer.solution import Minimum, Solution, Status
from explorer.solvers.solving import solve
from tests.claims.anything import anything
from tests.claims.judge import Judge, TooManyStatesError

_SAME = 1e-5
_BUDGETS = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one question.

    Attributes:
        seed: of the graph.
        budget_bytes: asked for.
        outcome: ``"false: …"`` names the claim; otherwise the status, and whether better was to be had.
    """

    seed: int
    budget_bytes: int
    outcome: str

    @property
    def false(self) -> bool:
        """Is a claim wrong?"""
        return self.outcome.startswith("false")


@dataclass(frozen=True, slots=True)
class Truth:
    """What the judge says of a budget.

    Attributes:
        best_ms: of the fastest schedule; None if nothing fits.
        least_bytes: the smallest peak at any budget; None if there is no complete schedule.
    """

    best_ms: float | None
    least_bytes: int | None


def findings(seed: int, *, time_limit: float) -> Iterator[Finding]:
    """Ask for several budgets of one random graph, with one choice of options; to the very optimum."""
    random, profile = Random(f"budgets of {seed}"), anything(seed)
    optimizations = random.choice((FAITHFUL, FAITHFUL, frozenset(), frozenset({random.choice(list(Optimization))})))
    exact = random.random() < 0.2
    judge = Judge(profile, optimizations=optimizations, exact=exact)
    try:
        least = judge.smallest
        least_bytes = None if least is None else int(least.cost)
        asked = [(budget, judge.fastest(budget)) for budget in _budgets(profile, least_bytes, random)]
    except TooManyStatesError:
        yield Finding(seed, 0, "too large to judge")
        return
    for budget, best in asked:
        truth = Truth(None if best is None else best.cost, least_bytes)
        try:
            answer = solve(
                profile,
                budget=budget,
                time_limit=time_limit,
                gap=0.0,
                optimizations=optimizations,
                exact=exact,
                remember=False,
            )
        except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            yield Finding(seed, budget, f"false: {type(error).__name__}: {error}")
            continue
        wrong = next(_wrong(profile, answer, truth), None)
        yield Finding(seed, budget, _told(answer, truth) if wrong is None else f"false: {wrong}")


def _budgets(profile: Profile, least_bytes: int | None, random: Random) -> list[int]:
    if least_bytes is None:
        return [profile.fixed_bytes + 1000]
    spread = [least_bytes, least_bytes + random.randint(1, 6), least_bytes + random.randint(4, 40), least_bytes - 1]
    return [max(1, x) for x in random.sample(spread, _BUDGETS)]


def _wrong(profile: Profile, answer: Solution, truth: Truth) -> Iterator[str]:
    best_ms = truth.best_ms
    if answer.schedule is not None:
        timeline = simulate(profile, answer.schedule)
        if timeline.peak_bytes > answer.budget_bytes or timeline.time_ms != answer.time_ms:
            yield "the schedule is not what is said of it"
        if best_ms is None or timeline.time_ms < best_ms - _SAME:
            yield "a schedule that the judge does not know"
    if best_ms is not None:
        most_ms, bound_ms = best_ms * (1 + _SAME) + _SAME, answer.bound_ms()
        if answer.status is Status.INFEASIBLE:
            yield "infeasible"
        if bound_ms is not None and bound_ms > most_ms:
            yield f"bound {bound_ms} where {best_ms} exists"
        if answer.status is Status.OPTIMAL and (answer.time_ms or 0.0) > most_ms:
            yield f"optimal {answer.time_ms} where {best_ms} exists"
    if answer.minimum is not None:
        yield from _wrong_minimum(answer.minimum, truth.least_bytes)


def _wrong_minimum(minimum: Minimum, least_bytes: int | None) -> Iterator[str]:
    if least_bytes is None or minimum.budget_bytes < least_bytes:
        yield "a minimum that the judge does not know"
    elif minimum.lower_bound_bytes > least_bytes:
        yield f"nothing below {minimum.lower_bound_bytes} bytes where {least_bytes} do"


def _told(answer: Solution, truth: Truth) -> str:
    most_ms = float("inf") if truth.best_ms is None else truth.best_ms * (1 + _SAME) + _SAME
    better = truth.best_ms is not None and (answer.time_ms is None or answer.time_ms > most_ms)
    return str(answer.status) + (", better exists" if better else "")
