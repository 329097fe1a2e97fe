"""What a refusal advises works: the same results without the question about values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

from explorer.capture import capture
from tests.capture.wide import Body

LENGTHS = torch.tensor([7, 3, 5])


class Packed(nn.Module):
    """The results before each sequence's end, zeros after it, and what is at both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.forwards = nn.LSTM(4, 6, batch_first=True)
        self.backwards = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = nn.LSTM(4, 6, batch_first=True, bidirectional=True)
        state = dict(self.forwards.named_parameters())
        state |= {f"{x}_reverse": y for x, y in self.backwards.named_parameters()}
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, (last, _) = torch.func.functional_call(both, state, (packed,))
        return rnn.pad_packed_sequence(out, batch_first=True)[0], torch.cat([*last], 1)


class Padded(Packed):
    """The same without packing, as docs/supported.md has it."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        steps = torch.arange(x.shape[1])
        inside = (steps < lengths[:, None])[..., None]
        reversed_steps = torch.where(inside[..., 0], lengths[:, None] - 1 - steps, steps)[..., None]

        def reverse(y: torch.Tensor) -> torch.Tensor:
            return y.gather(1, reversed_steps.expand_as(y))

        there, back = self.forwards(x)[0], self.backwards(reverse(x))[0]
        rows = torch.arange(len(lengths))
        ends = torch.cat([there[rows, lengths - 1], back[rows, lengths - 1]], 1)
        return torch.where(inside, torch.cat([there, reverse(back)], 2), 0), ends


def test_padded_sequences_instead_of_packed_ones() -> None:
    torch.manual_seed(0)
    packed, padded, x = Packed(), Padded(), torch.randn(3, 7, 4)
    padded.load_state_dict(packed.state_dict())
    results = [m(x, LENGTHS) for m in (packed, padded)]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*results, strict=True))
    for out, ends in results:
        (out.square().sum() + ends.tanh().sum()).backward()
    gradients = [[y.grad for y in m.parameters() if y.grad is not None] for m in (packed, padded)]
    assert len(gradients[0]) == len(gradients[1]) == 8
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*gradients, strict=True))
    assert any("lstm" in x.target or "rnn" in x.target for x in capture(padded, (x, LENGTHS)).graph.operators)


def test_all_rows_for_every_expert_instead_of_those_that_chose_it() -> None:
    torch.manual_seed(0)
    experts, gate = nn.ModuleList(nn.Linear(6, 6) for _ in range(4)), nn.Linear(6, 4)
    x = torch.randn(5, 6)

    def selected(x: torch.Tensor) -> torch.Tensor:
        out, (weights, chosen) = torch.zeros_like(x), gate(x).softmax(-1).topk(2)
        for number, expert in enumerate(experts):
            rows, columns = torch.where(chosen == number)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, columns, None])
        return out

    def weighed(m: Any, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = m.gate(x).softmax(-1).topk(2)
        shares = torch.zeros(len(x), 4).scatter(1, chosen, weights)
        results = [expert(x) * shares[:, i, None] for i, expert in enumerate(m.experts)]
        return torch.stack(results).sum(0)

    model = Body(weighed, experts=experts, gate=gate)
    assert torch.allclose(model(x), selected(x), atol=1e-6)
    assert capture(model, x).graph.operators


def refusal(model: nn.Module, batch: Any) -> str:
    with pytest.raises(ValueError, match="A schedule is fixed before the values are known") as caught:
        capture(model.train(), batch)
    return str(caught.value)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_lines_of_hugging_face() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    tokens = torch.randint(3, 96, (2, 9))
    sizes = {"d_model": 16, "vocab_size": 96, "max_position_embeddings": 16}
    layers = {f"{x}_{y}": 1 for x in ("encoder", "decoder") for y in ("layers", "attention_heads", "ffn_dim")}
    batch = {"input_ids": tokens, "labels": tokens}

    def bart(**layerdrop: float) -> nn.Module:
        return transformers.BartForConditionalGeneration(
            transformers.BartConfig(**sizes, **layers, **layerdrop)
        ).train()

    said = refusal(bart(encoder_layerdrop=0.1, decoder_layerdrop=0.1), batch)
    assert "make the model with encoder_layerdrop=0.0, decoder_layerdrop=0.0." in said
    assert capture(bart(encoder_layerdrop=0.0, decoder_layerdrop=0.0), batch).graph.operators

    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    classifier = transformers.DebertaForSequenceClassification(transformers.DebertaConfig(vocab_size=96, **shape))
    assert "leave out labels, and call the loss on" in refusal(classifier, {**batch, "labels": torch.tensor([0, 1])})

    config = transformers.LongformerConfig(vocab_size=96, attention_window=4, pad_token_id=0, **shape)
    longformer = transformers.LongformerModel(config)
    said = refusal(longformer, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)})
    assert "the line is one of transformers: plan a module of your own" in said
