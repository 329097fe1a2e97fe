"""What a schedule saves, as tags on the compiler's own graph."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import fx

from explorer.compiling.joint import Joint
from explorer.compiling.kernels import base, is_constant, is_view
from explorer.compiling.partitioning import Choice, described_inputs
from explorer.compiling.profiling import Traced
from explorer.device_profile import Cost, Device, Profile
from explorer.saved_results import CompiledStep, saved_by
from explorer.schedule import Schedule
from explorer.torch_inductor import may_be_called_again


def without_costs(traced: Traced, *, own_layout: bool = False) -> Profile:
    """By the sizes of tensors alone."""
    built = traced.in_layout(own=own_layout)
    return Profile(built.graph, dict.fromkeys(built.work, Cost(0.0, 0)), Device("none", "none", "none"))


def choice_of(traced: Traced, schedule: Schedule) -> Choice:
    """What a schedule of the compiled step saves.

    Raises:
        ValueError: it is for another step; says what differs.
    """
    own_layout = traced.is_own_layout(schedule.identity)
    graph = traced.in_layout(own=own_layout).graph
    if difference := schedule.identity.difference(graph.identity):
        raise ValueError(f"the schedule does not fit: {difference} (the schedule's first)")
    return tagged(traced, {graph.storages[x].name for x in saved_by(graph, schedule)}, own_layout=own_layout)


def tagged(traced: Traced, names: Collection[str], *, own_layout: bool = False) -> Choice:
    """Save these, and what cannot run again; everything else runs again where it is needed.

    Args:
        traced: the step.
        names: of storages.
        own_layout: of convolutions.
    """
    step = CompiledStep(without_costs(traced, own_layout=own_layout))
    graph, nodes = step.graph, {x.name for x in traced.joint.module.graph.nodes}
    always = {graph.storages[x].name for x in step.keepsakes if not graph.storages[x].held}
    # What the compiler copies into its own layout is saved whatever is said, and has no node.
    saved = [x.name for x in graph.storages if x.name in always.union(names) & nodes and x.id in step.made]
    again = [x.name for x in _wanted(traced.joint, set(saved)) if _may_run_again(x)]
    return Choice(
        traced.joint.digest,
        described_inputs(traced.joint.module.graph),
        tuple(saved),
        tuple(again),
        str(torch.__version__),
        channels_last=None if traced.own is None else not own_layout,
    )


def saved_nodes(joint: Joint, choice: Choice) -> tuple[str, ...]:
    """What PyTorch's partitioner really saves for a choice, by the names of what lies in memory."""
    forward, _ = joint.divided(saved=choice.saved, again=choice.again)
    (results,) = next(x for x in forward.nodes if x.op == "output").args
    assert isinstance(results, tuple | list)
    found = [base(x) for x in results[joint.outputs :] if isinstance(x, fx.Node)]
    return tuple(dict.fromkeys(x.name for x in found if x.op != "placeholder"))


def _wanted(joint: Joint, saved: Collection[str]) -> list[fx.Node]:
    """Calls of the forward pass whose results the backward pass needs, and does not find among what is saved."""
    forward, _ = joint.divided(ratio=1.0)
    inside = {x.name for x in forward.nodes if x.op == "call_function"}
    nodes = list(joint.module.graph.nodes)
    outside = [x for x in nodes if x.op == "call_function" and x.name not in inside]
    wanted: set[fx.Node] = set()
    pending = [y for x in outside for y in x.all_input_nodes]
    while pending:
        node = pending.pop()
        if node.name in inside and node not in wanted and node.name not in saved:
            wanted.add(node)
            pending += node.all_input_nodes
    return [x for x in nodes if x in wanted]


def _may_run_again(node: fx.Node) -> bool:
    return may_be_called_again(node.target) and not is_view(node) and not is_constant(node)
