"""Accumulation and updates: planned for, predicted to the byte, and the same bits as eager mode's."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.nn import functional

import explorer
from explorer.analysis.tracing import chrome_trace
from explorer.capture.batch import TrainingStep
from explorer.capture.results import tensors_of_result
from explorer.execution.iterating import Iterating
from explorer.iteration import STEP_ALONE, Iteration
from explorer.rearranging import UPDATE, in_iteration
from explorer.simulation import profile_for
from explorer.timeline import Stage
from tests.execution.models import Sample, branches, graph_of, shared, tied_attention
from tests.schedules import random_schedule

OPTIMIZERS = ["momentum", "adamw-foreach", "adamw-plain"]
ITERATIONS = [
    {"update": "end", "accumulate": False},
    {"update": "end", "accumulate": True},
    {"update": "within", "accumulate": False},
]


def perceptron() -> Sample:
    """Most of whose memory is parameters, so that the update sets the peak."""
    torch.manual_seed(0)
    model = nn.Sequential(*(x for _ in range(4) for x in (nn.Linear(48, 48), nn.ReLU())))
    return model.train(), (torch.randn(3, 48), torch.randn(3, 48)), functional.mse_loss


MODELS = [branches, perceptron, shared, tied_attention]


@pytest.mark.sampled(6)
@pytest.mark.thorough("branches", "shared", "tied_attention-momentum", "tied_attention-adamw-plain")
@pytest.mark.parametrize("iteration", ITERATIONS, ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("make", MODELS)
def test_every_run_takes_what_was_predicted(make: Callable[[], Sample], name: str, iteration: dict[str, Any]) -> None:
    model, batch, loss = make()
    profile = explorer.profile(model, batch, loss=loss, optimizer=name, **iteration)
    for schedule in (explorer.keep_all(profile.graph), random_schedule(profile.graph, 1, keep=0.4)):
        module = explorer.apply(model, schedule, batch, loss=loss, check=False)
        predicted = explorer.simulate(profile, schedule)
        runs = explorer.measure_runs(module, batch, optimizer=name)
        assert [x.peak_bytes for x in runs] == predicted.total_bytes.tolist()
        measured = explorer.measure(module, batch, steps=1, optimizer=name, accumulate=iteration["accumulate"])
        assert measured.peak_bytes == predicted.peak_bytes
        if iteration["accumulate"]:
            first = explorer.simulate(profile, schedule, first_microbatch=True)
            assert explorer.measure(module, batch, steps=1, optimizer=name).peak_bytes == first.peak_bytes
            assert first.peak_bytes <= predicted.peak_bytes


@pytest.mark.thorough("branches", "shared", "momentum", "tied_attention-adamw-foreach")
@pytest.mark.parametrize("iteration", ITERATIONS, ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("make", MODELS)
def test_three_iterations_are_eager_modes(make: Callable[[], Sample], name: str, iteration: dict[str, Any]) -> None:
    """Of two microbatches each where gradients are accumulated."""
    model, batch, loss = make()
    profile = explorer.profile(model, batch, loss=loss, optimizer=name, **iteration)
    eager = copy.deepcopy(model)
    module = explorer.apply(model, random_schedule(profile.graph, 2, keep=0.4), batch, loss=loss, check=False)
    optimizers = [optimizer_of(name, x) for x in (module, eager)]
    if iteration["update"] == "within":
        explorer.update_within(module, optimizers[0])
    for number in range(3):
        for step, optimizer in zip((module, eager), optimizers, strict=True):
            for microbatch in range(1 + iteration["accumulate"]):
                torch.manual_seed(10 * number + microbatch)
                loss_of(step, batch, loss, scheduled=step is module).backward()
            optimizer.step()
            optimizer.zero_grad()
    for (path, mine), theirs in zip(module.named_parameters(), eager.parameters(), strict=True):
        assert torch.equal(mine, theirs), path


def optimizer_of(name: str, model: nn.Module) -> optim.Optimizer:
    trained = [x for x in model.parameters() if x.requires_grad]
    if name == "momentum":
        return optim.SGD(trained, lr=0.01, momentum=0.9)
    return optim.AdamW(trained, lr=0.01, foreach=name.endswith("foreach"), fused=False)


def loss_of(step: nn.Module, batch: Any, loss: Any, *, scheduled: bool) -> torch.Tensor:
    if isinstance(batch, dict):
        return step(**batch)["loss"]
    if loss is None:
        return sum((x.mean() for x in tensors_of_result(step(batch))), torch.zeros(()))
    return step(*batch) if scheduled else loss(step(batch[0]), batch[1])


def test_one_budget_holds_for_the_whole_iteration() -> None:
    """A small budget is what the update takes; the timeline names it."""
    model, batch, loss = perceptron()
    profile = explorer.profile(model, batch, loss=loss, optimizer="adamw-foreach")
    timeline = explorer.simulate(profile, explorer.keep_all(profile.graph))
    assert timeline.stages[-1] is Stage.UPDATE
    assert timeline.peak_run == len(timeline.stages) - 1
    smallest = explorer.smallest_budget(profile)
    assert smallest.minimum is not None
    assert smallest.minimum.budget_bytes == timeline.peak_bytes
    within = explorer.profile(model, batch, loss=loss, optimizer="adamw-foreach", update="within")
    saved = explorer.simulate(within, explorer.keep_all(within.graph)).peak_bytes
    assert saved < 0.8 * timeline.peak_bytes


def test_the_very_optimizer_is_planned_for() -> None:
    """Its groups have options of their own, and a frozen parameter takes no part."""
    model, batch, _ = shared()
    groups = [{"params": [model.layer.weight], "weight_decay": 0.1}, {"params": [model.layer.bias]}]
    optimizer = optim.AdamW(groups, lr=0.01, amsgrad=True)
    profile = explorer.profile(model, batch, optimizer=optimizer)
    assert profile.optimizer == "AdamW(amsgrad=True)"
    assert not optimizer.state
    module = explorer.apply(model, explorer.keep_all(profile.graph), batch)
    predicted = explorer.simulate(profile, explorer.keep_all(profile.graph))
    assert explorer.measure(module, batch, steps=1, optimizer=optimizer).peak_bytes == predicted.peak_bytes
    module(batch)[0].sum().backward()
    optimizer.step()


def test_another_optimizer_than_planned_for_is_refused_before_any_gradient() -> None:
    model, batch, _ = shared()
    profile = explorer.profile(model, batch, optimizer="adamw")
    module = explorer.apply(model, explorer.keep_all(profile.graph), batch)
    other = optim.SGD([x for x in model.parameters() if x.requires_grad], lr=0.1)
    with pytest.raises(ValueError, match=r"SGD trains this model, and its schedule was made for AdamW.*solve again"):
        module(batch)
    del other
    assert all(x.grad is None for x in model.parameters())


def planned_within() -> tuple[explorer.ScheduledModule, torch.Tensor]:
    model, batch, _ = shared()
    profile = explorer.profile(model, batch, optimizer="sgd", update="within")
    return explorer.apply(model, explorer.keep_all(profile.graph), batch), batch


def test_other_optimizers_beside_the_one_planned_for_do_no_harm() -> None:
    model, batch, _ = shared()
    profile = explorer.profile(model, batch, optimizer="adamw")
    module = explorer.apply(model, explorer.keep_all(profile.graph), batch)
    trained = [x for x in model.parameters() if x.requires_grad]
    planned, left_over = optim.AdamW(trained), optim.SGD(trained)
    module(batch)[0].sum().backward()
    assert planned.defaults is not left_over.defaults


def test_parameters_that_nothing_updates_keep_their_gradients() -> None:
    model, batch, _ = shared()
    optimizer = optim.SGD([model.layer.weight], lr=0.1)
    with pytest.raises(ValueError, match="leaves out 1 parameters that get gradients"):
        explorer.profile(model, batch, optimizer=optimizer, update="within")
    profile = explorer.profile(model, batch, optimizer=optimizer)
    module = explorer.apply(model, explorer.keep_all(profile.graph), batch)
    predicted = explorer.simulate(profile, explorer.keep_all(profile.graph))
    assert explorer.measure(module, batch, steps=1, optimizer=optimizer).peak_bytes == predicted.peak_bytes


def test_updates_that_nobody_sees_to_are_refused() -> None:
    module, batch = planned_within()
    with pytest.raises(ValueError, match=r"explorer.update_within\(module, optimizer\) first"):
        module(batch)
    optimizer = optim.SGD([x for x in module.parameters() if x.requires_grad], lr=0.1)
    updates = explorer.update_within(module, optimizer)
    module(batch)[0].sum().backward()
    updates.remove()
    with pytest.raises(ValueError, match=r"explorer.update_within\(module, optimizer\) first"):
        module(batch)


def test_what_needs_all_gradients_is_refused_with_updates_within() -> None:
    module, batch = planned_within()
    trained = [x for x in module.parameters() if x.requires_grad]
    before = [x.detach().clone() for x in trained]
    with pytest.raises(ValueError, match=r"planned for updates by SGD, not by Adam"):
        explorer.update_within(module, optim.Adam(trained))
    with pytest.raises(ValueError, match="the step of LBFGS runs the model again"):
        explorer.update_within(module, optim.LBFGS(trained))
    explorer.update_within(module, optim.SGD(trained, lr=0.1))
    scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(ValueError, match="GradScaler"):
        module(batch)
    del scaler
    assert all(torch.equal(x, y) for x, y in zip(trained, before, strict=True))


def test_a_scaled_loss_is_refused_with_updates_within() -> None:
    model, batch, loss = perceptron()
    profile = explorer.profile(model, batch, loss=loss, optimizer="sgd", update="within")
    module = explorer.apply(model, explorer.keep_all(profile.graph), batch, loss=loss)
    explorer.update_within(module, optim.SGD(module.parameters(), lr=0.1))
    module(*batch).backward()  # in a later step, too
    before = [x.detach().clone() for x in module.parameters()]
    with pytest.raises(RuntimeError, match=r"scaled by 0.5.*profile\(…, update='end'\)"):
        (0.5 * module(*batch)).backward()
    assert all(torch.equal(x, y) for x, y in zip(module.parameters(), before, strict=True))


def test_summed_gradients_are_refused_with_updates_within() -> None:
    model, batch, loss = perceptron()
    profile = explorer.profile(model, batch, loss=loss, optimizer="sgd", update="within")
    module = explorer.apply(model, explorer.keep_all(profile.graph), batch, loss=loss)
    optimizer = optim.SGD(module.parameters(), lr=0.1)
    updates = explorer.update_within(module, optimizer)
    for _ in range(3):  # a loop that leaves the step out
        module(*batch).backward()
    with pytest.raises(RuntimeError, match="several backward passes come before one"):
        optimizer.step()
    for _ in range(2):
        module(*batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    module(*batch).backward()
    before = [x.detach().clone() for x in module.parameters()]
    with pytest.raises(RuntimeError, match=r"profile\(…, accumulate=True\)"):
        module(*batch).backward()
    assert all(torch.equal(x, y) for x, y in zip(module.parameters(), before, strict=True))
    optimizer.zero_grad()
    updates.remove()
    optimizer.step()


@pytest.mark.parametrize("planned", [True, False], ids=["scheduled", "plain"])
def test_gradients_that_are_used_are_not_passed_over(planned: bool) -> None:  # noqa: FBT001 - a parameter
    """Clipping by their norm would find none, report 0 and clip nothing."""
    model, batch, loss = perceptron()
    module: Any = model
    if planned:
        profile = explorer.profile(model, batch, loss=loss, optimizer="sgd", update="within")
        module = explorer.apply(model, explorer.keep_all(profile.graph), batch, loss=loss)
    optimizer = optim.SGD(module.parameters(), lr=0.1)
    updates = explorer.update_within(module, optimizer)

    def loss_of() -> torch.Tensor:
        return module(*batch) if planned else loss(model(batch[0]), batch[1])

    for set_to_none in (True, False):
        loss_of().backward()
        with pytest.raises(RuntimeError, match=r"clipping by their norm.*update='end'"):
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        with pytest.raises(RuntimeError, match="it is gone"):
            sum(x.grad.norm() for x in module.parameters() if x.grad is not None)
        assert "UsedGradient" in repr(next(module.parameters()).grad)
        optimizer.zero_grad(set_to_none=set_to_none)
        before = [x.detach().clone() for x in module.parameters()]
        optimizer.step()
        assert all(torch.equal(x, y) for x, y in zip(module.parameters(), before, strict=True))
        assert all(x.grad is None for x in module.parameters())
    loss_of().backward()
    updates.remove()
    assert all(x.grad is None for x in module.parameters())
    if not planned:
        loss_of().backward()
        assert nn.utils.clip_grad_norm_(module.parameters(), 1.0) > 0


def test_planned_accumulation_is_no_surprise() -> None:
    model, batch, loss = branches()
    profile = explorer.profile(model, batch, loss=loss, accumulate=True)
    module = explorer.apply(model, explorer.keep_all(profile.graph), batch, loss=loss)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            module(*batch).backward()


def test_schedules_say_what_they_are_for(tmp_path: Any) -> None:
    model, batch, loss = perceptron()
    profile = explorer.profile(model, batch, loss=loss, optimizer="adamw", accumulate=True)
    schedule = explorer.keep_all(profile.graph)
    schedule.save(tmp_path / "schedule.json")
    profile.save(tmp_path / "profile.json")
    again = explorer.load_schedule(tmp_path / "schedule.json")
    assert again == schedule
    assert again.identity.iteration == Iteration(accumulate=True, optimizer="AdamW")
    assert explorer.load_profile(tmp_path / "profile.json") == profile
    explorer.apply(model, again, batch, loss=loss)
    alone = explorer.profile(model, batch, loss=loss)
    with pytest.raises(ValueError, match="the iteration differs: accumulating, updated by AdamW at the end here"):
        explorer.simulate(alone, schedule)


def test_a_graph_and_back() -> None:
    graph = graph_of(branches)
    for iteration in (Iteration(accumulate=True), Iteration(optimizer="X"), Iteration(optimizer="X", within=True)):
        there = in_iteration(graph, iteration)
        assert there.iteration == iteration
        assert in_iteration(there, STEP_ALONE) == graph
    old = copy.copy(graph)
    object.__setattr__(old, "gradients", ())
    with pytest.raises(ValueError, match="does not say which gradient is whose"):
        in_iteration(old, Iteration(accumulate=True))


@pytest.mark.parametrize("name", ["sgd", "momentum", "adamw", "adamw-fused", "adamw-plain", "adagrad-fused", "rmsprop"])
def test_estimates_know_updates(name: str) -> None:
    """As CUDA's allocator rounds them: a fused step has no temporaries, one over lists has those of the whole model."""
    model, batch, loss = perceptron()
    profile = explorer.estimate(model, batch, loss=loss, device="A100-80GB", optimizer=name)
    cost = profile.costs[UPDATE]
    assert cost.time_ms > 0
    parameters_bytes = sum(-(-x.nbytes // 512) * 512 for x in model.parameters())
    moments = {"sgd": 0, "momentum": 1, "rmsprop": 1, "adagrad-fused": 1}.get(name, 2)
    counters = 512 * len(list(model.parameters())) if name.endswith("fused") else 0
    assert profile.optimizer_state_bytes == moments * parameters_bytes + counters
    # Two of the largest parameter's size, and one of the parameter before it, which Python still holds.
    one_by_one = 2 * max(x.nbytes for x in model.parameters()) + 512
    expected = {"adamw": parameters_bytes, "adamw-plain": one_by_one, "rmsprop": parameters_bytes}
    assert cost.workspace_bytes == expected.get(name, 0)


def test_an_optimizer_for_cuda_graphs_is_estimated() -> None:
    """With its counters of steps on the device; a CPU, on which it cannot train, is refused in a sentence."""
    model, batch, loss = perceptron()
    profile = explorer.estimate(
        model, batch, loss=loss, device="T4", optimizer=lambda x: optim.AdamW(x, capturable=True)
    )
    parameters = list(model.parameters())
    rounded = sum(-(-x.nbytes // 512) * 512 for x in parameters)
    assert profile.optimizer_state_bytes == 2 * rounded + 512 * len(parameters)
    with pytest.raises(ValueError, match=r"AdamW\(capturable=True\) cannot update these parameters: .*devices"):
        explorer.profile(model, batch, loss=loss, optimizer=lambda x: optim.AdamW(x, capturable=True))


def test_an_optimizer_whose_step_runs_the_model_is_refused() -> None:
    model, batch, loss = perceptron()
    for optimizer in (optim.LBFGS, optim.LBFGS(model.parameters())):
        with pytest.raises(ValueError, match="the step of LBFGS runs the model again"):
            explorer.estimate(model, batch, loss=loss, device="T4", optimizer=optimizer)


def test_an_optimizer_that_looks_at_values_has_to_be_profiled() -> None:
    model, batch, loss = perceptron()
    with pytest.raises(ValueError, match=r"Adafactor looks at the values of tensors.*profile it on the device"):
        explorer.estimate(model, batch, loss=loss, device="T4", optimizer=optim.Adafactor)
    assert explorer.profile(model, batch, loss=loss, optimizer=optim.Adafactor).optimizer == "Adafactor"


def test_measuring_an_iteration_changes_nothing() -> None:
    model, batch, loss = perceptron()
    before = [x.detach().clone() for x in model.parameters()]
    explorer.measure(model, batch, loss=loss, optimizer="adamw", accumulate=True)
    assert all(torch.equal(x, y) for x, y in zip(model.parameters(), before, strict=True))
    assert all(x.grad is None for x in model.parameters())
    assert Iterating(model, optimizer="adamw").updates


@pytest.mark.thorough
def test_when_to_update_is_a_decision() -> None:
    """At the end where memory allows, for that is quicker here; within the backward pass where it does not."""
    model, batch, loss = perceptron()
    profile = explorer.profile(model, batch, loss=loss, optimizer="adamw-foreach")
    costs = {x: replace(y, time_ms=1.0) for x, y in profile.costs.items()}
    profile = replace(profile, costs=costs)
    peak_bytes = explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    ample, scarce = (explorer.solve(profile, budget=int(x * peak_bytes), steps=2, update="best") for x in (1.0, 0.8))
    for solution, within in ((ample, False), (scarce, True)):
        assert solution.schedule is not None
        assert solution.schedule.identity.iteration == Iteration(optimizer="AdamW(foreach=True)", within=within)
        assert explorer.simulate(profile, solution.schedule).peak_bytes <= solution.budget_bytes
    assert explorer.solve(profile, budget=int(0.8 * peak_bytes), steps=2, update="end").schedule is None
    assert scarce.schedule is not None
    module = explorer.apply(model, scarce.schedule, batch, loss=loss)
    measured = explorer.measure(module, batch, steps=1, optimizer="adamw-foreach")
    assert measured.peak_bytes == scarce.peak_bytes
    nothing = explorer.solve(profile, budget=1000, steps=1, update="best")
    assert nothing.schedule is None
    share = explorer.solve(profile, budget="80 %", steps=2, update="best")
    assert share.budget_bytes == int(0.8 * peak_bytes)  # of one step, though the other has a smaller peak
    assert share.schedule is not None
    within = explorer.profile(model, batch, loss=loss, optimizer="adamw-foreach", update="within")
    assert explorer.solve(within, budget="100 %", steps=1, update="end").schedule is not None


def test_a_profile_tells_of_schedules_with_other_updates() -> None:
    """What is planned within the backward pass, by a profile that has its updates at the end."""
    model, batch, loss = perceptron()
    profile = explorer.profile(model, batch, loss=loss, optimizer="adamw")
    within = explorer.solve(profile, budget="100 %", steps=1, update="within")
    assert within.schedule is not None
    optimizer = optim.AdamW(model.parameters())
    module = explorer.apply(model, within.schedule, batch, loss=loss)
    explorer.update_within(module, optimizer)
    line = explorer.simulate(profile, within.schedule)
    own = profile_for(within.schedule, profile=profile)
    assert explorer.explain_all(profile, within.schedule) == explorer.explain_all(own, within.schedule)
    runs = explorer.measure_runs(module, batch, optimizer=optimizer)
    assert len(explorer.residual_by_run(profile, within.schedule, runs)) == len(line.operators)
    assert chrome_trace(own, line)["traceEvents"]
    with pytest.raises(ValueError, match="the timeline is of another graph than the profile's"):
        chrome_trace(profile, line)


class Wrapping(optim.Optimizer):
    """As trainers have them: around another one, which was made already."""

    def __init__(self, optimizer: optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.param_groups, self.state, self.defaults = optimizer.param_groups, optimizer.state, optimizer.defaults

    def step(self) -> None:
        self.optimizer.step()


def test_an_optimizer_around_another_one_is_that_one() -> None:
    model, batch, loss = perceptron()
    inner = optim.AdamW(model.parameters(), lr=0.1)
    profile = explorer.profile(model, batch, loss=loss, optimizer=Wrapping(inner), update="within")
    assert profile.optimizer == "AdamW"
    module = explorer.apply(model, explorer.keep_all(profile.graph), batch, loss=loss)
    explorer.update_within(module, Wrapping(inner))
    before = [x.detach().clone() for x in module.parameters()]
    module(*batch).backward()
    assert not any(torch.equal(x, y) for x, y in zip(module.parameters(), before, strict=True))


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("iterations", [0, 1])
def test_training_goes_on_after_a_backward_pass_that_failed_half_way(*, planned: bool, iterations: int) -> None:
    """As a loop does that catches out-of-memory errors, forgets the gradients and takes the next batch."""
    model, batch, loss = perceptron()
    module: nn.Module = TrainingStep(model, loss)
    if planned:
        profile = explorer.profile(model, batch, loss=loss, optimizer="sgd", update="within")
        module = explorer.apply(model, explorer.keep_all(profile.graph), batch, loss=loss)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    explorer.update_within(model if not planned else module, optimizer)

    def iteration() -> None:
        module(*batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(iterations):
        iteration()
    weight = next(iter(model.parameters()))
    failing = [True]

    def fail(gradient: torch.Tensor) -> torch.Tensor:
        if failing.pop():
            raise MemoryError("no room")
        return gradient

    handle = weight.register_post_accumulate_grad_hook(lambda x: fail(x) and None)
    with pytest.raises(MemoryError, match="no room"):
        iteration()
    optimizer.zero_grad()
    handle.remove()
    with pytest.warns(UserWarning, match=r"failed after \d of 8 parameters had been updated"):
        iteration()
    for _ in range(3):
        iteration()
    module(*batch).backward()
    with pytest.raises(RuntimeError, match="several backward passes come before one"):
        module(*batch).backward()
