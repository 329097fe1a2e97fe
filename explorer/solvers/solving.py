"""From a budget to the best schedule that can be found and proven in the time given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, overload

import numpy as np

from explorer.arguments import a_callback, a_flag, a_whole_number, several
from explorer.budgets import a_budget
from explorer.budgets import budgets as some_budgets
from explorer.device_profile import Profile
from explorer.kinds import a_profile
from explorer.solution import Solution
from explorer.solvers.deadlines import first_answer
from explorer.solvers.memory import SolveMemory, label_of, problem_key
from explorer.solvers.methods import METHODS
from explorer.solvers.narrower import learn_checkpointing
from explorer.solvers.options import Optimizations, Options, parse_optimizations
from explorer.solvers.pins import PinsLike, parse_pins
from explorer.solvers.planner import Planner, Progress
from explorer.solvers.refinement import refine, searches
from explorer.solvers.smallest import find_smallest
from explorer.units import shown

if TYPE_CHECKING:
    from explorer.solvers.comparison import Comparison

_NARROWER_S = 1.0  # at most, and
_NARROWER_SHARE = 0.05  # of the time, for checkpointing alone before the joint problem
_COMPILED_S = 600.0
_PREPARING = 0.25  # share of the time left: where the problem took longer to state, it is not stated once more for that
_CURVE_EFFORTS = (0.15, 1.0)  # of the search at each of its points: to see something soon, then to see it well
_CURVE_STEP = 6  # points between two views of it
_MOST_POINTS = 1000  # of a curve: more are no longer seen


def solve(  # noqa: PLR0913 - one for each thing that users may want to say
    profile: Profile,
    *,
    budget: int | str,
    method: str = "monet",
    formulation: str = "grouped",
    time_limit: float = 10.0,
    gap: float = 0.01,
    optimizations: Optimizations = "all",
    exact: bool = False,
    pins: PinsLike | None = None,
    remember: bool = True,
    seed: int = 0,
    steps: int | None = None,
) -> Solution:
    """Find the fastest training step whose peak stays within a budget (MONeT section 4 and appendix C).

    With MONeT's method, a plan search answers first; SCIP then improves and proves, starting from its schedules.

    Args:
        profile: graph and costs.
        budget: peak allocated memory of the whole step: int bytes, ``"8 GiB"``, or ``"80 %"`` of what a step takes
            that keeps everything, as plain PyTorch does.
        method: ``"monet"``, or another system: a name in ``explorer.solvers.methods.METHODS``, such as ``"checkmate"``.
            Those bring their own choice of implementations; ``formulation``, ``remember``, ``seed`` and ``steps`` are
            MONeT's.
        formulation: ``"grouped"`` (merged, grouped, incremental) or ``"paper"`` (as published, for small graphs).
        time_limit: seconds.
        gap: stop once the schedule is proven to be within this of the fastest.
        optimizations: which implementations may be chosen beside PyTorch's own: ``"all"``, ``"none"`` (checkpointing
            alone), or some of ``"output"``, ``"intermediate"``, ``"convolution"``, ``"inplace"``.
        exact: only implementations whose results are the same bits as PyTorch's own.
        pins: what is decided already: a tensor's name to ``"keep"`` or ``"recompute"``, an operator's to an
            implementation's (``{"relu_3": "recompute", "convolution_2": "chunks of 1"}``, or pairs of the same). The
            schedule, the bounds and the smallest budget are then those of schedules that honour them (``Pins``).
        remember: start from what earlier solves of this problem found, and keep what this one finds
            (``SolveMemory``). A budget that had as much time before is answered at once.
        seed: of the plan search.
        steps: instead of a time: so many plan searches one after the other, then a bound by linear relaxations; no
            integer program and no memory. Equal seeds and steps give equal answers.

    Returns:
        The schedule, judged by the simulator, with the bounds proven; without one, the smallest feasible budget.

    Raises:
        ValueError: an argument is not allowed, or pins contradict each other; the message names what is.
    """
    began = time.monotonic()
    options = Options(
        method, formulation, time_limit, gap, parse_optimizations(optimizations), exact, seed, parse_pins(pins)
    )
    budget_bytes = a_budget(budget, a_profile(profile))
    a_flag(remember, "remember")
    if steps is not None:
        a_whole_number(steps, "steps", least=1)
    if method == "monet-checkpointing":  # in its table it waits until everything is compiled
        planner = Planner(replace(options, optimizations=frozenset()).problem(profile))
        return _within(planner, budget_bytes, replace(options, optimizations=frozenset()), began=began)
    if method != "monet":
        (solution,) = METHODS[method].solve(profile, [budget_bytes], options=options)
        return replace(solution, elapsed_s=time.monotonic() - began)
    planner = Planner(options.problem(profile))
    if steps is not None:
        return _solve_in_steps(planner, budget_bytes, options, steps)
    memory, problem = SolveMemory(), problem_key(profile, options) if remember else ""
    if remember:
        planner.recall(memory.recall(problem), partial(memory.schedule, problem))
    if planner.settled(budget_bytes, options=options):
        return planner.solution(Progress(budget_bytes), gap=gap)
    solution = _within(planner, budget_bytes, options, began=began)
    if remember:
        answer, schedule = planner.answer(budget_bytes, spent_s=planner.counted_s(budget_bytes, options=options))
        memory.remember(problem, answer, schedule, label=label_of(profile, options))
    return replace(solution, elapsed_s=time.monotonic() - began)


def monet(profile: Profile, budget_bytes: int, *, options: Options) -> Solution:
    """MONeT's joint problem, from nothing but the profile: the entry of the table of methods."""
    planner = Planner(options.problem(profile))
    planner.search.ready(timeout=_COMPILED_S)
    return _within(planner, budget_bytes, options, began=time.monotonic())


def _within(planner: Planner, budget_bytes: int, options: Options, *, began: float) -> Solution:
    """Solve within the time limit, which began at a moment of the monotonic clock."""
    until, stated = began + options.time_limit, time.monotonic()
    first_answer(planner, budget_bytes, until=until)
    left_s = until - time.monotonic()
    if planner.search.seeded(timeout=0.0) and stated - began < _PREPARING * left_s:
        narrower_until = until - left_s / 2
        learn_checkpointing(
            planner, budget_bytes, options, time_limit=_narrower_s(options.time_limit), until=narrower_until
        )
    left_s = until - time.monotonic()
    if left_s > 0:
        solution = refine(planner, budget_bytes, replace(options, time_limit=left_s))
    else:
        solution = planner.solution(Progress(budget_bytes), gap=options.gap)
    return replace(solution, elapsed_s=time.monotonic() - began)


def monet_checkpointing(profile: Profile, budget_bytes: int, *, options: Options) -> Solution:
    """MONeT with checkpointing alone: PyTorch's own implementations (section 5, NoOp)."""
    return monet(profile, budget_bytes, options=replace(options, optimizations=frozenset()))


def _narrower_s(time_limit: float) -> float:
    return min(_NARROWER_S, _NARROWER_SHARE * time_limit)


def _solve_in_steps(planner: Planner, budget_bytes: int, options: Options, steps: int) -> Solution:
    progress = Progress(budget_bytes)
    planner.search.ready(timeout=_COMPILED_S)
    learn_checkpointing(planner, budget_bytes, options, steps=steps)
    for effort, seed in islice(searches(options.seed), steps):
        planner.search.improve(budget_bytes, effort=effort, seed=seed)
    planner.bound(budget_bytes)
    if planner.frontier.best(budget_bytes) is None:
        planner.seek_minimum(timeout=0.0)
    return planner.solution(progress, gap=options.gap)


def smallest_budget(
    profile: Profile,
    *,
    time_limit: float = 10.0,
    optimizations: Optimizations = "all",
    exact: bool = False,
    pins: PinsLike | None = None,
) -> Solution:
    """Find the smallest budget that a schedule fits.

    Args:
        profile: graph and costs.
        time_limit: seconds; less is used where the smallest peak is proven earlier.
        optimizations: as in ``solve``.
        exact: as in ``solve``.
        pins: as in ``solve``.

    Returns:
        A solution for that budget; its ``minimum`` says how small budgets can be at best, and which operator sets it.
    """
    began = time.monotonic()
    chosen = parse_optimizations(optimizations)
    options = Options(time_limit=time_limit, optimizations=chosen, exact=exact, pins=parse_pins(pins))
    planner = Planner(options.problem(a_profile(profile)))
    find_smallest(planner, until=began + time_limit)
    minimum = planner.minimum()
    solution = planner.solution(Progress(minimum.budget_bytes), gap=0.0)
    proof = "nothing smaller exists" if minimum.proven else f"nothing below {minimum.lower_bound_bytes} bytes exists"
    return replace(solution, minimum=minimum, elapsed_s=time.monotonic() - began, message=f"{minimum}; {proof}")


@overload
def trade_off(
    profile: Profile,
    *,
    points: int = ...,
    optimizations: Optimizations = ...,
    exact: bool = ...,
    pins: PinsLike | None = ...,
) -> tuple[Solution, ...]: ...


@overload
def trade_off(
    profile: Profile,
    *,
    methods: Iterable[str],
    points: int = ...,
    budgets: Iterable[int | str] | None = ...,
    time_limit: float = ...,
    optimizations: Optimizations = ...,
    exact: bool = ...,
    executor: Executor | None = ...,
    on_progress: Callable[[int, int, str], None] | None = ...,
    should_stop: Callable[[], bool] | None = ...,
) -> Comparison: ...


def trade_off(  # noqa: PLR0913 - one for each thing that users may want to say
    profile: Profile,
    *,
    points: int = 24,
    methods: Iterable[str] | None = None,
    budgets: Iterable[int | str] | None = None,
    time_limit: float = 10.0,
    optimizations: Optimizations = "all",
    exact: bool = False,
    pins: PinsLike | None = None,
    executor: Executor | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> tuple[Solution, ...] | Comparison:
    """Time against memory: MONeT's curve in a second or two by plan search alone, or several methods' to compare.

    Args:
        profile: graph and costs.
        points: at most this many budgets, from the smallest known to the peak without recomputation.
        methods: names of ``explorer.solvers.methods.METHODS`` (``["monet", "checkmate", …]``); everything below is for
            those.
        budgets: peak allowed, each, as in ``solve``; if not given, ``points`` equally far apart.
        time_limit: seconds for each method and budget.
        optimizations: as in ``solve``.
        exact: as in ``solve``.
        pins: as in ``solve``; not for other methods.
        executor: where to solve, such as a Dask client's ``get_executor()``; a pool of processes if not given. In a
            script of its own, such a pool needs the usual ``if __name__ == "__main__":``.
        on_progress: called with how many tasks are done, how many there are, and whose the last one was.
        should_stop: polled about ten times a second; true cancels what has not begun.

    Returns:
        Without ``methods``, increasing peaks and strictly decreasing times, each judged by the simulator;
        ``budget_bytes`` is the peak. With them, a comparison: a curve for each method, and all of it as a table.
    """
    a_profile(profile)
    a_whole_number(points, "points", least=2, most=_MOST_POINTS)
    a_callback(on_progress, "on_progress")
    a_callback(should_stop, "should_stop")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise ValueError(f"executor is {shown(executor)}; it must be a concurrent.futures.Executor, or None")
    options = Options(
        time_limit=time_limit, optimizations=parse_optimizations(optimizations), exact=exact, pins=parse_pins(pins)
    )
    if methods is None:
        if budgets is not None:
            raise ValueError("budgets are for methods: name some, such as methods=['monet']")
        *_, curve = _curves(profile, points, options, efforts=_CURVE_EFFORTS[:1])
        return curve
    from explorer.solvers.comparison import compare

    chosen = several(methods, "methods", such_as="['monet', 'checkmate']")
    if not chosen:
        raise ValueError(f"methods is empty; name some of {', '.join(map(repr, METHODS))}")
    for name in chosen:
        replace(options, method=name)  # refuses an unknown one before any work begins
    amounts = _ladder(profile, points, options) if budgets is None else some_budgets(budgets, profile)
    return compare(
        profile,
        chosen,
        amounts,
        options=options,
        executor=executor,
        on_progress=on_progress,
        should_stop=should_stop,
    )


def _ladder(profile: Profile, points: int, options: Options) -> list[int]:
    """Budgets from the smallest known to the peak without recomputation."""
    planner = Planner(options.problem(profile))
    planner.search.ready(timeout=_COMPILED_S)
    planner.seek_minimum(timeout=0.0)
    low, high = planner.minimum().budget_bytes, planner.search.keep_all_peak_bytes
    return np.linspace(low, high, points, dtype=np.int64).tolist()


def trade_off_in_steps(
    profile: Profile,
    *,
    points: int = 24,
    optimizations: Optimizations = "all",
    exact: bool = False,
    pins: PinsLike | None = None,
    should_stop: Callable[[bool], bool] | None = None,
) -> Iterator[tuple[Solution, ...]]:
    """MONeT's curve for those who watch: its two ends at once, more and more of it as ``trade_off`` does, then better.

    Args:
        profile: graph and costs.
        points: as in ``trade_off``.
        optimizations: as in ``solve``.
        exact: as in ``solve``.
        pins: as in ``solve``.
        should_stop: called before each of the searches, which take a tenth of a second or so, with whether they only
            improve a curve that is there; may wait while others need the processor. True ends the curve.

    Yields:
        Increasing peaks and strictly decreasing times; the last is the whole curve, which may begin at a smaller peak.
    """
    chosen = parse_optimizations(optimizations)
    options = Options(optimizations=chosen, exact=exact, pins=parse_pins(pins))
    return _curves(profile, points, options, efforts=_CURVE_EFFORTS, should_stop=should_stop)


def _curves(
    profile: Profile,
    points: int,
    options: Options,
    *,
    efforts: Iterable[float],
    should_stop: Callable[[bool], bool] | None = None,
) -> Iterator[tuple[Solution, ...]]:
    """MONeT's, by plan search alone, as it becomes known."""
    planner = Planner(options.problem(profile))
    search = planner.search
    search.ready(timeout=_COMPILED_S)
    planner.seek_minimum(timeout=0.0)
    yield _along(planner, points)
    for lap, effort in enumerate(efforts):
        for number, budget in enumerate(search.budgets(points), start=1):
            if should_stop is not None and should_stop(lap > 0):
                return
            search.improve(budget, effort=effort)
            if number % _CURVE_STEP == 0:
                yield _along(planner, points)
        search.shrink()  # where the curve begins is what people ask first
        search.collect()
        yield _along(planner, points)


def _along(planner: Planner, points: int) -> tuple[Solution, ...]:
    """The best that is known for budgets equally far apart."""
    frontier = planner.frontier
    low, high = frontier.points()[0].peak_bytes, planner.search.keep_all_peak_bytes
    peaks = dict.fromkeys(
        best.peak_bytes
        for budget in np.linspace(low, high, points, dtype=np.int64).tolist()
        if (best := frontier.best(budget)) is not None
    )
    return tuple(planner.solution(Progress(peak), gap=0.0) for peak in peaks)
