"""Too little memory: the operator is named, and everything works afterwards. The allocator's failure is a real one."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import explorer
from explorer.capture import capture
from explorer.execution.out_of_memory import OutOfMemory, named
from explorer.operators import convolution_algorithms
from explorer.schedule import keep_all
from explorer.torch_errors import is_out_of_memory
from tests.fake_cuda.failing import MODELS
from tests.schedules import random_schedule

TOO_MUCH = 2**42


class Wide(nn.Module):
    """Its middle tensor has ``width`` columns."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(8, 9)
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.first(x).unsqueeze(-1) * torch.ones(self.width)).relu().sum()


class WideBackward(nn.Module):
    """Much memory in the backward pass alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Enlarged.apply(self.first(x)).sum()

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)


class Enlarged(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(_ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.ones(TOO_MUCH).sum()


def batch() -> torch.Tensor:
    return torch.ones(4, 8)


def test_profiling_names_the_operator_and_goes_on_afterwards() -> None:
    with pytest.raises(OutOfMemory, match=r"out of memory in operator 'ones'.*Profile a smaller batch"):
        explorer.profile(Wide(TOO_MUCH), batch())
    assert explorer.profile(Wide(4), batch()).eager_peak_bytes


def test_a_scheduled_step_names_the_operator_and_the_pass() -> None:
    for model, told in ((Wide(TOO_MUCH), "the forward pass, operator 'ones'"), (WideBackward(), "the backward pass")):
        scheduled = explorer.apply(model, keep_all(graph_of(model)), batch(), check=False)
        with pytest.raises(OutOfMemory, match=told):
            scheduled(batch()).backward()
        assert all(x.grad is None for x in model.parameters())


class WideInTheMiddle(nn.Module):
    """Much memory in the backward pass when the last layer's gradients are complete."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(Enlarged.apply(self.first(x))).sum()


def test_gradients_that_were_complete_go_with_the_step() -> None:
    """Autograd had accumulated them when memory ran out further back; those of an earlier step stay, and it is said."""
    model = WideInTheMiddle()
    scheduled = explorer.apply(model, keep_all(graph_of(model)), batch(), check=False)
    with pytest.raises(OutOfMemory, match="the backward pass") as caught:
        scheduled(batch()).backward()
    assert "drop them" not in str(caught.value)
    assert all(x.grad is None for x in model.parameters())
    model.last.weight.grad = torch.zeros_like(model.last.weight)
    with pytest.warns(UserWarning, match="begins with gradients"), pytest.raises(OutOfMemory, match="drop them"):
        scheduled(batch()).backward()
    assert [x.grad is None for x in model.parameters()] == [True, True, False, True]


class Failing(TorchDispatchMode):
    """Counts operators that make something, and lets memory run out at one of them."""

    def __init__(self, number: int = -1) -> None:
        super().__init__()
        self.number = number
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        fresh = all(x.alias_info is None for x in func._schema.returns)
        makes = fresh and any(x.numel() for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor))
        self.count += makes
        if makes and self.count == self.number:
            raise torch.OutOfMemoryError("injected")
        return result


@pytest.mark.parametrize("name", ["residual", "gpt"])
def test_memory_may_run_out_anywhere_in_a_step(name: str) -> None:
    """Of all allocations, one by one and on a simulated GPU: ``tests/fake_cuda/test_torch_cuda.py``."""
    torch.manual_seed(0)
    model, (source, target), loss = MODELS[name]()
    graph = capture(model, (source, target), loss=loss).graph
    scheduled = explorer.apply(model, random_schedule(graph, 0, keep=0.6), (source, target), loss=loss, check=False)

    one = torch.ones(())  # else autograd's own, and its failure

    def gradients(mode: Failing) -> list[torch.Tensor]:
        with mode:
            scheduled(source, target).backward(one)
        found = [x.grad for x in model.parameters() if x.grad is not None]
        model.zero_grad(set_to_none=True)
        return found

    whole = Failing()
    expected = gradients(whole)
    for number in range(1, whole.count, whole.count // 6):
        with pytest.raises(OutOfMemory, match="pass"):
            gradients(Failing(number))
        assert all(x.grad is None for x in model.parameters())
        assert all(map(torch.equal, gradients(Failing()), expected))


def graph_of(model: nn.Module) -> explorer.TrainingGraph:
    return capture(model, batch()).graph


def test_what_the_failed_step_held_is_released() -> None:
    """Even while the error is at hand, as in a notebook, which keeps the last one."""
    model = Wide(TOO_MUCH)
    scheduled = explorer.apply(model, keep_all(graph_of(model)), batch(), check=False)
    before = activations()
    with pytest.raises(OutOfMemory) as caught:
        scheduled(batch())
    assert activations() == before
    assert caught.value


def activations() -> int:
    """How many tensors of the shape of the first layer's result there are."""
    return sum(type(x) is torch.Tensor and x.shape == (4, 9) for x in gc.get_objects())


def test_measuring_a_plain_step_says_so() -> None:
    with pytest.raises(OutOfMemory, match="a training step"):
        explorer.measure(Wide(TOO_MUCH), batch())


def test_an_alternative_that_does_not_fit_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where a workspace can be larger than the device: injected where the allocator would fail."""
    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU())
    data = torch.randn(4, 4, 12, 12)
    known = convolution_algorithms._ALGORITHMS["im2col"]

    def failing(*_: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("injected")

    monkeypatch.setitem(convolution_algorithms._ALGORITHMS, "im2col", replace(known, forward=failing))
    profile = explorer.profile(model, data)
    convolution = next(x for x in profile.graph.forward if x.target == "aten.convolution.default")
    assert profile.device.memory_bytes is not None
    workspace = {x.name: profile.cost(x).workspace_bytes for x in convolution.implementations}
    assert workspace["im2col"] == profile.device.memory_bytes
    assert workspace["aten"] < 2**20


def test_an_ordinary_error_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match=r"^no$"), named("this", advice=""):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "GET was unable to find an engine to execute this computation",
    ],
)
def test_each_library_says_in_its_own_words_that_memory_is_out(said: str) -> None:
    assert is_out_of_memory(RuntimeError(said))


@pytest.mark.parametrize(
    "said", ["CUDA error: an illegal memory access was encountered", "NCCL Error 1: unhandled cuda error"]
)
def test_other_errors_of_a_device_are_not_of_its_memory(said: str) -> None:
    assert not is_out_of_memory(RuntimeError(said))
