"""MONeT's curve by plan search alone: the quickest schedule for every budget, as it becomes known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, zip_longest

import numpy as np

from explorer.device_profile import Profile
from explorer.solution import Solution
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.monet.wording import Progress, solution_of
from explorer.solvers.options import Optimizations, Options, parse_optimizations
from explorer.solvers.ordering.joint import Reordered
from explorer.solvers.problem.frontier import Frontier, Point, point_of
from explorer.solvers.problem.pins import PinsLike, parse_pins

_CURVE_EFFORTS = (0.15, 1.0)  # of the search at each of its points: to see something soon, then to see it well
_CURVE_STEP = 6  # points between two views of it


def trade_off_in_steps(
    profile: Profile,
    *,
    points: int = 24,
    optimizations: Optimizations = "all",
    exact: bool = False,
    pins: PinsLike | None = None,
    order: bool = False,
    known: Iterable[Solution] = (),
    should_stop: Callable[[bool], bool] | None = None,
) -> Iterator[tuple[Solution, ...]]:
    """MONeT's curve for those who watch: its two ends at once, more and more of it as ``trade_off`` does, then better.

    Args:
        profile: graph and costs.
        points: as in ``trade_off``.
        optimizations: as in ``solve``.
        exact: as in ``solve``.
        pins: as in ``solve``.
        order: as in ``trade_off``: the better of both orders' curves.
        known: schedules in the captured order, found with the same choices, such as ``shipped_solutions``.
        should_stop: called before each of the searches, which take a tenth of a second or so, with whether they only
            improve a curve that is there; may wait while others need the processor. True ends the curve.

    Yields:
        Increasing peaks and strictly decreasing times; the last is the whole curve, which may begin at a smaller peak.
    """
    chosen = parse_optimizations(optimizations)
    options = Options(optimizations=chosen, exact=exact, pins=parse_pins(pins), order=order)
    return _curves(profile, points, options, efforts=_CURVE_EFFORTS, known=known, should_stop=should_stop)


def whole_curve(profile: Profile, points: int, options: Options) -> tuple[Solution, ...]:
    """The curve in a second or two, in both orders if the options have it so: see ``trade_off``."""
    *_, curve = _curves(profile, points, options, efforts=_CURVE_EFFORTS[:1])
    return curve


def _curves(
    profile: Profile,
    points: int,
    options: Options,
    *,
    efforts: Iterable[float],
    known: Iterable[Solution] = (),
    should_stop: Callable[[bool], bool] | None = None,
) -> Iterator[tuple[Solution, ...]]:
    """In the captured order; with ``order``, what is best of that and of the order with the least memory."""
    captured = _in_its_order(profile, points, options, efforts=efforts, known=known, should_stop=should_stop)
    reordered = Reordered.of(profile, seed=options.seed) if options.order else None
    if reordered is None or reordered.as_captured:
        yield from captured
        return
    ours = _in_its_order(reordered.profile, points, options, efforts=efforts, should_stop=should_stop)
    latest: list[tuple[Solution, ...]] = [(), ()]
    translated: dict[tuple[int | None, float | None], Solution] = {}  # a view has most of the one before
    for captured_view, our_view in zip_longest(captured, ours):
        for x in our_view or ():
            key = x.peak_bytes, x.time_ms
            translated[key] = translated.get(key) or reordered.solution(x)
        if captured_view is not None:
            latest[0] = captured_view
        if our_view is not None:
            latest[1] = tuple(translated[x.peak_bytes, x.time_ms] for x in our_view)
        yield _best(chain(*latest))


def _best(solutions: Iterable[Solution]) -> tuple[Solution, ...]:
    """Of several curves; what is proven of one order's schedules is not of the other's."""
    found = {(x.peak_bytes, x.time_ms): x for x in solutions if x.schedule is not None}
    frontier = Frontier()
    for (peak_bytes, time_ms), x in found.items():
        assert x.schedule is not None
        assert peak_bytes is not None
        assert time_ms is not None
        frontier.add(Point(peak_bytes, time_ms, x.schedule))
    best = (found[x.peak_bytes, x.time_ms] for x in frontier.points())
    return tuple(replace(x, bounds=(), message="the fastest found with this peak, in either order") for x in best)


def _in_its_order(
    profile: Profile,
    points: int,
    options: Options,
    *,
    efforts: Iterable[float],
    known: Iterable[Solution] = (),
    should_stop: Callable[[bool], bool] | None = None,
) -> Iterator[tuple[Solution, ...]]:
    """In the order that the profile is in."""
    knowledge = Knowledge(options.problem(profile))
    for solution in known:
        knowledge.add(point_of(solution))
    search = knowledge.search
    search.ready()
    knowledge.seek_minimum(timeout=0.0)
    yield _along(knowledge, points)
    for lap, effort in enumerate(efforts):
        for number, budget in enumerate(search.budgets(points), start=1):
            if should_stop is not None and should_stop(lap > 0):
                return
            Pursuit(knowledge, budget, options).look(effort=effort)
            if number % _CURVE_STEP == 0:
                yield _along(knowledge, points)
        search.shrink()  # where the curve begins is what people ask first
        search.collect()
        yield _along(knowledge, points)


def _along(knowledge: Knowledge, points: int) -> tuple[Solution, ...]:
    """The best that is known for budgets equally far apart."""
    frontier = knowledge.frontier
    low, high = frontier.points()[0].peak_bytes, knowledge.search.keep_all_peak_bytes
    peaks = dict.fromkeys(
        best.peak_bytes
        for budget in np.linspace(low, high, points, dtype=np.int64).tolist()
        if (best := frontier.best(budget)) is not None
    )
    return tuple(solution_of(knowledge, Progress(peak), gap=0.0) for peak in peaks)
