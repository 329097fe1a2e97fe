"""Steps in one buffer that are odd for a while, or differ from what was noted: the buffer is used again afterwards."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import explorer
from explorer.execution.measuring import buffer_of
from tests.execution.test_buffer import assert_same, eager, made, pytestmark, step

__all__ = ["pytestmark"]


@pytest.fixture
def pair():
    """A module in one buffer, another one with the same numbers, and their batch."""
    return made()


def ordinary(module: nn.Module, other: nn.Module, batch, *, steps: int) -> list[tuple[int, int]]:
    """What each of some steps was served, and missed; their gradients are eager mode's."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            assert torch.equal(step(module, batch), eager(other, batch))
            assert_same(module, other)
            found.append((buffer_of(module).use.served, buffer_of(module).use.misses))
    return found


def test_after_odd_steps_all_is_as_before(pair):
    """Tensors that are made between the passes are kept: each time places of the plan are taken, and given back."""
    module, other, batch = pair
    for _ in range(3):
        step(module, batch)
        eager(other, batch)
    before = ordinary(module, other, batch, steps=1)[0]
    peak_bytes = explorer.measure(module, batch, steps=1).peak_bytes
    for number in range(3):
        module.zero_grad()
        loss = module(*batch)
        kept = [torch.full(x, float(number)) for x in ((4, 8, 16, 16), (4, 8, 16, 16), (4, 8, 8, 8), (4, 10))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss.backward()
        eager(other, batch)
        assert_same(module, other)
        # What is planned and comes from elsewhere is told, whatever the reason.
        assert all(sum(x) >= sum(before) - 2 and x[1] > 0 for x in ordinary(module, other, batch, steps=2))
        assert all(bool((x == number).all()) for x in kept)
        del kept
        assert ordinary(module, other, batch, steps=3)[-1] == before
    assert explorer.measure(module, batch, steps=1).peak_bytes == peak_bytes


def test_what_outlives_each_step_lies_beside_the_buffer_until_a_step_is_noted_anew(pair):
    """A habit that changes: what is made between the passes goes at once at first, and later with the next step."""
    module, other, batch = pair
    kept: list[torch.Tensor] = []

    def between(*, steps: int, keep: bool) -> int:
        for _ in range(steps):
            module.zero_grad()
            loss = module(*batch)
            kept[:] = [torch.full((4, 8, 16, 16), 5.0)]
            copied = kept[0].clone()
            if not keep:
                kept.clear()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loss.backward()
            eager(other, batch)
            assert_same(module, other)
            assert all(map(torch.equal, kept, [copied]))
            del copied
        return buffer_of(module).use.misses

    assert between(steps=4, keep=False) == 0
    assert between(steps=3, keep=True) > 0
    assert between(steps=10, keep=True) == 0


def test_a_buffer_that_was_noted_among_other_steps_is_noted_anew(pair):
    module, other, batch = pair
    second = copy.deepcopy(module)
    for _ in range(3):
        module.zero_grad()
        second.zero_grad()
        first_loss, second_loss = module(*batch), second(*batch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (first_loss + 2 * second_loss).backward()
    uses = []
    for one in (module, second):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(9):
                step(one, batch)
        assert ordinary(one, other, batch, steps=1)[0][1] == 0
        uses.append(buffer_of(one).use)
    assert uses[0] == uses[1] and uses[0].served > 20


def test_what_is_never_as_planned_is_noted_ever_more_rarely(pair):
    module, other, batch = pair
    buffer, noted = buffer_of(module), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(40):
            module.zero_grad()
            loss = module(*batch)
            odd = torch.zeros(3001 + number)
            loss.backward()
            noted += [number] if buffer.steps + len(noted) == number else []
            del odd
    assert buffer.use.misses > 0
    assert noted == [0, 1, 6, 15, 32]  # the first two, then one after 4, 8 and 16 others
    eager(other, batch)
    assert_same(module, other)


class _Losses(nn.Module):
    """Returns a loss, and two more that need not be trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*(x for _ in range(3) for x in (nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())))
        self.head, self.side = nn.Linear(32, 8), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.trunk(x)
        side = self.side(features).tanh()
        return {"loss": self.head(features).square().mean(), "side": side.square().mean(), "size": side.abs().mean()}


def test_measuring_trains_on_all_results_and_a_training_on_one():
    """Each is placed for itself: nothing is missed, and what is measured does not depend on what came before."""
    torch.manual_seed(0)
    model, batch = _Losses(), torch.randn(64, 32)
    module = explorer.apply(model, explorer.keep_all(explorer.profile(model, batch).graph), batch, buffer=True)
    fresh, _ = (explorer.measure(module, batch) for _ in range(2))
    for _ in range(8):
        module(batch)["loss"].backward()
        model.zero_grad()
        assert buffer_of(module).use.misses == 0
    again = explorer.measure(module, batch)
    assert (again.peak_bytes, again.buffer) == (fresh.peak_bytes, fresh.buffer)
    assert again.buffer.misses == 0
    assert again.buffer.served > 0
