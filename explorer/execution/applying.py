"""Giving a model its schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from torch import nn

from explorer.arguments import a_flag
from explorer.capture import Batch, Capture, Loss, capture
from explorer.capture.batch import call_arguments, uncompiled
from explorer.execution.buffer import StepBuffer
from explorer.execution.checking import check_step
from explorer.execution.device import device_of
from explorer.execution.other_batches import ERROR, PLAIN, model_below
from explorer.execution.scheduled import ScheduledModule, StepPlan, following, scheduled_class
from explorer.kinds import a_schedule
from explorer.operators.encodings import Encoding
from explorer.schedule import Schedule
from explorer.simulation import validate
from explorer.torch_arguments import a_module
from explorer.units import shown


def apply(
    model: nn.Module,
    schedule: Schedule,
    batch: Batch,
    *,
    loss: Loss | None = None,
    encoding: Encoding | str | None = None,
    other_batches: str = ERROR,
    check: bool = True,
    buffer: bool = False,
) -> ScheduledModule:
    """Make a module that trains ``model`` by ``schedule``.

    Args:
        model: the model the schedule was made for, in training mode; it is not changed.
        schedule: from ``solve`` or ``load_schedule``; it knows what autocast it was made for, and the module must be
            called under that.
        batch: a sample batch with the shapes the schedule was made for.
        loss: as it was given to ``profile``.
        encoding: as it was given to ``profile``.
        other_batches: what happens to batches of other shapes: ``"error"``, or ``"plain"``: they run as in plain
            PyTorch, if that takes no more memory than the schedule, as a smaller last batch may (see ``add_schedule``).
        check: run one step of both on the sample batch and compare; passed once, the same graph and schedule are not
            checked again. Model and batch stay as they are.
        buffer: run steps in one buffer without fragmentation, on the CPU or CUDA: the allocations of a first few are
            noted and placed, and those of later ones answered at their addresses. What outlives a step, and what it
            allocates otherwise than planned, comes from PyTorch's allocator. Compiled at its first use.

    Returns:
        A module that shares everything with ``model`` and computes bit-equal results, unless the schedule uses
        implementations that are not exact.

    Raises:
        ValueError: the schedule belongs to another model, batch or loss (says which differs), or is invalid; or, with
            ``buffer``, there is no C++ compiler, or none of CUDA's headers for a model there.
    """
    a_flag(check, "check")
    a_flag(buffer, "buffer")
    if other_batches not in (ERROR, PLAIN):
        raise ValueError(f"other_batches is {shown(other_batches)}; allowed: 'error' or 'plain', as PyTorch does them")
    model = uncompiled(model)
    steps_buffer = StepBuffer(device_of(a_module(model))) if buffer else None
    plan = _plan(model, schedule, batch, loss=loss, encoding=encoding)
    module = _following(model, plan, other_batches=other_batches)
    if check:
        check_step(module, model, batch, capture=plan.capture, schedule=plan.schedule)
    plan.bindings[module].buffer = steps_buffer
    return module


def _following(model: nn.Module, plan: StepPlan, *, other_batches: str) -> ScheduledModule:
    kind = scheduled_class(type(model), plan, other_batches=other_batches)
    module = cast("ScheduledModule", object.__new__(kind))
    module.__dict__ = model.__dict__
    plan.bind(module)
    return module


def check_captured(model: nn.Module, captured: Capture, schedule: Schedule, batch: Batch) -> None:
    """The self-check of ``apply`` for what was captured; remembered likewise.

    Raises:
        CheckFailedError: the step by the schedule does not compute what the model does.
    """
    module = _following(model, StepPlan.of(captured, schedule), other_batches=ERROR)
    check_step(module, model, batch, capture=captured, schedule=schedule)


def add_schedule(
    module: ScheduledModule,
    schedule: Schedule,
    batch: Batch,
    *,
    encoding: Encoding | str | None = None,
    check: bool = True,
) -> None:
    """Give a scheduled module another schedule, for batches of another shape: a sequence length, a smaller last batch.

    In a module with ``buffer`` its steps run in PyTorch's memory.

    Args:
        module: from ``apply``.
        schedule: for the same model and loss.
        batch: a sample batch of that shape.
        encoding: as for ``apply``.
        check: as for ``apply``.

    Raises:
        ValueError: as ``apply``; or the module has a schedule for such batches, or is planned for another iteration.
    """
    if not isinstance(a_module(module), ScheduledModule):
        raise ValueError(f"module is {shown(module)}; it must be what explorer.apply(model, schedule, batch) returns")
    a_flag(check, "check")
    kind, model = type(module), model_below(module)
    first = kind.plans[0]
    plan = _plan(model, schedule, batch, loss=first.capture.loss, encoding=encoding)
    here, there = first.capture.graph.iteration, plan.capture.graph.iteration
    if here != there:
        raise ValueError(f"the schedule is for another iteration than the module: {there}, not {here}")
    args, kwargs = call_arguments(batch, loss=first.capture.loss)
    if any(x.capture.batch.fits(args, kwargs) for x in kind.plans):
        raise ValueError("the module has a schedule for batches of this shape already")
    plan.bind(module)
    plan.bindings[module].updating = first.bindings[module].updating
    if check:
        with following(module, plan.program, plan):
            check_step(module, model, batch, capture=plan.capture, schedule=plan.schedule)
    kind.plans.append(plan)


def _plan(
    model: nn.Module, schedule: Schedule, batch: Batch, *, loss: Loss | None, encoding: Encoding | str | None
) -> StepPlan:
    return StepPlan.of(capture_for(model, schedule, batch, loss=loss, encoding=encoding), schedule)


def capture_for(
    model: nn.Module,
    schedule: Schedule,
    batch: Batch,
    *,
    loss: Loss | None = None,
    encoding: Encoding | str | None = None,
) -> Capture:
    """What a schedule is for, captured; the arguments are those of ``apply``.

    Raises:
        ValueError: the schedule belongs to another model, batch or loss (says which differs), or is invalid.
    """
    known = a_schedule(schedule).identity
    how: dict[str, Any] = {"loss": loss, "encoding": encoding, "autocast": known.autocast, "fuse": known.fused}
    captured = capture(model, batch, **how)
    first, captured = captured.graph.identity, captured.in_iteration(known.iteration)
    if difference := known.difference(captured.graph.identity):
        here = captured.graph.identity
        by_operators_alone = replace(known, operators=here.operators).difference(here) is None
        if by_operators_alone and first.difference(capture(model, batch, **how).graph.identity):
            raise ValueError(
                "the schedule does not fit: the step computes something else each time it is captured, as with a "
                "counter or an iterator that it advances: advance it between the steps, and give what it says as a "
                "tensor in the batch or in a buffer"
            )
        raise ValueError(f"the schedule does not fit: {difference} (the schedule's first)")
    validate(captured.graph, schedule)
    return captured
