"""Steps in another order: the same bits, and the memory that was predicted."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.nn import functional

import explorer
from explorer.models.gpt import GPT, GPTConfig
from explorer.rearranging import UPDATE_WITHIN
from explorer.schedule import Run, Schedule, with_frees
from explorer.solvers.ordering.schedules import least_memory
from explorer.solvers.ordering.steps import OrderedSteps, halves_of
from tests.execution.models import Sample, branches, families, language, shared, tied_attention


def perceptron() -> Sample:
    """Most of whose memory is parameters."""
    torch.manual_seed(0)
    model = nn.Sequential(*(x for _ in range(4) for x in (nn.Linear(48, 48), nn.ReLU())))
    return model.train(), (torch.randn(3, 48), torch.randn(3, 48)), functional.mse_loss


def residual() -> Sample:
    """A small residual network, whose convolutions have halves."""
    torch.manual_seed(0)
    return Residual().train(), (torch.randn(2, 3, 12, 12), torch.randint(5, (2,))), functional.cross_entropy


def transformer() -> Sample:
    """A small language model."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=61, context=16, width=16, heads=2, layers=2))
    tokens = torch.randint(61, (2, 9))
    return model.train(), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()), None


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(5))
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(4))
        self.head = nn.Linear(8 * 144, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norms[0](self.stem(x)))
        for at in (0, 2):
            y = functional.relu(self.norms[at + 1](self.convs[at](x)))
            x = functional.relu(x + self.norms[at + 2](self.convs[at + 1](y)))
        return self.head(x.flatten(1))


class Hourglass(nn.Module):
    """Down, up again, and skips between."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(x, y, 3, padding=1) for x, y in ((3, 4), (4, 8), (8, 16)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(x, y, 2, stride=2) for x, y in ((16, 8), (8, 4)))
        self.join = nn.ModuleList(nn.Conv2d(2 * x, x, 3, padding=1) for x in (8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for conv in self.down:
            x = functional.relu(conv(x if not skips else functional.max_pool2d(x, 2)))
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, skips[-2::-1], strict=True):
            x = functional.relu(join(torch.cat([up(x), skip], 1)))
        return x.square().mean()


def hourglass() -> Sample:
    """A small UNet."""
    torch.manual_seed(0)
    return Hourglass().train(), torch.randn(2, 3, 16, 16), None


def _shuffled(profile: explorer.Profile) -> Schedule:
    """Any order, with every convolution's backward pass in two halves."""
    rng = random.Random(0)
    steps = OrderedSteps.of(profile, halved=halves_of(profile.graph))
    left, order = set(range(len(steps.task))), []
    while left:
        order.append(rng.choice(sorted(x for x in left if not steps.task.needs[x] & left)))
        left.remove(order[-1])
    return steps.schedule(order, method="test")


MODELS = [branches, families, hourglass, language, perceptron, residual, shared, tied_attention, transformer]
ITERATIONS = [
    {"optimizer": None},
    {"optimizer": "momentum", "update": "end", "accumulate": True},
    {"optimizer": "adamw-plain", "update": "within"},
]


@pytest.mark.sampled(5)
@pytest.mark.thorough("branches", "residual", "transformer", "hourglass", "families", "shared")
@pytest.mark.parametrize("iteration", ITERATIONS, ids=str)
@pytest.mark.parametrize("make", MODELS)
def test_every_run_takes_what_was_predicted_and_gradients_are_the_same_bits(
    make: Callable[[], Sample], iteration: dict[str, Any]
) -> None:
    model, batch, loss = make()
    profile = explorer.profile(model, batch, loss=loss, **iteration)
    schedules = least_memory(profile).schedules
    for schedule in (*schedules[1:], _shuffled(profile)):
        predicted = explorer.simulate(profile, schedule)
        # This compares results, gradients and buffers with a step of eager mode, bit by bit.
        module = explorer.apply(model, schedule, batch, loss=loss, check=True)
        runs = explorer.measure_runs(module, batch, optimizer=iteration["optimizer"])
        assert [x.peak_bytes for x in runs] == predicted.total_bytes.tolist()
        around = {x: iteration.get(x, False) for x in ("accumulate",)} | {"optimizer": iteration["optimizer"]}
        assert explorer.measure(module, batch, steps=1, **around).peak_bytes == predicted.peak_bytes
    plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
    assert min(explorer.simulate(profile, x).peak_bytes for x in schedules) <= plain.peak_bytes


def test_training_with_updates_within_is_bit_equal() -> None:
    model, batch, loss = residual()
    plain = copy.deepcopy(model)
    profile = explorer.profile(model, batch, loss=loss, optimizer="momentum", update="within")
    module = explorer.apply(model, _shuffled(profile), batch, loss=loss)
    optimizers = [optim.SGD(x.parameters(), lr=0.1, momentum=0.9) for x in (plain, model)]
    explorer.update_within(module, optimizers[1])
    for _ in range(3):
        for each, optimizer in zip((plain, module), optimizers, strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(each(batch[0]), batch[1]).backward()
            optimizer.step()
    for x, y in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(x, y)


def test_an_order_is_saved_and_said(tmp_path: Path) -> None:
    model, batch, loss = perceptron()
    profile = explorer.profile(model, batch, loss=loss)
    schedule = _shuffled(profile)
    schedule.save(tmp_path / "schedule.json")
    assert explorer.load_schedule(tmp_path / "schedule.json") == schedule
    assert set(schedule.order) == {x.id for x in profile.graph.operators if not x.optional}
    moved = schedule.moved(profile.graph)
    stay = [x for x in schedule.order if x not in moved]
    assert moved
    assert stay == sorted(stay)
    assert explorer.keep_all(profile.graph).moved(profile.graph) == ()


def test_what_reads_a_parameter_after_its_update_is_refused() -> None:
    model, batch, loss = perceptron()
    profile = explorer.profile(model, batch, loss=loss, optimizer="sgd", update="within")
    graph = profile.graph
    order = list(explorer.keep_all(graph).order)
    updates = {x.default().reads: x.id for x in graph.operators if x.target == UPDATE_WITHIN}
    # Of the second layer: its weight's gradient and update come before what computes its input's gradient of it.
    (gradient, weight), update = next(x for x in updates.items() if graph.storages[x[0][1]].name == "2.weight")
    reader = next(x for x in order if x >= graph.forward_count and weight in graph.operators[x].default().reads)
    early = [graph.producer[gradient], update]
    order = [x for x in order if x not in early]
    order[order.index(reader) : order.index(reader)] = early
    runs = [Run(x, graph.operators[x].default().name) for x in order]
    with pytest.raises(ValueError, match="which has been updated by then"):
        explorer.simulate(profile, with_frees(graph, runs, method="test", budget_bytes=None))
