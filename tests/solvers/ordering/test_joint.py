"""Order first, then a method: what comes back belongs to the captured graph, and is no worse."""

from __future__ import annotations

import pytest

from explorer import format_bytes, keep_all, load_profile, simulate, solve, trade_off
from explorer.schedule import Run, with_frees
from explorer.solution import BoundScope, Status
from explorer.solvers.methods.table import METHODS, Answers
from explorer.solvers.options import Options
from explorer.solvers.ordering.joint import Reordered
from explorer.solvers.ordering.order import best_order
from explorer.solvers.ordering.schedules import least_memory
from explorer.solvers.ordering.steps import OrderedSteps, halves_of
from tests.solvers.ordering.updated import updated


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("name", ["resnet50-small-cpu", "vgg16-a100-80gb", "unet-a100-80gb", "googlenet-a100-80gb"])
def test_the_simulator_agrees_with_every_order(name: str, *, within: bool) -> None:
    profile = updated(name, within=within)
    for halved in ((), halves_of(profile.graph)):
        steps = OrderedSteps.of(profile, halved=halved)
        order = best_order(steps.task)
        schedule = steps.schedule(order.operators, method="test")
        assert simulate(profile, schedule).peak_bytes == order.peak_bytes
        assert order.lower_bound_bytes <= order.peak_bytes <= steps.task.peak_bytes(range(len(steps.task)))
        assert order.gap < 0.005


def test_order_alone_is_infeasible_only_below_its_bound() -> None:
    profile = updated("vgg16-a100-80gb")
    peak = simulate(profile, keep_all(profile.graph)).peak_bytes
    least = min(simulate(profile, x).peak_bytes for x in least_memory(profile).schedules)
    assert least < peak
    fits = solve(profile, budget=least, method="model")
    assert (fits.status, fits.peak_bytes) == (Status.FEASIBLE, least)
    assert fits.schedule is not None
    assert fits.schedule.moved(profile.graph)
    assert fits.minimum is not None
    roomy = solve(profile, budget=peak, method="model")
    assert (roomy.minimum, roomy.minimum and roomy.minimum.budget_bytes) == (fits.minimum, least)
    assert f"the least that an order found takes is {format_bytes(least)} ({least} bytes)" in roomy.message
    below = solve(profile, budget=least - 1, method="model")
    assert below.minimum is not None
    assert below.minimum.budget_bytes == least
    assert below.status is (Status.INFEASIBLE if below.minimum.proven else Status.UNKNOWN)


def test_monet_in_another_order_is_quicker() -> None:
    profile = updated("vgg16-a100-80gb", workspace=False)
    budget = round(0.6 * simulate(profile, keep_all(profile.graph)).peak_bytes)
    captured = solve(profile, budget=budget, steps=4)
    ordered = solve(profile, budget=budget, steps=4, order=True)
    assert captured.time_ms is not None
    assert ordered.schedule is not None
    assert ordered.time_ms is not None
    assert ordered.time_ms < captured.time_ms
    timeline = simulate(profile, ordered.schedule)
    assert (timeline.time_ms, timeline.peak_bytes) == (ordered.time_ms, ordered.peak_bytes)
    assert timeline.peak_bytes <= budget
    assert ordered.bound_ms(BoundScope.PROBLEM) is None
    assert ordered.bound_ms(BoundScope.ORDER) is not None


@pytest.mark.parametrize("name", [x.name for x in METHODS.values() if x.answers is Answers.CURVE])
def test_any_method_may_be_asked_in_order(name: str) -> None:
    profile = load_profile("vgg16-a100-80gb")
    budget = round(0.85 * simulate(profile, keep_all(profile.graph)).peak_bytes)
    (captured,) = METHODS[name].solve(profile, [budget], options=Options(name))
    (ordered,) = METHODS[name].solve(profile, [budget], options=Options(name, order=True))
    assert captured.time_ms is None or (ordered.time_ms is not None and ordered.time_ms <= captured.time_ms + 1e-9)
    if ordered.schedule is not None:
        assert simulate(profile, ordered.schedule).peak_bytes <= budget


def test_the_curve_in_order_is_nowhere_worse() -> None:
    profile = updated("vgg16-a100-80gb")
    captured, ordered = (trade_off(profile, points=6, order=x) for x in (False, True))
    for solution in captured:
        best = [x for x in ordered if x.peak_bytes is not None and x.peak_bytes <= (solution.peak_bytes or 0)]
        assert min(x.time_ms or 0.0 for x in best) <= (solution.time_ms or 0.0) * 1.001


def test_an_update_waits_for_what_reads_its_parameter() -> None:
    profile = updated("vgg16-a100-80gb")
    reordered = Reordered(profile, tuple(range(len(profile.graph.operators))))
    graph = reordered.profile.graph
    order = [x.id for x in graph.operators if not x.optional]
    # A product whose weight is read once more, for its input's gradient, after its own is there.
    weight, gradient = next(
        (weight, gradient)
        for weight, gradient in graph.gradients
        if graph.operators[graph.producer[gradient]].target == "aten.mm.default"
    )
    reader = next(x for x in order if x >= graph.forward_count and weight in graph.operators[x].default().reads)
    update = next(x.id for x in graph.operators if not x.default().writes and gradient in x.default().reads)
    early = [graph.producer[gradient], update]
    order = [x for x in order if x not in early]
    order[order.index(reader) : order.index(reader)] = early
    runs = [Run(x, graph.operators[x].default().name) for x in order]
    found = with_frees(graph, runs, method="test", budget_bytes=None)
    assert simulate(reordered.profile, found).operators.index(update) < order.index(reader)
    settled = reordered.schedule(found)
    operators = simulate(profile, settled).operators
    assert operators.index(update) == operators.index(reader) + 1


def test_a_captured_order_that_is_best_stays() -> None:
    profile = load_profile("gpt2-a100-80gb")
    assert least_memory(profile).schedules[1].moved(profile.graph) == ()


@pytest.mark.parametrize("order", [1, "yes", None])
def test_an_order_that_is_no_flag_is_refused(order: object) -> None:
    profile = load_profile("vgg16-a100-80gb")
    with pytest.raises(ValueError, match=r"order is .*; it must be True or False"):
        solve(profile, budget="80 %", order=order)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"order is .*; it must be True or False"):
        trade_off(profile, points=3, order=order)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_schedule_in_order_fits_its_profile_alone() -> None:
    profile, other = load_profile("vgg16-a100-80gb"), load_profile("resnet50-a100-80gb")
    schedule = least_memory(profile).schedules[-1]
    with pytest.raises(ValueError, match="does not belong to this profile"):
        simulate(other, schedule)
