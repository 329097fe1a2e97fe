"""A schedule as straight-line Python: one function forward, one generator backward, with a ``del`` at every free."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from torch import fx

from explorer.capture import Capture
from explorer.capture.building import TANGENTS, Call, argument_nodes
from explorer.capture.traced import Source
from explorer.execution.completion import completed_after
from explorer.execution.returning import made_by_step
from explorer.execution.writing import Watch, Writer, file_of
from explorer.rearranging import UPDATE
from explorer.schedule import Free, Run, Schedule

_FILES = {file_of(name): name for name in ("forward", "backward")}
Forward = Callable[[list[Any]], list[Any]]
Backward = Callable[[list[Any], list[Any]], Iterator[None]]


@dataclass(frozen=True)
class Program:
    """The two passes of a schedule.

    Attributes:
        forward: takes the values of ``inputs``, returns the flat outputs, then what is saved for the backward pass.
        backward: takes ``backward_inputs``, then the saved values, then the tangents; and a list, to which it adds, one
            group after the other, the gradients that are complete, yielding after each group.
        inputs: positions in ``Traced.inputs`` that the forward pass reads.
        backward_inputs: positions that the backward pass reads.
        output_count: how many of the forward pass's results are outputs.
        groups: positions in ``Traced.gradients`` of those that are complete together, in that order.
        places: what runs in which line, by the name of the pass and the line's number.
        schedule: what was compiled.
        fills_sums: as in ``Absence``.
    """

    forward: Forward
    backward: Backward
    inputs: tuple[int, ...]
    backward_inputs: tuple[int, ...]
    output_count: int
    groups: tuple[tuple[int, ...], ...]
    places: dict[tuple[str, int], str]
    schedule: Schedule
    fills_sums: bool = False

    def place(self, error: BaseException) -> str:
        """The operator in whose line an error was raised."""
        frames = [x for x in traceback.extract_tb(error.__traceback__) if x.filename in _FILES]
        found = (self.places.get((_FILES[x.filename], x.lineno or 0)) for x in reversed(frames))
        return next((x for x in found if x is not None), "a scheduled step")


def generate(
    capture: Capture,
    schedule: Schedule,
    *,
    probe: Callable[[], None] | None = None,
    watch: Watch | None = None,
    absent: Collection[fx.Node] = (),
) -> Program:
    """Compile a schedule that the simulator has accepted.

    Args:
        capture: the schedule's.
        schedule: valid.
        probe: called before each run, and at the end of the forward pass.
        watch: called after each run that makes something.
        absent: tangents that have not come; the backward pass leaves out what only serves them.
    """
    passes = write_passes(capture, schedule, partial(Writer, capture, probe=probe, watch=watch), absent=absent)
    gradients = passes.backward.gradients
    return Program(
        forward=passes.forward.compile(),
        backward=passes.backward.compile(),
        inputs=passes.inputs,
        backward_inputs=passes.backward_inputs,
        output_count=passes.output_count,
        groups=passes.groups,
        places=passes.forward.places | passes.backward.places,
        schedule=schedule,
        fills_sums=gradients is not None and gradients.fills_sums,
    )


@dataclass(frozen=True)
class Passes:
    """A schedule written down; the attributes without words of their own are those of ``Program``.

    Attributes:
        forward: has written the forward pass.
        backward: the backward pass.
    """

    forward: Writer
    backward: Writer
    inputs: tuple[int, ...]
    backward_inputs: tuple[int, ...]
    output_count: int
    groups: tuple[tuple[int, ...], ...]


def write_passes(
    capture: Capture, schedule: Schedule, writer: Callable[..., Writer], *, absent: Collection[fx.Node] = ()
) -> Passes:
    """Write down a schedule that the simulator has accepted, as two functions.

    Both take a list and empty it, so that no caller keeps alive what they free.

    Args:
        capture: the schedule's.
        schedule: valid.
        writer: makes one, of a function's name, its persistent arguments and its others, and ``absent``.
        absent: as for ``generate``.
    """
    steps = list(schedule.steps)
    boundary = next(i for i, x in enumerate(steps) if isinstance(x, Run) and _is_tangents(capture, x))
    traced = capture.traced
    plain = [x for x in traced.inputs if x.source in (Source.PARAMETER, Source.BUFFER, Source.INPUT)]
    outputs = [cast("fx.Node", traced.outputs[index]) for index in made_by_step(capture)]

    forward = writer("forward", [x.node for x in plain], [])
    for step in steps[:boundary]:
        forward.write(step)
    # What the caller receives and the backward pass reads is saved too: the same tensor, no second copy.
    saved = _read_later(capture, steps[boundary:], list(forward.live))
    forward.finish([*outputs, *saved])

    tangents = [x.node for x in traced.inputs if x.source is Source.TANGENT]
    needed = _inputs_read(capture, steps[boundary:])
    backward_plain = [x.node for x in plain if x.node in needed]
    backward = writer("backward", backward_plain, [*saved, *tangents], absent=absent)
    # The update at the end is an optimizer's, after the pass.
    passes = [x for x in steps if not (isinstance(x, Run) and capture.graph.operators[x.operator].target == UPDATE)]
    groups = completed_after(capture, passes[boundary + 1 :])
    for number, step in enumerate(passes[boundary + 1 :], start=1):
        backward.write(step)
        if number in groups:
            backward.give([traced.gradients[x][1] for x in groups[number]])

    position = {x.node: index for index, x in enumerate(traced.inputs)}
    return Passes(
        forward=forward,
        backward=backward,
        inputs=tuple(position[x.node] for x in plain),
        backward_inputs=tuple(position[node] for node in backward_plain),
        output_count=len(outputs),
        groups=tuple(groups.values()),
    )


def _is_tangents(capture: Capture, step: Run) -> bool:
    return capture.graph.operators[step.operator].target == TANGENTS


def _calls(capture: Capture, steps: Iterable[Any]) -> Iterable[Call]:
    for step in steps:
        if isinstance(step, Run):
            yield capture.built.calls[step.operator, step.implementation]


def _read_later(capture: Capture, steps: list[Any], candidates: list[fx.Node]) -> list[fx.Node]:
    """Those candidates whose storage the backward pass frees or reads."""
    storage_of = capture.built.storage_of
    used = {step.storage for step in steps if isinstance(step, Free)}
    used |= {storage for call in _calls(capture, steps) for storage in _storages(capture, call)}
    return [node for node in candidates if storage_of[node] in used]


def _storages(capture: Capture, call: Call) -> set[int]:
    return {capture.built.storage_below(node) for node in argument_nodes(call)}


def _inputs_read(capture: Capture, steps: list[Any]) -> set[fx.Node]:
    """Graph inputs below what the backward pass reads, through views."""
    found: set[fx.Node] = set()
    pending = [node for call in _calls(capture, steps) for node in argument_nodes(call)]
    pending += [node for _, node in capture.traced.gradients]
    seen: set[fx.Node] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "placeholder":
            found.add(node)
        elif node in capture.built.views:
            pending.extend(node.all_input_nodes)
    return found
