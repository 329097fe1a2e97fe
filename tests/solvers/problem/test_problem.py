from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.graph import Optimization
from explorer.profiles.loading import load_profile
from explorer.schedule import Run, keep_all
from explorer.simulation import simulate
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.problem import Option
from explorer.solvers.problem.schedules import reading_of, schedule_of
from explorer.timeline import Category
from tests.schedules import random_schedule
from tests.solvers.graphs import INPUT, GraphBuilder, chain, profiles


def small() -> GraphBuilder:
    builder = GraphBuilder(rounding_bytes=8)
    out, mask = builder.forward((INPUT,), (9, 3), time_ms=4.0, workspace_bytes=5, again="mask")
    (loss,) = builder.forward((out,), (1,), held=True, again="never")
    gradient = builder.start_backward(2)
    gradient = builder.backward((gradient, loss, out), 17, parameter_size=3, workspace_bytes=2)
    builder.backward((gradient, mask), 1)
    return builder


def activated() -> GraphBuilder:
    """A convolution with three algorithms; an activation function in place, with a mask; backward from either."""
    builder = GraphBuilder()
    algorithms = ((7.0, 20), (9.0, 30))
    (convolved,) = builder.forward((INPUT,), (100,), time_ms=5.0, workspace_bytes=60, algorithms=algorithms)
    (out,) = builder.forward((convolved,), (100,), time_ms=2.0, workspace_bytes=10, in_place=(convolved, 1.0))
    mask = builder.auxiliary(out, 4, time_ms=3.0)
    gradient = builder.start_backward(100)
    from_mask = ((gradient, mask), 4.0, 0)
    builder.backward((gradient, out), 100, alternatives=(from_mask,), overwrites=gradient)
    return builder


def test_sizes_are_as_the_allocator_takes_them():
    problem = problem_of(small().profile())
    assert [x.bytes for x in problem.activations] == [16, 8, 8]
    assert [x.held for x in problem.activations] == [False, False, True]
    assert problem.held_bytes == 8
    assert problem.fixed_bytes == 40 + 64


def test_a_recomputation_has_its_own_reads_writes_and_costs():
    dropout, loss = problem_of(small().profile()).forward
    (first,), (again,) = dropout.first, dropout.again
    assert first.writes == (0, 1)
    assert (again.reads, again.writes) == ((1,), (0,))
    assert (again.time_ms, again.base.workspace_bytes) == (2.0, 8)
    assert loss.again == ()


def test_gradients_are_freed_after_their_last_use_and_those_of_parameters_stay():
    boundary, first, last = problem_of(small().profile()).backward
    assert (boundary.idle_bytes, boundary.made_bytes) == (0, 8)
    assert first.idle_bytes == 8
    assert first.made_bytes == 24 + 8
    assert first.forms[0].base.workspace_bytes == 8
    assert last.idle_bytes == 24 + 8
    assert last.made_bytes == 8
    assert (first.forms[0].reads, last.forms[0].reads) == ((0, 2), (1,))


@given(profiles())
def test_gradient_memory_is_the_simulators(profile: Profile):
    problem = problem_of(profile)
    line = simulate(profile, keep_all(profile.graph))
    gradients = [
        list(Category).index(x)
        for x in (Category.ACTIVATION_GRADIENTS, Category.PARAMETER_GRADIENTS, Category.WORKSPACE)
    ]
    busy = line.bytes[profile.graph.forward_count :, gradients].sum(axis=1)
    smallest = [min(y.workspace_bytes for y in x.forms[0].options if y.overwrites is None) for x in problem.backward]
    counted = [x.idle_bytes + x.made_bytes + own for x, own in zip(problem.backward, smallest, strict=True)]
    assert counted == busy.tolist()
    assert problem.base_time_ms == line.time_ms


def test_options_are_those_that_no_other_beats():
    problem = problem_of(activated().profile())
    convolution, function, _ = problem.forward
    (form,) = convolution.first
    assert form.options == (Option("default", 5.0, 60), Option("algorithm 0", 7.0, 20))
    (form,) = function.again
    assert form.options == (Option("in place", 1.0, 10, overwrites=0), Option("default", 2.0, 10))


def test_a_backward_operator_has_a_form_for_everything_it_may_read():
    problem = problem_of(activated().profile())
    from_output, from_mask = problem.backward[1].forms
    assert (from_output.reads, from_mask.reads) == ((1,), (2,))
    # In place of the gradient, whose last use this is: the workspace is that much below zero.
    assert from_output.options == (Option("in place", 2.0, -100),)
    assert from_mask.options == (Option("other 0", 4.0, 0),)


@pytest.mark.parametrize(
    ("optimizations", "algorithms", "over", "forms"),
    [
        ((), 1, False, 1),
        ((Optimization.CONVOLUTION,), 2, False, 1),
        ((Optimization.INPLACE,), 1, True, 1),
        ((Optimization.OUTPUT,), 1, False, 1),
        ((Optimization.INTERMEDIATE,), 1, False, 2),
    ],
)
def test_optimizations_are_asked_for_by_name(
    optimizations: tuple[Optimization, ...],
    algorithms: int,
    over: bool,  # noqa: FBT001
    forms: int,
):
    problem = problem_of(activated().profile(), optimizations=optimizations)
    assert len(problem.forward[0].first[0].options) == algorithms
    assert any(x.overwrites is not None for x in problem.forward[1].first[0].options) == over
    assert len(problem.backward[1].forms) == forms
    assert bool(problem.forward[2].first) == (forms == 2)


def test_decoding_takes_the_quickest_option_that_fits():
    profile = activated().profile()
    problem = problem_of(profile)
    order = [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]

    def runs(budget_bytes: int | None) -> list[str]:
        schedule = schedule_of(problem, order, method="test", budget_bytes=budget_bytes)
        return [step.implementation for step in schedule.steps if isinstance(step, Run)]

    # Nobody reads the mask, so it is not made; what the function reads is of no more use, so it runs in place.
    assert runs(None) == ["default", "in place", "default", "in place"]
    assert runs(problem.fixed_bytes + 100 + 59) == ["algorithm 0", "in place", "default", "in place"]


def test_decoding_runs_again_what_was_asked_where_it_was_asked():
    profile = chain(3)
    problem = problem_of(profile)
    order = [(x.id, 0) for x in profile.graph.operators]
    at = len(problem.forward) + 2
    schedule = schedule_of(problem, [*order[:at], (0, 0), (1, 0), *order[at:]], method="test", budget_bytes=7)
    assert schedule.recomputed(profile.graph) == {0: 1, 1: 1}
    assert simulate(profile, schedule).time_ms == problem.base_time_ms + 2.0
    assert (schedule.method, schedule.budget_bytes) == ("test", 7)


@given(profiles(), st.integers(0, 100))
def test_reading_a_schedule_and_decoding_it_again_changes_nothing(profile: Profile, seed: int):
    problem = problem_of(profile)
    schedule = random_schedule(profile.graph, seed, keep=0.5)
    read = reading_of(problem, schedule)
    assert read is not None
    order = [(x.operator, x.form) for x in read.first]
    for interval in read.intervals:
        assert interval.backward is not None
        order += [(x.operator, x.form) for x in interval.recomputations]
        order.append((len(problem.forward) + interval.backward.operator, interval.backward.form))
    again = schedule_of(problem, order, method=schedule.method, budget_bytes=schedule.budget_bytes)
    assert again == schedule
    assert all(problem.activations[x].producer < len(problem.forward) for x in read.after_forward)


@pytest.mark.parametrize("name", ["mobilenet_v2-p100-16gb", "resnet50-a100-80gb"])
def test_a_convolutions_backward_runs_in_halves_only_where_that_takes_no_more_memory(name: str):
    profile = load_profile(name)
    problem = problem_of(profile)
    halved = 0
    for half, way in zip(profile.graph.backward, problem.backward, strict=True):
        if half.optional and way.forms:
            written = set(half.default().writes)
            whole = next(x for x in profile.graph.backward if written & set(x.default().writes))
            alone = [profile.workspace_bytes(x) for x in whole.implementations if written & set(x.writes)]
            assert min(x.workspace_bytes for form in way.forms for x in form.options) <= min(alone)
            halved += 1
    assert halved


def test_without_the_operator_that_makes_masks_nothing_reads_them():
    profile = activated().profile()
    problem = problem_of(profile, optimizations=(Optimization.OUTPUT,))
    (form,) = problem.backward[1].forms
    assert form.reads == (1,)
    assert problem.forward[2].first == ()
