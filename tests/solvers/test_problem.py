from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import Category, simulate
from explorer.solvers.problem import CheckpointProblem
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


def test_sizes_are_as_the_allocator_takes_them():
    problem = CheckpointProblem.of(small().profile())
    assert [x.bytes for x in problem.activations] == [16, 8, 8]
    assert [x.held for x in problem.activations] == [False, False, True]
    assert problem.held_bytes == 8
    assert problem.fixed_bytes == 40 + 64


def test_a_recomputation_has_its_own_reads_writes_and_costs():
    dropout, loss = CheckpointProblem.of(small().profile()).forward
    assert dropout.first.writes == (0, 1)
    assert dropout.again is not None
    assert (dropout.again.reads, dropout.again.writes) == ((1,), (0,))
    assert (dropout.again.time_ms, dropout.again.workspace_bytes) == (2.0, 8)
    assert loss.again is None


def test_gradients_are_freed_after_their_last_use_and_those_of_parameters_stay():
    boundary, first, last = CheckpointProblem.of(small().profile()).backward
    assert (boundary.idle_bytes, boundary.busy_bytes) == (0, 8)
    assert first.idle_bytes == 8
    assert first.busy_bytes == 8 + 24 + 8 + 8
    assert last.idle_bytes == 24 + 8
    assert last.busy_bytes == 24 + 8 + 8
    assert (first.needs, last.needs) == ((2, 0), (1,))


@given(profiles())
def test_gradient_memory_is_the_simulators(profile: Profile):
    problem = CheckpointProblem.of(profile)
    line = simulate(profile, keep_all(profile.graph))
    gradients = [
        list(Category).index(x)
        for x in (Category.ACTIVATION_GRADIENTS, Category.PARAMETER_GRADIENTS, Category.WORKSPACE)
    ]
    busy = line.bytes[profile.graph.forward_count :, gradients].sum(axis=1)
    assert [x.busy_bytes for x in problem.backward] == busy.tolist()
    assert problem.base_time_ms == line.time_ms


def test_decoding_runs_again_what_was_asked_where_it_was_asked():
    profile = chain(3)
    problem = CheckpointProblem.of(profile)
    schedule = problem.schedule_of({2: [0, 1]}, method="test", budget_bytes=7)
    assert schedule.recomputed(profile.graph) == {0: 1, 1: 1}
    assert simulate(profile, schedule).time_ms == problem.base_time_ms + 2.0
    assert (schedule.method, schedule.budget_bytes) == ("test", 7)


@given(profiles(), st.integers(0, 100))
def test_reading_a_schedule_and_decoding_it_again_changes_nothing(profile: Profile, seed: int):
    problem = CheckpointProblem.of(profile)
    schedule = random_schedule(profile.graph, seed, keep=0.5)
    read = problem.intervals_of(schedule)
    assert read is not None
    kept, intervals = read
    made_again = {t: interval.recomputations for t, interval in enumerate(intervals)}
    again = problem.schedule_of(made_again, method=schedule.method, budget_bytes=schedule.budget_bytes)
    assert again == schedule
    assert all(problem.activations[x].producer < len(problem.forward) for x in kept)
