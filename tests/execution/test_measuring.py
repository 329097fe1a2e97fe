"""Measurements say how far they are, and can be stopped between two steps without a trace."""

from __future__ import annotations

import gc

import pytest
import torch

import explorer
from explorer.execution.measuring import step_time_ms
from explorer.execution.memory import settled
from tests.execution.models import branches, graph_of
from tests.schedules import random_schedule


def test_progress_is_told_before_every_step() -> None:
    model, batch, loss = branches()
    module = explorer.apply(model, random_schedule(graph_of(branches), 1, keep=0.3), batch, loss=loss)
    told: list[tuple[int, int]] = []
    explorer.measure(module, batch, steps=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3)]


class _EnoughError(Exception):
    pass


def test_stopped_between_two_steps_the_model_is_as_before() -> None:
    model, batch, loss = branches()
    before = [x.clone() for x in model.state_dict().values()]

    def stop(done: int, _: int) -> None:
        if done == 2:
            raise _EnoughError

    with pytest.raises(_EnoughError):
        step_time_ms(model, batch, loss=loss, steps=5, progress=stop)
    assert all(torch.equal(x, y) for x, y in zip(before, model.state_dict().values(), strict=True))
    assert all(x.grad is None for x in model.parameters())


def test_a_plain_step_is_timed() -> None:
    model, batch, loss = branches()
    assert step_time_ms(model, batch, loss=loss, steps=1) > 0
    with pytest.raises(ValueError, match="steps is 0"):
        step_time_ms(model, batch, loss=loss, steps=0)


def test_watches_in_a_row_collect_what_is_new_alone():
    ours = bool(gc.get_freeze_count())  # tests freeze what torch has
    gc.unfreeze()
    try:
        with settled():
            assert gc.get_freeze_count()
        assert not gc.get_freeze_count()
        gc.freeze()
        with settled():
            pass
        assert gc.get_freeze_count()  # somebody else's stays
    finally:
        if not ours:
            gc.unfreeze()
