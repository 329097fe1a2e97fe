"""Giving a model its schedule."""

from __future__ import annotations

from typing import cast

from torch import nn

from explorer.arguments import a_flag
from explorer.capture import Batch, Loss, capture
from explorer.capture.batch import uncompiled
from explorer.execution.checking import check_step
from explorer.execution.scheduled import ScheduledModule, StepPlan, scheduled_class
from explorer.kinds import a_schedule
from explorer.operators.encodings import Encoding
from explorer.schedule import Schedule
from explorer.simulation import validate


def apply(
    model: nn.Module,
    schedule: Schedule,
    batch: Batch,
    *,
    loss: Loss | None = None,
    encoding: Encoding | str | None = None,
    check: bool = True,
) -> ScheduledModule:
    """Make a module that trains ``model`` by ``schedule``.

    Args:
        model: the model the schedule was made for, in training mode; it is not changed.
        schedule: from ``solve`` or ``load_schedule``; it knows what autocast it was made for, and the module must be
            called under that.
        batch: a sample batch with the shapes the schedule was made for.
        loss: as it was given to ``profile``.
        encoding: as it was given to ``profile``.
        check: run one step of both on the sample batch and compare; passed once, the same graph and schedule are not
            checked again. Model and batch stay as they are.

    Returns:
        A module that shares everything with ``model`` and computes bit-equal results, unless the schedule uses
        implementations that are not exact.

    Raises:
        ValueError: the schedule belongs to another model, batch or loss (says which differs), or is invalid.
    """
    schedule = a_schedule(schedule)
    a_flag(check, "check")
    model = uncompiled(model)
    known = schedule.identity
    captured = capture(model, batch, loss=loss, encoding=encoding, autocast=known.autocast).in_iteration(
        known.iteration
    )
    if difference := schedule.identity.difference(captured.graph.identity):
        raise ValueError(f"the schedule does not fit: {difference} (the schedule's first)")
    validate(captured.graph, schedule)
    plan = StepPlan.of(captured, schedule)
    module = cast("ScheduledModule", object.__new__(scheduled_class(type(model), plan)))
    module.__dict__ = model.__dict__
    plan.bind(module)
    if check:
        check_step(module, model, batch, capture=captured, schedule=schedule)
    return module
