"""Pins: every solver honours them, none loses a schedule by them that it need not lose, contradictions are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import explorer
from explorer.device_profile import Profile
from explorer.graph import Implementation, TrainingGraph
from explorer.simulation import simulate
from explorer.solution import Status
from explorer.solvers import SolveEvent, SolveSession
from explorer.solvers.formulation import paper
from explorer.solvers.options import Options
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.pins import Pins, Stay, parse_pins
from explorer.solvers.problem.problem import Problem
from explorer.solvers.search.plain_schedule import plain_schedule
from explorer.solvers.search.plan_search import PlanSearch
from explorer.solvers.service.cache import problem_key
from tests.solvers.checks import check_bound, check_optimum, check_relaxation, check_solution
from tests.solvers.exhaustive import Rule, fastest
from tests.solvers.graphs import INPUT, GraphBuilder, chain, joint_profiles, profiles
from tests.solvers.minimising import SHARES, budget_between, minimum

slow = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@st.composite
def pinned(draw: st.DrawFn, *, operators: bool = True, several_first: bool = False) -> tuple[Profile, Pins]:
    """A random graph with one to three random pins that do not contradict each other."""
    profile = draw(st.one_of(profiles(most_forward=4), joint_profiles(several_first=several_first)))
    graph = profile.graph
    names = [graph.storages[x].name for x, maker in graph.producer.items() if maker < graph.forward_count]
    chosen = draw(st.lists(st.sampled_from(sorted(names)), max_size=2, unique=True))
    tensors = tuple((name, draw(st.sampled_from(Stay))) for name in sorted(chosen))
    able = sorted((op.name, i.name) for op in graph.operators for i in op.implementations) if operators else []
    runs = draw(st.lists(st.sampled_from(able), max_size=2, unique_by=lambda x: x[0])) if able else []
    pins = Pins(tensors, tuple(sorted(runs)))
    assume(pins)
    try:
        plain_schedule(problem_of(profile, pins=pins))
    except ValueError:
        assume(False)
    return profile, pins


def rule_of(problem: Problem, pins: Pins) -> Rule:
    """The pins of tensors, for a search over a problem without them."""
    index = {problem.graph.storages[storage].name: x for storage, x in problem.storage_index.items()}

    def those(wanted: Stay) -> frozenset[int]:
        return frozenset(index[name] for name, stay in pins.tensors if stay is wanted and name in index)

    return Rule(those(Stay.KEEP), those(Stay.RECOMPUTE))


def without_others(profile: Profile, pins: Pins) -> Profile:
    """A graph in which pinned operators have no other implementation: for those that serve every run."""
    wanted = dict(pins.operators)
    operators = tuple(
        replace(op, implementations=tuple(i for i in op.implementations if i.name == wanted.get(op.name, i.name)))
        for op in profile.graph.operators
    )
    return replace(profile, graph=replace(profile.graph, operators=operators))


@slow
@given(pinned(operators=False), SHARES)
def test_pinned_tensors_cost_no_schedule_that_keeps_to_them(found: tuple[Profile, Pins], share: float):
    profile, pins = found
    free, problem = problem_of(profile), problem_of(profile, pins=pins)
    budget = budget_between(free, share)
    wanted = fastest(free, budget, sweeps=False, rule=rule_of(free, pins))
    best = fastest(problem, budget, sweeps=False)
    assert (best is None) == (wanted is None)
    if best is not None and wanted is not None:
        assert best.time_ms == pytest.approx(wanted.time_ms)
        assert pins.broken_by(profile.graph, best.schedule) == ()
        assert simulate(profile, best.schedule).peak_bytes <= budget


@slow
@given(joint_profiles(), st.data(), SHARES)
def test_pinned_operators_are_as_if_there_were_no_other_implementation(
    profile: Profile, data: st.DataObject, share: float
):
    operator = data.draw(st.sampled_from(profile.graph.operators))
    every = [
        i for i in operator.implementations if i.first and i.again and set(i.writes) == set(operator.default().writes)
    ]
    assume(every)
    pins = Pins(operators=((operator.name, data.draw(st.sampled_from(every)).name),))
    try:
        problem = problem_of(profile, pins=pins)
        plain_schedule(problem)
    except ValueError:
        assume(False)
        return
    budget = budget_between(problem_of(profile), share)
    wanted = fastest(problem_of(without_others(profile, pins)), budget, sweeps=False)
    best = fastest(problem, budget, sweeps=False)
    assert (best is None) == (wanted is None)
    if best is not None and wanted is not None:
        assert best.time_ms == pytest.approx(wanted.time_ms)
        assert pins.broken_by(profile.graph, best.schedule) == ()


@slow
@given(pinned(), SHARES)
def test_plan_search_finds_the_best_that_honours_them(found: tuple[Profile, Pins], share: float):
    profile, pins = found
    problem = problem_of(profile, pins=pins)
    search = PlanSearch(problem)
    budget = round(search.floor.peak_bytes + share * (search.keep_all_peak_bytes - search.floor.peak_bytes))
    best = fastest(problem, budget, sweeps=False)
    point = search.improve(budget, effort=0.3)
    if point is not None:
        assert best is not None
        assert best.time_ms - 1e-9 <= point.time_ms
        assert simulate(profile, point.schedule).peak_bytes <= budget
    for known in search.collect().points():
        assert pins.broken_by(profile.graph, known.schedule) == ()


@slow
@given(pinned(), SHARES)
def test_the_grouped_program_has_the_optimum_of_an_exhaustive_search(found: tuple[Profile, Pins], share: float):
    profile, pins = found
    problem = problem_of(profile, pins=pins)
    check_optimum(problem, budget_between(problem, share))


@slow
@given(pinned(several_first=True), SHARES, st.sampled_from((0.0, 0.2, 0.5)), st.sampled_from((0.0, 0.3)))
def test_solutions_of_the_grouped_program_can_run(
    found: tuple[Profile, Pins], share: float, threshold: float, small: float
):
    profile, pins = found
    problem = problem_of(profile, pins=pins)
    check_solution(problem, budget_between(problem, share), threshold=threshold, pinned_share=small)


@slow
@given(pinned(several_first=True), SHARES, st.sampled_from((0.0, 0.4, 1.0)), st.sampled_from((0.0, 0.3)))
def test_no_schedule_beats_a_relaxation(found: tuple[Profile, Pins], share: float, threshold: float, small: float):
    profile, pins = found
    problem = problem_of(profile, pins=pins)
    check_relaxation(problem, budget_between(problem, share), threshold=threshold, pinned_share=small)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(pinned(several_first=True), SHARES)
def test_no_schedule_beats_the_bound(found: tuple[Profile, Pins], share: float):
    profile, pins = found
    problem = problem_of(profile, pins=pins)
    check_bound(problem, budget_between(problem, share))


@slow
@given(pinned(), SHARES)
def test_solutions_of_the_papers_program_honour_them(found: tuple[Profile, Pins], share: float):
    profile, pins = found
    problem = problem_of(profile, pins=pins)
    budget = budget_between(problem, share)
    model = paper.build(problem, budget)
    solved = minimum(model.milp)
    if solved is not None:
        schedule = model.decode(solved[1])
        assert simulate(profile, schedule).peak_bytes <= budget
        assert pins.broken_by(profile.graph, schedule) == ()


def names(graph: TrainingGraph, *, held: bool = False) -> list[str]:
    return [x.name for x in graph.storages if x.id in graph.producer and x.held == held]


def test_a_pin_is_the_difference_and_costs_time_where_it_must():
    profile = chain(8)
    plain = explorer.solve(profile, budget=profile.fixed_bytes + 560, time_limit=2, remember=False)
    assert plain.schedule is not None
    assert plain.time_ms is not None
    again = profile.graph.operators[next(iter(plain.schedule.recomputed(profile.graph)))]
    name = profile.graph.storages[again.default().writes[0]].name
    for pins in ({name: "keep"}, [(name, "keep")]):
        other = explorer.solve(profile, budget=plain.budget_bytes, pins=pins, time_limit=2, remember=False)
        assert other.schedule is not None
        assert other.time_ms is not None
        assert again.id not in other.schedule.recomputed(profile.graph)
        assert parse_pins(pins).broken_by(profile.graph, plain.schedule) == (f"{name!r} is not kept",)
        assert plain.time_ms <= other.time_ms


def test_what_cannot_be_honoured_is_refused_by_name():
    profile = chain(3)
    for pins, said in (
        ({"t99": "keep"}, "no tensor 't99'"),
        ({"op99": "default"}, "no operator 'op99'"),
        ({"t1": "keep"}, "'t1' is a parameter"),
        ({"t5": "recompute"}, "the caller receives it"),
        ({"op0": "im2col"}, "'op0' has no implementation 'im2col'; it has 'default'"),
        ([("t2", "keep"), ("t2", "recompute")], "'t2' is pinned to 'keep' and to 'recompute'"),
        ({"t2": 3}, "pin of 't2' is 3"),
    ):
        with pytest.raises(ValueError, match=said):
            explorer.solve(profile, budget="1 GiB", pins=pins)


def in_place() -> Profile:
    """The second operator may overwrite what the first made; nobody but the backward pass reads that."""
    builder = GraphBuilder()
    (first,) = builder.forward((INPUT,), (100,), again="never")
    (second,) = builder.forward((first,), (100,), in_place=(first, 1.0))
    (loss,) = builder.forward((second,), (4,), held=True)
    gradient = builder.backward((builder.start_backward(0), second), 0)
    builder.backward((gradient, first, loss), 0)
    return builder.profile()


def test_contradictions_are_told():
    profile = in_place()
    with pytest.raises(ValueError, match="'in place' of 'op1' overwrites 't2', which is to be kept"):
        explorer.solve(profile, budget="1 GiB", pins={"op1": "in place", "t2": "keep"})
    # It cannot be made again, and the backward pass reads it.
    with pytest.raises(ValueError, match="'op5' cannot run; 't2' cannot be made again"):
        explorer.solve(profile, budget="1 GiB", pins={"op1": "in place"})
    with pytest.raises(ValueError, match="optimization 'inplace'"):
        explorer.solve(profile, budget="1 GiB", optimizations="none", pins={"op1": "in place"})
    with pytest.raises(ValueError, match="cannot run"):
        SolveSession(profile, on_event=print, pins={"t2": "recompute"})


def test_a_budget_too_small_for_the_pins_is_infeasible_and_says_what_would_do():
    profile = chain(6)
    pins = dict.fromkeys(names(profile.graph)[:5], "keep")
    free = explorer.smallest_budget(profile, time_limit=1)
    tight = explorer.solve(profile, budget=free.budget_bytes, pins=pins, time_limit=200, remember=False)  # a proof
    assert tight.status is Status.INFEASIBLE
    assert tight.minimum is not None
    assert tight.minimum.budget_bytes > free.budget_bytes
    assert explorer.smallest_budget(profile, time_limit=1, pins=pins).budget_bytes == tight.minimum.budget_bytes


def test_memory_of_past_solves_keeps_pins_apart():
    profile = chain(4)
    free, one = Options(), Options(pins=parse_pins({"t2": "keep"}))
    other = Options(pins=parse_pins({"t2": "recompute"}))
    assert len({problem_key(profile, x) for x in (free, one, other)}) == 3
    assert problem_key(profile, one) == problem_key(profile, Options(pins=parse_pins([("t2", "keep")])))
    budget = simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    for pins in (None, {"t2": "keep"}, None, {"t2": "recompute"}):
        found = explorer.solve(profile, budget=budget, pins=pins, time_limit=1)
        assert found.schedule is not None
        assert parse_pins(pins).broken_by(profile.graph, found.schedule) == ()


@pytest.fixture(scope="module")
def resnet() -> Profile:
    return explorer.load_profile("resnet50-small-cpu")


def test_resnet_honours_pins_of_each_kind(resnet: Profile):
    graph = resnet.graph
    pins = parse_pins(
        {"max_pool2d_with_indices[1]": "recompute", "batch_norm_11": "recompute", "convolution": "keep"}
        | {"convolution_2": "chunks of 1", "relu": "in place", "convolution_backward_51": "aten"}
    )
    peak = simulate(resnet, explorer.keep_all(graph)).peak_bytes
    found = explorer.solve(resnet, budget=int(0.75 * peak), pins=pins, steps=2)
    assert found.schedule is not None
    assert pins.broken_by(graph, found.schedule) == ()
    curve = explorer.trade_off(resnet, points=4, pins=pins)
    assert all(point.schedule and not pins.broken_by(graph, point.schedule) for point in curve)


def test_a_session_honours_pins(resnet: Profile):
    import threading

    done, events = threading.Event(), []

    def take(event: SolveEvent) -> None:
        events.append(event)
        if event.final:
            done.set()

    pins = parse_pins({"batch_norm_11": "recompute"})
    peak = simulate(resnet, explorer.keep_all(resnet.graph)).peak_bytes
    with SolveSession(resnet, on_event=take, time_limit=2, remember=False, pins=pins) as session:
        session.request(int(0.8 * peak))
        assert done.wait(120)
    found = [x.solution.schedule for x in events if x.solution.schedule is not None]
    assert found
    assert all(pins.broken_by(resnet.graph, schedule) == () for schedule in found)


def test_pins_choose_for_the_runs_that_the_implementation_can_serve(resnet: Profile):
    """The statistics of a normalisation serve recomputations only; its first run is free."""
    problem = problem_of(resnet, pins=parse_pins({"batch_norm_1": "no statistics"}))
    normalisation = next(op for op in resnet.graph.operators if op.name == "batch_norm_1")

    def chosen(*, again: bool) -> set[str]:
        return {x.implementation for form in problem.forms(normalisation.id, again=again) for x in form.options}

    assert chosen(again=True) == {"no statistics"}
    assert chosen(again=False) == {"aten"}
    serves: list[Implementation] = [x for x in normalisation.implementations if x.again]
    assert len(serves) > 1
