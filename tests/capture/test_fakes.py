"""Fake tensors lie in memory as real ones do: a schedule writes over tensors that are laid out alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from explorer.capture.fakes import mended

aten = torch.ops.aten

SOURCES = {
    "transposed": lambda: torch.rand(2, 4, 6, 3).mT,
    "channels last": lambda: torch.rand(2, 4, 6, 4).to(memory_format=torch.channels_last),
    "rows": lambda: torch.rand(2, 6, 4).mT,
    "contiguous": lambda: torch.rand(2, 4, 6),
}


def _of_gradient(operator: Any, *rest: Any) -> Callable[[torch.Tensor], list[Any]]:
    return lambda x: [operator, torch.rand_like(x), x, *rest]


def _of_contiguous_gradient(operator: Any, *rest: Any) -> Callable[[torch.Tensor], list[Any]]:
    return lambda x: [operator, torch.rand(x.shape), x, *rest]


def _of_loss(operator: Any, reduction: int, *rest: Any) -> Callable[[torch.Tensor], list[Any]]:
    return lambda x: [
        operator,
        torch.ones(()) if reduction else torch.rand_like(x),
        x,
        torch.rand_like(x),
        reduction,
        *rest,
    ]


def _of_source(operator: Any, *rest: Any) -> Callable[[torch.Tensor], list[Any]]:
    return lambda x: [operator, x, *rest]


_ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    "gelu": (aten.gelu_backward.default,),
    "silu": (aten.silu_backward.default,),
    "sigmoid": (aten.sigmoid_backward.default,),
    "tanh": (aten.tanh_backward.default,),
    "hardswish": (aten.hardswish_backward.default,),
    "hardsigmoid": (aten.hardsigmoid_backward.default,),
    "hardtanh": (aten.hardtanh_backward.default, -1, 1),
    "leaky relu": (aten.leaky_relu_backward.default, 0.1, False),
    "mish": (aten.mish_backward.default,),
    "softplus": (aten.softplus_backward.default, 1, 20),
    "threshold": (aten.threshold_backward.default, 0),
    "softmax": (aten._softmax_backward_data.default, 1, torch.float32),
    "log softmax": (aten._log_softmax_backward_data.default, 1, torch.float32),
}

CALLS: dict[str, Callable[[torch.Tensor], list[Any]]] = {
    **{name: _of_gradient(*x) for name, x in _ACTIVATIONS.items()},
    **{f"{name}, contiguous gradient": _of_contiguous_gradient(*x) for name, x in _ACTIVATIONS.items()},
    **{f"mse, {x}": _of_loss(aten.mse_loss_backward.default, x) for x in (0, 1)},
    **{f"smooth l1, {x}": _of_loss(aten.smooth_l1_loss_backward.default, x, 1.0) for x in (0, 1)},
    **{f"huber, {x}": _of_loss(aten.huber_loss_backward.default, x, 1.0) for x in (0, 1)},
    **{f"soft margin, {x}": _of_loss(aten.soft_margin_loss_backward.default, x) for x in (0, 1)},
    "elu": lambda x: [aten.elu_backward.default, torch.rand_like(x), 1.0, 1.0, 1.0, False, x],
    "dropout": _of_source(aten.native_dropout.default, 0.3, True),
    "dropout's": lambda x: [aten.native_dropout_backward.default, torch.rand_like(x), x > 0, 1.5],
    "roll": _of_source(aten.roll.default, [1], [1]),
    "flip": _of_source(aten.flip.default, [1]),
    "cumsum": _of_source(aten.cumsum.default, 1),
    "sort": _of_source(aten.sort.default, 1),
    "batch norm": _of_source(aten._native_batch_norm_legit.no_stats, None, None, True, 0.1, 1e-5),
    "layer norm": lambda x: [aten.native_layer_norm.default, x, [x.shape[-1]], None, None, 1e-5],
    "clamp": _of_source(aten.clamp.default, 0, 1),
    "tril": _of_source(aten.tril.default),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("call", CALLS)
def test_strides_are_the_real_ones(call: str, source: str) -> None:
    torch.manual_seed(0)
    operator, *args = CALLS[call](SOURCES[source]())
    real = operator(*args)
    with mended(), FakeTensorMode() as mode:
        fake = operator(*(mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in args))
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (real, fake)), strict=True)
    assert all(a.stride() == b.stride() for a, b in pairs)
