"""Checkmate's answers: the program of its section 4, and what MONeT's comparison makes of it.

The program is solved by SCIP from start solutions that MONeT's solvers find for the same problem (forward nodes once in
the forward pass, and again wherever backward nodes need them). For large graphs, whose program has more entries than
can be solved, those make the answer and its bound; ``cells`` says what is evaluated again when.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from explorer.device_profile import Profile
from explorer.graph import Implementation, Optimization
from explorer.schedule import Run, Schedule
from explorer.simulation import simulate
from explorer.solution import Bound, BoundScope, Minimum, Solution, Statistics, Status
from explorer.solvers.methods.checkmate.cells import Cells, Freedom
from explorer.solvers.methods.checkmate.nodes import Nodes, without_workspace
from explorer.solvers.methods.checkmate.program import Program, build
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.refinement import refine
from explorer.solvers.options import Options
from explorer.solvers.programs.milp import MilpStatus
from explorer.solvers.programs.scip import minimise
from explorer.units import format_bytes

_LEAST_S = 0.05
_REFINING_SHARE = 0.35  # of the time, for what MONeT knows of the same problem, before the program
_MOST_FULL_CELLS = 6000  # entries of R up to which everything may be evaluated again
_MOST_LEAN_CELLS = 8000  # more (ResNet-50: 13,800) and the first relaxation takes minutes
_CELLS_A_SECOND = 1500  # stating a program and solving its first relaxation takes at least that
_ROUNDS = 6  # smaller and smaller budgets for schedules that ignore workspace, until one fits with it
_SAME = 1e-6


@dataclass
class _Found:
    """What is known for one budget.

    Attributes:
        schedule: the best, None without one.
        time_ms: of it.
        bound_ms: no schedule of ``freedom`` is quicker; infinite where none fits.
        freedom: what the bound is for.
        statistics: of the program solved last.
        minimum: what a plan search says of the smallest budget.
    """

    schedule: Schedule | None
    time_ms: float
    bound_ms: float
    freedom: Freedom
    statistics: Statistics | None
    minimum: Minimum

    def proven(self, gap: float) -> bool:
        """Is it best, or proven that there is none?"""
        return self.time_ms - self.bound_ms <= max(gap, _SAME) * self.time_ms or np.isinf(self.bound_ms)


def checkmate(profile: Profile, budget_bytes: int, *, options: Options) -> Solution:
    """Checkmate as published (section 4.5): the fewest milliseconds with values alone within the budget.

    It ignores workspace, and what only some implementations could do: PyTorch's own are used throughout. Its schedules
    may therefore take more than they were made for; then it is asked for less until one fits (MONeT section 5 runs it
    with the default convolutions and calls that Checkmate-D).
    """
    began = time.monotonic()
    nodes = Nodes.of(without_workspace(profile))
    asked, first, found = budget_bytes, None, None
    for turn in range(_ROUNDS):
        left_s = options.time_limit - (time.monotonic() - began)
        share = options.time_limit / 2 if turn == 0 else left_s / 2
        found = _solve(nodes, asked, time_limit=max(0.5, min(left_s, share)), options=options, workspace=False)
        first = first or found
        if found.schedule is None:
            break
        peak_bytes = simulate(profile, found.schedule).peak_bytes
        if peak_bytes <= budget_bytes:
            break
        asked -= peak_bytes - budget_bytes
        found = replace(found, schedule=None)
    assert first is not None, "there is a first turn"
    assert found is not None, "there is a first turn"
    if found.schedule is None and first.schedule is not None:
        message = f"schedules made for less than {format_bytes(budget_bytes)} still take more with their workspace"
        return Solution(Status.UNKNOWN, budget_bytes, elapsed_s=time.monotonic() - began, message=message)
    answer = replace(found, bound_ms=first.bound_ms, freedom=first.freedom)
    return _solution(profile, budget_bytes, answer, options, time.monotonic() - began)


def checkmate_d(profile: Profile, budget_bytes: int, *, options: Options) -> Solution:
    """Checkmate aware of workspace: U of section 4.4 and the workspace of each evaluation within the budget.

    The default convolutions, as MONeT's Checkmate-D.
    """
    began = time.monotonic()
    found = _solve(Nodes.of(profile), budget_bytes, time_limit=options.time_limit, options=options, workspace=True)
    return _solution(profile, budget_bytes, found, options, time.monotonic() - began)


def checkmate_o(profile: Profile, budget_bytes: int, *, options: Options) -> Solution:
    """Checkmate-O of MONeT's section 5: its schedule, with the quickest convolutions put in wherever they fit.

    From the schedule that is aware of workspace, so that there is one within the budget to begin with.
    """
    began = time.monotonic()
    solution = checkmate_d(profile, budget_bytes, options=options)
    if solution.schedule is None or Optimization.CONVOLUTION not in options.optimizations:
        return solution
    schedule = with_quickest_convolutions(profile, solution.schedule, budget_bytes, exact=options.exact)
    timeline = simulate(profile, schedule)
    return replace(
        solution,
        status=Status.FEASIBLE,
        schedule=schedule,
        time_ms=timeline.time_ms,
        peak_bytes=timeline.peak_bytes,
        bounds=(),
        elapsed_s=time.monotonic() - began,
        message="the quickest convolutions that fit, in Checkmate's schedule",
    )


def with_quickest_convolutions(profile: Profile, schedule: Schedule, budget_bytes: int, *, exact: bool) -> Schedule:
    """A schedule with the quickest convolution algorithm that fits at each run.

    Args:
        profile: graph and costs.
        schedule: valid for it.
        budget_bytes: that the peak of each run has to fit.
        exact: only those that are bit-equal to PyTorch's.
    """
    timeline = simulate(profile, schedule)
    totals = iter(timeline.total_bytes.tolist())
    steps = []
    for step in schedule.steps:
        if not isinstance(step, Run):
            steps.append(step)
            continue
        operator = profile.graph.operators[step.operator]
        own = operator.implementation(step.implementation)
        room = budget_bytes - next(totals) + profile.workspace_bytes(own)
        others = [x for x in operator.implementations if _is_same_convolution(x, own) and (x.exact or not exact)]
        fitting = [own, *(x for x in others if profile.workspace_bytes(x) <= room)]
        steps.append(Run(step.operator, min(fitting, key=lambda x: profile.cost(x).time_ms).name))
    return replace(schedule, steps=tuple(steps))


def _is_same_convolution(other: Implementation, own: Implementation) -> bool:
    same = set(other.reads) == set(own.reads) and set(other.writes) == set(own.writes)
    return (
        same and other.optimization is Optimization.CONVOLUTION and other.overwrites is None and other.when == own.when
    )


def _solve(nodes: Nodes, budget_bytes: int, *, time_limit: float, options: Options, workspace: bool) -> _Found:
    """Search plans and MONeT's groupings, then solve the program, first lean, then in full where it is small enough.

    MONeT's problem with one way for each operator is the lean program's, so that its schedules and bounds are good for
    both. On large graphs its groupings find what the program itself is too large for.
    """
    began = time.monotonic()
    knowledge = Knowledge(nodes.problem)
    knowledge.search.ready()
    most = {Freedom.LEAN: _MOST_LEAN_CELLS, Freedom.FULL: _MOST_FULL_CELLS}
    lean_cells = len(Cells(nodes, Freedom.LEAN).r_columns)
    in_time = lean_cells <= _CELLS_A_SECOND * (1 - _REFINING_SHARE) * time_limit
    share = _REFINING_SHARE if in_time and lean_cells <= most[Freedom.LEAN] else 1.0
    left_s = max(_LEAST_S, time_limit - (time.monotonic() - began))
    refine(knowledge, budget_bytes, replace(options, formulation="grouped", time_limit=share * left_s))
    best = knowledge.frontier.best(budget_bytes)
    bound_ms = float("inf") if knowledge.excludes(budget_bytes) else knowledge.bound_ms(budget_bytes)
    found = _Found(
        None if best is None else best.schedule,
        float("inf") if best is None else best.time_ms,
        bound_ms,
        Freedom.LEAN,
        None,
        knowledge.minimum(),
    )
    for freedom in Freedom.LEAN, Freedom.FULL:
        cells = len(Cells(nodes, freedom).r_columns)
        left_s = time_limit - (time.monotonic() - began)
        if cells > min(most[freedom], _CELLS_A_SECOND * left_s):
            continue
        if freedom is Freedom.LEAN and found.proven(options.gap):
            continue
        program = build(nodes, budget_bytes, freedom=freedom, workspace=workspace)
        left_s = time_limit - (time.monotonic() - began)
        if left_s > 0:
            found = _integer_program(program, found, freedom, time_limit=left_s, options=options)
    return found


def _integer_program(
    program: Program, found: _Found, freedom: Freedom, *, time_limit: float, options: Options
) -> _Found:
    """What SCIP adds to what is known."""
    known = None if found.schedule is None else program.encode(found.schedule)
    starts = () if known is None else (known,)
    result = minimise(program.milp, time_limit=time_limit, gap=options.gap, starts=starts)
    bound_ms = float("inf") if result.status is MilpStatus.INFEASIBLE else result.bound
    if freedom is found.freedom:
        bound_ms = max(found.bound_ms, bound_ms or 0.0)
    elif bound_ms is None:
        return found
    found = replace(found, bound_ms=bound_ms, freedom=freedom, statistics=program.statistics)
    if result.x is not None:
        nodes = program.nodes
        schedule = nodes.schedule(program.order(result.x), method=options.method, budget_bytes=program.budget_bytes)
        timeline = simulate(nodes.profile, schedule)
        # SCIP's tolerance may let through what is a few bytes too large.
        if timeline.peak_bytes <= program.budget_bytes and timeline.time_ms < found.time_ms:
            found = replace(found, schedule=schedule, time_ms=timeline.time_ms)
    return found


def _solution(profile: Profile, budget_bytes: int, found: _Found, options: Options, elapsed_s: float) -> Solution:
    bounds = (Bound(found.bound_ms, BoundScope.METHOD),) if np.isfinite(found.bound_ms) else ()
    solution = Solution(Status.UNKNOWN, budget_bytes, bounds=bounds, statistics=found.statistics, elapsed_s=elapsed_s)
    if found.schedule is None:
        proven = np.isinf(found.bound_ms)
        status, text = (Status.INFEASIBLE, "no schedule of") if proven else (Status.UNKNOWN, "no schedule found of")
        message = f"{text} {options.method!r} fits {format_bytes(budget_bytes)}; {found.minimum}"
        return replace(solution, status=status, minimum=found.minimum, message=message)
    schedule = replace(found.schedule, method=options.method, budget_bytes=budget_bytes)
    timeline = simulate(profile, schedule)
    solution = replace(
        solution, schedule=schedule, time_ms=timeline.time_ms, peak_bytes=timeline.peak_bytes, status=Status.FEASIBLE
    )
    gap = solution.gap(BoundScope.METHOD)
    within = "" if gap is None else f"within {gap:.1%} of the fastest that evaluates again {found.freedom.value}"
    if gap is not None and gap <= max(options.gap, _SAME):
        return replace(solution, status=Status.OPTIMAL, message=f"proven {within}")
    return replace(solution, message=f"fits the budget; {within}" if within else "fits the budget")
