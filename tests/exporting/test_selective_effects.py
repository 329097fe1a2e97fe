"""Blocks that write to memory which was there before: a second run in the backward pass must not write again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.exporting.memory import Memory
from tests.exporting.test_export import exported
from tests.exporting.test_selective import recomputing

Update = Callable[..., torch.Tensor]
FEATURES = 6


class Block(nn.Module):
    """Two layers, below what a test does before them."""

    def __init__(self, root: nn.Module, update: Update) -> None:
        super().__init__()
        self.update, self.root = update, (root,)
        self.register_buffer("stats", torch.zeros(FEATURES))
        self.plain = torch.zeros(FEATURES)
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.norm = nn.BatchNorm1d(FEATURES)

    def forward(self, x: torch.Tensor, *others: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        x = self.update(self, x, *others, **named)
        return x + self.second(torch.tanh(self.norm(self.first(x))))


class Model(nn.Module):
    """Three blocks.

    Attributes:
        passes: what blocks are called with besides, of the model.
    """

    def __init__(self, update: Update, *, passes: Callable[[Model], dict[str, Any]] = lambda _: {}) -> None:
        super().__init__()
        self.register_buffer("stats", torch.zeros(FEATURES))
        self.blocks = nn.ModuleList(Block(self, update) for _ in range(3))
        self.head = nn.Linear(FEATURES, 3)
        self.passes = passes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = self.passes(self)
        for block in self.blocks:
            x = block(x, *given.get("args", ()), **given.get("kwargs", {}))
        return self.head(x)


def outliers(block, x):
    """Nothing changes for the sample batch."""
    block.stats += (x.detach().abs() > 50).sum(0)
    return x


def of_root(block, x):
    block.root[0].stats += x.detach().abs().mean(0)
    return x


def plain(block, x):
    block.plain += 1
    return x


def twice(block, x):
    block.stats.mul_(0.9).add_(0.1 * x.detach().abs().mean(0))
    return x / (block.stats + 1)


def read_before(block, x):
    """The second run would read what the first wrote."""
    y = x - block.stats
    block.stats.lerp_(x.detach().mean(0), 0.1)
    return y


def set_anew(block, x):
    block.stats = 0.9 * block.stats + 0.1 * x.detach().mean(0)
    return x + block.stats


def by_out(block, x):
    with torch.no_grad():
        torch.add(block.stats, x.mean(0), out=block.stats)
    return x


def of_lists(block, x):
    torch.ops.aten._foreach_add_.List([block.stats, block.plain], [x.detach().mean(0)] * 2)
    return x


def fresh(_, x):
    """Memory that the block makes is written again, as it is made again."""
    total = torch.tensor(0.0)
    total += 1
    mean = torch.zeros(FEATURES)
    mean += x.detach().mean(0)
    return x * total - mean


def model_of(update: Update, **kwargs: Any) -> Model:
    torch.manual_seed(0)
    return Model(update, **kwargs)


def batch(scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(5, FEATURES) * scale, torch.tensor([0, 1, 2, 0, 1])


def file_of(model: nn.Module, path: Path, *, kept: tuple[str, ...] = ()) -> Any:
    profile = explorer.profile(model, batch(), loss=F.cross_entropy)
    schedule = recomputing(profile, kept=kept)
    explorer.export(model, schedule, batch(), loss=F.cross_entropy, form="selective", path=path / "effects.py")
    return exported(path / "effects.py")


def state_after_steps(model: nn.Module) -> list[torch.Tensor]:
    """Gradients, buffers and plain tensors after three steps, whose batches differ from the sample."""
    for scale in (1.0, 50.0, 100.0):
        model.zero_grad()
        x, target = batch(scale)
        F.cross_entropy(model(x), target).backward()
    plain_tensors = [x.plain for x in model.modules() if isinstance(x, Block)]
    return [*(x.grad for x in model.parameters() if x.grad is not None), *model.buffers(), *plain_tensors]


def assert_as_eager(model: nn.Module, file: Any) -> None:
    plain_model = copy.deepcopy(model)
    expected = state_after_steps(plain_model)
    got = state_after_steps(file.scheduled(model))
    assert all(torch.equal(x, y) for x, y in zip(got, expected, strict=True))


@pytest.mark.parametrize(
    "update",
    [outliers, of_root, plain, twice, read_before, set_anew, by_out, of_lists, fresh],
    ids=lambda x: x.__name__,
)
def test_nothing_is_written_twice(update, tmp_path):
    model = model_of(update)
    assert_as_eager(model, file_of(model, tmp_path))


def test_of_another_module(tmp_path):
    """Which blocks are called with."""

    def of_other(_, x, *, other):
        other.stats.lerp_(x.detach().mean(0), 0.1)
        return x

    model = model_of(of_other, passes=lambda model: {"kwargs": {"other": model.blocks[0]}})
    assert_as_eager(model, file_of(model, tmp_path))


def test_work_in_place_is_made_again(tmp_path):
    """What is kept of it would be the input's memory, which was made again and is not yet worked on."""
    model = model_of(lambda block, x: F.relu_(x * 2 + 1) * block.first.weight[0])
    file = file_of(model, tmp_path, kept=("relu",))
    assert "relu" not in str(file.KEPT)
    assert_as_eager(model, file)


def test_modes(tmp_path):
    model = model_of(lambda _, x: x)
    norms = [model.get_submodule(f"blocks.{x}.norm") for x in range(3)]
    norms[1].eval()
    file = file_of(model, tmp_path)
    assert file.EVALUATING == {"blocks.1": ("norm",)}
    assert_as_eager(model, file)
    with torch.no_grad():
        model.train()(batch()[0])
    model.eval()(batch()[0]).sum().backward()
    model.train()
    with pytest.raises(ValueError, match=r"blocks\.1\.norm: training now .*export again in these modes"):
        model(batch()[0])
    norms[1].eval()
    norms[2].eval()
    with pytest.raises(ValueError, match=r"blocks\.2\.norm: training now"):
        model(batch()[0])
    norms[2].train()
    model(batch()[0])


def passed(_, x, stats):
    stats += x.detach().abs().mean(0)
    return x


def set_by_all(block, x):
    block.root[0].stats = 0.9 * block.root[0].stats + x.detach().mean(0)
    return x


def written_over(block, x):
    y = x - block.stats
    block.stats.lerp_(x.detach().mean(0), 0.1)
    return y.relu_()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: model_of(passed, passes=lambda model: {"args": (model.stats,)}),
            r"block 'blocks\.0' is called with a tensor that aten\.add_\.Tensor changes",
        ),
        (lambda: model_of(set_by_all), r"block 'blocks\.0' sets stats to another tensor, which the step changes"),
        (lambda: model_of(written_over), r"block 'blocks\.0': aten\.sub\.Tensor reads memory that the step changes"),
    ],
    ids=["argument", "set by several", "written over"],
)
def test_refused(make, said, tmp_path):
    model = make()
    before = {name: x.clone() for name, x in model.named_buffers()}
    with pytest.raises(ValueError, match=said + r".*form='python' can say this schedule"):
        file_of(model, tmp_path)
    assert all(torch.equal(x, before[name]) for name, x in model.named_buffers())


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_are_written_in_training(training):
    """Also where no value changes: the operator does not declare it."""
    mean, variance = torch.zeros(2), torch.ones(2)
    memory = Memory(nn.Module())
    with memory:
        torch.ops.aten.native_batch_norm(torch.zeros(4, 2), None, None, mean, variance, training, 0.0, 1e-5)
    assert [memory.is_written_after(memory.number(x), 0) for x in (mean, variance)] == [training] * 2


@pytest.mark.parametrize(
    ("share", "with_profile", "said"),
    [
        (1.0, False, "is known only with a profile"),
        (2.0, True, "This form keeps the schedule's budget"),
        (0.5, True, "This form does not keep the schedule's budget"),
        (1.05, True, "This form may keep the schedule's budget"),
    ],
)
def test_budget_in_the_first_lines(share, with_profile, said, tmp_path):
    model = model_of(lambda _, x: x)
    profile = explorer.profile(model, batch(), loss=F.cross_entropy)
    schedule = recomputing(profile, kept=())
    coarser = explorer.selective_schedule(model, schedule, batch(), loss=F.cross_entropy)
    peak = explorer.simulate(profile, coarser).peak_bytes
    schedule = replace(schedule, budget_bytes=int(share * peak))
    given = profile if with_profile else None
    path = tmp_path / "budget.py"
    explorer.export(model, schedule, batch(), loss=F.cross_entropy, form="selective", path=path, profile=given)
    assert said in " ".join(path.read_text().split('"""')[1].split())
