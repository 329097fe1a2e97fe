"""A schedule of PyTorch's own operators, for a compiled step: what it keeps, as far as the compiler has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import torch
from torch import fx, nn

from explorer.capture import Batch, Loss
from explorer.compiling.choosing import tagged, without_costs
from explorer.compiling.kernels import base, is_view, val
from explorer.compiling.partitioning import Choice
from explorer.compiling.profiling import Traced
from explorer.execution.applying import capture_for
from explorer.graph import Optimization, TrainingGraph
from explorer.saved_results import CompiledStep, saved_by
from explorer.schedule import Run, Schedule
from explorer.units import format_bytes

_MOST_SAID = 6
_WHAT_CAN = "explorer.apply and export(…, form='python') can run it"


@dataclass(frozen=True)
class Translated:
    """A choice for the compiler.

    Attributes:
        choice: what is saved.
        schedule: of the compiled step that this makes.
        unsaid: what was given and is not in it, a sentence each.
    """

    choice: Choice
    schedule: Schedule
    unsaid: tuple[str, ...]


def translated(
    model: nn.Module,
    schedule: Schedule,
    batch: Batch,
    *,
    loss: Loss | None,
    traced: Traced,
    own_layout: bool = False,
) -> Translated:
    """Say a schedule of another profile to the compiler.

    Args:
        model: that it is of.
        schedule: of ``explorer.profile``'s graph.
        batch: a sample batch.
        loss: as for ``compiled``.
        traced: the compiler's graph.
        own_layout: of convolutions, which the schedule says nothing of.

    Raises:
        ValueError: it is for another model or batch, or has what a compiled step cannot have; says what can run it.
    """
    if schedule.identity.fused:
        raise ValueError(
            "the schedule has joined pieces of fuse=True, which are not the compiler's own kernels: plan for those by "
            f"explorer.profile_compiled and method='monet-compiled'; {_WHAT_CAN}"
        )
    captured = capture_for(model, schedule, batch, loss=loss).graph
    if captured.iteration.within:
        raise ValueError("updates within the backward pass are this package's: plan with update='end' to compile")
    kept = saved_by(captured, schedule)
    _refuse_forms(captured, kept)
    found = _matched(captured, traced)
    step = CompiledStep(without_costs(traced, own_layout=own_layout))
    number = {x.name: x.id for x in step.graph.storages}
    saved = {number[found[x]] for x in kept if x in found and found[x] in number}
    saved &= set(step.choices)
    ran = step.schedule(saved, method=f"{schedule.method}, compiled", budget_bytes=schedule.budget_bytes)
    choice = tagged(traced, {step.graph.storages[x].name for x in saved}, own_layout=own_layout)
    return Translated(choice, ran, tuple(_unsaid(captured, schedule, kept - found.keys())))


def _refuse_forms(graph: TrainingGraph, kept: frozenset[int]) -> None:
    """Activations that wait for the backward pass in another form."""
    own = {x for operator in graph.forward if not operator.optional for x in operator.default().writes}
    forms = [graph.storages[x].name for x in sorted(kept - own)]
    if forms:
        raise ValueError(
            f"the schedule keeps {', '.join(forms[:_MOST_SAID])} in place of activations (bit masks or encodings), "
            f"which no compiled step makes: solve with optimizations='none', or method='monet-compiled'; {_WHAT_CAN}"
        )


def _matched(graph: TrainingGraph, traced: Traced) -> dict[int, str]:
    """Storages of the forward pass to what the compiler has for them."""
    mine = [
        (x, f"{_plain(operator.target)} {graph.storages[x].shape} {graph.storages[x].dtype}")
        for operator in graph.forward
        if not operator.optional
        for x in operator.default().writes
    ]
    theirs = list(_results(traced))
    matcher = SequenceMatcher(None, [x for _, x in mine], [x for _, x in theirs], autojunk=False)
    found = {}
    for here, there, count in matcher.get_matching_blocks():
        for at in range(count):
            found[mine[here + at][0]] = theirs[there + at][0]
    return found


def _results(traced: Traced) -> Iterator[tuple[str, str]]:
    """What the operators that the compiler took apart came to, in order: name, and what it was of."""
    forward, _ = traced.joint.divided(ratio=1.0)
    inside = {x.name for x in forward.nodes if x.op == "call_function"}
    nodes = [x for x in traced.joint.module.graph.nodes if x.name in inside and isinstance(val(x), torch.Tensor)]
    for node in nodes:
        origin = node.meta.get("original_aten") or node.target
        users = [x for x in node.users if x.name in inside and not is_view(x)]
        same = [x for x in users if x.meta.get("original_aten") is origin and _numel(x) == _numel(node)]
        if is_view(node) or (same and len(same) == len(users)):
            continue
        value = val(node)
        dtype = str(value.dtype).removeprefix("torch.")
        yield base(node).name, f"{_plain(str(origin))} {tuple(value.shape)} {dtype}"


def _numel(node: fx.Node) -> int:
    value = val(node)
    return value.numel() if isinstance(value, torch.Tensor) else 0


def _plain(target: str) -> str:
    """Without what tells ways to do the same."""
    packet = target.removeprefix("aten.").partition(".")[0]
    return "batch_norm" if "batch_norm" in packet else packet.strip("_")


def _unsaid(graph: TrainingGraph, schedule: Schedule, lost: frozenset[int]) -> Iterator[str]:
    ways: Counter[str] = Counter()
    for step in schedule.steps:
        if isinstance(step, Run):
            ran = graph.operators[step.operator].implementation(step.implementation)
            if ran.optimization not in (None, Optimization.INPLACE) and step.implementation != "aten":
                ways[step.implementation] += 1
    if ways:
        told = ", ".join(f"{count} × {name}" for name, count in ways.most_common(_MOST_SAID))
        yield f"implementations: {told}; the compiler has its own kernels, and its own results in place"
    own = {x for operator in graph.forward for x in operator.default().writes}
    lost_own: Sequence[int] = sorted(x for x in lost & own if not graph.storages[x].held)
    if lost_own:
        amount = format_bytes(sum(graph.storages[x].bytes for x in lost_own))
        names = ", ".join(graph.storages[x].name for x in lost_own[:_MOST_SAID])
        more = len(lost_own) - _MOST_SAID
        yield (
            f"{amount} of results that the compiler makes in another way: {names}"
            + (f" and {more} more" if more > 0 else "")
            + "; PyTorch's partitioner decides on those"
        )
    if again := sum(count > 1 for count in schedule.recomputed(graph).values()):
        yield f"{again} operators that run again more than once; they run again once, and their results stay"
    if schedule.moved(graph):
        yield "the order of operators; the compiler has its own"
    if schedule.placement is not None:
        yield "addresses in one buffer; the compiler's results come from PyTorch's allocator"
