"""Batches of other shapes than a schedule was made for: another schedule's, or plain PyTorch's if that takes no more.

What a plain step on a batch takes is found as for any schedule: it is captured, which runs nothing, and simulated,
without scratch memory, as the schedules that it is compared with are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from explorer.capture import capture
from explorer.capture.batch import BatchLayout, flatten
from explorer.schedule import keep_all
from explorer.simulation import peak_without_workspace
from explorer.units import format_bytes

if TYPE_CHECKING:
    from explorer.execution.scheduled import ScheduledModule, StepPlan

PLAIN, ERROR = "plain", "error"


def plan_for(module: ScheduledModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepPlan | None:
    """The plan for a batch; None where there is none and plain PyTorch may do.

    Raises:
        ValueError: there is none, and plain PyTorch may not, or would take more memory than the schedules.
    """
    kind = type(module)
    if len(kind.plans) == 1 and kind.other_batches == ERROR:
        return kind.plans[0]
    found = next((x for x in kind.plans if x.capture.batch.fits(args, kwargs)), None)
    if found is None and kind.other_batches == PLAIN:
        _check_plain(module, args, kwargs)
        return None
    if found is None:
        shapes = "; ".join(", ".join(map(str, x.capture.batch.specs)) for x in kind.plans)
        raise ValueError(
            f"the batch has shapes that none of this module's {len(kind.plans)} schedules was made for: {shapes}. Add "
            "one for it, explorer.add_schedule(module, schedule, batch)"
        )
    return found


def model_below(module: ScheduledModule) -> nn.Module:
    """The model as it was, which shares everything with the module."""
    model = object.__new__(type(module).model_class)
    model.__dict__ = module.__dict__
    return model


def _check_plain(module: ScheduledModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Once for each layout: whether a plain step takes no more than the schedules."""
    kind = type(module)
    layout = BatchLayout.of(flatten(args, kwargs))
    key = (str(layout.structure), *map(repr, layout.leaves))
    if key in kind.passed_plain:
        return
    plan = kind.plans[0]
    batch = kwargs or args  # with a loss, inputs and target
    with plan.bindings[module].by_itself():
        captured = capture(model_below(module), batch, loss=plan.capture.loss, autocast=plan.capture.graph.autocast)
    graph = captured.in_iteration(plan.capture.graph.iteration).graph
    peak_bytes = peak_without_workspace(graph, keep_all(graph))
    most_bytes = max(peak_without_workspace(x.capture.graph, x.schedule) for x in kind.plans)
    if peak_bytes > most_bytes:
        shapes = ", ".join(map(str, layout.specs))
        raise ValueError(
            f"a plain step on this batch ({shapes}) takes {format_bytes(peak_bytes)} without "
            f"scratch memory, more than {format_bytes(most_bytes)} by schedule: leave such batches out "
            "(drop_last=True), or add a schedule for them, explorer.add_schedule(module, schedule, batch)"
        )
    kind.passed_plain.add(key)
