"""Peaks of compiled steps, predicted by what PyTorch divides for a choice."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from explorer.compiling.choosing import tagged
from explorer.compiling.fitting import Planner
from explorer.compiling.partitioning import Step, compiled
from explorer.compiling.predicting import predicted_peak_bytes
from explorer.compiling.profiling import profiles_of, traced_of
from explorer.compiling.running import rehearsed_peak_bytes
from explorer.device_profile import Profile
from explorer.models.gpt import GPT, GPTConfig
from explorer.saved_results import CompiledStep

CLASSES = 10
TELLS_ALL = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
"""The rules for kernels are those of this version; earlier ones take less where much is computed again."""


def pooled() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """Each rectified result is read twice where it is computed again: by a pooling, and for its own gradient."""
    layers: list[nn.Module] = []
    widths = (3, 16, 32, 48)
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES))
    return model, (torch.randn(8, 3, 32, 32), torch.randint(CLASSES, (8,)))


def depthwise() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """Weights of one channel each, of which the compiler cannot tell the layout by their strides."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        layers += [nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES))
    return model, (torch.randn(8, 3, 64, 64), torch.randint(CLASSES, (8,)))


def profile_in(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor], *, own: bool) -> tuple[Planner, Profile]:
    """A planner, and the profile in one of the layouts."""
    traced = traced_of(model, batch, loss=F.cross_entropy)
    profiles = profiles_of(traced, torch.device("cpu"))
    planner = Planner(model, batch, F.cross_entropy, traced, profiles[0], profiles[1:], 1.0)
    return planner, next(x for x in profiles if traced.is_own_layout(x.graph.identity) is own)


@pytest.mark.parametrize("own", [True, False])
def test_what_is_computed_again_is_counted_where_the_compiler_has_it(*, own: bool) -> None:
    torch.manual_seed(0)
    model, batch = pooled()
    planner, profile = profile_in(model, batch, own=own)
    choice = tagged(planner.traced, set(), own_layout=own)
    taken = rehearsed_peak_bytes(compiled(Step(model, F.cross_entropy), choice), batch)
    assert predicted_peak_bytes(planner.traced, choice, profile) == pytest.approx(taken, rel=0.05)
    assert CompiledStep(profile).judge(frozenset()).peak_bytes < taken, "the one graph says less"


def test_channels_last_in_both_passes_is_predicted() -> None:
    torch.manual_seed(0)
    model, batch = depthwise()
    planner, profile = profile_in(model, batch, own=False)
    choice = tagged(planner.traced, planner.traced.built.saved)
    assert choice.channels_last
    taken = rehearsed_peak_bytes(compiled(Step(model, F.cross_entropy), choice), batch)
    assert predicted_peak_bytes(planner.traced, choice, profile) == pytest.approx(taken, rel=0.001)


@pytest.mark.parametrize(("saved", "off"), [(True, 0.005), (False, 0.08 if TELLS_ALL else 0.25)])
def test_a_language_model_is_predicted_whether_its_results_are_saved_or_not(off: float, *, saved: bool) -> None:
    """Its embeddings' gradients are scattered, and one loop writes over several of its arguments."""
    torch.manual_seed(0)
    config = GPTConfig(layers=3, width=64, heads=4, context=64, vocabulary=500)
    tokens = torch.randint(0, config.vocabulary, (4, config.context))
    model, batch = GPT(config), (tokens, tokens.roll(1, 1))
    planner = Planner.of(model, batch, loss=None, time_limit=1.0)
    choice = tagged(planner.traced, planner.traced.built.saved if saved else set())
    taken = rehearsed_peak_bytes(compiled(model, choice), batch)
    assert predicted_peak_bytes(planner.traced, choice, planner.profile) == pytest.approx(taken, rel=off)
