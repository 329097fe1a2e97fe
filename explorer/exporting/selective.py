"""A schedule as selective activation checkpointing, PyTorch's coarser tool: of each block, which results are kept.

``torch.utils.checkpoint`` with ``create_selective_checkpoint_contexts`` keeps of a block what a policy says, and runs
the rest of its forward pass again, as a whole, when the backward pass comes to the block. So it can say what of a block
is kept, and nothing else: not when something is computed again, nor how.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from explorer.blocks import home_of, repeated_blocks_of
from explorer.capture import Batch, Capture, Loss
from explorer.capture.batch import uncompiled
from explorer.execution.applying import capture_for
from explorer.exporting.watching import Call, calls_of_blocks
from explorer.graph import Implementation, Operator, Phase, Role, TrainingGraph
from explorer.recomputing import may_run_again
from explorer.schedule import Free, Run, Schedule, Step
from explorer.torch_arguments import a_module
from explorer.units import format_bytes

METHOD = "selective-checkpoint"
_MOST_SAID = 6


@dataclass(frozen=True)
class Policy:
    """What a block keeps.

    Attributes:
        block: path of its module.
        kept: operators by name, each with the positions of its calls within the block, from 0, whose results are kept.
        calls: how often each of these is called in all.
        evaluating: modules below the block, by their paths from there, that are in evaluation mode.
    """

    block: str
    kept: dict[str, tuple[int, ...]]
    calls: dict[str, int]
    evaluating: tuple[str, ...]


@dataclass(frozen=True)
class Selective:
    """A schedule as far as selective checkpointing can say it.

    Attributes:
        graph: of both schedules.
        policies: of the blocks that recompute something, in order.
        plain: blocks that recompute nothing, and are left as they are.
        schedule: what PyTorch will run, as a schedule of ours, to be simulated: whole blocks run again.
        unsaid: what the given schedule has that this form has not, a sentence each.
    """

    graph: TrainingGraph
    policies: tuple[Policy, ...]
    plain: tuple[str, ...]
    schedule: Schedule
    unsaid: tuple[str, ...]


def selective_schedule(model: nn.Module, schedule: Schedule, batch: Batch, *, loss: Loss | None = None) -> Schedule:
    """What selective activation checkpointing makes of a schedule, for ``simulate``.

    That is the step of a model from ``export(…, form="selective")``: coarser than the schedule, since blocks run again
    as wholes, by PyTorch's own implementations.

    Args:
        model: as for ``export``; its forward pass runs once.
        schedule: likewise.
        batch: likewise.
        loss: likewise.

    Raises:
        ValueError: as ``export``.
    """
    return selective(model, schedule, batch, loss=loss).schedule


def selective(model: nn.Module, schedule: Schedule, batch: Batch, *, loss: Loss | None = None) -> Selective:
    """Translate a schedule; ``selective_schedule`` says how it is called.

    Raises:
        ValueError: the schedule is of another model or batch, or the model has no repeated blocks; says what can.
    """
    model = uncompiled(a_module(model))
    captured = capture_for(model, schedule, batch, loss=loss)
    if captured.graph.iteration.within:
        raise ValueError("updates within the backward pass are this package's: plan with update='end' to export")
    blocks = _blocks(captured, model)
    again = set(schedule.recomputed(captured.graph))
    chosen = {name: ids for name, ids in blocks.items() if again & set(ids)}
    if not chosen:
        raise ValueError(
            "this schedule recomputes nothing within the model's repeated blocks, so there is nothing to checkpoint; "
            "form='python' can say whatever else it does"
        )
    watched = calls_of_blocks(model, chosen, batch, loss=loss, autocast=captured.graph.autocast)
    alive = _kept(captured.graph, schedule)
    translated = [_Translation(captured.graph, name, ids, watched[name], alive) for name, ids in chosen.items()]
    policies = tuple(x.policy(_evaluating(model.get_submodule(x.block))) for x in translated)
    saved = {number for x in translated for number in x.saved}
    ran = _as_run(captured.graph, chosen, saved)
    plain = tuple(x for x in blocks if x not in chosen)
    unsaid = tuple(_unsaid(captured.graph, schedule, blocks, translated))
    return Selective(captured.graph, policies, plain, ran, unsaid)


def _blocks(captured: Capture, model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Those that the model has as modules, which are called.

    Raises:
        ValueError: there are fewer than two; names what can say the schedule.
    """
    found = {}
    for name, ids in repeated_blocks_of(captured.graph).items():
        try:
            module = model.get_submodule(name)
        except AttributeError:
            continue
        if type(module).forward is not nn.Module.forward:  # that of a list
            found[name] = ids
    if len(found) < 2:
        raise ValueError(
            f"{type(model).__name__} has no repeated blocks, members of an nn.ModuleList or nn.Sequential with several "
            "operators each, which selective checkpointing goes by: form='python' can say this schedule"
        )
    return found


def _evaluating(block: nn.Module) -> tuple[str, ...]:
    return tuple(name for name, module in block.named_modules() if not module.training)


def _kept(graph: TrainingGraph, schedule: Schedule) -> set[int]:
    """Storages in memory when the forward pass ends."""
    alive: set[int] = set()
    for step in schedule.steps:
        if isinstance(step, Free):
            alive.discard(step.storage)
        elif graph.operators[step.operator].phase is Phase.BACKWARD:
            break
        else:
            ran = graph.operators[step.operator].implementation(step.implementation)
            alive |= set(ran.writes)
            alive.discard(-1 if ran.overwrites is None else ran.overwrites)
    return alive


class _Translation:
    """One block: its operators beside the calls that PyTorch makes.

    Attributes:
        block: path of its module.
        saved: operators whose results are kept.
        lost: operators whose results the schedule keeps, and this cannot.
    """

    def __init__(
        self, graph: TrainingGraph, block: str, ids: Sequence[int], calls: Sequence[Call], alive: Collection[int]
    ) -> None:
        self.block = block
        self.calls = calls
        self.operators = [graph.operators[x] for x in ids]
        found = self._found()
        self.saved: dict[int, int] = {}  # to the position of its call
        self.lost: list[Operator] = []
        for operator in self.operators[: _needed(graph, ids)]:  # what comes after is not run again anyway
            writes = operator.default().writes
            kept_bytes = sum(graph.storages[x].bytes for x in writes if x in alive)
            call = found.get(operator.id)
            if call is not None and calls[call].once:
                self.saved[operator.id] = call
            elif 2 * kept_bytes > sum(graph.storages[x].bytes for x in writes):
                if call is None or not calls[call].apart or not may_run_again(operator):
                    self.lost.append(operator)
                else:
                    self.saved[operator.id] = call
        for call in calls:
            if call.once and not call.apart:
                raise ValueError(
                    f"block {block!r}: {call.name} {call.once}, so that it cannot run again, and what it makes is "
                    "written over in place, so that it cannot be kept: form='python' can say this schedule"
                )
        self.once = [x for x, call in enumerate(calls) if call.once]

    def _found(self) -> dict[int, int]:
        """Operators to the positions of their calls, where as many of a name are called as were captured."""
        captured: dict[str, list[Operator]] = {}
        for operator in self.operators:
            captured.setdefault(_plain_name(operator.target), []).append(operator)
        called: dict[str, list[int]] = {}
        for position, call in enumerate(self.calls):
            called.setdefault(_plain_name(call.name), []).append(position)
        pairs = ((same, called.get(name, [])) for name, same in captured.items())
        return {x.id: y for same, there in pairs if len(same) == len(there) for x, y in zip(same, there, strict=True)}

    def policy(self, evaluating: tuple[str, ...]) -> Policy:
        """As a file has it."""
        kept = {*self.saved.values(), *self.once}
        totals = Counter(x.name for x in self.calls)
        places: dict[str, list[int]] = {}
        so_far: Counter[str] = Counter()
        for position, call in enumerate(self.calls):
            if position in kept:
                places.setdefault(call.name, []).append(so_far[call.name])
            so_far[call.name] += 1
        return Policy(self.block, {x: tuple(y) for x, y in places.items()}, {x: totals[x] for x in places}, evaluating)


def _plain_name(target: str) -> str:
    """Without what tells ways to do the same: in place, batch normalisation by whichever library."""
    packet, _, overload = target.removeprefix("aten.").partition(".")
    if "batch_norm" in packet:
        return "batch_norm"
    return f"{packet.removesuffix('_') if not packet.endswith('__') else packet}.{overload}"


def _as_run(graph: TrainingGraph, blocks: dict[str, tuple[int, ...]], saved: Collection[int]) -> Schedule:
    """What PyTorch runs: when the backward pass comes to a block, all that was not kept, as far as it is needed."""
    read_outside = _read_outside(graph, blocks)
    runs = [Run(x.id, x.default().name) for x in graph.forward if not x.optional]
    waiting = dict(blocks)
    for operator in graph.backward:
        if operator.optional:
            continue
        home = home_of(operator, waiting)
        if home is not None and any(graph.storages[x].role not in _GRADIENTS for x in operator.default().reads):
            ids = waiting.pop(home)
            for number in ids[: _needed(graph, ids)]:
                again = graph.operators[number]
                if number not in saved and may_run_again(again) and not read_outside & set(again.default().writes):
                    runs.append(Run(number, again.default(again=True).name))
        runs.append(Run(operator.id, operator.default().name))
    return Schedule(graph.identity, tuple(_with_frees(graph, runs)), METHOD, None)


_GRADIENTS = (Role.GRADIENT, Role.PARAMETER_GRADIENT, Role.GRADIENT_BUFFER)


def _needed(graph: TrainingGraph, ids: Sequence[int]) -> int:
    """How many of a block's operators run again: PyTorch stops after the last whose results the backward pass reads."""
    read = {x for operator in graph.backward if not operator.optional for x in operator.default().reads}
    needed = [at for at, number in enumerate(ids) if read & set(graph.operators[number].default().writes)]
    return max(needed, default=-1) + 1


def _read_outside(graph: TrainingGraph, blocks: dict[str, tuple[int, ...]]) -> set[int]:
    """What blocks pass on."""
    home = {number: name for name, ids in blocks.items() for number in ids}
    made = {x: home[number] for number in home for x in graph.operators[number].default().writes}
    return {
        x
        for operator in graph.forward
        if not operator.optional
        for x in operator.default().reads
        if x in made and home.get(operator.id) != made[x]
    }


def _with_frees(graph: TrainingGraph, runs: Sequence[Run]) -> Iterator[Step]:
    """Free everything after its last use; unlike ``with_frees``, what runs in vain stays, as PyTorch runs it too."""
    held = {x.id for x in graph.storages if x.held}
    alive = set(held)
    steps: list[Step] = []
    first = {run.operator: at for at, run in reversed(list(enumerate(runs)))}
    for at in reversed(range(len(runs))):
        run = runs[at]
        ran: Implementation = graph.operators[run.operator].implementation(run.implementation)
        writes = set(ran.writes) - (held if first[run.operator] != at else set())
        reads = set(ran.reads) - graph.persistent
        steps += [Free(x) for x in sorted((writes | reads) - alive, reverse=True)]
        steps.append(run)
        alive = (alive - writes) | reads
    return reversed(steps)


def _unsaid(
    graph: TrainingGraph,
    schedule: Schedule,
    blocks: dict[str, tuple[int, ...]],
    translated: Sequence[_Translation],
) -> Iterator[str]:
    """What the schedule has and this form has not."""
    ways: Counter[str] = Counter()
    for step in schedule.steps:
        if isinstance(step, Run):
            operator = graph.operators[step.operator]
            masks = operator.optional and operator.phase is Phase.FORWARD
            ran = operator.implementation(step.implementation)
            if masks or (ran.optimization is not None and step.implementation != "aten"):
                ways[operator.target if masks else step.implementation] += 1
    if ways:
        told = ", ".join(f"{count} × {name}" for name, count in ways.most_common(_MOST_SAID))
        yield f"implementations: {told}; every operator runs as PyTorch runs it"
    inside = {x for ids in blocks.values() for x in ids}
    outside = [graph.operators[x].name for x in schedule.recomputed(graph) if x not in inside]
    if outside:
        yield f"what is recomputed outside of blocks: {_some(outside)}; it is kept"
    lost = [x for translation in translated for x in translation.lost]
    if lost:
        amount = sum(graph.storages[y].bytes for x in lost for y in x.default().writes)
        yield (
            f"{format_bytes(amount)} of results that PyTorch draws at random, makes in place, writes over, or makes by "
            f"other calls than captured: {_some([x.name for x in lost])}; they are made again, with the same random "
            "numbers"
        )
    if schedule.moved(graph):
        yield f"the order: {len(schedule.moved(graph))} operators run earlier or later; they run as captured"
    if schedule.placement is not None:
        yield "addresses in one buffer; PyTorch's allocator finds them"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_SAID
    return ", ".join(names[:_MOST_SAID]) + (f" and {more} more" if more > 0 else "")
