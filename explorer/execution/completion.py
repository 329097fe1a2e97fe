"""When gradients are complete in a backward pass, so that autograd may have them while the pass goes on."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.capture import Capture
from explorer.capture.traced import Source
from explorer.iteration import STEP_ALONE
from explorer.schedule import Run, Step

_MOST_GROUPS = 8
"""Of a step alone: a node of autograd costs about 0.1 % of a small step; its code has left the caches by then."""


def completed_after(capture: Capture, steps: Sequence[Step]) -> dict[int, tuple[int, ...]]:
    """Which gradients are complete after how many steps of a backward pass.

    A gradient is complete when nothing that follows reads it. Nothing may read its parameter either: whoever gets the
    gradient may change both, for example by an update within the backward pass.

    Where the plan is of a step alone, small gradients wait for the next large one: what is handed over at once is at
    least an eighth of all gradients' bytes. Other iterations plan for what happens to each gradient as it is complete.

    Args:
        capture: what the steps belong to.
        steps: of the backward pass.

    Returns:
        How many steps have run by then, to positions in ``Traced.gradients``, in that order.
    """
    made: dict[int, int] = {}
    read: dict[int, int] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Run):
            implementation = capture.graph.operators[step.operator].implementation(step.implementation)
            for storage in implementation.writes:
                made.setdefault(storage, number)
            read |= dict.fromkeys(implementation.reads, number)
    found: dict[int, list[int]] = {}
    for position, (graph_input, node) in enumerate(capture.traced.gradients):
        gradient = capture.built.storage_below(node)
        after = 1 + max(made[gradient], read.get(gradient, 0))
        if graph_input.source is Source.PARAMETER:
            after = max(after, 1 + read.get(capture.built.storage_of[graph_input.node], 0))
        found.setdefault(after, []).append(position)
    groups = {number: tuple(found[number]) for number in sorted(found)}
    return _together(capture, groups) if capture.graph.iteration == STEP_ALONE else groups


def _together(capture: Capture, groups: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Groups, where small ones have waited for the next large one."""
    sizes = [capture.graph.storages[capture.built.storage_below(node)].bytes for _, node in capture.traced.gradients]
    least_bytes = sum(sizes) / _MOST_GROUPS
    last = max(groups, default=0)
    found: dict[int, tuple[int, ...]] = {}
    waiting: list[int] = []
    waiting_bytes = 0
    for number, group in groups.items():
        waiting += group
        waiting_bytes += sum(sizes[x] for x in group)
        if number == last or waiting_bytes >= least_bytes:
            found[number] = tuple(waiting)
            waiting, waiting_bytes = [], 0
    return found
