"""A guard against overflow is no question: its clamp leaves finite values alone, and others are as in eager mode."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import explorer
from explorer.capture import capture
from explorer.capture.batch import TrainingStep
from explorer.schedule import keep_all
from tests.capture.test_wide import same_bits, trained
from tests.capture.wide import Body


def of_any_precision(m: Any, x: torch.Tensor) -> torch.Tensor:
    hidden_states = m.linear.weight[0] * x
    if not torch.isfinite(hidden_states).all():
        clamp_value = torch.finfo(hidden_states.dtype).max - 1000
        hidden_states = torch.clamp(hidden_states, min=-clamp_value, max=clamp_value)
    return hidden_states / 2


def of_half(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.linear.weight[0] * x
    if y.dtype == torch.float16 and not torch.isfinite(y).all():
        limit = torch.finfo(y.dtype).max - 1000
        y = torch.clamp(y, min=-limit, max=limit)
    return y / 2


@pytest.mark.parametrize("function", [of_any_precision, of_half])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bits_of_eager_mode(function: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = Body(function).to(dtype)
    x = torch.randn(4, 6, dtype=dtype)
    captured = capture(model, x)
    clamps = any(x.target.startswith("aten.clamp.") for x in captured.graph.operators)
    assert clamps == (function is of_any_precision or dtype is torch.float16)
    plain = copy.deepcopy(model)
    scheduled = explorer.apply(model, keep_all(captured.graph), x)
    largest = torch.finfo(dtype).max
    for value in (1.0, 0.7 * largest, -0.995 * largest, float("inf"), float("nan")):
        x[1, 2] = value
        for owner in (model, plain):
            nn.init.ones_(owner.linear.weight)
        expected = trained(TrainingStep(plain, None), plain, x, None)
        assert same_bits(trained(scheduled, scheduled, x, None), expected), value


def another_limit(m: Any, x: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(x).all():
        limit = torch.finfo(x.dtype).max / 2
        x = torch.clamp(x, min=-limit, max=limit)
    return m.linear(x)


def another_tensor(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    if not torch.isfinite(x).all():
        limit = torch.finfo(y.dtype).max - 1000
        y = torch.clamp(y, min=-limit, max=limit)
    return y


def another_question(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A clamp lets no gradient through where there is no number, and here there is none with such numbers alone."""
    if torch.isinf(x).any():
        limit = torch.finfo(x.dtype).max - 1000
        x = torch.clamp(x, min=-limit, max=limit)
    return m.linear(x)


def another_way(m: Any, x: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(x).all():
        limit = torch.finfo(x.dtype).max - 1000
        x = torch.clamp(x, min=-limit, max=limit)
    else:
        x = x + 1
    return m.linear(x)


def another_name(m: Any, x: torch.Tensor) -> torch.Tensor:
    x = kept = m.linear(x)
    if not torch.isfinite(x).all():
        limit = torch.finfo(x.dtype).max - 1000
        x = torch.clamp(x, min=-limit, max=limit)
    x.mul_(2)  # and what is kept, unless that ran
    return x * kept


def another_reader(m: Any, x: torch.Tensor) -> torch.Tensor:
    limit = None
    if not torch.isfinite(x).all():
        limit = torch.finfo(x.dtype).max - 1000
        x = torch.clamp(x, min=-limit, max=limit)
    return m.linear(x) if limit is None else x


@pytest.mark.parametrize(
    "function", [another_limit, another_tensor, another_question, another_way, another_name, another_reader]
)
def test_what_is_not_quite_a_guard_is_refused(function: Any) -> None:
    with pytest.raises(ValueError, match=r"depend on the values of tensors at .*: if (not )?torch\.is(fin|inf)"):
        capture(Body(function), torch.randn(4, 6))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_layer_of_a_detector_of_hugging_face() -> None:
    transformers = pytest.importorskip("transformers")
    detr = pytest.importorskip("transformers.models.detr.modeling_detr")
    torch.manual_seed(0)
    sizes = {
        "d_model": 16,
        "encoder_ffn_dim": 16,
        "encoder_attention_heads": 2,
        "backbone_config": {"model_type": "resnet"},
    }
    config = transformers.DetrConfig(**sizes)
    config._attn_implementation = "sdpa"  # as a whole model sets it
    model = Body(lambda m, x: m.layer(m.linear(x), None).tanh(), 16, layer=detr.DetrEncoderLayer(config))
    x, plain = torch.randn(2, 5, 16), copy.deepcopy(model)
    scheduled = explorer.apply(model, keep_all(capture(model, x).graph), x)
    for value in (1.0, float("inf")):
        x[0, 1, 2] = value
        assert same_bits(trained(scheduled, scheduled, x, None), trained(TrainingStep(plain, None), plain, x, None))
