"""``python -m tests.fake_cuda tests.fake_cuda.failing MODEL DEVICE EVERY``: a scheduled step that runs out of memory.

At every allocation of forward and backward pass (or at each ``EVERY``th of them) memory fails, once. What is said, what
stays allocated, which gradients are there, and what the step after that computes: as JSON.
"""

from __future__ import annotations

import copy
import gc
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import capture
from explorer.execution.out_of_memory import OutOfMemory
from explorer.models.gpt import GPT, GPTConfig
from explorer.schedule import keep_all
from explorer.torch_private import forget_cublas_workspaces
from tests.fake_cuda.cuda import Machine, machine
from tests.schedules import random_schedule


class Residual(nn.Module):
    """A small residual network."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
                *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)),
            )
            for _ in range(3)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.stem(x), 2)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.head(x.mean((2, 3)))


class Skipping(nn.Module):
    """A small UNet: down twice and up again, with what is on the way beside it."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = nn.ModuleList(self._pair(x, y, width) for x, y in ((3, 1), (1, 2), (2, 4)))
        self.wider = nn.ModuleList(nn.ConvTranspose2d(x * width, y * width, 2, stride=2) for x, y in ((4, 2), (2, 1)))
        self.up = nn.ModuleList(self._pair(x, y, width) for x, y in ((4, 2), (2, 1)))
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _pair(source: int, made: int, width: int) -> nn.Sequential:
        first = source if source == 3 else source * width
        return nn.Sequential(
            *(nn.Conv2d(first, made * width, 3, padding=1), nn.BatchNorm2d(made * width), nn.ReLU()),
            *(nn.Conv2d(made * width, made * width, 3, padding=1), nn.ReLU()),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        beside = []
        for number, part in enumerate(self.down):
            x = part(F.max_pool2d(x, 2) if number else x)
            beside.append(x)
        for wider, part, other in zip(self.wider, self.up, reversed(beside[:-1]), strict=True):
            x = part(torch.cat([wider(x), other], dim=1))
        return self.last(x)


class Tokens(nn.Module):
    """The cross entropy of all of a sequence's tokens."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def residual() -> tuple[nn.Module, Any, nn.Module]:
    """Model, batch and loss."""
    return Residual(), (torch.randn(2, 3, 16, 16), torch.randint(10, (2,))), nn.CrossEntropyLoss()


def unet() -> tuple[nn.Module, Any, nn.Module]:
    """Likewise."""
    return Skipping(), (torch.randn(2, 3, 16, 16), torch.randint(2, (2, 16, 16))), nn.CrossEntropyLoss()


def gpt() -> tuple[nn.Module, Any, nn.Module]:
    """Likewise."""
    model = GPT(GPTConfig(vocabulary=64, context=16, layers=2, heads=2, width=32))
    return model, (torch.randint(64, (2, 16)), torch.randint(64, (2, 16))), Tokens()


MODELS: dict[str, Callable[[], tuple[nn.Module, Any, nn.Module]]] = {"residual": residual, "unet": unet, "gpt": gpt}


@dataclass
class Found:
    """Of one schedule.

    Attributes:
        allocations: of a step, forward and backward pass.
        tried: so many of them failed.
        wrong: in words, what was not as it should be afterwards.
    """

    allocations: int
    tried: int
    wrong: list[str]


class Trial:
    """A scheduled step whose memory can fail."""

    def __init__(self, module: nn.Module, batch: Any, device: Machine) -> None:
        self.module = module
        self.batch = batch
        self.device = device
        self.one = torch.ones((), device=batch[0].device)

    def step(self) -> None:
        """Forward and backward pass; the gradient of the loss is there already."""
        torch.manual_seed(0)
        loss = self.module(*self.batch)
        torch.autograd.backward([loss], [self.one])

    def gradients(self) -> list[torch.Tensor]:
        """Of a step, which are dropped by the module."""
        self.step()
        found = [x.grad for x in self.module.parameters() if x.grad is not None]
        self.module.zero_grad(set_to_none=True)
        return found

    def allocated(self) -> int:
        """Without what libraries keep."""
        forget_cublas_workspaces()
        return torch.cuda.memory_allocated(self.one.device)

    def failed_at(self, number: int, expected: list[torch.Tensor]) -> list[str]:
        """What is wrong after the allocation of that number failed."""
        before = self.allocated()
        self.device.fail_at(number)
        wrong = []
        try:
            self.step()
            wrong.append("no error")
        except OutOfMemory as error:
            if "pass" not in str(error):
                wrong.append(f"no place is named: {error}")
        except Exception as error:  # noqa: BLE001 - of any kind, and told
            place = traceback.extract_tb(error.__traceback__)[-1]
            wrong.append(f"{type(error).__name__} at {place.name}:{place.lineno}: {str(error).splitlines()[0]}")
        self.device.fail_at(None)
        with_gradient = sum(x.grad is not None for x in self.module.parameters())
        if with_gradient:
            wrong.append(f"{with_gradient} gradients")
        self.module.zero_grad(set_to_none=True)
        # The thread of autograd that failed forgets the error, and with it the loss, a moment after it was told.
        for _ in range(200):
            if (more := self.allocated() - before) == 0:
                break
            time.sleep(0.01)
        else:
            wrong.append(f"{more} bytes stay allocated")
        found = self.gradients()
        if len(found) != len(expected) or not all(map(torch.equal, found, expected)):
            wrong.append("the step after that has other gradients")
        return wrong


def tried(name: str, device: str, every: int) -> list[Found]:
    """With everything kept, and with two random schedules, of all implementations."""
    torch.manual_seed(0)
    model, batch, loss = MODELS[name]()
    model, batch = model.to(device), tuple(x.to(device) for x in batch)
    graph = capture(model, batch, loss=loss).graph
    schedules = [keep_all(graph)]
    schedules += [random_schedule(graph, x, keep=0.6, allowed=lambda _: True) for x in range(2)]
    found = []
    for schedule in schedules:
        module = explorer.apply(copy.deepcopy(model), schedule, batch, loss=loss, check=False)
        trial = Trial(module, batch, machine())
        expected = trial.gradients()
        trial.allocated()
        trial.device.fail_at(None)
        trial.gradients()
        count = trial.device.allocations()
        gc.collect()
        gc.freeze()
        numbers = range(0, count, every)
        wrong = [f"{x}: {y}" for x in numbers for y in trial.failed_at(x, expected)]
        found.append(Found(count, len(numbers), wrong))
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps([asdict(x) for x in tried(sys.argv[1], sys.argv[2], int(sys.argv[3]))]))
