"""Profiling on the CPU: what is measured, what is reported, what is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import explorer
from explorer.capture import capture
from explorer.capture.building import TANGENTS
from explorer.execution.optimizers import NAMES, Updater
from explorer.profiling.comparing import halves_of
from explorer.profiling.material import Material, _Arguments
from explorer.schedule import keep_all
from explorer.solvers.problem.building import problem_of
from tests.execution.models import branches, shared


@pytest.fixture(scope="module")
def profiled() -> explorer.Profile:
    """The profile of a small network, measured once."""
    model, batch, loss = branches()
    return explorer.profile(model, batch, loss=loss)


def test_every_call_has_a_cost_and_the_sum_is_the_step(profiled: explorer.Profile) -> None:
    assert profiled.device.kind == "cpu"
    assert profiled.device.torch_version == torch.__version__
    assert profiled.eager_time_ms is not None
    timeline = explorer.simulate(profiled, keep_all(profiled.graph))
    assert timeline.time_ms == pytest.approx(profiled.eager_time_ms)
    assert [str(x) for x in profiled.graph.batch] == ["batch[0] float32[4, 3, 16, 16]", "batch[1] int64[4]"]
    convolutions = {x.name: profiled.cost(x.default()) for x in profiled.graph.operators if "convolution" in x.name}
    assert all(cost.time_ms > 0 for cost in convolutions.values())


def test_halves_take_no_less_than_the_whole(profiled: explorer.Profile) -> None:
    """What was measured less is chance, and would count as if schedules with halves were quicker than plain PyTorch."""
    problem = problem_of(profiled, optimizations=())
    assert problem.base_time_ms >= problem.for_bounds.base_time_ms * (1 - 1e-9)
    halves = halves_of(profiled.graph)
    assert halves
    for x in halves:
        together_ms = sum(profiled.costs[y].time_ms for y in (x.first, x.second))
        assert together_ms >= profiled.costs[x.whole].time_ms * (1 - 1e-9)


def test_workspace_is_what_is_taken_beyond_results(profiled: explorer.Profile) -> None:
    workspaces = {
        (operator.target, implementation.name): profiled.cost(implementation).workspace_bytes
        for operator in profiled.graph.operators
        for implementation in operator.implementations
    }
    # What works in place takes nothing, and what it overwrites is not taken off twice.
    assert workspaces["aten.relu.default", "in place"] == 0
    assert workspaces["aten.threshold_backward.default", "in place"] == 0
    # Bits are unpacked an eighth at a time, as bytes and then as wide as an element.
    elements = 4 * 8 * 16 * 16
    assert 0 < workspaces["aten.threshold_backward.default", "from mask"] <= elements // 8 * (1 + 4)
    assert workspaces["aten.convolution.default", "matmul"] == 0


def test_whole_numbers_are_in_range() -> None:
    """Indices and masks are computed, not drawn: wrong ones would read other memory."""
    model, batch, loss = branches()
    captured = capture(model, batch, loss=loss)
    material = Material(torch.device("cpu"), given={})
    for operator in captured.graph.operators:
        for implementation in operator.implementations:
            if operator.target != TANGENTS:
                material.runnable(captured.built.calls[operator.id, implementation.name])()
    offsets = next(x for x in captured.graph.operators if x.optional and "offsets" in x.name)
    made = captured.built.calls[offsets.id, "offsets"].results[0]
    assert made is not None
    values = _Arguments(material, torch.device("cpu")).real(made)
    assert values.dtype == torch.uint8
    assert values.max() < 4


def test_keeping_all_takes_no_more_memory_than_plain_pytorch(profiled: explorer.Profile) -> None:
    predicted = explorer.simulate(profiled, keep_all(profiled.graph)).peak_bytes
    assert profiled.eager_peak_bytes is not None
    # Less is possible: PyTorch keeps a dropout's mask as floats on the CPU, the captured graph as booleans.
    assert 0.5 * profiled.eager_peak_bytes < predicted <= 1.01 * profiled.eager_peak_bytes


def test_progress_goes_from_nothing_to_all() -> None:
    model, batch, loss = branches()
    seen: list[tuple[int, int, str]] = []
    explorer.profile(model, batch, loss=loss, progress=lambda done, total, label: seen.append((done, total, label)))
    assert [done for done, _, _ in seen] == list(range(seen[-1][1] + 1))
    assert {total for _, total, _ in seen} == {seen[-1][1]}
    assert seen[-1][2] == "done"
    assert any("convolution" in label for _, _, label in seen)


def test_profiling_changes_nothing() -> None:
    model, batch, loss = branches()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    state = torch.get_rng_state()
    explorer.profile(model, batch, loss=loss)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(x.grad is None for x in model.parameters())
    assert torch.equal(state, torch.get_rng_state())


def test_an_optimizer_counts(profiled: explorer.Profile) -> None:
    model, batch, loss = branches()
    adam = explorer.profile(model, batch, loss=loss, optimizer="AdamW")
    parameters = list(model.parameters())
    # Two moments of each parameter, and its number of steps.
    assert adam.fixed_bytes - profiled.fixed_bytes == sum(2 * x.nbytes + 4 for x in parameters)
    assert adam.optimizer == "AdamW"
    assert adam.graph.iteration.optimizer == "AdamW"
    assert adam.eager_peak_bytes is not None
    assert profiled.eager_peak_bytes is not None
    assert adam.eager_peak_bytes - profiled.eager_peak_bytes == adam.optimizer_state_bytes  # an update takes less


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", NAMES)
def test_what_an_optimizer_holds_is_measured_too(name: str) -> None:
    model, batch, _ = shared()
    before = [x.clone() for x in model.parameters()]
    profile = explorer.profile(model, batch, optimizer=name)
    scheduled = explorer.apply(model, keep_all(profile.graph), batch)
    predicted = explorer.simulate(profile, keep_all(profile.graph))
    assert explorer.measure(scheduled, batch, steps=1, optimizer=name).peak_bytes == predicted.peak_bytes
    runs = explorer.measure_runs(scheduled, batch, optimizer=name)
    assert [x.peak_bytes for x in runs] == predicted.total_bytes.tolist()
    assert all(torch.equal(x, y) for x, y in zip(model.parameters(), before, strict=True))
    # As torch's own has it after a step of its own; frozen parameters are none of its business.
    updater = Updater.of(name, model)
    for parameter in updater.trained:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = updater.over(updater.trained)
    optimizer.step()
    tensors = (x for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor))
    assert profile.optimizer_state_bytes == sum(x.nbytes for x in tensors)


def test_refusals() -> None:
    model, batch, loss = branches()
    with pytest.raises(ValueError, match="optimizer is 'lion'; give the name of one: 'sgd'"):
        explorer.profile(model, batch, loss=loss, optimizer="lion")
    with pytest.raises(ValueError, match=r"the model is on cpu, not on cuda; move it"):
        explorer.profile(model, batch, loss=loss, device="cuda")
    with pytest.raises(ValueError, match="ReLU has no parameters"):
        explorer.profile(nn.ReLU(), torch.randn(2))
    with pytest.raises(ValueError, match="on meta; allowed: cpu and cuda"):
        explorer.profile(nn.Linear(2, 2, device="meta"), torch.randn(1, 2), loss=functional.mse_loss)


def test_solving_side_needs_no_torch(tmp_path: Path, profiled: explorer.Profile) -> None:
    profiled.save(tmp_path / "profile.json")
    code = (
        "import sys, explorer; p = explorer.load_profile(sys.argv[1]); "
        "explorer.simulate(p, explorer.keep_all(p.graph)); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "profile.json")], check=True)


@pytest.mark.parametrize("made", ["measured", "estimated"])
def test_who_unpickles_a_profile_needs_no_torch(profiled: explorer.Profile, made: str) -> None:
    model, batch, loss = branches()
    profile = profiled if made == "measured" else explorer.estimate(model, batch, loss=loss, device="A100-80GB")
    code = "import pickle, sys; pickle.load(sys.stdin.buffer); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(profile), check=True)


class Ids(nn.Module):
    """Whole numbers that must not be 0: ids from 1 on, lengths, a divisor."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(10, 8), nn.Linear(8, 4)
        self.register_buffer("first", torch.tensor(1))

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor, divisor: torch.Tensor) -> torch.Tensor:
        found = self.embedding((ids - self.first) % divisor)
        last = found.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, 8))
        return self.layer(last[:, 0])


def test_whole_numbers_of_the_batch_are_those_there_are() -> None:
    batch = (torch.randint(1, 11, (4, 6)), torch.tensor([6, 3, 2, 1]), torch.tensor(7)), torch.randint(1, 5, (4,))
    profile = explorer.profile(Ids(), batch, loss=lambda x, y: functional.cross_entropy(x, y - 1))
    assert all(x.time_ms >= 0 for x in profile.costs.values())


class Recurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.rand(4, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(4, dtype=torch.complex64)
        for row in x:
            state = self.factor * state + row
        return state.abs().sum()


def test_complex_numbers_are_drawn() -> None:
    """Not computed anew from all that was before, which took minutes and then too deep a recursion."""
    profile = explorer.profile(Recurrence(), torch.randn(300, 4))
    assert explorer.simulate(profile, keep_all(profile.graph)).peak_bytes <= (profile.eager_peak_bytes or 0)


def test_a_batch_with_nothing_in_it_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has the shape \(0, 8\), with nothing in it"):
        explorer.profile(nn.Linear(8, 8), (torch.randn(0, 8), torch.randn(0, 8)), loss=functional.mse_loss)
