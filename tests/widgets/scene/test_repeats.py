"""Modules that a step uses several times: one name for each use, or for all of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from widgets.scene.implementations import Choices
from widgets.scene.layers import segments, stretches
from widgets.scene.repeats import name_of_use, repeats

STEPS = 40


class Towers(nn.Module):
    """One tower, used for three inputs."""

    def __init__(self) -> None:
        """Random weights."""
        super().__init__()
        layers = [x for _ in range(4) for x in (nn.Linear(16, 16), nn.Tanh())]
        self.net = nn.ModuleDict({"tower": nn.Sequential(*layers)})

    def forward(self, first: torch.Tensor, second: torch.Tensor, third: torch.Tensor) -> torch.Tensor:
        """Three of (N, 16) to a loss."""
        tower = self.net["tower"]
        return F.triplet_margin_loss(tower(first), tower(second), tower(third))


class Recurrent(nn.Module):
    """A cell, used at every step, and a loss at each."""

    def __init__(self) -> None:
        """Random weights."""
        super().__init__()
        self.embed, self.cell, self.head = nn.Embedding(50, 16), nn.Linear(16, 16), nn.Linear(16, 50)

    def forward(self, words: torch.Tensor, meant: torch.Tensor) -> torch.Tensor:
        """Words (N, STEPS) to a loss."""
        state, loss = words.new_zeros((), dtype=torch.float32), words.new_zeros((), dtype=torch.float32)
        for step in range(STEPS):
            state = torch.tanh(self.cell(self.embed(words[:, step])) + state)
            loss = loss + F.cross_entropy(self.head(state), meant[:, step])
        return loss


def towers() -> Profile:
    with torch.device("meta"):
        return explorer.estimate(Towers(), tuple(torch.empty(8, 16) for _ in range(3)), device="A100-40GB")


def recurrent() -> Profile:
    with torch.device("meta"):
        model = Recurrent()
    words = torch.randint(50, (8, STEPS))
    return explorer.estimate(model, (words, words), device="A100-40GB")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("", []),
        ("a", [(0, 1, 1)]),
        ("abab", [(0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)]),
        ("ababab", [(0, 2, 3)]),
        ("xabcabcabcy", [(0, 1, 1), (1, 3, 3), (10, 1, 1)]),
        ("abcabcdededefg", [(0, 3, 2), (6, 2, 3), (12, 1, 1), (13, 1, 1)]),
    ],
)
def test_what_repeats_is_found(names: str, found: list[tuple[int, int, int]]) -> None:
    assert list(repeats(names)) == found
    assert sum(length * times for _, length, times in found) == len(names)


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        (["net.tower.0", "net.tower.1", "net.tower.0"], "net.tower"),
        (["e", "c", "h"], "e, c, h"),
        (["a", "b", "c", "d", "e"], "a, b, c, d, …"),
        (["net.tower"], "net.tower"),
    ],
)
def test_a_use_is_named_by_its_module_or_by_its_parts(labels: list[str], name: str) -> None:
    assert name_of_use(labels) == name


def test_each_use_of_a_tower_has_a_place_on_the_axis() -> None:
    profile = towers()
    plain = simulate(profile, keep_all(profile.graph))
    assert [x.label for x in segments(profile.graph, plain)] == ["net.tower"] * 6
    assert [x.label for x in stretches(profile.graph, range(profile.graph.forward_count))] == ["net.tower"] * 3


def test_the_steps_of_a_recurrence_are_one_name() -> None:
    profile = recurrent()
    plain = simulate(profile, keep_all(profile.graph))
    found = segments(profile.graph, plain)
    assert found[0].label == f"embed, cell, head ×{STEPS}"
    assert sum(x.end - x.start for x in found) > 0.9 * len(plain.operators)
    assert len(found) < 5


def test_losses_of_slices_are_one_choice() -> None:
    """Their arguments lie at other addresses, and each is measured by itself."""
    choices = Choices(recurrent())
    losses = [x for x in choices.calls if "cross_entropy_backward" in x.label]
    assert [x.label for x in losses] == [f"other: cross_entropy_backward and {STEPS - 1} more"]
