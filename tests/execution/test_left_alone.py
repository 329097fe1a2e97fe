"""What a user gives is as it was afterwards: parameters, buffers, gradients, the batch and its own, random state."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import explorer
from explorer.execution.measuring import step_time_ms
from explorer.execution.runs import measure_runs


class Eager(nn.Module):
    """Writes to its batch, draws random numbers, has buffers that change, and gives its batch a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        seen.add_(1)
        hidden = nn.functional.dropout(self.norm(self.first(x)).relu(), 0.2, training=self.training)
        return self.last(hidden).square().mean()


Batch = tuple[torch.Tensor, torch.Tensor]


def given() -> tuple[Eager, Batch]:
    torch.manual_seed(0)
    model, batch = Eager(), (torch.randn(16, 4, requires_grad=True), torch.zeros(3))
    model(*batch).backward()
    batch[1].zero_()
    return model, batch


def state(model: nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
    found = {f"{name} of the model": x for name, x in model.state_dict().items()}
    found |= {f"gradient of {name}": x.grad for name, x in model.named_parameters() if x.grad is not None}
    found |= {f"batch {number}": x.detach() for number, x in enumerate(batch)}
    found |= {f"gradient of batch {number}": x.grad for number, x in enumerate(batch) if x.grad is not None}
    return {name: x.clone() for name, x in found.items()} | {"random state": torch.get_rng_state()}


@cache
def _schedule() -> explorer.Schedule:
    return explorer.keep_all(explorer.profile(*given()).graph)


def _measured(model: nn.Module, batch: Batch, how: Callable[..., Any]) -> None:
    how(explorer.apply(model, _schedule(), batch), batch)


DEEDS: dict[str, Callable[[nn.Module, Batch, Path], object]] = {
    "profile": lambda model, batch, _: explorer.profile(model, batch),
    "profile, with an optimizer": lambda model, batch, _: explorer.profile(model, batch, optimizer="adam"),
    "estimate": lambda model, batch, _: explorer.estimate(model, batch, device="A100-80GB"),
    "apply": lambda model, batch, _: explorer.apply(model, _schedule(), batch),
    "measure": lambda model, batch, _: _measured(model, batch, explorer.measure),
    "measure a plain model": lambda model, batch, _: explorer.measure(model, batch),
    "measure with an optimizer": lambda model, batch, _: explorer.measure(model, batch, optimizer="adam"),
    "time": lambda model, batch, _: step_time_ms(model, batch),
    "measure runs": lambda model, batch, _: _measured(model, batch, measure_runs),
    "export": lambda model, batch, folder: explorer.export(model, _schedule(), batch, path=folder / "step.py"),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_what_was_given_is_as_it_was(deed: str, tmp_path: Path) -> None:
    model, batch = given()
    before = state(model, batch)
    DEEDS[deed](model, batch, tmp_path)
    after = state(model, batch)
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []


def test_a_step_that_fails_leaves_the_gradient_of_its_batch() -> None:
    model, batch = given()
    before = state(model, batch)
    model.last.register_full_backward_hook(_fail)
    with pytest.raises(ArithmeticError):
        explorer.measure(model, batch)
    after = state(model, batch)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []


def _fail(*_: object) -> None:
    raise ArithmeticError
