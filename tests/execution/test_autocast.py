"""A scheduled module under autocast: called under what it was captured under, or not at all."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import explorer
from explorer.autocast import Autocast
from explorer.capture import capture
from explorer.execution.guards import ModelChangedError
from explorer.execution.measuring import step_time_ms
from explorer.models import MODELS
from explorer.models.gpt import GPT, GPTConfig
from explorer.models.resnet import ResNet
from explorer.schedule import keep_all
from tests.schedules import random_schedule

BFLOAT16 = torch.autocast("cpu", torch.bfloat16)


class Net(nn.Module):
    """A layer with dropout, and one that may be in a region of its own."""

    def __init__(self, *, own: bool = False) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 4)
        self.own = own

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(torch.relu(self.first(x)))
        with torch.autocast("cpu", enabled=self.own or torch.is_autocast_enabled("cpu")):
            return self.last(x)


def scheduled(model: nn.Module, autocast: Any = None) -> explorer.ScheduledModule:
    graph = capture(model, sample(), autocast=autocast).graph
    return explorer.apply(model, random_schedule(graph, 1, keep=0.5), sample(), check=False)


def sample() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(6, 8)


_HERE = {
    "outside": (torch.autocast("cpu", enabled=False), r"outside torch\.autocast for cpu here", "profile outside"),
    "bfloat16": (BFLOAT16, r"under torch\.autocast\('cpu', torch\.bfloat16\) here", r"autocast=torch\.bfloat16"),
    "float16": (
        torch.autocast("cpu", torch.float16),
        r"under torch\.autocast\('cpu', torch\.float16\) here",
        r"autocast=torch\.float16",
    ),
    "uncached": (
        torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
        r"torch\.bfloat16, cache_enabled=False\) here",
        "profile here",
    ),
}


def test_another_autocast_is_an_error_before_anything_is_computed() -> None:
    states = (Autocast(None), Autocast("bfloat16"), Autocast("float16"), Autocast("bfloat16", cached=False))
    for captured_under, state in zip(_HERE, states, strict=True):
        module = scheduled(Net().train(), state)
        for here, (context, told, remedy) in _HERE.items():
            batch, random = sample(), torch.get_rng_state()
            if here == captured_under:
                with context:
                    assert module(sample()).dtype is getattr(torch, state.dtype or "float32")
                continue
            with context, pytest.raises(ModelChangedError, match=rf"{told}, and the step was captured .*{remedy}"):
                module(batch)
            assert torch.equal(torch.get_rng_state(), random), "something was computed"
        assert all(x.grad is None for x in module.parameters())


def test_defaults_count_where_the_model_enters_autocast_by_itself() -> None:
    module, plain = scheduled(Net(own=True).train()), scheduled(Net().train())
    assert module(sample()).dtype is torch.bfloat16
    switched_off = torch.autocast("cpu", torch.float16, enabled=False)  # as code with a switch for it has it
    with switched_off:
        assert plain(sample()).dtype is torch.float32
        with pytest.raises(ModelChangedError, match=r"enters autocast by itself, .* torch\.float16\) here"):
            module(sample())


def test_validation_is_the_models_own() -> None:
    model = Net().train()
    module = scheduled(model, "bfloat16")
    for context in (BFLOAT16, torch.autocast("cpu", enabled=False)):
        with torch.no_grad(), context:
            torch.manual_seed(2)
            expected = model(sample())
            torch.manual_seed(2)
            assert torch.equal(module(sample()), expected)
        with context:
            assert torch.equal(module.eval()(sample()), model(sample()))
        module.train()


def _mlp() -> Any:
    layers = [nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers), (torch.randn(16, 32), torch.randint(0, 10, (16,))), F.cross_entropy


def _resnet() -> Any:
    spec = MODELS["resnet50"]
    return ResNet((1, 1, 1, 1)), spec.batch(batch_size=2, image_size=64), spec.loss


def _gpt() -> Any:
    tokens = torch.randint(0, 50, (2, 16))
    return GPT(GPTConfig(vocabulary=50, context=16, layers=2, heads=2, width=32)), (tokens, tokens), None


@pytest.mark.thorough("_resnet")
@pytest.mark.parametrize("make", [_mlp, _resnet, _gpt])
def test_bits_and_bytes(make: Any) -> None:
    """Nothing but the training step itself is inside autocast: profile, apply and measure know by themselves."""
    torch.manual_seed(0)
    model, batch, loss = make()
    profile = explorer.profile(model.train(), batch, loss=loss, autocast=torch.bfloat16)
    plain = copy.deepcopy(model)
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        expected = plain(*batch) if loss is None else loss(plain(batch[0]), batch[1])
    expected.backward()
    for schedule in (keep_all(profile.graph), random_schedule(profile.graph, 1, keep=0.5)):
        module = explorer.apply(copy.deepcopy(model), schedule, batch, loss=loss)
        predicted = explorer.simulate(profile, schedule)
        assert explorer.measure(module, batch, steps=1).peak_bytes == predicted.peak_bytes
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16):
            value = module(*batch)
        value.backward()
        assert torch.equal(value, expected)
        pairs = zip(module.parameters(), plain.parameters(), strict=True)
        assert all(torch.equal(a.grad, b.grad) for a, b in pairs if a.grad is not None and b.grad is not None)


def test_what_measures_runs_the_step_as_it_was_captured() -> None:
    model = Net().train()
    profile = explorer.profile(model, sample(), autocast="bfloat16")
    module = explorer.apply(model, keep_all(profile.graph), sample())
    peak = explorer.simulate(profile, module.schedule).peak_bytes
    for context in (BFLOAT16, torch.autocast("cpu", enabled=False), torch.autocast("cpu", torch.float16)):
        with context:
            assert max(x.peak_bytes for x in explorer.measure_runs(module, sample())) == peak
            assert explorer.measure(module, sample(), steps=1).peak_bytes == peak
            assert explorer.measure(module, sample(), steps=1, autocast=torch.bfloat16).peak_bytes == peak
            # Of a plain model, the argument decides as well.
            plain = explorer.measure(model, sample(), steps=1, autocast="bfloat16")
            assert plain.peak_bytes == profile.eager_peak_bytes
    assert step_time_ms(module, sample(), steps=1) > 0
    with pytest.raises(ValueError, match="autocast is 'float16', and the module's schedule was made for bfloat16"):
        explorer.measure(module, sample(), steps=1, autocast="float16")


def test_what_torch_compile_saves() -> None:
    model = Net().train()
    schedule = explorer.compiled_schedule(model, sample(), autocast="bfloat16")
    assert schedule.identity == capture(model, sample(), autocast="bfloat16").graph.identity
    module = explorer.apply(model, schedule, sample())
    with BFLOAT16:
        assert module(sample()).dtype is torch.bfloat16


def test_gradient_scaling() -> None:
    """Scaled, unscaled, clipped, and skipped where a gradient is infinite: as in eager mode."""
    torch.manual_seed(0)
    model = Net().train()
    module = scheduled(copy.deepcopy(model), torch.float16)
    seen = []
    for step in (model, module):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=2)
        optimizer = torch.optim.AdamW(step.parameters(), lr=0.01)
        scales = []
        for number in range(6):
            torch.manual_seed(number)
            optimizer.zero_grad()
            batch = sample() * (1e4 if number == 3 else 1.0)
            with torch.autocast("cpu", torch.float16):
                loss = step(batch).float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(step.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        seen.append((scales, [x.detach().clone() for x in step.parameters()]))
    assert seen[0][0] == seen[1][0]
    assert any(b < a for a, b in zip(seen[0][0], seen[0][0][1:], strict=False)), "no step was skipped"
    assert all(torch.equal(a, b) for a, b in zip(seen[0][1], seen[1][1], strict=True))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6)
        )
        self.within = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.within else block(x)
        return x.square().mean()


def test_what_checkpointing_casts_again_is_not_kept_until_a_measured_step_ends() -> None:
    model, batch = Checkpointed(), torch.randn(128, 256)
    again = explorer.measure(model, batch, autocast=torch.bfloat16, steps=1).peak_bytes
    model.within = False
    kept = explorer.measure(model, batch, autocast=torch.bfloat16, steps=1).peak_bytes
    # At the end of both there are weights and gradients; what was kept were the casts of all weights besides.
    half_weights_bytes = sum(x.numel() for x in model.parameters()) * 2
    assert again < kept + 0.1 * half_weights_bytes
