"""Transformers as people train them, from configuration alone: Hugging Face's code, no weights, no network.

They are what a step of that size needs and takes; a schedule for one trains that very model.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn

_CONTEXT = 8192
_FRAMES, _MELS = 3000, 80  # thirty seconds of sound


class LossAlone(nn.Module):
    """A model of Hugging Face's of which only the loss is wanted, as in a training loop: logits need never be whole."""

    def __init__(self, model: nn.Module) -> None:
        """Around ``model``, in training mode."""
        super().__init__()
        self.model = model
        self.train()

    def forward(self, **batch: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return self.model(**batch).loss


class Llama(LossAlone):
    """Meta's decoder."""


class Qwen2(LossAlone):
    """Alibaba's decoder."""


class Bert(LossAlone):
    """Google's encoder, with the head that finds masked words."""


class T5(LossAlone):
    """Google's encoder and decoder."""


class Whisper(LossAlone):
    """OpenAI's encoder and decoder, from sound to text."""


class ViT(LossAlone):
    """Google's vision transformer, with the head for classes of pictures."""


def _decoder(kind: type[LossAlone], **sizes: Any) -> Callable[[], nn.Module]:
    return lambda: _of_hugging_face(kind, "ForCausalLM", use_cache=False, **sizes)


llama3_8b = _decoder(
    Llama,
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    rms_norm_eps=1e-5,
    max_position_embeddings=_CONTEXT,
)
llama3_70b_shard = _decoder(
    Llama,
    vocab_size=128256 // 8,
    hidden_size=8192,
    intermediate_size=28672 // 8,
    num_hidden_layers=80,
    num_attention_heads=64 // 8,
    num_key_value_heads=1,
    head_dim=128,
    rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    rms_norm_eps=1e-5,
    max_position_embeddings=_CONTEXT,
)
"""What one of eight devices has of every layer where those are split; what they send each other is not in it."""
qwen2_5_7b = _decoder(
    Qwen2,
    vocab_size=152064,
    hidden_size=3584,
    intermediate_size=18944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    max_position_embeddings=32768,
)


def bert_large() -> nn.Module:
    """BERT large, with the head that finds masked words."""
    return _of_hugging_face(
        Bert,
        "ForMaskedLM",
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
    )


def t5_base() -> nn.Module:
    """T5 base: encoder and decoder."""
    sizes = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
    return _of_hugging_face(T5, "ForConditionalGeneration", use_cache=False, decoder_start_token_id=0, **sizes)


def whisper_small() -> nn.Module:
    """Whisper small: from sound to text."""
    sizes: dict[str, Any] = {"d_model": 768, "vocab_size": 51865, "num_mel_bins": _MELS, "use_cache": False}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_layers": 12, f"{part}_attention_heads": 12, f"{part}_ffn_dim": 3072}
    return _of_hugging_face(Whisper, "ForConditionalGeneration", **sizes)


def vit_l_16() -> nn.Module:
    """ViT-L/16: classes of pictures."""
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
    return _of_hugging_face(ViT, "ForImageClassification", num_labels=1000, **sizes)


def text_batch(*, batch_size: int, sequence_length: int, vocabulary: int) -> dict[str, torch.Tensor]:
    """Tokens (N, T) and labels like them."""
    shape = (batch_size, sequence_length)
    return {"input_ids": torch.randint(vocabulary, shape), "labels": torch.randint(vocabulary, shape)}


def sound_batch(*, batch_size: int, sequence_length: int = 448) -> dict[str, torch.Tensor]:
    """Half a minute of sound (N, 80, 3000) and the tokens (N, T) of its text."""
    labels = torch.randint(50000, (batch_size, sequence_length))
    return {"input_features": torch.randn(batch_size, _MELS, _FRAMES), "labels": labels}


def picture_batch(*, batch_size: int, image_size: int | tuple[int, int] = 224) -> dict[str, torch.Tensor]:
    """Pictures (N, 3, H, W) and a class for each; ``image_size`` is one side, or (H, W)."""
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    return {"pixel_values": torch.randn(batch_size, 3, height, width), "labels": torch.randint(1000, (batch_size,))}


def _of_hugging_face(kind: type[LossAlone], head: str, **config: Any) -> nn.Module:
    """A model of theirs, in training mode.

    Raises:
        ValueError: the library is not there.
    """
    name = kind.__name__
    try:
        library = import_module("transformers")
    except ImportError as error:
        raise ValueError(
            f"{name} is Hugging Face's: pip install transformers. Its bundled profile can be explored without"
        ) from error
    return kind(getattr(library, f"{name}{head}")(getattr(library, f"{name}Config")(**config)))
