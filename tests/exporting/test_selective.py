"""Selective checkpointing from a schedule: eager mode's bits, the bytes that were simulated, and what is unsaid."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.blocks import home_of, repeated_blocks_of
from explorer.exporting.files import is_exported
from explorer.exporting.selective import selective
from explorer.models.gpt import GPT, GPTConfig
from explorer.schedule import Run, Schedule, with_frees
from tests.exporting.test_export import exported

ALONE = """
import json, sys
import torch

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("explorer", "widgets"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Nowhere())
sys.path.insert(0, sys.argv[1])
from checkpointing import scheduled

torch.manual_seed(0)
blocks = (torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16)) for _ in range(3))
model = scheduled(torch.nn.Sequential(*blocks))
x = torch.load(sys.argv[2])
model(x).square().mean().backward()
print(json.dumps([float(p.grad.sum()) for p in model.parameters()]))
"""


class Residual(nn.Module):
    """A block with batch normalisation, which a second run would update again, and work in place."""

    def __init__(self, *, inplace: bool) -> None:
        super().__init__()
        self.inplace = inplace
        self.conv1, self.norm1 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=self.inplace)
        return F.relu_(self.norm2(self.conv2(y)) + x)


def gpt(dropout: float = 0.0) -> tuple[nn.Module, Any, Any]:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=256, context=64, layers=3, heads=4, width=64, dropout=dropout))
    tokens = torch.randint(256, (8, 64))
    return model, (tokens, tokens), None


def images(*, inplace: bool = False) -> tuple[nn.Module, Any, Any]:
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Residual(inplace=inplace) for _ in range(3)))
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    return model, (torch.randn(8, 3, 32, 32), torch.randint(4, (8,))), F.cross_entropy


def perceptrons() -> tuple[nn.Module, Any, Any]:
    torch.manual_seed(0)
    blocks = (nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)) for _ in range(3))
    return nn.Sequential(*blocks), (torch.randn(64, 16), torch.randn(64, 16)), F.mse_loss


def recomputing(profile: explorer.Profile, *, kept: tuple[str, ...]) -> Schedule:
    """Of every block, all but some targets is computed again, at the end of the forward pass: nothing clever."""
    graph = profile.graph
    runs = [Run(x.id, x.default().name) for x in graph.forward if not x.optional]
    blocks, done = repeated_blocks_of(graph), set()
    for operator in graph.backward:
        if operator.optional:
            continue
        block = home_of(operator, blocks)
        if block and block not in done:
            done.add(block)
            runs += [
                Run(x.id, x.default(again=True).name)
                for x in graph.forward
                if home_of(x, blocks) == block
                and not x.optional
                and not any(y in x.target for y in kept)
                and any(y.again for y in x.implementations)
            ]
        runs.append(Run(operator.id, operator.default().name))
    return with_frees(graph, runs, method="test", budget_bytes=None)


def gradients(model: nn.Module, batch: Any, loss: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model.zero_grad()
    value = model(*batch) if loss is None else loss(model(batch[0]), batch[1])
    value.backward()
    return [x.grad.clone() for x in model.parameters() if x.grad is not None] + [x.clone() for x in model.buffers()]


@pytest.mark.thorough("gpt-products")
@pytest.mark.parametrize(
    ("make", "kept"),
    [(gpt, ("addmm",)), (gpt, ("gelu", "attention")), (images, ("batch_norm",))],
    ids=["gpt-products", "gpt-others", "images"],
)
def test_bits_and_bytes(make, kept, tmp_path):
    model, batch, loss = make()
    profile = explorer.profile(model, batch, loss=loss)
    schedule = recomputing(profile, kept=kept)
    path = explorer.export(model, schedule, batch, loss=loss, form="selective", path=tmp_path / "s.py", profile=profile)
    assert is_exported(path, form="selective")
    text = path.read_text()
    assert "Simulated: a peak of" in text
    state = copy.deepcopy(model.state_dict())
    expected = gradients(model, batch, loss)
    model.load_state_dict(state)
    plain = explorer.measure(model, batch, loss=loss, steps=1).peak_bytes
    simulated = explorer.simulate(profile, explorer.selective_schedule(model, schedule, batch, loss=loss)).peak_bytes
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())  # watching changed nothing
    assert exported(path).scheduled(model) is model
    assert all(torch.equal(x, y) for x, y in zip(gradients(model, batch, loss), expected, strict=True))
    measured = explorer.measure(model, batch, loss=loss, steps=1).peak_bytes
    assert measured < plain
    assert measured == pytest.approx(simulated, rel=0.1)  # the backward pass of a block takes a little more in PyTorch


def test_random_numbers_are_the_same(tmp_path):
    model, batch, loss = gpt(dropout=0.1)
    profile = explorer.profile(model, batch, loss=loss)
    path = explorer.export(
        model, recomputing(profile, kept=("addmm",)), batch, form="selective", path=tmp_path / "drawing.py"
    )
    expected = gradients(model, batch, loss)
    exported(path).scheduled(model)
    assert all(torch.equal(x, y) for x, y in zip(gradients(model, batch, loss), expected, strict=True))


def test_alone(tmp_path):
    """Where this package is not; another batch than it was made with will do."""
    model, batch, loss = perceptrons()
    profile = explorer.profile(model, batch, loss=loss)
    schedule = recomputing(profile, kept=())
    explorer.export(model, schedule, batch, loss=loss, form="selective", path=tmp_path / "checkpointing.py")
    x = torch.randn(8, 16)
    torch.save(x, tmp_path / "x.pt")
    command = [sys.executable, "-W", "error", "-c", ALONE, str(tmp_path), str(tmp_path / "x.pt")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    model(x).square().mean().backward()
    assert json.loads(answer.stdout) == [float(p.grad.sum()) for p in model.parameters()]


def test_the_file_looks_before_it_wraps(tmp_path):
    model, batch, loss = perceptrons()
    profile = explorer.profile(model, batch, loss=loss)
    path = explorer.export(
        model, recomputing(profile, kept=()), batch, loss=loss, form="selective", path=tmp_path / "looks.py"
    )
    file = exported(path)
    with pytest.raises(ValueError, match="Linear has no module '0': this file is for another model"):
        file.scheduled(nn.Linear(16, 16))
    other = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3)))
    with pytest.raises(RuntimeError, match=r"calls aten\.addmm\.default 1 times here and 2 times where"):
        file.scheduled(other)(batch[0])
    file.scheduled(model)
    assert model.eval()(batch[0]).grad_fn is not None
    with pytest.raises(ValueError, match="is checkpointed already"):
        file.scheduled(model)


def test_what_it_cannot_say():
    model, batch, loss = gpt()
    profile = explorer.profile(model, batch, loss=loss)
    schedule = explorer.solve(profile, budget="60 %", steps=1).schedule
    assert schedule is not None
    said = " ".join(selective(model, schedule, batch, loss=loss).unsaid)
    assert "× in place" in said
    assert "every operator runs as PyTorch runs it" in said


@pytest.mark.parametrize(
    ("make", "schedule", "said"),
    [
        (
            gpt,
            lambda profile: explorer.keep_all(profile.graph),
            "recomputes nothing within the model's repeated blocks",
        ),
        (
            lambda: images(inplace=True),
            lambda profile: recomputing(profile, kept=("batch_norm",)),
            r"block '1\.0': aten\.native_batch_norm\.default updates a buffer, .*form='python' can say this schedule",
        ),
        (
            lambda: (nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(2, 4), None),
            lambda profile: explorer.keep_all(profile.graph),
            r"Sequential has no repeated blocks, .*form='python' can say this schedule",
        ),
    ],
    ids=["nothing", "in place", "no blocks"],
)
def test_refused(make, schedule, said, tmp_path: Path):
    model, batch, loss = make()
    profile = explorer.profile(model, batch, loss=loss)
    with pytest.raises(ValueError, match=said):
        explorer.export(model, schedule(profile), batch, loss=loss, form="selective", path=tmp_path / "x.py")
    assert not (tmp_path / "x.py").exists()
