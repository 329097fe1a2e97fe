"""Schedules that recompute anywhere, forward operators in the forward pass and gradients too, run as predicted."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import explorer
from explorer.capture import capture
from explorer.graph import Phase, Role
from explorer.solvers.methods.baselines.forward_graph import articulation_points
from explorer.solvers.methods.baselines.segments import every_root, segmented
from explorer.solvers.methods.checkmate.nodes import Nodes
from explorer.solvers.methods.checkmate.recomputing import recompute
from tests.execution.models import SAMPLES, applied
from tests.execution.test_exactness import assert_trained_alike
from tests.schedules import random_schedule


@pytest.mark.parametrize("name", SAMPLES)
def test_any_recomputation_is_exact_and_predicted(name: str) -> None:
    model, batch, loss = SAMPLES[name]()
    profile = explorer.profile(model, batch, loss=loss)
    nodes = Nodes.of(profile)
    graph = profile.graph
    orders = [
        recompute(nodes, lambda _stage, _storage: False),
        recompute(nodes, lambda stage, storage: (stage + storage) % 3 > 0),
        segmented(nodes, every_root(articulation_points(nodes))),
    ]
    for number, order in enumerate(orders):
        schedule = nodes.schedule(order, method="test", budget_bytes=None)
        again = {graph.operators[x].phase for x in schedule.recomputed(graph)}
        assert number or again == {Phase.FORWARD, Phase.BACKWARD}
        assert_trained_alike(applied(SAMPLES[name], schedule), SAMPLES[name](), steps=2)
        predicted = explorer.simulate(profile, schedule).peak_bytes
        scheduled = applied(SAMPLES[name], schedule, model)
        measured = explorer.measure(scheduled, batch, steps=1).peak_bytes
        assert abs(predicted - measured) <= 0.01 * measured, (number, predicted, measured)


class _ChangesItsInput(nn.Module):
    """A layer that can run again in a way of its own, and afterwards its input is changed in place."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Conv2d(8, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x)
        x.mul_(2)
        return self.head(made).square().mean()


def test_a_joined_layer_makes_nothing_again_from_an_input_that_is_changed_later() -> None:
    class FeedForward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = nn.Linear(32, 128), nn.Linear(128, 32)
            self.wide.weight.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = self.narrow(torch.nn.functional.gelu(self.wide(x)))
            x.mul_(2)
            return made.square().mean()

    graph = capture(FeedForward(), torch.randn(512, 32)).graph
    (changed,) = (x.id for x in graph.storages if x.role is Role.INPUT)
    reading = [x.name for x in graph.backward for y in x.implementations if changed in y.reads]
    assert not reading


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(8, affine=False), nn.Dropout(0.3), nn.Tanh()], ids=str)
def test_what_reads_an_input_that_is_changed_later_does_not_run_again(layer: nn.Module) -> None:
    torch.manual_seed(0)
    model, batch = _ChangesItsInput(layer), torch.randn(2, 8, 5, 5)
    schedule = random_schedule(capture(model, batch.clone()).graph, 0, keep=0.0)
    trained = []
    for made in (copy.deepcopy(model), explorer.apply(copy.deepcopy(model), schedule, batch.clone(), check=False)):
        torch.manual_seed(1)
        given = batch.clone()
        loss = made(given)
        loss.backward()
        trained.append([loss, given, *(x.grad for x in made.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*trained, strict=True))
