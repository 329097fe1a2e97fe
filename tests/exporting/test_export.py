"""Schedules as files: the same bits and bytes as the executor's, where nothing of this package is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import explorer
from explorer import model_source
from explorer.capture import capture
from explorer.capture.batch import call_arguments
from explorer.execution.memory import watch_cpu_memory
from explorer.schedule import keep_all
from tests.schedules import random_schedule

SIZES: dict[str, dict[str, Any]] = {
    "resnet50": {"batch_size": 2, "image_size": 64},
    "unet": {"batch_size": 1, "image_size": 32},
    "gpt2": {"batch_size": 1, "sequence_length": 32},
    "vit_b16": {"batch_size": 2},
    "mobilenet_v2": {"batch_size": 2, "image_size": 64},
    "googlenet": {"batch_size": 2, "image_size": 112},
}
ALONE = """
import importlib.util, json, sys
import torch

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("explorer", "widgets", "pyscipopt", "cvxpy", "numba"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Nowhere())
spec = importlib.util.spec_from_file_location("exported", sys.argv[1])
exported = importlib.util.module_from_spec(spec)
sys.modules["exported"] = exported
spec.loader.exec_module(exported)
torch.set_num_threads(int(sys.argv[4]))
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
model.load_state_dict(torch.load(sys.argv[2]))
model = exported.scheduled(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(3):
    loss = model(*torch.load(sys.argv[3]))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert "explorer" not in sys.modules
print(json.dumps(losses))
"""


def exported(path: Path) -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # without entering it in sys.modules, as many do
    assert path.stem not in sys.modules
    return module


def step(module: nn.Module, batch: Any, loss: Any) -> tuple[list[torch.Tensor | None], int]:
    """Gradients, loss and buffers of a step, and the memory that it took beyond what was there."""
    args, kwargs = call_arguments(batch, loss=loss)
    kept: list[torch.Tensor] = []

    def run() -> None:
        torch.manual_seed(0)
        value = module(*args, **kwargs)
        value.backward()
        kept.append(value.detach())

    module.zero_grad()
    peak = watch_cpu_memory(run).peak_bytes()
    state = [x.detach().clone() for x in module.buffers()]
    return [*kept, *(None if x.grad is None else x.grad.clone() for x in module.parameters()), *state], peak


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1])


def file_of(folder: Path, model: nn.Module, given: Any, *, loss: Any = None, seed: int | None = None) -> Path:
    graph = capture(model, given, loss=loss).graph
    schedule = keep_all(graph) if seed is None else random_schedule(graph, seed, keep=0.5, allowed=lambda _: True)
    return explorer.export(model, schedule, given, loss=loss, path=folder / "exported.py")


@pytest.mark.thorough("resnet50", "googlenet", "mobilenet_v2", "vit_b16", "gpt2")
@pytest.mark.parametrize("name", SIZES)
def test_a_file_has_the_bits_and_bytes_of_the_executor(name: str, tmp_path: Path) -> None:
    model, given, loss = model_source.bundled(name, **SIZES[name])
    other, _, _ = model_source.bundled(name, **SIZES[name])
    graph = capture(model, given, loss=loss).graph
    for seed in range(2):
        schedule = random_schedule(graph, seed, keep=0.7, allowed=lambda _: True)
        path = explorer.export(model, schedule, given, loss=loss, path=tmp_path / f"exported_{seed}.py")
        pair = (explorer.apply(model, schedule, given, loss=loss, check=False), exported(path).scheduled(other))
        for _ in range(2):
            (mine, my_peak), (theirs, their_peak) = (step(x, given, loss) for x in pair)
            assert all(x is y is None or torch.equal(x, y) for x, y in zip(mine, theirs, strict=True))  # type: ignore[arg-type]
        assert my_peak == their_peak


def test_a_file_trains_where_nothing_else_is_installed(tmp_path: Path) -> None:
    model = small()
    path = file_of(tmp_path, model, batch(), loss=nn.functional.cross_entropy, seed=0)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    torch.save(batch(), tmp_path / "batch.pt")
    command = [sys.executable, "-c", ALONE, str(path), str(tmp_path / "state.pt"), str(tmp_path / "batch.pt")]
    command.append(str(torch.get_num_threads()))
    ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = []
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(batch()[0]), batch()[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    assert json.loads(ran.stdout) == pytest.approx(expected, rel=1e-5)


def test_a_file_can_be_read(tmp_path: Path) -> None:
    text = file_of(tmp_path, small(), batch(), loss=nn.functional.cross_entropy).read_text(encoding="utf-8")
    assert "import explorer" not in text and "noqa" not in text and str(tmp_path) not in text
    assert "relu = aten.relu_.default(" in text or "relu = aten.relu.default(" in text
    assert "  # 2" in text  # the layer
    assert "('1.running_mean', (8,), (1,), torch.float32, False)" in text


def test_what_is_no_training_step_is_the_models(tmp_path: Path) -> None:
    model = small()
    module = exported(file_of(tmp_path, model, batch(), loss=nn.functional.cross_entropy)).scheduled(model)
    assert isinstance(module, nn.Sequential) and module.state_dict().keys() == model.state_dict().keys()
    assert module(batch()[0]).shape == (5, 3)
    module.eval()
    assert torch.equal(module(batch()[0]), model(batch()[0]))


class Several(nn.Module):
    """Returns a dict, takes a nested batch and keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, extra: dict[str, list[torch.Tensor]], scale: float = 1.0) -> dict[str, Any]:
        h = self.first(x + extra["parts"][0])
        return {"loss": (self.second(h) * scale).sum(), "hidden": h}


def test_batches_and_results_may_be_nested(tmp_path: Path) -> None:
    model, given = Several(), {"x": torch.randn(3, 4), "extra": {"parts": [torch.randn(3, 4)]}, "scale": 2.0}
    module = exported(file_of(tmp_path, model, given)).scheduled(model)
    found = module(**given)
    found["loss"].backward()
    mine = model.first.weight.grad
    model.zero_grad()
    expected = model(**given)
    expected["loss"].backward()
    assert mine is not None and model.first.weight.grad is not None
    assert torch.equal(mine, model.first.weight.grad) and torch.equal(found["hidden"], expected["hidden"])
    with pytest.raises(RuntimeError, match="only the loss carries a gradient"):
        module(**given)["hidden"].sum().backward()
    with pytest.raises(ValueError, match="made of other parts"):
        module(**given, more=given["x"])
    with pytest.raises(ValueError, match=r"3\.0 where the schedule was made for 2\.0"):
        module(**{**given, "scale": 3.0})
    with pytest.raises(ValueError, match=r"x has \(2, 4\)"):
        module(**{**given, "x": torch.randn(2, 4)})


def test_another_model_is_refused(tmp_path: Path) -> None:
    made = exported(file_of(tmp_path, small(), batch(), loss=nn.functional.cross_entropy))
    with pytest.raises(ValueError, match=r"0.weight is missing; the schedule was made for torch.float32 \(8, 6\)"):
        made.scheduled(nn.Linear(6, 8))
    frozen = small()
    frozen[0].requires_grad_(False)
    with pytest.raises(ValueError, match=r"0\.weight needs no gradient"):
        made.scheduled(frozen)
    with pytest.raises(ValueError, match=r"0.weight is torch.float64 \(8, 6\)"):
        made.scheduled(small().double())
    module = made.scheduled(small())
    module[1].eval()
    with pytest.raises(ValueError, match=r"other modules are in evaluation mode .*: 1"):
        module(*batch())
    module[1].train()
    told = r"called under autocast to torch.bfloat16; the schedule was made for None"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match=told):
        module(*batch())


def test_what_cannot_be_written_down_is_named(tmp_path: Path) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.layer(x).sum(), x

    with pytest.raises(ValueError, match="tensors that it was given"):
        file_of(tmp_path, Both(), torch.randn(3, 4))

    class Learnt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(outputs * self.weight, target)

    with pytest.raises(ValueError, match="the loss has parameters or buffers of its own"):
        file_of(tmp_path, small(), batch(), loss=Learnt())
    schedule = keep_all(capture(small(), batch(), loss=nn.functional.cross_entropy).graph)
    with pytest.raises(ValueError, match="the schedule does not fit"):
        explorer.export(nn.Linear(6, 3), schedule, batch(), loss=nn.functional.cross_entropy, path=tmp_path / "x.py")


class Constants(nn.Module):
    """Reads a tensor that is a plain attribute, and one that is nobody's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.mask = torch.zeros(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) @ MATRIX + self.mask).clamp(max=LIMITS[1]).sum() * LIMITS[0]


MATRIX = torch.randn(3, 3, generator=torch.Generator().manual_seed(2))
LIMITS = torch.tensor([1.5, float("inf")])


def test_constants_are_written_down(tmp_path: Path) -> None:
    model, x = Constants(), torch.randn(3, 3)
    module = exported(file_of(tmp_path, model, x)).scheduled(model)
    (expected, _), (found, _) = step(model, x, None), step(module, x, None)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))  # type: ignore[arg-type]


class Squared(nn.Module):
    """Its backward pass reads its output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).tanh()


def test_what_would_give_other_gradients_is_refused(tmp_path: Path) -> None:
    """As in eager mode: outputs changed before the backward pass; and gradients of gradients."""
    model, x = Squared(), torch.randn(3, 3)
    module = exported(file_of(tmp_path, model, x)).scheduled(model)
    output = module(x)
    output.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
    (first,) = torch.autograd.grad(module(x).sum(), [model.layer.bias], create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        first.sum().backward()


def test_kernels_of_a_compiler_cannot_be_written_down(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Softsign(), nn.Linear(64, 8)).train()
    batch = torch.randn(128, 8)
    graph = capture(model, batch, fuse=True).graph
    only_fused = random_schedule(graph, 0, keep=1.0, allowed=lambda x: x.name == "fused")
    with pytest.raises(ValueError, match="it runs kernels that PyTorch's compiler makes"):
        explorer.export(model, only_fused, batch, path=tmp_path / "step.py")
    assert explorer.export(model, explorer.keep_all(graph), batch, path=tmp_path / "step.py").exists()
