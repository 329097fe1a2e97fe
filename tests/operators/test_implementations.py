"""Every implementation of every operator against PyTorch's own, one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from explorer.capture import Capture, capture
from explorer.capture.traced import Source
from explorer.graph import Implementation, Operator, When
from tests.operators.running import Running, Scaled, fake_tangents, gradient_function

IMAGE, VOLUME, SEQUENCE, ROWS = (2, 4, 9, 7), (2, 4, 6, 5, 4), (3, 4, 11), (6, 10)
BATCH = (4, 4, 8, 8)
TOKENS = (4, 130, 4)

CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "relu": (nn.ReLU, IMAGE),
    "leaky_relu": (lambda: nn.LeakyReLU(0.1), IMAGE),
    "leaky_relu_usual": (nn.LeakyReLU, IMAGE),
    "hardtanh": (lambda: nn.Hardtanh(-0.5, 1.25), IMAGE),
    "hardtanh_usual": (nn.Hardtanh, IMAGE),
    "relu6": (nn.ReLU6, IMAGE),
    "relu6_in_place": (lambda: nn.ReLU6(inplace=True), IMAGE),
    "hardswish": (nn.Hardswish, IMAGE),
    "sigmoid": (nn.Sigmoid, IMAGE),
    "tanh": (nn.Tanh, IMAGE),
    "gelu": (nn.GELU, IMAGE),
    "silu": (nn.SiLU, IMAGE),
    "batch_norm_rows": (lambda: shifted(nn.BatchNorm1d(10)), ROWS),
    "batch_norm_1d": (lambda: shifted(nn.BatchNorm1d(4)), SEQUENCE),
    "batch_norm_2d": (lambda: shifted(nn.BatchNorm2d(4)), IMAGE),
    "batch_norm_3d": (lambda: shifted(nn.BatchNorm3d(4)), VOLUME),
    "batch_norm_channels": (lambda: shifted(nn.BatchNorm2d(35)), (2, 35, 9, 7)),
    "batch_norm_channels_1d": (lambda: shifted(nn.BatchNorm1d(9)), (3, 9, 11)),
    "batch_norm_channels_3d": (lambda: shifted(nn.BatchNorm3d(8)), (2, 8, 3, 5, 4)),
    "batch_norm_channels_rows": (lambda: shifted(nn.BatchNorm1d(35)), (24, 35)),
    "batch_norm_channels_pixel": (lambda: shifted(nn.BatchNorm2d(35)), (24, 35, 1, 1)),
    "batch_norm_channels_place": (lambda: shifted(nn.BatchNorm1d(35)), (24, 35, 1)),
    "batch_norm_channels_plain": (lambda: nn.BatchNorm2d(8, affine=False), (2, 8, 5, 4)),
    "batch_norm_plain": (lambda: nn.BatchNorm2d(4, affine=False), IMAGE),
    "batch_norm_untracked": (lambda: shifted(nn.BatchNorm2d(4, track_running_stats=False)), IMAGE),
    "instance_norm": (lambda: nn.InstanceNorm2d(4), IMAGE),
    "layer_norm": (lambda: shifted(nn.LayerNorm(10)), ROWS),
    "layer_norm_2d": (lambda: shifted(nn.LayerNorm([9, 7])), IMAGE),
    "layer_norm_plain": (lambda: nn.LayerNorm(10, elementwise_affine=False), ROWS),
    "layer_norm_unbiased": (lambda: shifted(nn.LayerNorm(10, bias=False)), ROWS),
    "rms_norm": (lambda: shifted(nn.RMSNorm(10)), ROWS),
    "rms_norm_plain": (lambda: nn.RMSNorm(10, elementwise_affine=False), ROWS),
    "group_norm": (lambda: shifted(nn.GroupNorm(2, 4)), IMAGE),
    "group_norm_plain": (lambda: nn.GroupNorm(2, 4, affine=False), IMAGE),
    "softmax": (lambda: nn.Softmax(1), ROWS),
    "log_softmax": (lambda: nn.LogSoftmax(1), ROWS),
    "softmax_channels": (lambda: nn.Softmax(1), IMAGE),
    "log_softmax_channels": (lambda: nn.LogSoftmax(1), IMAGE),
    "cross_entropy": (lambda: Classified((130, 7), reduction="mean"), (130, 7)),
    "cross_entropy_wide": (lambda: Classified((9, 3001), reduction="mean"), (9, 3001)),
    "cross_entropy_sum": (lambda: Classified((9, 7), reduction="sum"), (9, 7)),
    "cross_entropy_none": (lambda: Classified((9, 700), reduction="none"), (9, 700)),
    "cross_entropy_ignored": (lambda: Classified((33, 7), ignore_index=3), (33, 7)),
    "cross_entropy_weighted": (lambda: Classified((33, 7), weight=torch.rand(7)), (33, 7)),
    "cross_entropy_smoothed": (lambda: Classified((9, 700), label_smoothing=0.1), (9, 700)),
    "cross_entropy_smoothed_weighted": (
        lambda: Classified((9, 700), label_smoothing=0.2, weight=torch.rand(700)),
        (9, 700),
    ),
    "cross_entropy_smoothed_pixels": (
        lambda: Classified((9, 700, 2, 1), label_smoothing=0.2, ignore_index=0),
        (9, 700, 2, 1),
    ),
    "cross_entropy_smoothed_none": (lambda: Classified((9, 1400), label_smoothing=0.2, reduction="none"), (9, 1400)),
    "cross_entropy_pixels": (lambda: Classified((9, 4, 5, 3), ignore_index=1), (9, 4, 5, 3)),
    "cross_entropy_places": (lambda: Classified((9, 4, 5), reduction="mean"), (9, 4, 5)),
    "nll_loss": (lambda: Picked(0.5), (33, 7)),
    "head": (lambda: Head(50), (40, 4)),
    "head_long": (lambda: Head(60, bias=True), (130, 4)),
    "head_sum": (lambda: Head(50, reduction="sum"), (40, 4)),
    "head_none": (lambda: Head(1500, reduction="none"), (40, 4)),
    "head_ignored": (lambda: Head(50, ignore_index=3), (40, 4)),
    "head_weighted": (lambda: Head(50, weight=torch.rand(50), ignore_index=2), (40, 4)),
    "head_smoothed": (lambda: Head(1500, label_smoothing=0.1, ignore_index=1), (40, 4)),
    "head_smoothed_sum": (lambda: Head(1500, label_smoothing=0.1, reduction="sum"), (40, 4)),
    "head_capped": (lambda: Head(60, cap=2.0), (40, 4)),
    "head_shifted": (lambda: Head(60, shift=True), (1, 161, 4)),
    "head_capped_shifted": (lambda: Head(90, cap=2.0, shift=True), (2, 112, 4)),
    "head_shifted_capped": (lambda: Head(90, cap=2.0, shift=True, cap_first=False), (2, 100, 4)),
    "head_frozen": (lambda: Head(50, frozen=True), (40, 4)),
    "head_transposed": (lambda: Head(50, transposed=True), (40, 4)),
    "head_squashed": (lambda: Head(60, squash=nn.functional.silu), (40, 4)),
    "embedding_tied": (lambda: Tied(padding_idx=None), (6, 5, 4)),
    "embedding_tied_padding": (lambda: Tied(padding_idx=2), (6, 5, 4)),
    "embedding_tied_scaled": (lambda: Tied(scale_grad_by_freq=True), (6, 5, 4)),
    "feed_forward": (lambda: FeedForward(nn.GELU()), TOKENS),
    "feed_forward_tanh": (lambda: FeedForward(nn.GELU("tanh"), bias=False), TOKENS),
    "feed_forward_relu": (lambda: FeedForward(nn.ReLU()), TOKENS),
    "feed_forward_plain": (lambda: FeedForward(plain_gelu), TOKENS),
    "feed_forward_swish": (lambda: FeedForward(lambda x: x * torch.sigmoid(x)), TOKENS),
    "feed_forward_squared": (lambda: FeedForward(lambda x: torch.relu(x).square()), TOKENS),
    "feed_forward_dropout": (lambda: FeedForward(nn.Sequential(nn.GELU(), nn.Dropout(0.3))), TOKENS),
    "feed_forward_gated": (lambda: FeedForward(nn.SiLU(), gated=True, bias=False), TOKENS),
    "feed_forward_gated_bias": (lambda: FeedForward(nn.GELU(), gated=True), TOKENS),
    "feed_forward_transposed": (lambda: FeedForward(nn.GELU(), stored=True), TOKENS),
    "feed_forward_frozen": (lambda: FeedForward(nn.GELU(), frozen=True), TOKENS),
    "dropout": (lambda: nn.Dropout(0.4), IMAGE),
    "dropout_in_place": (lambda: nn.Dropout(0.3, inplace=True), IMAGE),
    "dropout_all": (lambda: nn.Dropout(1.0), IMAGE),
    "max_pool_1d": (lambda: nn.MaxPool1d(3, 2, 1), SEQUENCE),
    "max_pool_2d": (lambda: nn.MaxPool2d(2), IMAGE),
    "max_pool_padded": (lambda: nn.MaxPool2d(3, 2, 1), IMAGE),
    "max_pool_overlapping": (lambda: nn.MaxPool2d((3, 2), (1, 2), (1, 0)), IMAGE),
    "max_pool_dilated": (lambda: nn.MaxPool2d(3, 2, 1, dilation=2), IMAGE),
    "max_pool_ceil": (lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "max_pool_3d": (lambda: nn.MaxPool3d((3, 2, 2), 2, (1, 0, 1), ceil_mode=True), VOLUME),
    "max_pool_largest": (lambda: nn.MaxPool2d((15, 17), 1, (7, 8)), (1, 2, 16, 18)),
    "convolution_1d": (lambda: nn.Conv1d(4, 6, 3, padding=1), SEQUENCE),
    "convolution_2d": (lambda: nn.Conv2d(4, 6, 3, padding=1), BATCH),
    "convolution_valid": (lambda: nn.Conv2d(4, 6, 3, padding="valid"), BATCH),
    "convolution_valid_1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding="valid"), SEQUENCE),
    "convolution_valid_3d": (lambda: nn.Conv3d(4, 6, 2, padding="valid"), VOLUME),
    "convolution_same": (lambda: nn.Conv2d(4, 6, 3, padding="same", groups=2), BATCH),
    "convolution_unbiased": (lambda: nn.Conv2d(4, 6, 3, 2, 1, bias=False), BATCH),
    "convolution_dilated": (lambda: nn.Conv2d(4, 6, 3, 2, 2, dilation=2), BATCH),
    "convolution_3d": (lambda: nn.Conv3d(4, 6, 3, padding=1), VOLUME),
    "convolution_1x1": (lambda: nn.Conv2d(4, 6, 1), BATCH),
    "convolution_1x1_1d": (lambda: nn.Conv1d(4, 6, 1, bias=False), SEQUENCE),
    "convolution_1x1_strided": (lambda: nn.Conv2d(4, 6, 1, stride=2), BATCH),
    "convolution_grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), BATCH),
    "convolution_depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, bias=False), BATCH),
    "convolution_transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1), BATCH),
    "convolution_transposed_1d": (lambda: nn.ConvTranspose1d(4, 6, 3, 2), SEQUENCE),
    "convolution_transposed_3d": (lambda: nn.ConvTranspose3d(4, 6, 3, groups=2), VOLUME),
    "convolution_frozen": (lambda: nn.Conv2d(4, 6, 3).requires_grad_(requires_grad=False), BATCH),
    "relu_pixels": (lambda: Pixels(nn.ReLU()), IMAGE),
    "batch_norm_channels_pixels": (lambda: Pixels(shifted(nn.BatchNorm2d(9))), (2, 9, 9, 7)),
    "batch_norm_pixels": (lambda: Pixels(shifted(nn.BatchNorm2d(4))), IMAGE),
    "group_norm_pixels": (lambda: Pixels(shifted(nn.GroupNorm(2, 4))), IMAGE),
    "dropout_pixels": (lambda: Pixels(nn.Dropout(0.4)), IMAGE),
    "max_pool_pixels": (lambda: Pixels(nn.MaxPool2d(3, 2, 1)), IMAGE),
    "convolution_pixels": (lambda: Pixels(nn.Conv2d(4, 6, 3, padding=1)), BATCH),
    "convolution_pixels_all": (lambda: Pixels(nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)), BATCH),
    "linear": (lambda: nn.Linear(10, 7), ROWS),
    "linear_sequence": (lambda: nn.Linear(11, 7), SEQUENCE),
    "skip": (lambda: Skip(0.5), IMAGE),
    "attention": (lambda: Attention(causal=False), (2, 5, 8)),
    "attention_masked": (lambda: Masked(5), (2, 5, 8)),
    "attention_causal": (lambda: Attention(causal=True), (2, 5, 8)),
}


def shifted(module: nn.Module) -> nn.Module:
    """Weights and biases as they are after some training."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in module.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data.copy_(1 + 0.3 * noise if name == "weight" else noise)
    return module


class Pixels(nn.Module):
    """A module whose input has the channels of a pixel side by side."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x.contiguous(memory_format=torch.channels_last))


class Skip(nn.Module):
    """A sum whose parts are both of no use afterwards, and a product."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x.sin(), x.cos(), alpha=2) + x.exp() * self.factor


class Classified(nn.Module):
    """Cross-entropy against classes that come in turn."""

    def __init__(self, shape: tuple[int, ...], **options: Any) -> None:
        super().__init__()
        samples, classes, *places = shape
        self.loss = nn.CrossEntropyLoss(**options)
        self.register_buffer("target", (torch.arange(samples * math.prod(places)) % classes).view(samples, *places))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.loss(x, self.target)


class Head(nn.Module):
    """A layer for more classes than it has inputs, and a loss on what it gives alone."""

    def __init__(
        self,
        classes: int,
        *,
        bias: bool = False,
        cap: float | None = None,
        cap_first: bool = True,
        shift: bool = False,
        frozen: bool = False,
        transposed: bool = False,
        squash: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.layer = nn.Linear(4, classes, bias=bias).requires_grad_(not frozen)
        self.stored = nn.Parameter(torch.randn(4, classes)) if transposed else None
        self.cap, self.cap_first, self.shift, self.squash = cap, cap_first, shift, squash
        self.loss = nn.CrossEntropyLoss(**options)
        self.register_buffer("target", torch.arange(230) % classes)

    def capped(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.layer(x) if self.stored is None else x @ self.stored
        logits = self.capped(logits) if self.cap_first else logits
        logits = logits[:, :-1] if self.shift else logits
        logits = logits if self.cap_first else self.capped(logits)
        logits = logits if self.squash is None else self.squash(logits)
        rows = logits.reshape(-1, logits.shape[-1])
        return self.loss(rows, self.target[: len(rows)])


def plain_gelu(x: torch.Tensor) -> torch.Tensor:
    """In calls of its own, as some models have it."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class FeedForward(nn.Module):
    """A transformer's feed-forward layer with as many rows as it takes to go by parts."""

    def __init__(
        self,
        activation: Callable[[torch.Tensor], torch.Tensor],
        *,
        gated: bool = False,
        bias: bool = True,
        stored: bool = False,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.first = nn.Linear(4, 24, bias=bias).requires_grad_(not frozen)
        self.gate = nn.Linear(4, 24, bias=bias) if gated else None
        self.second = nn.Linear(24, 4, bias=bias).requires_grad_(not frozen)
        self.stored = nn.ParameterList([nn.Parameter(torch.randn(4, 24)), nn.Parameter(torch.randn(24, 4))])
        self.is_stored = stored

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_stored:
            rows = self.activation(torch.addmm(self.first.bias, x.view(-1, 4), self.stored[0]))
            return torch.addmm(self.second.bias, rows, self.stored[1]).view_as(x)
        wide = self.first(x)
        return self.second(self.activation(wide) if self.gate is None else self.activation(self.gate(x)) * wide)


class Tied(nn.Module):
    """An embedding whose weight is a layer's, too; some tokens occur often."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4, **options)
        self.register_buffer("tokens", torch.arange(30).square().view(6, 5) % 9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(self.embedding(self.tokens) + x, self.embedding.weight)


class Picked(nn.Module):
    """The same loss of log-probabilities that are of use otherwise, too."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = nn.functional.log_softmax(x, 1)
        return nn.functional.nll_loss(found, torch.arange(len(x)) % x.shape[1]) + self.share * found.square().mean()


class Masked(nn.Module):
    """Attention in plain products, where one row attends to nothing."""

    def __init__(self, length: int) -> None:
        super().__init__()
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        mask[1] = False
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.view(2, 5, 2, 4).transpose(1, 2) for y in (x, x.sin(), x.cos()))
        with sdpa_kernel(SDPBackend.MATH):
            return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)


class Attention(nn.Module):
    """Two heads."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.view(2, 5, 2, 4).transpose(1, 2) for y in (x, x.sin(), x.cos()))
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


@cache
def captured_case(name: str, dtype: torch.dtype) -> Capture:
    """Captured once for all tests of a case: shapes and strides are all that a capture depends on."""
    model, x = case(name, dtype)
    return capture(model, x)


def case(name: str, dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor]:
    """A model that is the same each time, and its batch."""
    torch.manual_seed(0)
    make, shape = CASES[name]
    return Scaled(make(), shape).train().to(dtype), torch.randn(shape, dtype=dtype)


def prepared(name: str, dtype: torch.dtype, *, special: bool = False) -> tuple[Capture, Running, nn.Module]:
    """A step that has run once."""
    captured = captured_case(name, dtype)
    model, x = case(name, dtype)
    if special:
        tiny = torch.finfo(dtype).tiny / 4
        values = [torch.nan, torch.inf, -torch.inf, -0.0, 0.0, tiny, -tiny, 6.0, -0.5, 1.25]
        x.view(-1)[:: max(1, x.numel() // 40)] = 0.0
        for number, value in enumerate(values):
            x.view(-1)[3 * number + 1] = value
    running = Running(captured, model, [x])
    running.run([torch.randn_like(t) for t in fake_tangents(captured)])
    return captured, running, model


def alternatives(captured: Capture) -> list[tuple[Operator, Implementation]]:
    return [
        (operator, implementation)
        for operator in captured.graph.operators
        for implementation in operator.implementations[0 if operator.optional else 1 :]
    ]


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """As whole numbers, every NaN the same."""
    if not tensor.is_floating_point():
        return tensor
    return (
        torch.where(tensor.isnan(), torch.nan, tensor)
        .contiguous()
        .view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])
    )


def own_results(captured: Capture, results: tuple[Any, ...], **options: Any) -> dict[Any, Any]:
    """What PyTorch's own call gives for these results; an optional operator's are an earlier one's."""
    running: Running = options.pop("running")
    for candidate in captured.graph.operators:
        call = captured.built.calls[candidate.id, candidate.implementations[0].name]
        if not candidate.optional and {x for x in results if x is not None} & set(call.results):
            torch.manual_seed(7)
            return dict(zip(call.results, running.outcome(call, **options), strict=False))
    return {}


@pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])
@pytest.mark.sampled(60)
@pytest.mark.parametrize("name", CASES)
def test_same_results(name: str, *, special: bool) -> None:
    """The same bits if that is claimed, else within a hundred-thousandth of double precision."""
    captured, running, _ = prepared(name, torch.float32, special=special)
    for operator, implementation in alternatives(captured):
        if special and not implementation.exact:
            continue
        call = captured.built.calls[operator.id, implementation.name]
        own = own_results(captured, call.results, running=running)
        precise = own_results(captured, call.results, running=running, dtype=torch.float64)
        if implementation.when is When.AGAIN:
            own = running.values
        torch.manual_seed(7)
        for node, result in zip(call.results, running.outcome(call), strict=True):
            if node is None or node not in own:
                continue
            what = f"{operator.name}: {implementation.name}"
            assert result.dtype == own[node].dtype, what
            assert result.stride() == own[node].stride(), what
            if implementation.exact:
                assert torch.equal(bits_of(result), bits_of(own[node])), what
                continue
            error, size = ((result.double() - precise[node]).abs().max(), precise[node].abs().max())
            assert error <= 1e-5 * size, (what, error / size)


# In these PyTorch's own kernels differ among themselves: not every NaN in the input reaches the result.
OWN_WAYS_WITH_NAN = ("attention", "attention_causal", "convolution_transposed")


@pytest.mark.parametrize("name", [x for x in CASES if x not in OWN_WAYS_WITH_NAN])
def test_special_values_spread_alike(name: str) -> None:
    """NaN and infinity reach the same gradients, through implementations that are not bit-exact too."""
    captured, running, model = prepared(name, torch.float32, special=True)
    inputs = [running.values[x.node] for x in captured.traced.inputs if x.source is Source.INPUT]
    tangents = [running.values[x.node] for x in captured.traced.inputs if x.source is Source.TANGENT]
    for operator, implementation in alternatives(captured):
        if not implementation.first or (implementation.exact and not operator.optional):
            continue
        other = Running(captured, model, inputs)
        other.run(tangents, {operator.id: implementation.name})
        found = [*other.outputs(), *other.gradients()]
        for result, own in zip(found, [*running.outputs(), *running.gradients()], strict=True):
            what = f"{operator.name}: {implementation.name}"
            assert torch.equal(result.isnan(), own.isnan()), what
            assert torch.equal(result[result.isinf()], own[own.isinf()]), what


# One is too slow; the other's gradient is none by design, but divided by how often a token occurs.
NO_GRADCHECK = ("max_pool_largest", "embedding_tied_scaled")


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", [x for x in CASES if x not in NO_GRADCHECK])
def test_gradients(name: str) -> None:
    """In double precision: each implementation of a backward operator is the derivative of the forward pass."""
    captured, _, model = prepared(name, torch.float64)
    batch = [torch.randn(CASES[name][1], dtype=torch.float64)]
    named = dict(model.named_parameters())
    values = [named[x.name.removeprefix("model.")].detach().clone() for x, _ in captured.traced.gradients]
    for operator, implementation in alternatives(captured):
        if implementation.first:
            step = gradient_function(captured, model, {operator.id: implementation.name})
            arguments = [x.requires_grad_() for x in values]
            assert torch.autograd.gradcheck(lambda *x, s=step: s.apply(batch, *x), arguments, fast_mode=True), (
                operator.name,
                implementation.name,
            )
