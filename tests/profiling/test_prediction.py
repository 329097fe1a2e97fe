"""Predicted and measured memory of every family of calls: to the byte, and never above what plain PyTorch takes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import Loss, capture
from explorer.profiling import costing
from explorer.schedule import Run, keep_all
from explorer.simulation import simulate
from tests.profiling.prediction_cases import CASES, Probe

_KERNELS = 0.001  # how much a kernel's own workspace may vary
_ABOVE_EAGER = {
    "rows: cumprod": "PyTorch looks at the values, and takes a shorter way where none is 0",
}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time each call once: what is tested here is memory."""
    for name in ("_MIN_REPEATS", "_OTHER_MIN_REPEATS", "_MAX_ROUNDS"):
        monkeypatch.setattr(costing, name, 1)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", CASES)
def test_memory_of_a_step_is_predicted(name: str) -> None:
    model, batch = CASES[name].sample()
    profile = explorer.profile(model, batch)
    schedule = keep_all(profile.graph)
    scheduled = explorer.apply(model, schedule, batch, check=False)
    runs = explorer.residual_by_run(profile, schedule, explorer.measure_runs(scheduled, batch))
    wrong = [x for x in runs if abs(x.unexplained_bytes) > 16 + _KERNELS * x.predicted_bytes]
    assert wrong == []
    predicted = simulate(profile, schedule).peak_bytes
    assert predicted == pytest.approx(explorer.measure(scheduled, batch, steps=1).peak_bytes, rel=_KERNELS)
    if name not in _ABOVE_EAGER:
        assert profile.eager_peak_bytes is not None
        assert predicted <= (1 + _KERNELS) * profile.eager_peak_bytes


def test_a_write_to_part_of_a_tensor_is_one_call_and_in_place() -> None:
    model, batch = CASES["pad circular"].sample()
    graph = capture(model, batch).graph
    names = [x.name for x in graph.forward]
    assert not any("copy" in x for x in names)
    schedule = keep_all(graph)
    written = [x for x in graph.operators if x.name.startswith("written")]
    chosen = {x.operator: x.implementation for x in schedule.steps if isinstance(x, Run)}
    assert written
    assert {chosen[x.id] for x in written} == {"in place"}


def test_what_is_read_later_is_not_written_over() -> None:
    """The old values are needed in the backward pass: eager mode refuses to change them in place, so a copy is."""

    def function(_: object, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y.clone()
        z[:, :2] = 0.0
        return z + y.sin()

    model, batch = Probe(function, {}).train(), torch.rand(4, 8)
    graph = capture(model, batch).graph
    schedule = keep_all(graph)
    scatter = next(x for x in graph.operators if "scatter" in x.name)
    chosen = next(x for x in schedule.steps if isinstance(x, Run) and x.operator == scatter.id)
    assert chosen.implementation == "aten"
    scheduled = explorer.apply(model, schedule, batch)
    loss = scheduled(batch)
    loss.backward()
    got = model.scale.grad
    model.scale.grad = None
    eager = model(batch)
    eager.backward()
    assert torch.equal(loss, eager)
    assert got is not None
    assert model.scale.grad is not None
    assert torch.equal(got, model.scale.grad)


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.soft_margin_loss, F.binary_cross_entropy])
def test_a_loss_that_is_returned_takes_a_number_of_memory(loss: Loss) -> None:
    """The kernel leaves it in memory for all elements, which would stay for the whole backward pass."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Sigmoid()).train()
    batch = (torch.rand(128, 64), torch.rand(128, 64))
    profile = explorer.profile(model, batch, loss=loss)
    schedule = keep_all(profile.graph)
    scheduled = explorer.apply(model, schedule, batch, loss=loss)
    assert explorer.measure(scheduled, batch, steps=1).peak_bytes == simulate(profile, schedule).peak_bytes
    assert scheduled(*batch).untyped_storage().nbytes() == 4


def test_a_language_model_makes_no_mask_that_it_does_not_make_in_eager_mode() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, use_cache=False
    )
    model = transformers.LlamaForCausalLM(config).train()
    tokens = torch.randint(0, 50, (2, 128))
    batch = {"input_ids": tokens, "labels": tokens.clone()}
    profile = explorer.profile(model, batch)
    predicted = simulate(profile, keep_all(profile.graph)).peak_bytes
    assert profile.eager_peak_bytes is not None
    assert predicted <= (1 + _KERNELS) * profile.eager_peak_bytes
    # Positions of the batch may count several sequences in a row: then the mask depends on them.
    packed = batch | {"position_ids": torch.arange(64).repeat(2)[None].expand(2, -1).contiguous()}
    graph = capture(model, packed).graph
    assert any("cumsum" in x.name for x in graph.operators)
    assert not any("cumsum" in x.name for x in profile.graph.operators)
