"""Attention: PyTorch's fused kernels, and plain products of matrices.

Which fused kernel is captured (flash, memory-efficient) is PyTorch's choice for the device, the dtype and the shapes.
The plain products take memory for the whole matrix of weights, but their backward pass reads the inputs alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.registry import Variant, all_arguments, is_precise, output_of, rule, value_of

aten = torch.ops.aten
_Layout = tuple[Sequence[int], Sequence[int]]


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def forward(node: fx.Node) -> Iterator[Variant]:
    """Plain products that also give the sums which the fused backward kernel reads."""
    layouts = [_layout(x) for x in value_of(node)]
    if all(output_of(node, x) is not None for x in (0, 1)):
        yield from _math(node, attention, layouts)


@rule(
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    aten._scaled_dot_product_efficient_attention_backward.default,
    aten._scaled_dot_product_flash_attention_backward.default,
)
def backward(node: fx.Node) -> Iterator[Variant]:
    """Plain products."""
    layouts = [_layout(x) for x in value_of(node)[:3]]
    if all(output_of(node, x) is not None for x in (0, 1, 2)):
        yield from _math(node, attention_backward, layouts)


def _math(node: fx.Node, target: Any, layouts: list[_Layout]) -> Iterator[Variant]:
    assert callable(node.target)
    names = (x.name for x in node.target._schema.arguments)  # type: ignore[attr-defined]  # an operator of ATen
    given = dict(zip(names, all_arguments(node), strict=True))
    inputs = [given[x] for x in ("grad_out", "grad_out_", "query", "key", "value") if x in given]
    query, key = given["query"], given["key"]
    same_heads = value_of(query).shape[:2] == value_of(key).shape[:2]
    masked = given.get("attn_mask") is not None or given.get("attn_bias") is not None
    if masked or given["dropout_p"] or not same_heads or not is_precise(*inputs):
        return
    scale = given["scale"] if given["scale"] is not None else value_of(query).shape[-1] ** -0.5
    yield Variant(
        "math",
        target,
        (*inputs, *layouts),
        tuple(range(len(layouts))),
        kwargs={"causal": given["is_causal"], "scale": scale},
        exact=False,
        optimization=Optimization.CONVOLUTION,
    )


def _layout(tensor: torch.Tensor) -> _Layout:
    return list(tensor.shape), list(tensor.stride())


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *layouts: _Layout, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the logarithm of each row's sum of exponentials."""
    weights = _scores(query, key, causal=causal, scale=scale)
    total = weights.logsumexp(-1)
    weights.sub_(total.unsqueeze(-1)).exp_()
    return _placed(weights.matmul(value), layouts[0]), _placed(total, layouts[1])


def attention_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *layouts: _Layout,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of query, key and value."""
    weights = _scores(query, key, causal=causal, scale=scale).softmax(-1)
    of_value = _placed(weights.transpose(-2, -1).matmul(gradient), layouts[2])
    of_scores = gradient.matmul(value.transpose(-2, -1))
    of_scores = aten._softmax_backward_data.default(of_scores, weights, -1, weights.dtype).mul_(scale)
    of_query = _placed(of_scores.matmul(key), layouts[0])
    of_key = _placed(of_scores.transpose(-2, -1).matmul(query), layouts[1])
    return of_query, of_key, of_value


def _scores(query: torch.Tensor, key: torch.Tensor, *, causal: bool, scale: float) -> torch.Tensor:
    scores = query.matmul(key.transpose(-2, -1)).mul_(scale)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(1)
        scores.masked_fill_(later, -torch.inf)
    return scores


def _placed(tensor: torch.Tensor, layout: _Layout) -> torch.Tensor:
    """In the layout that PyTorch's own kernel gives its result."""
    shape, strides = layout
    if tensor.stride() == tuple(strides):
        return tensor
    return tensor.new_empty_strided(shape, strides).copy_(tensor)
