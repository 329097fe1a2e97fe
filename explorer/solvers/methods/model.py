"""MODeL's first question: in which order operators take the least memory, with nothing recomputed.

Steiner et al., "MODeL: Memory Optimizations for Deep Learning", ICML 2023. Theirs is one integer program; here the
order comes from list scheduling and exhaustive search, the bound from minimum cuts (``explorer.solvers.ordering``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.solution import Minimum, Solution, Status
from explorer.solvers.methods.answers import best_of, unsuited
from explorer.solvers.options import Options
from explorer.solvers.ordering.paper import solve_as_published
from explorer.solvers.ordering.schedules import least_memory
from explorer.solvers.ordering.steps import OrderedSteps
from explorer.units import format_bytes

_MOST_RUNS = 60
"""Of a step whose program is stated as published."""


def model(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> tuple[Solution, ...]:
    """Of the orders found, for every budget the quickest that fits; each answer's minimum is the least memory of any.

    Nothing is recomputed, and every implementation is PyTorch's own; where that saves memory, a convolution's backward
    pass is computed in its two halves, in either order. Forward operators come before those of the backward pass.

    A profile with an optimizer is ordered as it has the updates: within the backward pass, every one runs where its
    gradient is no longer worth its memory. With ``formulation="paper"``, SCIP solves MODeL's own program, for small
    graphs.
    """
    if options.formulation == "paper":
        return _as_published(profile, budgets_bytes, options)
    found = least_memory(profile, seed=options.seed)
    return _answers(profile, found.schedules, budgets_bytes, found.lower_bound_bytes, method=options.method)


def _as_published(profile: Profile, budgets_bytes: Sequence[int], options: Options) -> tuple[Solution, ...]:
    steps = OrderedSteps.of(profile)
    if len(steps.task) > _MOST_RUNS:
        reason = f"MODeL's program is stated for up to {_MOST_RUNS} runs, and this step has {len(steps.task)}"
        return unsuited(budgets_bytes, f"{reason}: leave out formulation='paper'")
    found = solve_as_published(steps.task, time_limit=options.time_limit)
    if found.operators is None:
        message = f"no order was found in {options.time_limit:g} s, with {found.binaries} binary variables"
        return tuple(Solution(Status.UNKNOWN, x, message=message) for x in budgets_bytes)
    schedule = steps.schedule(found.operators, method=options.method)
    answers = _answers(profile, [schedule], budgets_bytes, found.bound_bytes, method=options.method)
    size = f"{found.binaries} binary variables, {sum(found.rows.values())} rows"
    return tuple(replace(x, message=f"{x.message} ({size})") for x in answers)


def _answers(
    profile: Profile, schedules: Sequence[Schedule], budgets_bytes: Sequence[int], bound_bytes: int, *, method: str
) -> tuple[Solution, ...]:
    """For every budget the quickest that fits, with what the order of the least memory takes, and with its bound."""
    # Nothing fits a byte: the answer to that says what would.
    *answers, none = best_of(profile, schedules, [*budgets_bytes, 1], method=method)
    assert none.minimum is not None
    least = replace(none.minimum, lower_bound_bytes=bound_bytes)
    proof = "no order takes less" if least.proven else f"none takes less than {bound_bytes} bytes"
    return tuple(_with_least(x, least, proof) for x in answers)


def _with_least(solution: Solution, least: Minimum, proof: str) -> Solution:
    if solution.schedule is not None:
        told = f"the least that an order found takes is {format_bytes(least.budget_bytes)} ({least.budget_bytes} bytes)"
        return replace(solution, minimum=least, message=f"{solution.message}; {told}; {proof}")
    status = Status.INFEASIBLE if solution.budget_bytes < least.lower_bound_bytes else Status.UNKNOWN
    return replace(solution, status=status, minimum=least, message=f"{solution.message}; {proof}")
