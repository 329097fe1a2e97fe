"""Models of equal blocks: what follows from a few of them is what a capture of all gives."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import depth
from explorer.capture.depth import Repetition, capture_in_depth
from explorer.capture.recording import record
from explorer.capture.stand_in import as_on_cuda, capture_for_cuda, stand_in_for
from explorer.models.gpt import GPT, GPTConfig

COUNT = 19
WIDTH = 16
Made = tuple[nn.Module, Any]


class Block(nn.Module):
    """A residual block; some know which of them they are."""

    def __init__(self, *, scale: float = 1.0, rate: float = 0.0, width: int = WIDTH) -> None:
        super().__init__()
        self.norm, self.linear, self.rate, self.scale = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, width), rate, scale
        self.back = nn.Linear(width, WIDTH)

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        inside = F.gelu(self.linear(self.norm(source)))
        return source + self.scale * F.dropout(self.back(inside), self.rate)


class Several(nn.Module):
    """Blocks one after the other, with something in front and behind."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.front, self.behind = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        value = self.front(source)
        for block in self.blocks:
            value = block(value)
        return self.behind(value).square().mean()


class WithMemory(Several):
    """Every block reads what the first layer gave, and the last layer what all blocks gave."""

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        front = self.front(source)
        value, total = front, torch.zeros_like(front)
        for block in self.blocks:
            value = block(value * front.sigmoid())
            total = total + value
        return self.behind(total).square().mean()


def several(make: Callable[[int], nn.Module], *, count: int = COUNT, kind: type[Several] = Several) -> Made:
    return kind([make(i) for i in range(count)]), torch.randn(8, WIDTH)


def frozen(first: int) -> Made:
    model, batch = several(lambda _: Block())
    assert isinstance(model, Several)
    for block in model.blocks[:first]:
        block.requires_grad_(requires_grad=False)
    return model, batch


def tied() -> Made:
    model, batch = several(lambda _: Block())
    assert isinstance(model, Several)
    for block in model.blocks[7:]:
        block.linear = model.blocks[6].linear
    return model, batch


def of_hugging_face(kind: str, head: str, **options: Any) -> Made:
    module = import_module("transformers")
    sizes = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_attention_heads": 2, "vocab_size": 64}
    config = getattr(module, f"{kind}Config")(num_hidden_layers=COUNT, **sizes, **options)
    model = getattr(module, f"{kind}{head}")(config).train()
    tokens = torch.randint(0, 60, (2, 32))
    return model, {"input_ids": tokens, "labels": tokens}


REPEATING: dict[str, Callable[[], Made]] = {
    "blocks": lambda: several(lambda _: Block()),
    "dropout": lambda: several(lambda _: Block(rate=0.1)),
    "another first block": lambda: several(lambda i: Block(width=40 if i == 0 else WIDTH)),
    "two kinds in turns": lambda: several(lambda i: Block(width=WIDTH + 8 * (i % 2)), count=29),
    "two kinds, an even number": lambda: several(lambda i: Block(width=WIDTH + 8 * (i % 2)), count=26),
    "a first frozen block": lambda: frozen(1),
    "reads from afar": lambda: several(lambda _: Block(), kind=WithMemory),
    "gpt": lambda: (GPT(GPTConfig(vocabulary=64, layers=COUNT, width=WIDTH, heads=2, context=32)), tokens()),
    "llama": lambda: of_hugging_face("Llama", "ForCausalLM", num_key_value_heads=1, use_cache=False),
    "bert": lambda: of_hugging_face("Bert", "ForMaskedLM"),
}
OTHERS: dict[str, Callable[[], Made]] = {
    "scaled by depth": lambda: several(lambda i: Block(scale=1 / (1 + i))),
    "dropout by depth": lambda: several(lambda i: Block(rate=0.02 * i)),
    "another in the middle": lambda: several(lambda i: Block(width=40 if i == 7 else WIDTH)),
    "another last block": lambda: several(lambda i: Block(width=40 if i == COUNT - 1 else WIDTH)),
    "frozen to the middle": lambda: frozen(6),
    "tied": tied,
    "few": lambda: several(lambda _: Block(), count=12),
}


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    found = torch.randint(0, 64, (2, 33))
    return found[:, :-1], found[:, 1:]


def repetition(made: Made) -> Repetition | None:
    model, batch = stand_in_for(*made, dtype=None)
    assert isinstance(model, Several)
    with as_on_cuda(None) as autocast:
        found = record(model, batch, loss=None, autocast=autocast, modules=model.blocks)
    return depth.repetition_of("blocks", model.blocks, found)


@pytest.mark.thorough(
    "llama",
    "bert",
    "two kinds in turns",
    "reads from afar",
    "two kinds, an even number",
    "a first frozen block",
    "dropout",
    "another first block",
)
@pytest.mark.parametrize("name", REPEATING)
def test_graph_follows_from_few_blocks(name: str) -> None:
    model, batch = REPEATING[name]()
    captured, graph = capture_in_depth(model, batch)
    assert len(captured.graph.operators) < len(graph.operators)
    assert graph == capture_for_cuda(model, batch).graph


@pytest.mark.thorough("tied", "scaled by depth", "another last block", "another in the middle", "frozen to the middle")
@pytest.mark.parametrize("name", OTHERS)
def test_blocks_that_differ_are_all_captured(name: str) -> None:
    model, batch = OTHERS[name]()
    captured, graph = capture_in_depth(model, batch)
    assert graph is captured.graph
    assert graph == capture_for_cuda(model, batch).graph


def test_a_repetition_says_what_it_is() -> None:
    found = repetition(REPEATING["two kinds in turns"]())
    assert found == Repetition("blocks", 29, 2)
    assert found is not None
    assert found.depths() == [7, 9, 11]


@pytest.mark.thorough
def test_an_estimate_with_an_optimizer_is_that_of_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = REPEATING["blocks"]()
    options: dict[str, Any] = {"device": "A100-80GB", "optimizer": "adamw", "accumulate": True}
    found = explorer.estimate(model, batch, **options)
    monkeypatch.setattr(depth, "_longest", lambda _: None)
    assert found == explorer.estimate(model, batch, **options)


def test_a_model_that_cannot_be_cut_short_is_captured_whole() -> None:
    class Counting(Several):
        def forward(self, source: torch.Tensor) -> torch.Tensor:
            value = source
            for i in range(COUNT):
                value = self.blocks[i](value)
            return value.square().mean()

    model, batch = several(lambda _: Block(), kind=Counting)
    captured, graph = capture_in_depth(model, batch)
    assert graph is captured.graph
