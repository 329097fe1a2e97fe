"""Plans for compiled steps: figures, the method, what is told to the partitioner, and what is refused."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.compiling.choosing import tagged
from explorer.compiling.kernels import kernels_of
from explorer.compiling.partitioning import Partitioner
from explorer.compiling.profiling import Traced, traced_of
from explorer.compiling.running import rehearsed_peak_bytes
from explorer.device_profile import Cost, Device, Profile
from explorer.saved_results import CompiledStep, saved_by
from explorer.schedule import Free, Run, Schedule
from explorer.simulation import simulate
from explorer.solution import Status
from explorer.units import format_bytes

BATCH = torch.randn(64, 32), torch.randn(64, 32)


def perceptron(layers: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(x for _ in range(layers) for x in (nn.Linear(32, 32), nn.GELU())))


@pytest.fixture(scope="module")
def traced() -> Traced:
    return traced_of(perceptron(), BATCH, loss=F.mse_loss)


@pytest.fixture(scope="module")
def profile(traced: Traced) -> Profile:
    """Times that any machine agrees on: what goes through memory, and products ten times as much."""
    costs = {
        key: Cost(x.traffic_bytes * (10 if x.kernel.outside else 1) / 1e6, 0) for key, x in traced.built.work.items()
    }
    return Profile(traced.built.graph, costs, Device("test", "cpu", "none"))


def test_what_a_loop_has_inside_is_never_in_memory(traced: Traced) -> None:
    forward, _ = traced.joint.divided(ratio=1.0)
    kernels = [x for x in kernels_of(forward) if not x.outside]
    gelu = next(x for x in kernels if any("erf" in y.name for y in x.nodes))
    assert len(gelu.nodes) >= 5
    assert len(gelu.writes) == 1
    assert gelu.traffic_bytes == 2 * 64 * 32 * 4


def test_choices_are_judged_as_the_simulator_judges_their_schedules(profile: Profile) -> None:
    step = CompiledStep(profile)
    for saved in (frozenset(), frozenset(step.choices), frozenset(step.choices[::2]), frozenset(step.choices[1::3])):
        figures, schedule = step.judge(saved), step.schedule(saved, method="test")
        line = simulate(profile, schedule)
        assert (figures.peak_bytes, figures.time_ms) == (line.peak_bytes, pytest.approx(line.time_ms))
        assert saved & step.read <= saved_by(profile.graph, schedule)


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    layers = [x for _ in range(3) for x in (nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU())]
    return nn.Sequential(nn.Unflatten(1, (2, 4, 4)), *layers, nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 32))


def rectified() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(x for _ in range(6) for x in (nn.Linear(32, 32), nn.ReLU())))


@pytest.mark.parametrize("made", [convolutions, rectified])
def test_whatever_is_saved_is_judged_as_the_simulator_does(made: Callable[[], nn.Module]) -> None:
    built = traced_of(made(), BATCH, loss=F.mse_loss).built
    costs = {key: Cost(x.traffic_bytes / 1e6, 0) for key, x in built.work.items()}
    step = CompiledStep(Profile(built.graph, costs, Device("test", "cpu", "none")))
    chance = random.Random(0)
    for _ in range(200):
        saved = frozenset(x for x in step.choices if chance.random() < 0.5)
        figures, line = step.judge(saved), simulate(step.profile, step.schedule(saved, method="test"))
        assert (figures.peak_bytes, figures.time_ms) == (line.peak_bytes, pytest.approx(line.time_ms))


def test_the_method_finds_the_best_of_all_choices(profile: Profile) -> None:
    step = CompiledStep(profile)
    choices = [x for x in step.choices if x in step.read]
    every = [step.judge(frozenset(x)) for count in range(len(choices) + 1) for x in combinations(choices, count)]
    peaks = sorted({x.peak_bytes for x in every})
    for budget_bytes in (peaks[0], peaks[len(peaks) // 2], peaks[-1]):
        solution = explorer.solve(profile, budget=budget_bytes, method="monet-compiled", time_limit=1.0)
        best = min(x.time_ms for x in every if x.peak_bytes <= budget_bytes)
        assert solution.status is Status.FEASIBLE
        assert solution.time_ms is not None
        assert solution.time_ms <= best * 1.0001
    less = explorer.solve(profile, budget=peaks[0] // 2, method="monet-compiled", time_limit=0.2)
    assert less.status is Status.INFEASIBLE


def test_the_smallest_budget_is_one_that_the_compiler_can_be_told(profile: Profile) -> None:
    step = CompiledStep(profile)
    choices = [x for x in step.choices if x in step.read]
    every = (frozenset(y) for n in range(len(choices) + 1) for y in combinations(choices, n))
    found = explorer.smallest_budget(profile, time_limit=1.0)
    assert found.schedule is not None
    assert found.schedule.method == "monet-compiled"
    assert found.peak_bytes == found.budget_bytes == min(step.judge(x).peak_bytes for x in every)


def test_other_profiles_are_not_for_the_method() -> None:
    profile = explorer.load_profile("resnet50-small-cpu")
    solution = explorer.solve(profile, budget="80 %", method="monet-compiled", time_limit=0.2)
    assert solution.status is Status.UNSUITED
    assert "profile_compiled" in solution.message


def test_other_choices_are_other_entries_of_the_compiler_s_caches(traced: Traced) -> None:
    graph, step = traced.built.graph, [x for x in traced.built.graph.storages if "addmm" in x.name]
    one, other = (tagged(traced, {x.name for x in some}) for some in (step[:1], step[1:2]))
    assert graph.compiled
    assert Partitioner(one).uuid() != Partitioner(other).uuid()
    assert Partitioner(one).uuid() == Partitioner(tagged(traced, {step[0].name})).uuid()


@pytest.mark.thorough
def test_a_rehearsal_takes_the_bytes_that_are_predicted_but_for_some(traced: Traced, profile: Profile) -> None:
    del traced
    made = explorer.compiled(perceptron(), simple(profile), BATCH, loss=F.mse_loss)
    peak_bytes = rehearsed_peak_bytes(made.module, BATCH)
    assert made.predicted_peak_bytes == pytest.approx(peak_bytes, rel=0.05)


def test_other_batches_are_refused_before_anything_is_compiled(profile: Profile) -> None:
    made = explorer.compiled(perceptron(), simple(profile), BATCH, loss=F.mse_loss)
    with pytest.raises(ValueError, match=r"batch\[0\] has shape \(8, 32\); the schedule was made for \(64, 32\)"):
        made(BATCH[0][:8], BATCH[1][:8])


def simple(profile: Profile) -> Schedule:
    step = CompiledStep(profile)
    return step.schedule(frozenset(step.choices[::2]), method="test")


def test_a_file_has_the_choice_and_needs_torch_alone(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "compiled.py"
    explorer.export(perceptron(), simple(profile), BATCH, loss=F.mse_loss, form="compile", path=path)
    text = path.read_text()
    assert "explorer" not in text
    assert f"torch {torch.__version__}" in text
    program = "import sys; sys.path.insert(0, sys.argv[1]); import compiled; print(len(compiled.CHOICE.saved))"
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(found.stdout) > 0


@pytest.mark.thorough
def test_a_file_s_step_has_eager_mode_s_gradients(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "compiled.py"
    explorer.export(perceptron(), simple(profile), BATCH, loss=F.mse_loss, form="compile", path=path)
    model, there = perceptron(), tmp_path / "there.pt"
    F.mse_loss(model(BATCH[0]), BATCH[1]).backward()
    torch.save((model, BATCH, [x.grad for x in model.parameters()]), there)
    program = """
import sys; sys.path.insert(0, sys.argv[1])
import torch, compiled
model, (x, y), wanted = torch.load(sys.argv[2], weights_only=False)
model.zero_grad()
step = compiled.scheduled(model, torch.nn.functional.mse_loss)
step(x, y).backward()
for parameter, gradient in zip(model.parameters(), wanted):
    torch.testing.assert_close(parameter.grad, gradient)
try:
    step(x[:8], y[:8])
except ValueError as error:
    print(error)
"""
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path), str(there)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "planned for an input float32[64, 32], and this one is float32[8, 32]" in found.stdout


def test_without_a_compiler_that_is_what_is_said(tmp_path: Path) -> None:
    """And not what may be wrong with model or batch."""
    program = """
import torch, explorer
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
try:
    explorer.compiled_within(model, torch.randn(4, 8), budget="90 %")
except ValueError as error:
    print(error)
"""
    nowhere = os.environ | {"PATH": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    nowhere.pop("CXX", None)
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True, env=nowhere
    )
    assert "PyTorch's compiler does not work here" in found.stdout
    assert "use explorer.apply, which needs no compiler" in found.stdout
    assert "batch" not in found.stdout


def test_a_schedule_of_plain_operators_keeps_what_it_keeps(profile: Profile) -> None:
    model = perceptron()
    plain = explorer.profile(model, BATCH, loss=F.mse_loss)
    solution = explorer.solve(plain, budget="85 %", method="monet-checkpointing", time_limit=1.0)
    assert solution.schedule is not None
    made = explorer.compiled(model, solution.schedule, BATCH, loss=F.mse_loss)
    assert made.schedule.identity.compiled
    assert made.saved
    simulate(profile, made.schedule)
    with pytest.raises(ValueError, match="one step is compiled and the other is not"):
        explorer.apply(model, made.schedule, BATCH, loss=F.mse_loss)


def test_bit_masks_are_refused_with_what_can_run_them() -> None:
    torch.manual_seed(0)
    parts = (x for _ in range(3) for x in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)))
    model = nn.Sequential(*parts, nn.Flatten())
    batch = torch.randn(4, 4, 16, 16), torch.randn(4, 16)
    profile = explorer.profile(model, batch, loss=F.mse_loss)
    optional = [x for x in profile.graph.forward if x.optional]
    schedule = explorer.keep_all(profile.graph)
    mask = next(x for x in optional if "relu" in x.name or "mask" in x.target)
    runs = list(schedule.steps)
    at = next(n for n, x in enumerate(runs) if isinstance(x, Run) and x.operator > mask.id)
    runs[at:at] = [Run(mask.id, mask.default().name)]
    runs += [Free(x) for x in mask.default().writes]
    with pytest.raises(ValueError, match=r"bit masks or encodings.*form='python'"):
        explorer.compiled(model, Schedule(schedule.identity, tuple(runs), "test"), batch, loss=F.mse_loss)


class Breaking(nn.Module):
    """Prints in between, which breaks the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        torch._dynamo.graph_break()
        return y.square().sum()


def test_a_broken_graph_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"cannot make one graph of Breaking's step.*explorer\.apply"):
        explorer.profile_compiled(Breaking(), torch.randn(2, 4))


@pytest.mark.parametrize("method", ["checkmate", "checkmate-d", "checkmate-o", "rotor", "checkpoint-blocks", "gist"])
def test_other_methods_answer_for_a_compiled_step(profile: Profile, method: str) -> None:
    """Some compiled results may take the memory of an argument: not where a program does not know of that."""
    for budget in ("100 %", "75 %"):
        found = explorer.solve(profile, budget=budget, method=method, time_limit=0.5)
        assert found.status not in (Status.FAILED, Status.UNSUITED)
        if found.schedule is not None:
            assert simulate(profile, found.schedule).peak_bytes <= found.budget_bytes


def test_only_what_every_choice_was_looked_at_for_is_excluded(profile: Profile) -> None:
    few = explorer.solve(profile, budget="1 KiB", method="monet-compiled", time_limit=0.05)
    assert few.status is Status.INFEASIBLE
    built = traced_of(perceptron(8), BATCH, loss=F.mse_loss).built
    many = Profile(built.graph, {key: Cost(1.0, 0) for key in built.work}, Device("test", "cpu", "none"))
    found = explorer.solve(many, budget="1 KiB", method="monet-compiled", time_limit=0.05)
    assert found.status is Status.UNKNOWN
    assert found.minimum is not None
    assert not found.minimum.proven


@pytest.mark.parametrize("given", [True, False])
def test_a_batch_that_wants_gradients_where_the_sample_did_not_is_refused_by_name(*, given: bool) -> None:
    """As a discriminator's: of generated images, and of the same detached."""
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    batch = torch.randn(4, 8, requires_grad=given)
    profile = explorer.profile_compiled(model, batch)
    solution = explorer.solve(profile, budget="100 %", method="monet-compiled", time_limit=1)
    assert solution.schedule is not None
    compiled = explorer.compiled(model, solution.schedule, batch)
    with pytest.raises(ValueError, match=rf"batch\[0\] has requires_grad={not given}, and the step was made for"):
        compiled(batch.detach().requires_grad_(not given))


def test_a_share_may_be_less_than_all_and_a_file_says_what_was_measured(tmp_path: Path) -> None:
    found = explorer.compiled_within(perceptron(), BATCH, budget="95 %", loss=F.mse_loss, time_limit=1)
    assert found.measured_peak_bytes is not None
    assert found.budget_bytes is not None
    assert found.measured_peak_bytes <= found.budget_bytes
    text = explorer.export(
        perceptron(), found, BATCH, loss=F.mse_loss, form="compile", path=tmp_path / "step.py"
    ).read_text()
    assert f"{format_bytes(found.measured_peak_bytes)} was measured" in " ".join(text.split())
