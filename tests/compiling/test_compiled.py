"""A compiled step with our choice of what to save: gradients, what is saved, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from explorer.compiling.choosing import saved_nodes, tagged, without_costs
from explorer.compiling.partitioning import Choice, Partitioner
from explorer.compiling.profiling import Traced, traced_of
from explorer.models.gpt import GPT, GPTConfig
from explorer.saved_results import CompiledStep

Made = tuple[nn.Module, Any]


class WithLoss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(source).flatten(0, -2), target.flatten())


class Residual(nn.Module):
    """Batch normalisation, whose buffers change, and work in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu_(self.norm2(self.conv2(F.relu_(self.norm1(self.conv1(x))))) + x)


class Across(nn.Module):
    """As a UNet: down, and up again beside what was there before."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.low = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up = nn.Conv2d(24, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = F.silu(self.down(x))
        second = F.silu(self.low(F.max_pool2d(first, 2)))
        joined = torch.cat([first, F.interpolate(second, scale_factor=2.0)], 1)
        return self.up(joined).mean((2, 3))


class Patches(nn.Module):
    """As a ViT, of two encoder layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 4, stride=4)
        layer = partial(nn.TransformerEncoderLayer, 16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.ModuleList([layer(), layer()])
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.embed(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            y = layer(y)
        return self.head(y.mean(1))


class Tied(nn.Module):
    """As a T5: one embedding for both ends, encoder and decoder, two results."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(40, 16)
        self.encode, self.decode = nn.Linear(16, 16), nn.Linear(16, 16)
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, 40, bias=False)
        self.out.weight = self.tokens.weight

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        memory = F.gelu(self.encode(self.tokens(source)))
        y = self.decode(self.tokens(target))
        y = self.norm(y + self.attend(y, memory, memory, need_weights=False)[0])
        logits = self.out(y)
        return {"loss": F.cross_entropy(logits.flatten(0, 1), target.flatten()), "logits": logits}


def _images(model: nn.Module) -> Made:
    return WithLoss(model), (torch.randn(4, 3, 16, 16), torch.randint(0, 8, (4,)))


def cnn() -> Made:
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    return _images(nn.Sequential(nn.Conv2d(3, 8, 3), *(Residual() for _ in range(3)), head))


def unet() -> Made:
    return _images(Across())


def vit() -> Made:
    return _images(Patches())


def gpt() -> Made:
    tokens = torch.randint(0, 50, (2, 16))
    return GPT(GPTConfig(layers=2, width=16, heads=2, context=16, vocabulary=50)), (tokens, tokens.roll(1, 1))


def t5() -> Made:
    return Tied(), (torch.randint(0, 40, (2, 8)), torch.randint(0, 40, (2, 8)))


def mlp() -> Made:
    parts = [x for _ in range(3) for x in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.2))]
    return WithLoss(nn.Sequential(*parts)), (torch.randn(16, 32), torch.randint(0, 32, (16,)))


MODELS = {x.__name__: x for x in (cnn, unet, vit, gpt, t5, mlp)}


def divided(model: nn.Module, choice: Choice) -> Callable[..., Any]:
    """The model as the compiler divides it by a choice, run call by call: no compiler for C++ is needed."""

    compile_fx = import_module("torch._inductor.compile_fx").compile_fx

    def inner(module: Any, _: Any, **__: Any) -> Any:
        run: Any = lambda args: module(*args)  # noqa: E731
        run._boxed_call = True
        return run

    def backend(module: Any, given: Any) -> Any:
        return compile_fx(
            module, given, inner_compile=inner, config_patches={"custom_partitioner_fn": Partitioner(choice)}
        )

    torch.compiler.reset()
    return torch.compile(model, backend=backend, fullgraph=True, dynamic=False)


def gradients(run: Callable[..., Any], model: nn.Module, batch: Any) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model.zero_grad()
    result = run(*batch)
    (result["loss"] if isinstance(result, dict) else result).backward()
    return [x.grad for x in model.parameters() if x.grad is not None] + list(model.buffers())


def sets(traced: Traced) -> dict[str, set[str]]:
    """Nothing, and every other result."""
    step = CompiledStep(without_costs(traced))
    names = [traced.built.graph.storages[x].name for x in step.choices]
    return {"none": set(), "some": set(names[::2])}


def needed_forward(traced: Traced) -> set[str]:
    """Nodes that results of the forward pass are made of."""
    (results,) = next(x for x in traced.joint.module.graph.nodes if x.op == "output").args
    pending = [x for x in results[: traced.joint.outputs] if x is not None]  # type: ignore[index]
    found: set[Any] = set()
    while pending:
        node: Any = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return {x.name for x in found}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.thorough("gpt", "unet")
def test_gradients_are_eager_mode_s_and_what_is_saved_is_what_was_chosen(name: str) -> None:
    torch.manual_seed(0)
    model, batch = MODELS[name]()
    model = model.double()
    batch = tuple(x.double() if x.is_floating_point() else x for x in batch)
    traced = traced_of(model, batch)
    every = sets(traced)
    read = {traced.built.graph.storages[x].name for x in CompiledStep(without_costs(traced)).read}
    plain = None if name == "mlp" else gradients(copy.deepcopy(model), model, batch)
    seen = []
    for names in every.values():
        choice = tagged(traced, names)
        saved = set(saved_nodes(traced.joint, choice))
        large = {x for x in saved if x not in traced.built.kept}
        assert large <= set(choice.saved)
        # What only the backward pass reads may be made of what is saved, inside of its loops.
        assert names & read & needed_forward(traced) <= saved
        mine = copy.deepcopy(model)
        seen.append(gradients(divided(mine, choice), mine, batch))
    if plain is None:  # the compiler draws numbers of its own: the same, whatever is saved
        plain = seen[1]
    else:
        other = copy.deepcopy(model)
        plain = gradients(other, other, batch)
    for found in seen:
        assert all(torch.allclose(x, y, rtol=1e-7, atol=1e-9) for x, y in zip(found, plain, strict=True))
    torch.compiler.reset()
