"""Whatever autocast a step is captured under is part of the graph, with the precision that results really have."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.autocast import Autocast
from explorer.capture import capture
from explorer.capture.batch import TrainingStep
from explorer.schedule import keep_all, read_schedule
from tests.capture.test_wide import same_bits, trained
from tests.schedules import random_schedule


class Mixed(nn.Module):
    """Every normalisation, a convolution, tied weights, a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear, self.rows = nn.Embedding(7, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.convolution, self.batch, self.groups = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4)
        self.squares, self.instances = nn.RMSNorm(8), nn.InstanceNorm2d(4, affine=True)
        self.out = nn.Linear(8, 7, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens: torch.Tensor, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.linear(self.rows(self.linear(self.table(tokens))))
        # A backward pass outside of the context casts nothing, not even the products within attention.
        x = self.squares(F.gelu(F.scaled_dot_product_attention(x, x, x)))
        y = self.groups(torch.relu(self.batch(self.convolution(images))))
        return self.out(x).float().log_softmax(-1).mean(), self.instances(y).float().square().mean()


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_normalisation_under_autocast(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, batch = Mixed().train(), (torch.randint(0, 7, (2, 3)), torch.randn(2, 3, 8, 8))
    context = torch.autocast("cpu", dtype)
    with context:
        profile = explorer.profile(model, batch)
        assert profile.graph.identity == capture(model, batch).graph.identity
    # One region for each step, as in a training loop: within it, a parameter is cast once.
    expected = trained(context(TrainingStep(plain := copy.deepcopy(model), None)), plain, batch, None)
    for schedule in (keep_all(profile.graph), random_schedule(profile.graph, 1, keep=0.6)):
        scheduled = explorer.apply(copy.deepcopy(model), schedule, batch)
        assert same_bits(trained(context(scheduled), scheduled, batch, None), expected)


class Layers(nn.Module):
    """Two linear layers, the first one used twice, and what a case does between them."""

    def __init__(self, between: Callable[[nn.Module, torch.Tensor], torch.Tensor] | None = None) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(torch.relu(self.first(x))))
        x = x if self.between is None else self.between(self.inner, x)
        return self.last(x.to(self.last.weight.dtype))


class InSinglePrecision(torch.autograd.Function):
    """Its forward pass is cast to float32, its backward pass runs under the autocast of the forward one."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        return gradient @ weight.t(), x.t() @ gradient


class AsAround(torch.autograd.Function):
    """Both passes are cast as the forward pass is."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        return (gradient @ weight.t()).to(x.dtype), (x.t() @ gradient).to(weight.dtype)


def _other_dtype(inner: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.float16):
        return inner(inner(x))


def _switched_off(inner: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        return inner(x.float()).softmax(-1)


def _off_and_on(inner: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        y = inner(x.float())
        with torch.autocast("cpu", torch.bfloat16):
            y = inner(y)
    return y


def _uncached(inner: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        return inner(inner(x))


def _two_regions(inner: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Of which each casts for itself, if there is none around them."""
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=True):
        x = inner(x)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=True):
        return inner(inner(x))


def _own_in_float32(inner: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return InSinglePrecision.apply(x, inner.weight)


def _own_as_around(inner: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return AsAround.apply(x, inner.weight)


def _loss_outside(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        return F.cross_entropy(output.float(), target)


_BETWEEN = (
    None,
    _other_dtype,
    _switched_off,
    _off_and_on,
    _uncached,
    _two_regions,
    _own_in_float32,
    _own_as_around,
)
_REGIONS = {
    "bfloat16": Autocast("bfloat16"),
    "float16": Autocast("float16"),
    "uncached": Autocast("bfloat16", cached=False),
    "outside": Autocast(None),
}


def region(state: Autocast) -> torch.autocast:
    """As a user writes it."""
    dtype = None if state.dtype is None else getattr(torch, state.dtype)
    return torch.autocast("cpu", dtype, enabled=dtype is not None, cache_enabled=state.cached)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("between", _BETWEEN, ids=lambda x: getattr(x, "__name__", "nothing"))
@pytest.mark.parametrize("state", _REGIONS.values(), ids=_REGIONS)
def test_regions_within_regions(between: Any, state: Autocast) -> None:
    """Captured from outside, trained inside: the bits of eager mode under the same autocast."""
    torch.manual_seed(0)
    model, batch = Layers(between).train(), (torch.randn(5, 8), torch.randint(0, 4, (5,)))
    loss = _loss_outside if between is None else F.cross_entropy
    step = TrainingStep(plain := copy.deepcopy(model), loss)
    expected = trained(step if state.dtype is None else region(state)(step), plain, batch, loss)
    graph = capture(model, batch, loss=loss, autocast=state).graph
    with torch.autocast("cpu", torch.float16):  # whatever is active where it is captured
        assert capture(model, batch, loss=loss, autocast=state).graph == graph
        scheduled = explorer.apply(model, random_schedule(graph, 2, keep=0.4), batch, loss=loss, check=state.cached)
    around = scheduled if state.dtype is None else region(state)(scheduled)
    assert same_bits(trained(around, scheduled, batch, loss), expected)


def test_models_in_half_precision() -> None:
    torch.manual_seed(0)
    model, batch = Layers().bfloat16().train(), torch.randn(5, 8).bfloat16()
    context = torch.autocast("cpu", torch.bfloat16)
    expected = trained(context(TrainingStep(plain := copy.deepcopy(model), None)), plain, batch, None)
    graph = capture(model, batch, autocast="bfloat16").graph
    scheduled = explorer.apply(model, random_schedule(graph, 2, keep=0.4), batch)
    assert same_bits(trained(context(scheduled), scheduled, batch, None), expected)


@pytest.fixture
def sample() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Layers().train(), torch.randn(5, 8)


@pytest.mark.parametrize("given", [torch.bfloat16, "bfloat16"])
def test_the_argument_is_as_being_inside(given: Any, sample: Any) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        inside = capture(*sample)
    asked = capture(*sample, autocast=given)
    assert asked.graph == inside.graph
    assert asked.ambient == inside.ambient
    assert asked.graph.identity.autocast == Autocast("bfloat16")
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("given", [torch.float32, torch.int8, "float32", "half", "", 16, True, ["bfloat16"]])
def test_what_autocast_cannot_be(given: Any, sample: Any) -> None:
    allowed = r"autocast is .*; allowed: torch\.bfloat16 and torch\.float16"
    for take in (capture, explorer.profile):
        with pytest.raises(ValueError, match=allowed):
            take(*sample, autocast=given)
    with pytest.raises(ValueError, match=allowed):
        explorer.estimate(*sample, device="A100-80GB", autocast=given)


@pytest.mark.parametrize("given", ["bfloat16", torch.float16, Autocast("bfloat16")])
def test_there_is_none_without_memory(given: Any) -> None:
    with torch.device("meta"):
        model, batch = Layers().train(), torch.empty(5, 8)
    assert capture(model, batch).graph.autocast == Autocast(None)
    with pytest.raises(ValueError, match=r"autocast is '.*float16', and the model is on 'meta', where there is none"):
        capture(model, batch, autocast=given)
    assert explorer.estimate(model, batch, device="T4", autocast=given).graph.autocast is not None


def test_it_is_noted_in_profiles_schedules_and_files(sample: Any, tmp_path: Path) -> None:
    profile = explorer.profile(*sample, autocast="bfloat16")
    plain = explorer.profile(*sample)
    schedule = keep_all(profile.graph)
    for value in (profile, schedule):
        assert "autocast bfloat16" in repr(value)
        assert "<td" in value._repr_html_()
    assert "autocast" not in f"{plain} {keep_all(plain.graph)}"
    profile.save(tmp_path / "profile.json")
    schedule.save(tmp_path / "schedule.json")
    assert explorer.load_profile(tmp_path / "profile.json") == profile
    assert read_schedule(tmp_path / "schedule.json").identity.autocast == Autocast("bfloat16")
    with pytest.raises(ValueError, match=r"autocast differs: bfloat16 here, none there: profile with"):
        explorer.simulate(plain, schedule)
    assert profile.digest != explorer.Profile(plain.graph, profile.costs | plain.costs, profile.device).digest


def _as_before(path: Path) -> None:
    """As the file was written before autocast was noted."""
    document = json.loads(path.read_text())
    del document["checksum"]
    content = document["content"]
    del content["graph" if "graph" in content else "identity"]["autocast"]
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("context", [torch.autocast("cpu", enabled=False), torch.autocast("cpu", torch.bfloat16)])
def test_files_of_before_are_applied_under_what_is_active(context: Any, sample: Any, tmp_path: Path) -> None:
    with context:
        profile = explorer.profile(*sample)
        path = tmp_path / "profile.json"
        profile.save(path)
        _as_before(path)
        old = explorer.load_profile(path)
        assert old.graph.autocast is None
        path = tmp_path / "schedule.json"
        keep_all(profile.graph).save(path)
        _as_before(path)
        for schedule in (read_schedule(path), keep_all(old.graph)):
            assert schedule.identity.autocast is None
            explorer.simulate(profile, schedule)
            explorer.apply(sample[0], schedule, sample[1])(sample[1])
    with torch.autocast("cpu", torch.float16), pytest.raises(ValueError, match=r"another forward method.*autocast"):
        explorer.apply(sample[0], schedule, sample[1])


def test_a_profile_that_notes_no_autocast_is_read_and_fits_any(tmp_path: Path) -> None:
    """As files from before it was noted."""
    noted = explorer.load_profile("resnet50-small-cpu")
    before = replace(noted, graph=replace(noted.graph, autocast=None))
    before.save(tmp_path / "before.json")
    graph = explorer.load_profile(tmp_path / "before.json").graph
    assert graph.autocast is None
    assert graph.identity.difference(noted.graph.identity) is None
