"""Hugging Face's architectures by configuration: no weights, no network; as they come, ``use_cache`` included."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.specimen import Specimen

_VOCABULARY = 96
_TEXT: dict[str, Any] = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_DECODER: dict[str, Any] = {**_TEXT, "num_key_value_heads": 1}
_IMAGE: dict[str, Any] = {"image_size": 32, "num_labels": 10}
_VISION: dict[str, Any] = {
    **_IMAGE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "patch_size": 8,
}


def _build(config: str, model: str, *, checkpointed: bool = False, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        transformers.logging.set_verbosity_error()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made: Any = getattr(transformers, model)(getattr(transformers, config)(**options))
        if checkpointed:
            made.gradient_checkpointing_enable({"use_reentrant": False})
        return made

    return build


def _same() -> Any:
    """Tokens that are their own labels, as a causal language model's batch is often written."""
    tokens = torch.randint(3, _VOCABULARY, (4, 24))
    return {"input_ids": tokens, "labels": tokens}


def _padded() -> Any:
    """Tokens with a mask of padding and labels that leave it out, as a collator makes them."""
    tokens = torch.randint(3, _VOCABULARY, (4, 24))
    mask = (torch.arange(24) < torch.randint(12, 25, (4, 1))).long()
    tokens = tokens * mask
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}


def _masked_tokens() -> Any:
    """A masked language model's batch: a few tokens replaced, the rest not in the labels."""
    batch = _padded()
    chosen = torch.rand(batch["input_ids"].shape) < 0.2
    labels = batch["labels"].masked_fill(~chosen, -100)
    return {**batch, "input_ids": batch["input_ids"].masked_fill(chosen, 3), "labels": labels}


def _sentences() -> Any:
    batch = _padded()
    return {**batch, "labels": torch.randint(2, (4,))}


def _pairs() -> Any:
    return {"input_ids": torch.randint(3, _VOCABULARY, (4, 16)), "labels": torch.randint(3, _VOCABULARY, (4, 12))}


def _replaced() -> Any:
    batch = _padded()
    return {**batch, "labels": torch.randint(2, (4, 24))}


def _classes(count: int = 4, size: int = 32) -> Callable[[], Any]:
    return lambda: {"pixel_values": torch.randn(count, 3, size, size), "labels": torch.randint(10, (count,))}


def _segments() -> Any:
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.randint(10, (2, 32, 32))}


def _speech() -> Any:
    return {"input_features": torch.randn(2, 16, 40), "labels": torch.randint(3, _VOCABULARY, (2, 10))}


def _waves() -> Any:
    return {"input_values": torch.randn(2, 800), "labels": torch.randint(10, (2,))}


def _captions() -> Any:
    tokens = torch.randint(3, _VOCABULARY - 1, (4, 12))
    tokens[:, -1] = 2
    return {"input_ids": tokens, "pixel_values": torch.randn(4, 3, 32, 32), "return_loss": True}


_language = "Hugging Face: text"
_vision = "Hugging Face: images"
_other = "Hugging Face: speech, several modalities"
_cache = "default `use_cache`"
_doubled = "one tensor as input and labels"
_GPT2: dict[str, Any] = {"vocab_size": _VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
_GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}
_T5: dict[str, Any] = {
    "vocab_size": _VOCABULARY,
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 2,
}
_T5 |= {"decoder_start_token_id": 0}
_ENCODER_DECODER: dict[str, Any] = {
    "vocab_size": _VOCABULARY,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}


def _text(
    name: str, prefix: str, head: str, batch: Callable[[], Any], *habits: str, options: dict[str, Any], **more: Any
) -> Specimen:
    return Specimen(
        f"hf_{name}", _language, _build(f"{prefix}Config", f"{prefix}{head}", **options), batch, habits=habits, **more
    )


def _seen(
    name: str, prefix: str, head: str, *habits: str, batch: Callable[[], Any] | None = None, **options: Any
) -> Specimen:
    build = _build(f"{prefix}Config", f"{prefix}{head}", **options)
    return Specimen(f"hf_{name}", _vision, build, batch or _classes(), habits=habits)


_CLIP: dict[str, Any] = {
    "text_config": {**_TEXT, "eos_token_id": 2},
    "vision_config": {key: value for key, value in _VISION.items() if key != "num_labels"},
    "projection_dim": 16,
}
SPECIMENS = (
    _text("gpt2", "GPT2", "LMHeadModel", _same, _cache, _doubled, "dropout", options=_GPT2),
    Specimen(
        "hf_gpt2_checkpointed",
        _language,
        _build("GPT2Config", "GPT2LMHeadModel", checkpointed=True, **_GPT2, use_cache=False),
        _same,
        habits=("gradient checkpointing", _doubled, "dropout"),
    ),
    _text("bert", "Bert", "ForMaskedLM", _masked_tokens, "dropout", options=_TEXT),
    _text(
        "bert_no_dropout",
        "Bert",
        "ForMaskedLM",
        _masked_tokens,
        "dropout of 0",
        options={**_TEXT, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    ),
    _text("roberta", "Roberta", "ForMaskedLM", _masked_tokens, "positions from a cumulative sum", options=_TEXT),
    _text(
        "distilbert",
        "DistilBert",
        "ForSequenceClassification",
        _sentences,
        options={"vocab_size": _VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    ),
    _text(
        "albert", "Albert", "ForMaskedLM", _masked_tokens, "one layer for all", options={**_TEXT, "embedding_size": 16}
    ),
    _text("electra", "Electra", "ForPreTraining", _replaced, "dropout", options={**_TEXT, "embedding_size": 16}),
    _text("t5", "T5", "ForConditionalGeneration", _pairs, _cache, "dropout", options=_T5),
    _text("bart", "Bart", "ForConditionalGeneration", _pairs, _cache, "dropout", options=_ENCODER_DECODER),
    _text("llama", "Llama", "ForCausalLM", _same, _cache, _doubled, options=_DECODER),
    _text("llama_bf16", "Llama", "ForCausalLM", _same, _cache, "autocast to bfloat16", options=_DECODER, autocast=True),
    _text("qwen2", "Qwen2", "ForCausalLM", _padded, _cache, "padding mask", options=_DECODER),
    _text(
        "mistral", "Mistral", "ForCausalLM", _same, _cache, "sliding window", options={**_DECODER, "sliding_window": 8}
    ),
    _text(
        "mixtral",
        "Mixtral",
        "ForCausalLM",
        _same,
        _cache,
        "routed experts",
        options={**_DECODER, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    _text("gemma", "Gemma", "ForCausalLM", _same, _cache, options={**_DECODER, "head_dim": 16}),
    _text("gpt_neox", "GPTNeoX", "ForCausalLM", _same, _cache, _doubled, options=_TEXT),
    _text("phi", "Phi", "ForCausalLM", _same, _cache, options=_TEXT),
    _text(
        "opt",
        "OPT",
        "ForCausalLM",
        _same,
        _cache,
        "dropout",
        options={
            "vocab_size": _VOCABULARY,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 64,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 32,
            "pad_token_id": 0,
        },
    ),
    _text(
        "bloom",
        "Bloom",
        "ForCausalLM",
        _same,
        _cache,
        "ALiBi",
        options={"vocab_size": _VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 2, "pad_token_id": 0},
    ),
    _text(
        "mamba",
        "Mamba",
        "ForCausalLM",
        _same,
        "a scan in Python",
        options={
            "vocab_size": _VOCABULARY,
            "hidden_size": 16,
            "state_size": 4,
            "num_hidden_layers": 1,
            "pad_token_id": 0,
        },
    ),
    _seen("vit", "ViT", "ForImageClassification", **_VISION),
    _seen("deit", "DeiT", "ForImageClassification", **_VISION),
    _seen(
        "swin",
        "Swin",
        "ForImageClassification",
        "roll",
        "dropped paths",
        **_IMAGE,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 2],
        window_size=4,
    ),
    _seen(
        "convnext", "ConvNext", "ForImageClassification", **_IMAGE, hidden_sizes=[16, 32], depths=[1, 1], num_stages=2
    ),
    _seen(
        "resnet",
        "ResNet",
        "ForImageClassification",
        num_labels=10,
        embedding_size=16,
        hidden_sizes=[32, 64],
        depths=[1, 1],
    ),
    _seen(
        "segformer",
        "Segformer",
        "ForSemanticSegmentation",
        "bilinear interpolation",
        batch=_segments,
        num_labels=10,
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[4, 2],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
    ),
    _seen(
        "vit_mae",
        "ViTMAE",
        "ForPreTraining",
        "random masking by argsort and gather",
        batch=lambda: {"pixel_values": torch.randn(4, 3, 32, 32)},
        **{key: value for key, value in _VISION.items() if key != "num_labels"},
        decoder_hidden_size=16,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=32,
    ),
    _seen(
        "efficientnet",
        "EfficientNet",
        "ForImageClassification",
        'padding="valid"',
        num_labels=10,
        image_size=32,
        width_coefficient=0.25,
        depth_coefficient=0.3,
        hidden_dim=320,
    ),
    _seen(
        "mobilevit",
        "MobileViT",
        "ForImageClassification",
        num_labels=10,
        image_size=64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
        num_attention_heads=2,
        batch=_classes(2, 64),
    ),
    Specimen(
        "hf_whisper",
        _other,
        _build(
            "WhisperConfig",
            "WhisperForConditionalGeneration",
            **{**_ENCODER_DECODER, "decoder_start_token_id": 1},
            num_mel_bins=16,
            max_source_positions=20,
            max_target_positions=32,
        ),
        _speech,
        habits=(_cache,),
    ),
    Specimen(
        "hf_wav2vec2",
        _other,
        _build(
            "Wav2Vec2Config",
            "Wav2Vec2ForSequenceClassification",
            **{key: value for key, value in _TEXT.items() if key != "max_position_embeddings"},
            num_labels=10,
            conv_dim=(16, 16),
            conv_kernel=(10, 3),
            conv_stride=(5, 2),
            num_feat_extract_layers=2,
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
            classifier_proj_size=16,
            apply_spec_augment=False,
            layerdrop=0.0,
        ),
        _waves,
        habits=("weight norm", "no spec augment: it draws in NumPy", "dropout"),
    ),
    Specimen("hf_clip", _other, _build("CLIPConfig", "CLIPModel", **_CLIP), _captions, habits=("a flag in the batch",)),
)
