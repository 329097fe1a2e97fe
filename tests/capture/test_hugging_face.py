"""Language models of Hugging Face as they are by default, with one tensor as inputs and labels of the sample batch."""

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
from tests.schedules import random_schedule

_SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 48}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4, "decoder_start_token_id": 0}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
MODELS: dict[str, tuple[str, str, dict[str, int]]] = {
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _GROUPED),
    "llama": ("LlamaConfig", "LlamaForCausalLM", _GROUPED),
    "t5": ("T5Config", "T5ForConditionalGeneration", _T5),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", _SIZES),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {**_GROUPED, "num_local_experts": 4}),
    "bert": ("BertConfig", "BertForMaskedLM", _SIZES),
}


def build(name: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config, model, sizes = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(vocab_size=97, **sizes)).train()


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", MODELS)
def test_labels_of_their_own(name: str) -> None:
    model = build(name)
    tokens = torch.randint(1, 97, (2, 11))
    sample: dict[str, Any] = {"input_ids": tokens, "labels": tokens}
    graph = capture(model, sample).graph
    other = {"input_ids": tokens, "labels": torch.randint(1, 97, (2, 11))}
    plain = copy.deepcopy(model)
    scheduled = explorer.apply(model, random_schedule(graph, 1, keep=0.7), sample)
    assert same_bits(trained(scheduled, scheduled, other, None), trained(TrainingStep(plain, None), plain, other, None))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_masks_that_eager_mode_looks_at() -> None:
    """Where a mask hides nothing eager mode leaves it out; a schedule is for every mask, to the last bits but one."""
    model = build("llama")
    tokens = torch.randint(1, 97, (2, 11))
    batch = {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}
    captured = capture(model, batch)
    assert captured.traced.as_compiled
    plain = copy.deepcopy(model)
    scheduled = explorer.apply(model, keep_all(captured.graph), batch)
    for hidden in (0, 3):
        batch["attention_mask"][0, :hidden] = 0
        assert torch.allclose(scheduled(**batch).loss, plain(**batch).loss, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:steps differ from eager")
def test_hooks_that_the_library_registers_in_the_first_step() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_sizes": [8, 8], "depths": [2, 1], "num_encoder_blocks": 2, "num_attention_heads": [1, 1]}
    several = {"patch_sizes": [3, 3], "strides": [2, 2], "sr_ratios": [2, 1], "mlp_ratios": [2, 2]}
    config = transformers.SegformerConfig(**sizes, **several, decoder_hidden_size=8, num_labels=3)
    model = transformers.SegformerForSemanticSegmentation(config).train()
    batch = {"pixel_values": torch.randn(1, 3, 16, 16), "labels": torch.randint(3, (1, 16, 16))}
    hooks = sum(len(x._forward_hooks) for x in model.modules())
    graph = capture(model, batch).graph
    assert sum(len(x._forward_hooks) for x in model.modules()) == hooks
    scheduled = explorer.apply(model, keep_all(graph), batch)
    for _ in range(2):
        scheduled(**batch).loss.backward()
        scheduled.zero_grad()


def test_a_branch_of_the_model_is_named_and_not_one_of_the_library() -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.ElectraForPreTraining(transformers.ElectraConfig(vocab_size=97, embedding_size=16, **_SIZES))
    tokens = torch.randint(1, 97, (2, 11))
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.zeros_like(tokens)}
    with pytest.raises(ValueError, match=r"modeling_electra.py:\d+: active_logits"):
        capture(model.train(), batch)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_one_sample_needs_no_mask_where_the_model_counts_its_positions() -> None:
    """As in eager mode, which looks at them; positions of the batch, or changed ones, may begin anew."""
    model = build("llama")
    vars(model)["config"].use_cache = False  # with a cache it does not look
    tokens = torch.randint(1, 97, (1, 11))

    def masked(model: torch.nn.Module, batch: dict[str, Any]) -> bool:
        return any(x.target == "aten.le.Tensor" for x in capture(model, batch).graph.operators)

    class Packed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            positions = torch.arange(11).unsqueeze(0)
            positions[:, 5:] -= 5
            return self.model(input_ids=tokens, labels=tokens, position_ids=positions).loss

    batch = {"input_ids": tokens, "labels": tokens}
    assert not masked(model, batch)
    assert masked(model, {**batch, "position_ids": torch.arange(11).unsqueeze(0)})
    packed = Packed().train()
    assert masked(packed, {"tokens": tokens})
    plain = copy.deepcopy(packed)
    scheduled = explorer.apply(packed, keep_all(capture(packed, {"tokens": tokens}).graph), {"tokens": tokens})
    assert torch.allclose(scheduled(tokens=tokens), plain(tokens=tokens), rtol=1e-6)
