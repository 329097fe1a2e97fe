"""Fake tensors lie in memory as real ones do: a schedule writes over tensors that are laid out alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from explorer.capture import fakes
from explorer.capture.fakes import mended

aten = torch.ops.aten

SOURCES = {
    "transposed": lambda: torch.rand(2, 4, 6, 3).mT,
    "channels last": lambda: torch.rand(2, 4, 6, 4).to(memory_format=torch.channels_last),
    "rows": lambda: torch.rand(2, 6, 4).mT,
    "contiguous": lambda: torch.rand(2, 4, 6),
    "a part": lambda: torch.rand(3, 6, 8)[1:, :4, 1:7],
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


def _of_norm(operator: Any, lay: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], list[Any]]:
    """The backward operator of a normalisation, with a gradient laid out by ``lay``."""

    def call(x: torch.Tensor) -> list[Any]:
        samples, channels, *sizes = x.shape
        gradient, wanted = lay(torch.rand(x.shape)), [True, True, True]
        mean, deviation, weight = torch.rand(channels), torch.rand(channels), torch.rand(channels)
        if operator is aten.native_batch_norm_backward.default:
            return [operator, gradient, x, weight, None, None, mean, deviation, True, 1e-5, wanted]
        if operator is aten.native_group_norm_backward.default:
            groups = torch.rand(samples, 2)
            return [operator, gradient, x, groups, groups, weight, samples, channels, math.prod(sizes), 2, wanted]
        rows, last = torch.rand(*x.shape[:-1], 1), torch.rand(x.shape[-1])
        return [operator, gradient, x, [x.shape[-1]], rows, rows, last, last, wanted]

    return call


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last) if x.ndim == 4 else x


_LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "channels last": _channels_last,
    "transposed": lambda x: x.mT.contiguous().mT,
}
_NORMS = {
    "batch norm's": aten.native_batch_norm_backward.default,
    "group norm's": aten.native_group_norm_backward.default,
    "layer norm's": aten.native_layer_norm_backward.default,
}


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
    **{f"{x}, {y} gradient": _of_norm(_NORMS[x], _LAYOUTS[y]) for x in _NORMS for y in _LAYOUTS},
    "glu's": lambda x: [aten.glu_backward.default, torch.rand_like(x).narrow(1, 0, x.shape[1] // 2), x, 1],
    "reflection's": lambda x: [
        *(aten.reflection_pad2d_backward.default, aten.reflection_pad2d.default(torch.rand_like(x), [1] * 4)),
        *(x, [1] * 4),
    ],
    "replication's": lambda x: [
        *(aten.replication_pad2d_backward.default, aten.replication_pad2d.default(torch.rand_like(x), [1] * 4)),
        *(x, [1] * 4),
    ],
    "channel shuffle": _of_source(aten.channel_shuffle.default, 2),
    "cross-entropy": lambda x: [aten.binary_cross_entropy.default, x, torch.rand(x.shape), None, 0],
    "cross-entropy, mean": lambda x: [aten.binary_cross_entropy.default, x, torch.rand(x.shape), None, 1],
    "cross-entropy's": lambda x: [aten.binary_cross_entropy_backward.default, torch.rand(x.shape), x, x, None, 0],
    "clamp": _of_source(aten.clamp.default, 0, 1),
    "select scatter": lambda x: [aten.select_scatter.default, x, torch.rand(x.select(1, 0).shape), 1, 0],
    "slice scatter": lambda x: [aten.slice_scatter.default, x, torch.rand(x[:, :2].shape), 1, 0, 2],
    "diagonal scatter": lambda x: [aten.diagonal_scatter.default, x, torch.rand(x.diagonal().shape)],
    "as strided scatter": lambda x: [aten.as_strided_scatter.default, x, torch.rand(2), [2], [1], x.storage_offset()],
    "tril": _of_source(aten.tril.default),
}


@pytest.mark.parametrize("call", ["select scatter", "slice scatter", "diagonal scatter"])
def test_what_is_scattered_into_an_expanded_tensor_lies_as_a_copy_of_it(call: str) -> None:
    operator, *args = CALLS[call](torch.rand(4, 6).t().expand(3, 6, 4))
    with mended(), FakeTensorMode() as mode:
        fake = operator(*(mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in args))
    assert fake.stride() == operator(*args).stride()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("call", CALLS)
def test_strides_are_the_real_ones(call: str, source: str) -> None:
    torch.manual_seed(0)
    operator, *args = CALLS[call](SOURCES[source]())
    real = operator(*args)
    with mended(), FakeTensorMode() as mode:
        fake = operator(*(mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in args))
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (real, fake)), strict=True)
    for a, b in pairs:
        assert a.stride() == b.stride()
        if a.ndim:  # the memory of sums that are losses is another matter: explorer/capture/eager_memory.py
            assert a.untyped_storage().nbytes() == b.untyped_storage().nbytes()


def test_bags_begin_more_memory_than_they_take() -> None:
    args = [torch.rand(8, 4), torch.zeros(6, dtype=torch.long), torch.tensor([0, 3]), False, 1, False, None, True]
    real = aten._embedding_bag.default(*args)
    with mended(), FakeTensorMode() as mode:
        fake = aten._embedding_bag.default(*(mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in args))
    for a, b in zip(real, fake, strict=True):
        assert (a.shape, a.untyped_storage().nbytes()) == (b.shape, b.untyped_storage().nbytes())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_normalisation_that_is_not_taken_apart_has_the_results_of_one_that_is(
    kind: str, *, weighted: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looks() -> list[Any]:
        with FakeTensorMode(), mended():
            source = torch.empty(4, 6, 5, 3, dtype=dtype, device=kind)
            mean, deviation, weight = (torch.empty(6, device=kind) for _ in range(3))
            given = (weight, weight) if weighted else (None, None)
            forward = aten._native_batch_norm_legit_functional(source, *given, mean, deviation, True, 0.1, 1e-5)
            backward = aten.native_batch_norm_backward
            wanted = [True, weighted, False]
            made = backward(source, source, given[0], mean, deviation, *forward[1:3], True, 1e-5, wanted)
            return [x if x is None else (x.shape, x.stride(), x.dtype, x.device) for x in (*forward, *made)]

    made: list[object] = []

    def noted(quick: Callable[..., object]) -> Callable[..., object]:
        return lambda *args: made.append(quick(*args)) or made[-1]

    monkeypatch.setattr(fakes, "_QUICK", {name: noted(x) for name, x in vars(fakes)["_QUICK"].items()})
    quick = looks()
    assert len(made) == 2
    assert None not in made
    monkeypatch.setattr(fakes, "_QUICK", {})
    assert quick == looks()
