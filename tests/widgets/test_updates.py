"""When parameters are updated, as a control of the explorer."""

from __future__ import annotations

import random
import threading
import time

import pytest
import torch
from torch import nn

import explorer
from explorer.device_profile import Profile
from widgets import Explorer
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


@pytest.fixture(scope="module")
def updated() -> Profile:
    return explorer.profile(perceptron(), BATCH, loss=nn.functional.mse_loss, optimizer="adamw-foreach")


def check_agreement(opened: Explorer) -> None:
    """What is asked for, shown and said belongs together."""
    scene, solution = opened._display.scene, opened.solution
    assert scene is not None
    assert solution is not None
    assert scene.solution is solution
    assert solution.budget_bytes == opened.budget_bytes == opened._view.controls.slider.budget_bytes
    assert (opened.schedule, opened.status) == (solution.schedule, solution.status.value)
    assert scene.profile.graph.iteration.within == (opened.choice.update == "within")
    if opened.schedule is not None:
        assert opened.schedule.identity.iteration == scene.profile.graph.iteration
        assert explorer.simulate(scene.profile, opened.schedule).peak_bytes == opened.predicted_peak
        assert opened.predicted_peak <= solution.budget_bytes
    slider = opened._view.controls.slider
    assert slider.plain_bytes == scene.keep_all.peak_bytes
    assert slider.minimum_bytes == scene.known.instant[0].budget_bytes
    curves = [scene.known.instant, *(points for _, points in scene.known.others)]
    found = [x.schedule for points in curves for x in points if x.schedule is not None]
    assert {x.identity.iteration for x in found} == {scene.profile.graph.iteration}


def test_another_choice_that_is_cancelled_before_it_is_there_leaves_what_was_shown(
    updated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with explorer.explore(updated, budget="100 %") as opened:
        opened.wait(120)
        shown, session = opened.schedule, opened._work.answers.solver._session
        begin, reached, go_on = opened._work.charting.begin, threading.Event(), threading.Event()

        def slow(*what: object) -> object:
            reached.set()
            assert go_on.wait(60)
            return begin(*what)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(opened._work.charting, "begin", slow)
            opened.configure(update="within")
            assert reached.wait(60)
            opened.cancel()
            go_on.set()
            opened.wait(60)
        assert opened.message == "Cancelled opening."
        assert opened._work.answers.solver._session is session
        assert opened.schedule == shown
        assert opened.choice.update is None
        check_agreement(opened)
        opened.budget = "99 %"
        opened.wait(60)
        check_agreement(opened)
        opened.configure(update="within")
        opened.wait(60)
        assert opened.choice.update == "within"
        check_agreement(opened)


def test_another_choice_that_cannot_be_opened_leaves_what_was_shown(
    updated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no more processes")

    with explorer.explore(updated, budget="100 %") as opened:
        opened.wait(120)
        with monkeypatch.context() as patch:
            patch.setattr(opened._work.answers.solver, "start", refuse)
            opened.configure(update="within")
            with pytest.raises(OSError, match="no more processes"):
                opened.wait(60)
        assert opened.message == "Opening failed: OSError: no more processes. The schedule is still there."
        assert opened.choice.update is None
        check_agreement(opened)


def test_a_budget_opens_again_what_was_cancelled_before_it_was_open(updated: Profile) -> None:
    with explorer.explore(updated) as opened:
        opened.cancel()
        opened.wait(120)
        assert "Cancelled opening. A budget in bytes" in opened.message
        assert opened.status == "failed"
        opened.budget_bytes = 10 * 2**20
        opened.wait(120)
        assert opened.schedule is not None
        check_agreement(opened)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, *(pytest.param(x, marks=pytest.mark.thorough) for x in range(1, 12))])
def test_whatever_is_asked_and_cancelled_in_whatever_order_agrees_in_the_end(updated: Profile, seed: int) -> None:
    chance = random.Random(seed)
    with explorer.explore(updated, budget=chance.choice([None, "100 %"]), time_limit=0.3) as opened:
        opened.wait(120)
        asks = [
            *(lambda x=x: opened.configure(update=x) for x in ("end", "within")),
            *(lambda x=x: opened.configure(order=x) for x in (True, False)),
            lambda: opened.configure(exact=chance.random() < 0.5),
            *(lambda x=x: opened.set_trait("budget", x) for x in ("99 %", "90 %", "75 %")),
            lambda: opened.set_trait("curves", ["checkpointing"]),
            opened.cancel,
            opened.cancel,
        ]
        for _ in range(10):
            time.sleep(chance.choice([0.0, 0.0, 0.001, 0.01, 0.1, 0.3]))
            chance.choice(asks)()
        opened.wait(120)
        check_agreement(opened)
        opened.budget = "97 %"
        opened.wait(120)
        check_agreement(opened)
