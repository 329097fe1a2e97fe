"""When parameters are updated, as a control of the explorer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import explorer
from widgets.panels.solver import SolverPanel


def perceptron() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(6)), nn.Linear(128, 1))


BATCH = (torch.randn(32, 128), torch.randn(32, 1))


@pytest.mark.timeout(300)
def test_the_moment_of_updates_is_chosen_shown_and_run() -> None:
    with explorer.explore(perceptron(), BATCH, loss=nn.functional.mse_loss, optimizer="adamw-foreach") as explored:
        panel = explored._view.panels["solver"]
        slider = explored._view.controls.slider
        assert isinstance(panel, SolverPanel)
        explored.wait()
        assert "try updates within the backward pass" in explored.message
        at_end_bytes = slider.plain_bytes
        panel.update.value = "within"
        explored.wait()
        assert explored.choice.update == "within"
        assert slider.plain_bytes < 0.8 * at_end_bytes
        explored.budget_bytes = (slider.minimum_bytes + slider.plain_bytes) // 2
        explored.wait()
        assert explored.schedule is not None
        assert explored.schedule.identity.iteration.within
        explored.run()
        explored.wait()
        assert explored.measured_peak == explored.predicted_peak
        explored.curves = ["checkpointing"]
        explored.wait()
        explored.configure(update="end")
        explored.wait()
        assert explored.schedule is None, "the budget is too small for gradients that wait"
        assert panel.update.value == "end"
        assert slider.plain_bytes == at_end_bytes
        explored.budget_bytes = at_end_bytes
        explored.wait()
        assert explored.schedule is not None
        assert not explored.schedule.identity.iteration.within
        with pytest.raises(ValueError, match="update is 'now'; allowed: 'end' or 'within'"):
            explored.configure(update="now")


def test_updates_that_are_not_known_are_refused_and_not_offered() -> None:
    for iteration, why in (
        ({}, "has no optimizer"),
        ({"optimizer": "adamw", "accumulate": True}, "gradients that are accumulated cannot be used up"),
    ):
        profile = explorer.profile(perceptron(), BATCH, loss=nn.functional.mse_loss, **iteration)
        with explorer.explore(profile) as explored:
            explored.wait()
            assert explored._view.panels["solver"].update.layout.display == "none"  # type: ignore[union-attr]
            before = explored.choice
            with pytest.raises(ValueError, match=why):
                explored.configure(update="within")
            assert explored.choice == before
