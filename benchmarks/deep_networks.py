"""Networks of many operators, estimated for an A100: nothing of them is ever in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.cases import Tier
from explorer import estimate
from explorer.device_profile import Profile
from explorer.models import MODELS
from explorer.models.gpt import GPT, GPTConfig
from explorer.models.resnet import ResNet
from explorer.models.transformers import Llama

_DEVICE = "A100-80GB"
_ATTENTION: dict[str, Any] = {"attn_implementation": "eager"}  # attention as operators of its own
_FUSED_ATTENTION: dict[str, Any] = {"attn_implementation": "sdpa"}
_TOKENS = (8, 1024)
_SHORT_TOKENS = (8, 512)  # BERT's longest
_LONG_TOKENS = (1, 8192)
GPT2_XL = "gpt2-xl"
GROWTH = {
    Tier.QUICK: ("gpt:6", "gpt:12"),
    Tier.FULL: ("gpt2:12", "gpt2:24", "gpt2:48", "bert:12", "resnet152"),
}
"""Of which growth with depth is measured."""


def deep_network(name: str) -> Profile:
    """The estimate of a network: a name of ``NETWORKS``, with a number of blocks where it has such: ``"gpt2:24"``."""
    network, _, blocks = name.partition(":")
    if network not in NETWORKS:
        raise ValueError(f"{name} is no network; there are {', '.join(NETWORKS)}")
    return NETWORKS[network](int(blocks or 0))


def _gpt(blocks: int) -> Profile:
    """The bundled one."""
    with torch.device("meta"):
        return estimate(GPT(GPTConfig(layers=blocks)), MODELS["gpt2"].batch(batch_size=_TOKENS[0]), device=_DEVICE)


def _gpt2_xl(_: int) -> Profile:
    """The bundled one with 48 layers of GPT-2 XL's width: 1,410 operators."""
    with torch.device("meta"):
        model = GPT(GPTConfig(layers=48, heads=25, width=1600))
        tokens = torch.zeros(4, 1024, dtype=torch.long)
        return estimate(model, (tokens, tokens), device=_DEVICE)


def _gpt2(blocks: int) -> Profile:
    """Hugging Face's, of GPT-2 small's width."""
    import transformers

    with torch.device("meta"):
        config = transformers.GPT2Config(use_cache=False, n_layer=blocks, **_ATTENTION)
        return estimate(transformers.GPT2LMHeadModel(config).train(), _texts(_TOKENS), device=_DEVICE)


def _bert(blocks: int) -> Profile:
    """Hugging Face's, of BERT base's width."""
    import transformers

    with torch.device("meta"):
        config = transformers.BertConfig(num_hidden_layers=blocks, **_ATTENTION)
        return estimate(transformers.BertForMaskedLM(config).train(), _texts(_SHORT_TOKENS), device=_DEVICE)


def _llama(blocks: int, *, width: int, between: int, heads: int) -> Profile:
    """Hugging Face's, of Llama 3's vocabulary, in bfloat16; only the loss leaves the step."""
    import transformers

    with torch.device("meta"):
        config = transformers.LlamaConfig(
            hidden_size=width,
            intermediate_size=between,
            num_hidden_layers=blocks,
            num_attention_heads=heads,
            num_key_value_heads=8,
            vocab_size=128256,
            max_position_embeddings=_LONG_TOKENS[1],
            use_cache=False,
            **_FUSED_ATTENTION,
        )
        model = Llama(transformers.LlamaForCausalLM(config))
        return estimate(model, _texts(_LONG_TOKENS), device=_DEVICE, precision="bfloat16")


def _llama_8b(blocks: int) -> Profile:
    """Llama 3 8B has 32 blocks: 3,805 operators."""
    return _llama(blocks or 32, width=4096, between=14336, heads=32)


def _llama_70b(blocks: int) -> Profile:
    """Llama 3 70B has 80 blocks: 9,421 operators."""
    return _llama(blocks or 80, width=8192, between=28672, heads=64)


def _texts(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    tokens = torch.zeros(shape, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens}


def _resnet152(_: int) -> Profile:
    spec = MODELS["resnet50"]
    with torch.device("meta"):
        return estimate(ResNet((3, 8, 36, 3)), spec.batch(batch_size=64), loss=spec.loss, device=_DEVICE)


NETWORKS: dict[str, Callable[[int], Profile]] = {
    "gpt": _gpt,
    GPT2_XL: _gpt2_xl,
    "gpt2": _gpt2,
    "bert": _bert,
    "resnet152": _resnet152,
    "llama3-8b": _llama_8b,
    "llama3-70b": _llama_70b,
}
