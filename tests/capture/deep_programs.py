"""Random deep models: equal blocks, with something else before, after and between some of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH = 8
Where = Callable[[int, int], bool]


def nowhere(_: int, __: int) -> bool:
    return False


@dataclass(frozen=True)
class Program:
    """A deep model.

    Attributes:
        count: of blocks.
        extras: what happens besides, and at which of how many blocks.
        rate: of dropout in the blocks.
        rounds: how often all of them run.
        backwards: from the last to the first.
        beside: a second list of modules runs with them.
        frozen: which blocks are.
        text: for a person.
    """

    count: int
    extras: tuple[tuple[str, Where], ...]
    rate: float = 0.0
    rounds: int = 1
    backwards: bool = False
    beside: bool = False
    frozen: Where = nowhere
    text: str = ""

    def model(self) -> tuple[nn.Module, torch.Tensor]:
        return Stack(self).train(), torch.randn(4, WIDTH)


class Block(nn.Module):
    """A residual block, which can be told to do otherwise."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.norm, self.linear, self.rate = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), rate

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, *, scale: float = 1.0, wide: bool = False
    ) -> torch.Tensor:
        inside = self.linear(self.norm(x)).relu()
        inside = inside if mask is None else inside * mask
        inside = torch.cat([inside, inside], 1)[:, :WIDTH] if wide else inside
        return x + F.dropout(inside if scale == 1 else inside * scale, self.rate)


class Steeper(torch.autograd.Function):
    """Its gradient alone knows the number."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (gradients[0] if ctx.factor == 1 else gradients[0] * ctx.factor), None


class Stack(nn.Module):
    """Runs what a program says."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.front, self.behind, self.tap = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.blocks = nn.ModuleList(Block(program.rate) for _ in range(program.count))
        self.others = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(program.count if program.beside else 0))
        self.norm = nn.LayerNorm(WIDTH)
        self.seen: list[Any] = []
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("memory", torch.zeros(WIDTH))
        for i, block in enumerate(self.blocks):
            block.requires_grad_(not program.frozen(i, program.count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        run = Run(self, self.front(x))
        count = len(self.blocks)
        for _ in range(self.program.rounds):
            for i in reversed(range(count)) if self.program.backwards else range(count):
                run.block(i, [name for name, where in self.program.extras if where(i, count)])
        return self.behind(run.x).square().mean() + sum(run.losses, torch.zeros(()))


class Run:
    """A forward pass as it goes on."""

    def __init__(self, model: Stack, x: torch.Tensor) -> None:
        self.model, self.x, self.first = model, x, x
        self.losses: list[torch.Tensor] = []
        self.kept: list[torch.Tensor] = []

    def block(self, i: int, extras: list[str]) -> None:
        block, given, options = self.model.blocks[i], self.x, {}
        for name in extras:
            options |= OPTIONS.get(name, lambda _: {})(i)
        mask = torch.arange(WIDTH) < i if "mask" in extras else None
        if "checkpoint" in extras:
            self.x = checkpoint(block, given, mask, use_reentrant=False, **options)
        else:
            self.x = block(given, mask, **options)
        for name in extras:
            if name in EXTRAS:
                EXTRAS[name](self, i)

    def no_grad(self, _: int) -> None:
        with torch.no_grad():
            shift = self.x.sin()
        self.x = self.x + shift

    def autocast(self, _: int) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            shift = self.model.tap(self.x)
        self.x = self.x + shift

    def push(self, _: int) -> None:
        self.kept.append(self.x)

    def pop(self, _: int) -> None:
        if self.kept:
            self.x = self.x + self.kept.pop()

    def first_kept(self, _: int) -> None:
        if self.kept:
            self.x = self.x + self.kept[0]

    def assign(self, name: str, value: Any) -> None:
        setattr(self.model, name, value)

    def change(self, function: Callable[[torch.Tensor, int], torch.Tensor], i: int) -> None:
        self.x = function(self.x, i)

    def add_loss(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.losses.append(function(self.x))

    def beside(self, i: int) -> None:
        if len(self.model.others):
            self.first = self.model.others[i](self.first + self.x).tanh()
            self.x = self.x + self.first

    def hook(self, _: int) -> None:
        self.x = self.x * 1.5
        self.x.register_hook(lambda gradient: gradient.clamp(-1, 1))

    def weight(self, i: int) -> torch.Tensor:
        block = self.model.blocks[i]
        assert isinstance(block, Block)
        return block.linear.weight


def _changing(function: Callable[[torch.Tensor, int], torch.Tensor]) -> Callable[[Run, int], None]:
    return lambda run, i: run.change(function, i)


OPTIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "scaled": lambda _: {"scale": 0.5},
    "scaled by place": lambda i: {"scale": 1 / (1 + i)},
    "wide": lambda _: {"wide": True},
}
EXTRAS: dict[str, Callable[[Run, int], None]] = {
    "loss": lambda run, _: run.add_loss(lambda x: run.model.tap(x).square().mean()),
    "plain loss": lambda run, _: run.add_loss(lambda x: x.abs().mean()),
    "loss of a weight": lambda run, i: run.losses.append(run.weight(i).square().sum()),
    "cast": _changing(lambda x, _: x.to(torch.bfloat16).float()),
    "times a number": _changing(lambda x, i: x * (1 + i / 8)),
    "times a whole number": _changing(lambda x, i: x * i),
    "power": _changing(lambda x, i: x + x.pow(i % 4)),
    "column": _changing(lambda x, i: x + x[:, i % WIDTH, None]),
    "dropout": _changing(lambda x, _: F.dropout(x, 0.2)),
    "dropout by place": _changing(lambda x, i: F.dropout(x, i / 64)),
    "detach": _changing(lambda x, _: x.detach() + x),
    "cut": _changing(lambda x, _: x.detach()),
    "clone": _changing(lambda x, _: x.clone()),
    "in place": _changing(lambda x, _: x.sin_()),
    "turned": _changing(lambda x, _: x.t().contiguous().t()),
    "steeper": _changing(lambda x, _: Steeper.apply(x, 2.0)),
    "steeper by place": _changing(lambda x, i: Steeper.apply(x, float(i % 3))),
    "norm": lambda run, _: run.change(lambda x, _: run.model.norm(x), 0),
    "plain norm": _changing(lambda x, _: F.layer_norm(x, (WIDTH,))),
    "another block's weight": lambda run, i: run.change(lambda x, _: x @ run.weight(i // 2), 0),
    "again": lambda run, i: run.change(lambda x, _: run.model.blocks[i](x), 0),
    "the first again": lambda run, _: run.change(lambda x, _: run.model.blocks[0](x), 0),
    "from the first": lambda run, _: run.change(lambda x, _: x + run.first, 0),
    "no_grad": Run.no_grad,
    "autocast": Run.autocast,
    "push": Run.push,
    "pop": Run.pop,
    "from the first kept": Run.first_kept,
    "beside": Run.beside,
    "hook": Run.hook,
    "counts in a buffer": lambda run, _: run.assign("steps", run.model.get_buffer("steps").add_(1)),
    "assigns a buffer": lambda run, _: run.assign("memory", run.x.detach().mean(0)),
    "counts in Python": lambda run, i: run.assign("rounds", i),
    "appends to a list": lambda run, i: run.model.seen.append(i),
    "keeps a tensor": lambda run, _: run.assign("last", run.x.detach()),
    "draws": lambda run, _: run.change(lambda x, _: x * random.random(), 0),
}
NAMES = (*EXTRAS, *OPTIONS, "mask", "checkpoint")


def regular(draw: random.Random) -> dict[str, Where]:
    """Where something may happen that a few blocks tell of, or nearly."""
    k, m = draw.randrange(5), draw.choice((2, 2, 3))
    return {
        f"every {m} from {k % m}": lambda i, _: i % m == k % m,
        f"{k} before the end": lambda i, n: i == n - 1 - k,
        f"in the last {k}": lambda i, n: i >= n - k,
        f"in the first {k}": lambda i, _: i < k,
        f"but the first {k}": lambda i, _: i >= k,
        f"but the last {k}": lambda i, n: i < n - k,
        f"at {k}": lambda i, _: i == k,
        "everywhere": lambda _, __: True,
    }


def irregular(draw: random.Random) -> dict[str, Where]:
    """Where something may happen that a few blocks do not tell of."""
    k, m, r = draw.randrange(24), draw.randint(3, 10), draw.randrange(7)
    some = {draw.randrange(24) for _ in range(draw.randint(2, 5))}
    return {
        f"at {k}": lambda i, _: i == k,
        f"at {sorted(some)}": lambda i, _: i in some,
        f"every {m} from {r % m}": lambda i, _: i % m == r % m,
        f"before {k}": lambda i, _: i < k,
        f"from {k}": lambda i, _: i >= k,
        f"but {k}": lambda i, _: i != k,
        f"{k} before the end": lambda i, n: i == n - 1 - k,
        f"every {m} before {k}": lambda i, _: i % m == 0 and i < k,
        "in the middle": lambda i, n: i == n // 2,
        "in the first half": lambda i, n: 2 * i < n,
        "in the second half": lambda i, n: 2 * i > n,
        f"in models of more than {m}": lambda i, n: n > m and i == 2,
    }


def drawn(seed: int) -> Program:
    """The program with this number."""
    draw = random.Random(seed)
    count, share = draw.randint(13, 40), draw.choice((0.0, 0.0, 0.3, 1.0))
    extras, told = [], []
    for _ in range(draw.choice((1, 1, 2, 2, 3))):
        name = draw.choice(NAMES)
        where = draw.choice([*(irregular if draw.random() < share else regular)(draw).items()])
        extras.append((name, where[1]))
        told.append(f"{name} {where[0]}")
    frozen = draw.choice([*irregular(draw).items()]) if draw.random() < 0.1 else ("nowhere", nowhere)
    rate, rounds = draw.choice((0.0, 0.0, 0.1)), draw.choice((1,) * 9 + (2,))
    backwards, beside = draw.random() < 0.15, any(x == "beside" for x, _ in extras)
    text = f"{count} blocks, dropout {rate}, {rounds} rounds, {backwards=}, frozen {frozen[0]}: {'; '.join(told)}"
    return Program(count, tuple(extras), rate, rounds, backwards, beside, frozen[1], text)
