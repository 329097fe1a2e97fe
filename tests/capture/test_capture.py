"""Capture: what ends up in the graph, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional

from explorer.capture import capture
from explorer.graph import Phase, Role
from tests.execution.models import branches, shared, tied_attention


class Branching(nn.Module):
    """Chooses by the value of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if y.sum() > 0:  # the line to be named
            y = y * 2
        return y.sum()


class Selecting(nn.Module):
    """Its shapes depend on values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y[y > 0].sum()


def test_operators_know_their_layer_and_phase() -> None:
    model, batch, loss = branches()
    graph = capture(model, batch, loss=loss).graph
    layers = {x.layer for x in graph.operators}
    assert {"stem", "norm", "left", "right.0", "right.1", "right.3", "pool", "head"} <= layers
    backward = {x.layer for x in graph.backward if "convolution" in x.name}
    assert backward == {"stem", "left", "right.0"}
    assert graph.operators[graph.forward_count].target == "explorer.tangents"


def test_bytes_are_those_of_real_tensors() -> None:
    model, batch, loss = branches()
    graph = capture(model, batch, loss=loss).graph
    parameters = sum(x.bytes for x in graph.storages if x.role is Role.PARAMETER)
    assert parameters == sum(x.nbytes for x in model.parameters())
    gradients = [x for x in graph.storages if x.role is Role.PARAMETER_GRADIENT]
    assert sum(x.bytes for x in gradients) == parameters
    assert all(x.held for x in gradients)
    assert sum(x.bytes for x in graph.storages if x.role is Role.INPUT) == sum(x.nbytes for x in batch)


def test_tied_weights_are_one_storage_with_one_gradient() -> None:
    model, batch, _ = tied_attention()
    graph = capture(model, batch).graph
    assert sum(x.role is Role.PARAMETER for x in graph.storages) == len(list(model.parameters()))
    assert sum(x.role is Role.PARAMETER_GRADIENT for x in graph.storages) == len(list(model.parameters()))


def test_random_operators_are_never_recomputed() -> None:
    model, batch, _ = tied_attention()
    graph = capture(model, batch).graph
    dropouts = [x for x in graph.forward if x.target == "aten.native_dropout.default" and not x.optional]
    assert dropouts
    for operator in dropouts:
        # What draws makes the mask too; what multiplies by the mask reads it.
        assert [x.name for x in operator.implementations if x.first] == ["aten", "in place"]
        again = [x for x in operator.implementations if x.again]
        assert [x.name for x in again] == ["from mask", "from mask, in place"]
        assert all(not x.first and len(x.reads) == 2 and len(x.writes) == 1 for x in again)


def test_frozen_parameters_get_no_gradient() -> None:
    model, batch, _ = shared()
    graph = capture(model, batch).graph
    assert sum(x.role is Role.PARAMETER_GRADIENT for x in graph.storages) == 2


def test_capture_is_repeatable() -> None:
    model, batch, loss = branches()
    first = capture(model, batch, loss=loss).graph
    assert first == capture(model, batch, loss=loss).graph
    assert first.identity == capture(branches()[0], batch, loss=loss).graph.identity


def test_capture_changes_nothing() -> None:
    model, batch, loss = branches()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    state = torch.get_rng_state()
    capture(model, batch, loss=loss)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(not x._forward_hooks and not x._forward_pre_hooks for x in model.modules())


@pytest.mark.parametrize(("model", "line"), [(Branching(), "if y.sum() > 0:"), (Selecting(), "return y[y > 0].sum()")])
def test_value_dependent_models_are_refused_with_their_line(model: nn.Module, line: str) -> None:
    with pytest.raises(ValueError, match="depend on the values of tensors") as caught:
        capture(model, torch.randn(3, 4))
    assert line in str(caught.value)
    assert "test_capture.py" in str(caught.value)


def test_threads_take_turns() -> None:
    with ThreadPoolExecutor(4) as pool:
        graphs = list(pool.map(lambda _: capture(*branches()[:2], loss=functional.cross_entropy).graph, range(8)))
    assert all(graph == graphs[0] for graph in graphs)


def test_evaluation_mode_is_refused() -> None:
    with pytest.raises(ValueError, match=r"call model.train\(\)"):
        capture(nn.Linear(2, 2).eval(), torch.randn(1, 2))


def test_a_loss_needs_a_pair() -> None:
    with pytest.raises(ValueError, match=r"pair \(inputs, target\); it is a Tensor"):
        capture(nn.Linear(2, 2), torch.randn(1, 2), loss=functional.mse_loss)


def test_a_frozen_model_is_refused() -> None:
    model = nn.Linear(2, 2).requires_grad_(requires_grad=False)
    with pytest.raises(ValueError, match="every parameter frozen"):
        capture(model, torch.randn(1, 2))


def test_phases_are_in_order() -> None:
    model, batch, loss = branches()
    phases = [x.phase for x in capture(model, batch, loss=loss).graph.operators]
    assert phases == sorted(phases, key=[Phase.FORWARD, Phase.BACKWARD].index)
