"""From a budget to the best schedule that can be found and proven in the time given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, overload

import numpy as np

from explorer.arguments import a_callback, a_flag, a_whole_number, several
from explorer.budgets import a_budget
from explorer.budgets import budgets as some_budgets
from explorer.device_profile import Profile
from explorer.kinds import a_profile
from explorer.reserved import an_allocator
from explorer.schedule import Schedule
from explorer.solution import Solution
from explorer.solvers.curves import whole_curve
from explorer.solvers.methods.table import METHODS, method_named
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.monet.recalled import Answer
from explorer.solvers.monet.smallest import find_smallest
from explorer.solvers.monet.wording import Progress, solution_of
from explorer.solvers.options import Optimizations, Options, parse_optimizations
from explorer.solvers.ordering.joint import Solve, in_one_order, solve_in_order
from explorer.solvers.problem.frontier import Point
from explorer.solvers.problem.pins import PinsLike, parse_pins
from explorer.solvers.reserving import Fitting, Of, a_measure, solve_reserved
from explorer.solvers.search.mixing import mixed
from explorer.solvers.service.cache import AnswerCache, label_of, problem_key
from explorer.solvers.service.memory import recalled
from explorer.solvers.updates import solve_with_updates
from explorer.units import shown

if TYPE_CHECKING:
    from explorer.solvers.methods.comparison import Comparison

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
    update: str | None = None,
    order: bool = False,
    of: str = "allocated",
    allocator: str = "caching",
) -> Solution:
    """Find the fastest training step whose peak stays within a budget (MONeT section 4 and appendix C).

    With MONeT's method, a plan search answers first; SCIP then improves and proves, starting from its schedules.

    Args:
        profile: graph and costs.
        budget: peak allocated memory of the whole step: int bytes, ``"8 GiB"``, or ``"80 %"`` of what a step takes
            that keeps everything, as plain PyTorch does.
        method: ``"monet"``, or another system: a name in ``explorer.solvers.methods.table.METHODS``, such as
            ``"checkmate"``. Those bring their own choice of implementations; ``formulation``, ``remember``, ``seed``
            and ``steps`` are MONeT's.
        formulation: ``"grouped"`` (merged, grouped, incremental) or ``"paper"`` (as published, for small graphs).
        time_limit: seconds.
        gap: stop once the schedule is proven to be within this of the fastest.
        optimizations: which implementations may be chosen beside PyTorch's own: ``"all"``, ``"none"`` (checkpointing
            alone), or some of ``"output"``, ``"intermediate"``, ``"convolution"``, ``"inplace"``, ``"fused"``.
        exact: only implementations whose results are the same bits as PyTorch's own.
        pins: what is decided already: a tensor's name to ``"keep"`` or ``"recompute"``, an operator's to an
            implementation's (``{"relu_3": "recompute", "convolution_2": "chunks of 1"}``, or pairs of the same). The
            schedule, the bounds and the smallest budget are then those of schedules that honour them (``Pins``).
        remember: start from what earlier solves of this problem found, and keep what this one finds
            (``AnswerCache``). A budget that had as much time before is answered at once.
        seed: of the plan search.
        steps: instead of a time: so many plan searches one after the other, then a bound by linear relaxations; no
            integer program and no memory. Equal seeds and steps give equal answers.
        update: of a profile with an optimizer: ``"end"``, ``"within"`` the backward pass, or ``"best"``: whichever is
            faster, for half the time each. None: as the profile has it.
        order: put the operators in the order with the least memory first, then solve; and in the captured order, for
            half the time each: the better answer. Bounds are then of schedules in the answer's order. ``"model"`` is
            the order alone.
        of: what the budget is of: ``"allocated"`` memory; what PyTorch's caching allocator has ``"reserved"``; or what
            a CUDA ``"device"`` has for this process besides its context, where the step must not run out of memory
            although the allocator's free memory lies in pieces, by a model of the allocator: leave a tenth of the
            device, and 20 MiB. Then the time is for several solves.
        allocator: for ``of``: ``"caching"``, or ``"expandable"`` (``expandable_segments:True``), as in ``simulate``.

    Returns:
        The schedule, judged by the simulator, with the bounds proven; without one, the smallest feasible budget.

    Raises:
        ValueError: an argument is not allowed, or pins contradict each other; the message names what is.
    """
    measure, reserving = a_measure(of), an_allocator(allocator)
    asked = {"budget": budget, "method": method, "formulation": formulation, "gap": gap, "exact": exact, "pins": pins}
    asked |= {"optimizations": optimizations, "remember": remember, "seed": seed, "steps": steps, "order": order}
    asked |= {"of": of, "allocator": allocator}
    if update is not None:
        limit = Options(time_limit=time_limit).time_limit
        if update == "best":  # a share is of one step, whichever way is better
            asked["budget"] = a_budget(budget, a_profile(profile))

        def solve_one(planned: Profile, share: float) -> Solution:
            return solve(planned, time_limit=share * limit, **asked)

        return solve_with_updates(a_profile(profile), update, solve_one)
    began = time.monotonic()
    method_named(method)
    options = Options(
        method, formulation, time_limit, gap, parse_optimizations(optimizations), exact, seed, parse_pins(pins)
    )
    budget_bytes = a_budget(budget, a_profile(profile))
    a_flag(remember, "remember")
    a_flag(order, "order")
    if steps is not None:
        a_whole_number(steps, "steps", least=1)
    if order and method != "model":

        def solve_share(planned: Profile, share: float) -> tuple[Solution]:
            once = asked | {"order": False, "budget": budget_bytes}
            return (solve(planned, time_limit=share * time_limit, **once),)

        solution = _in_orders(Fitting(profile, budget_bytes, measure, reserving), solve_share, seed=seed)
    elif measure is not Of.ALLOCATED:
        fitting = Fitting(profile, budget_bytes, measure, reserving)
        if method == "monet" and steps is None:
            solution = reserved_by_search(fitting, options)
        else:

            def solve_peak(peak_bytes: int, seconds: float) -> Solution:
                allocated = asked | {"of": Of.ALLOCATED.value, "budget": peak_bytes}
                return solve(profile, time_limit=seconds, **allocated)

            solution = solve_reserved(fitting, solve_peak, time_limit=time_limit)
    else:
        return _solve(profile, budget_bytes, options, remember=remember, steps=steps)
    return replace(solution, elapsed_s=time.monotonic() - began)


def reserved_by_search(fitting: Fitting, options: Options, *, mixing: bool = True) -> Solution:
    """By MONeT: what is found for one peak is a beginning for the next, and plans that are known are mixed.

    Args:
        fitting: what a schedule has to fit.
        options: of each solve; its time limit is of all of them.
        mixing: without it, the time of that goes to solves: to see what it is worth.
    """
    knowledge = Knowledge(options.problem(fitting.profile))
    search, budget_bytes = knowledge.search, fitting.budget_bytes

    def solve_peak(peak_bytes: int, seconds: float) -> Solution:
        shorter = replace(options, time_limit=seconds)
        return Pursuit(knowledge, peak_bytes, shorter, began=time.monotonic()).run()

    def mix(best: Point, until: float) -> Point:
        enough, seed = fitting.enough, options.seed
        return mixed(search, best, budget_bytes=budget_bytes, enough=enough, until=until, seed=seed)

    return solve_reserved(
        fitting,
        solve_peak,
        time_limit=options.time_limit,
        found_so_far=partial(search.quickest_first, budget_bytes),
        mix=mix if mixing else None,
    )


def _in_orders(fitting: Fitting, solve_share: Solve, *, seed: int) -> Solution:
    """The better answer of both orders, if it fits in the captured graph too; else that order's own."""
    (solution,) = solve_in_order(fitting.profile, solve_share, seed=seed)
    return solution if fitting.fits(solution) else in_one_order(solve_share(fitting.profile, 0.5)[0])


def _solve(profile: Profile, budget_bytes: int, options: Options, *, remember: bool, steps: int | None) -> Solution:
    """By one method, for one profile."""
    began = time.monotonic()
    if options.method == "monet-checkpointing":  # in its table it waits until everything is compiled
        options = replace(options, optimizations=frozenset())
        return _pursuit(profile, budget_bytes, options, began=began).run()
    if options.method != "monet":
        (solution,) = method_named(options.method).solve(profile, [budget_bytes], options=options)
        return replace(solution, elapsed_s=time.monotonic() - began)
    pursuit = _pursuit(profile, budget_bytes, options, began=began)
    if steps is not None:
        pursuit.knowledge.search.ready()
        return pursuit.in_steps(steps)
    return _remembered(pursuit) if remember else pursuit.run()


def _pursuit(profile: Profile, budget_bytes: int, options: Options, *, began: float) -> Pursuit:
    return Pursuit(Knowledge(options.problem(profile)), budget_bytes, options, began=began)


def _remembered(pursuit: Pursuit) -> Solution:
    """Start from what earlier solves found, and keep what this one finds."""
    knowledge, budget_bytes, options = pursuit.knowledge, pursuit.budget_bytes, pursuit.options
    cache, problem = AnswerCache(), problem_key(knowledge.profile, options)
    knowledge.recall(*recalled(cache, problem))
    known = pursuit.settled()
    if known is not None:
        return known
    solution = pursuit.run()
    spent_s = knowledge.counted_s(budget_bytes, options=options)
    _keep(*knowledge.answer(budget_bytes, spent_s=spent_s), profile=knowledge.profile, options=options)
    return solution


def _keep(answer: Answer, schedule: Schedule | None, *, profile: Profile, options: Options) -> None:
    """Remember what is known for a budget."""
    AnswerCache().remember(problem_key(profile, options), answer, schedule, label=label_of(profile, options))


def smallest_budget(
    profile: Profile,
    *,
    time_limit: float = 10.0,
    optimizations: Optimizations = "all",
    exact: bool = False,
    pins: PinsLike | None = None,
    remember: bool = True,
) -> Solution:
    """Find the smallest budget that a schedule fits; of a compiled step, one that the compiler can be told.

    Args:
        profile: graph and costs.
        time_limit: seconds; less is used where the smallest peak is proven earlier.
        optimizations: as in ``solve``.
        exact: as in ``solve``.
        pins: as in ``solve``.
        remember: keep it, so that ``solve`` knows a schedule for this budget.

    Returns:
        A solution for that budget; its ``minimum`` says how small budgets can be at best, and which operator sets it.
    """
    began = time.monotonic()
    chosen = parse_optimizations(optimizations)
    a_flag(remember, "remember")
    options = Options(time_limit=time_limit, optimizations=chosen, exact=exact, pins=parse_pins(pins))
    if a_profile(profile).graph.compiled:
        return _smallest_compiled(profile, options)
    knowledge = Knowledge(options.problem(profile))
    find_smallest(knowledge, until=began + time_limit)
    minimum = knowledge.minimum()
    if remember:
        _keep(*knowledge.answer(minimum.budget_bytes, spent_s=0.0), profile=knowledge.profile, options=options)
    solution = solution_of(knowledge, Progress(minimum.budget_bytes), gap=0.0)
    proof = "nothing smaller exists" if minimum.proven else f"nothing below {minimum.lower_bound_bytes} bytes exists"
    message = f"{minimum}; {proof} in this order of operators"
    return replace(solution, minimum=minimum, elapsed_s=time.monotonic() - began, message=message)


def _smallest_compiled(profile: Profile, options: Options) -> Solution:
    """Half of the time for the smallest peak of all sets of saved results, half for the quickest of those."""
    options = replace(options, method="monet-compiled", time_limit=options.time_limit / 2)
    least = _solve(profile, 1, options, remember=False, steps=None)  # which nothing fits
    assert least.minimum is not None
    found = _solve(profile, least.minimum.budget_bytes, options, remember=False, steps=None)
    return replace(found, minimum=least.minimum, elapsed_s=least.elapsed_s + found.elapsed_s)


@overload
def trade_off(
    profile: Profile,
    *,
    points: int = ...,
    optimizations: Optimizations = ...,
    exact: bool = ...,
    pins: PinsLike | None = ...,
    order: bool = ...,
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
    order: bool = ...,
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
    order: bool = False,
    executor: Executor | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> tuple[Solution, ...] | Comparison:
    """Time against memory: MONeT's curve in a second or two by plan search alone, or several methods' to compare.

    Args:
        profile: graph and costs.
        points: at most this many budgets, from the smallest known to the peak without recomputation.
        methods: names of ``explorer.solvers.methods.table.METHODS`` (``["monet", "checkmate", …]``); everything below
            is for those.
        budgets: peak allowed, each, as in ``solve``; if not given, ``points`` equally far apart.
        time_limit: seconds for each method and budget.
        optimizations: as in ``solve``.
        exact: as in ``solve``.
        pins: as in ``solve``; not for other methods.
        order: as in ``solve``, for every method; a curve is the better of both orders' everywhere.
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
        time_limit=time_limit,
        optimizations=parse_optimizations(optimizations),
        exact=exact,
        pins=parse_pins(pins),
        order=order,
    )
    if methods is None:
        if budgets is not None:
            raise ValueError("budgets are for methods: name some, such as methods=['monet']")
        return _curve(profile, points, options)
    from explorer.solvers.methods.comparison import compare

    chosen = several(methods, "methods", such_as="['monet', 'checkmate']")
    if not chosen:
        raise ValueError(f"methods is empty; name some of {', '.join(map(repr, METHODS))}")
    for name in chosen:
        replace(options, method=method_named(name).name)  # refuses an unknown one before any work begins
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


def _curve(profile: Profile, points: int, options: Options) -> tuple[Solution, ...]:
    """The curve; where it begins is remembered, so that ``solve`` knows a schedule for the smallest budget on it."""
    curve = whole_curve(profile, points, options)
    least = curve[0]
    if not options.order:
        assert least.peak_bytes is not None
        answer = Answer(least.peak_bytes, 0.0, 0.0, excluded=False, time_ms=least.time_ms, peak_bytes=least.peak_bytes)
        _keep(answer, least.schedule, profile=profile, options=options)
    return curve


def _ladder(profile: Profile, points: int, options: Options) -> list[int]:
    """Budgets from the smallest known to the peak without recomputation."""
    knowledge = Knowledge(options.problem(profile))
    knowledge.search.ready()
    knowledge.seek_minimum(timeout=0.0)
    low, high = knowledge.minimum().budget_bytes, knowledge.search.keep_all_peak_bytes
    return np.linspace(low, high, points, dtype=np.int64).tolist()
