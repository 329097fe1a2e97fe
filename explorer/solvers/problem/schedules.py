"""From schedules to the terms of a problem, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from explorer.schedule import Run, Schedule, Step, with_frees
from explorer.solvers.problem.problem import Form, Option, Problem


@dataclass(frozen=True, slots=True)
class RunChoice:
    """How an operator runs: indices of the operator (within its pass), its form, and the form's option."""

    operator: int
    form: int
    option: int


@dataclass(frozen=True, slots=True)
class Interval:
    """What a schedule does between two backward operators.

    Attributes:
        recomputations: forward operators run again just before the later of the two, in order.
        backward: the later one; None if it never runs.
        kept: activations alive after it.
    """

    recomputations: tuple[RunChoice, ...]
    backward: RunChoice | None
    kept: frozenset[int]


@dataclass(frozen=True, slots=True)
class Reading:
    """A schedule in the terms of a problem.

    Attributes:
        first: the forward pass; optional operators that it leaves out are absent.
        after_forward: activations alive after it.
        intervals: one per backward operator.
    """

    first: tuple[RunChoice, ...]
    after_forward: frozenset[int]
    intervals: tuple[Interval, ...]


def reading_of(problem: Problem, schedule: Schedule) -> Reading | None:
    """Read a schedule: what it keeps after the forward pass, and what it does in each backward interval.

    Args:
        problem: in whose terms.
        schedule: valid, for its graph.

    Returns:
        None where it runs an implementation that the problem does not have, keeps what is pinned otherwise, or
        recomputes what the problem runs once: forward operators before the backward pass, and backward ones.
    """
    count = problem.graph.forward_count
    alive: set[int] = set()
    after_forward: frozenset[int] = frozenset()
    first: list[RunChoice] = []
    again: list[RunChoice] = []
    intervals: list[Interval] = []
    seen: set[int] = set()
    for run, freed in _with_their_frees(schedule.steps):
        choice = _choice(problem, run, again=bool(intervals))
        repeated = run.operator in seen and (run.operator >= count or not intervals)
        if choice is None or repeated:
            return None
        seen.add(run.operator)
        # Optional backward operators that did not run have intervals too, in which nothing happens.
        while run.operator >= count and len(intervals) < run.operator - count:
            intervals.append(Interval((), None, frozenset(alive)))
        implementation = problem.graph.operators[run.operator].implementation(run.implementation)
        alive |= {problem.storage_index[x] for x in implementation.writes if x in problem.storage_index}
        gone = (*freed, implementation.overwrites)
        alive -= {problem.storage_index[x] for x in gone if x in problem.storage_index}
        if run.operator >= count:
            intervals.append(Interval(tuple(again), choice, frozenset(alive)))
            again = []
        else:
            (again if intervals else first).append(choice)
            after_forward = after_forward if intervals else frozenset(alive)
    if not problem.kept <= after_forward or after_forward & problem.dropped.keys():
        return None
    while len(intervals) < len(problem.backward):
        intervals.append(Interval((), None, frozenset(alive)))
    return Reading(tuple(first), after_forward, tuple(intervals))


def _choice(problem: Problem, run: Run, *, again: bool) -> RunChoice | None:
    forms = problem.forms(run.operator, again=again)
    operator = run.operator - (len(problem.forward) if run.operator >= len(problem.forward) else 0)
    for f, form in enumerate(forms):
        for o, option in enumerate(form.options):
            if option.implementation == run.implementation:
                return RunChoice(operator, f, o)
    # An option that others beat in every respect is none here: its form stands for it.
    if problem.graph.operators[run.operator].name in dict(problem.pins.operators):
        return None
    implementation = problem.graph.operators[run.operator].implementation(run.implementation)
    backward = run.operator >= len(problem.forward)
    index = problem.storage_index if again or backward else problem.first_index
    reads = {index.get(x) for x in implementation.reads} - {None}
    reads |= problem.kept if backward and operator == problem.keeper else set()
    writes = {index.get(x) for x in implementation.writes} - {None}
    same = [f for f, form in enumerate(forms) if set(form.reads) == reads and set(form.writes) == writes]
    return RunChoice(operator, same[0], 0) if same else None


def schedule_of(
    problem: Problem, order: Sequence[tuple[int, int]], *, method: str, budget_bytes: int | None
) -> Schedule:
    """Decode: choose the quickest option that fits for every run of an order.

    What a run finds in memory does not depend on the options of the others, so each is chosen by itself; in place
    wherever that is the quickest, or the smallest, and what is overwritten is of no more use.

    Args:
        problem: whose forms they are.
        order: (operator id, index of its form), every operator once, forward ones again wherever wanted after the
            forward pass. Recomputations and optional runs that serve nothing are left out.
        method: what made the plan.
        budget_bytes: what it should fit; None: whatever memory that takes.

    Returns:
        The schedule, each storage freed after its last use.
    """
    forward = len(problem.forward)
    boundary = next((at for at, (operator, _) in enumerate(order) if operator >= forward), len(order))
    room = float("inf") if budget_bytes is None else budget_bytes - problem.fixed_bytes
    alive = {x for x, activation in enumerate(problem.activations) if activation.held}
    alive_bytes = _bytes(problem, alive)
    idle_bytes = 0
    runs: list[Run] = []
    for at in range(len(order) - 1, -1, -1):
        operator, index = order[at]
        again = operator < forward and at > boundary
        form = problem.forms(operator, again=again)[index]
        # What is held stays as the first run made it: a second copy goes as soon as the call returns.
        made = {x for x in form.writes if not (again and problem.activations[x].held)}
        if operator < forward and (again or problem.forward[operator].optional) and not made & alive:
            continue
        made_bytes = 0
        if operator >= forward:
            backward = problem.backward[operator - forward]
            idle_bytes, made_bytes = backward.idle_bytes, backward.made_bytes
        elif at < boundary:
            idle_bytes = 0
        there_bytes = alive_bytes + _bytes(problem, {*form.reads, *form.writes} - alive)
        # What it makes though it is there (held, or read by it) is there twice.
        twice = [x for x in form.writes if again and (problem.activations[x].held or x in form.reads)]
        used = there_bytes + _bytes(problem, twice) + idle_bytes + made_bytes
        runs.append(Run(operator, _fitting(problem, form, alive, room - used).implementation))
        gone, read = made & alive, set(form.reads)
        alive_bytes += _bytes(problem, (read - alive) | (read & gone)) - _bytes(problem, gone)
        alive -= gone
        alive |= read
    kept = frozenset(problem.activations[x].storage for x in problem.kept)
    also_reads = {} if problem.keeper is None else {forward + problem.keeper: kept}
    return with_frees(problem.graph, reversed(runs), method=method, budget_bytes=budget_bytes, also_reads=also_reads)


def _bytes(problem: Problem, activations: Iterable[int]) -> int:
    return sum(problem.activations[x].bytes for x in activations)


def _fitting(problem: Problem, form: Form, alive: set[int], room: float) -> Option:
    """The quickest option within ``room`` bytes that overwrites nothing alive; the smallest if none is."""
    able = [x for x in form.options if x.overwrites not in alive]
    fitting = (x for x in able if x.extra_bytes(problem.activations) <= room)
    return next(fitting, None) or min(able, key=lambda x: x.extra_bytes(problem.activations))


def _with_their_frees(steps: Iterable[Step]) -> Iterable[tuple[Run, list[int]]]:
    """Each run with the storages freed between it and the next run."""
    pairs: list[tuple[Run, list[int]]] = []
    for step in steps:
        if isinstance(step, Run):
            pairs.append((step, []))
        else:
            pairs[-1][1].append(step.storage)
    return pairs
