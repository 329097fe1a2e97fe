"""The chain of blocks in a training graph, found by its cuts, and schedules from sequences of its stages.

A cut is a place in the forward pass where all that is computed later depends on one activation alone (an articulation
point of the forward graph) and where the backward pass falls apart in the same way: what reads activations behind the
cut runs before what reads activations ahead of it. Between two cuts lies a stage, which rotor saves, recomputes or
skips as a whole (RR-9302, section 3; there the user writes the chain down as an ``nn.Sequential``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator, TrainingGraph
from explorer.recomputing import Recomputing, may_run_again
from explorer.schedule import Run, Schedule, with_frees
from explorer.solvers.methods.rotor.chain import Kind, Sequence


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of the forward pass and the stretch of the backward pass that belongs to it.

    Attributes:
        forward: operator ids.
        backward: operator ids.
        input: the storage that it reads of what was computed before; None for the first.
        output: the storage that the next stage reads; None for the last.
    """

    forward: range
    backward: range
    input: int | None
    output: int | None


class Blocks:
    """The stages of a training graph, with what its operators read and write when they run as in PyTorch."""

    def __init__(self, profile: Profile) -> None:
        """Finds the stages."""
        self.profile = profile
        self.graph: TrainingGraph = profile.graph
        self.forward = [x for x in self.graph.forward if not x.optional]
        self.backward = [x for x in self.graph.backward if not x.optional]
        self.held = {x.id for x in self.graph.storages if x.held}
        self.stages = tuple(self._stages())

    @property
    def separate(self) -> bool:
        """Is there more than one stage?"""
        return len(self.stages) > 1

    @cached_property
    def description(self) -> str:
        """How much of a chain the graph is, as a sentence."""
        share = max(len(self.operators(x.forward)) for x in self.stages) / len(self.forward)
        if not self.separate:
            return "the graph is no chain: no activation separates what comes before from what comes after"
        chain = f"a chain of {len(self.stages)} stages"
        return f"{chain}, the largest of which has {share:.0%} of the forward pass" if share > 0.25 else chain

    def operators(self, ids: range) -> list[Operator]:
        """Those of a stretch, without optional ones."""
        return [self.graph.operators[x] for x in ids if not self.graph.operators[x].optional]

    @cached_property
    def once(self) -> frozenset[int]:
        """Ids of forward operators that run once whatever happens: they draw random numbers or update buffers."""
        return frozenset(x.id for x in self.forward if not may_run_again(x))

    @cached_property
    def keepsakes(self) -> frozenset[int]:
        """Storages that stay from the first run on, because no later run makes them (masks that were drawn)."""
        return Recomputing(self.graph).keepsakes & (self._read_by_backward | self._read_again) - self.held

    @cached_property
    def _read_by_backward(self) -> set[int]:
        return {x for operator in self.backward for x in operator.default().reads}

    @cached_property
    def _read_again(self) -> set[int]:
        again = (x.default(again=True) for x in self.forward if x.id not in self.once)
        return {x for implementation in again for x in implementation.reads}

    @cached_property
    def activations(self) -> set[int]:
        """Storages of the forward pass that stages pass on or keep to themselves."""
        written = {x for operator in self.forward for x in operator.default().writes}
        return written - self.keepsakes - self.held - self.late

    @cached_property
    def late(self) -> frozenset[int]:
        """New values of buffers, which wait for the end of the forward pass and serve nothing else."""
        computing = [x for x in self.forward if x.default().writes]
        read = {x for operator in computing for implementation in _runs(operator) for x in implementation.reads}
        updates = {x for operator in self.forward for x in operator.default().reads if not operator.default().writes}
        return frozenset(updates - read - self._read_by_backward - self.graph.persistent)

    def _stages(self) -> Iterable[Stage]:
        count, total = self.graph.forward_count, len(self.graph.operators)
        forward_start, backward_end, source = 0, total, None
        for after, storage, boundary in self._cuts():
            yield Stage(range(forward_start, after + 1), range(boundary, backward_end), source, storage)
            forward_start, backward_end, source = after + 1, boundary, storage
        yield Stage(range(forward_start, count), range(count, backward_end), source, None)

    def _cuts(self) -> list[tuple[int, int, int]]:
        """(last forward operator, storage, first backward operator ahead of the cut), in forward order."""
        cuts: list[tuple[int, int, int]] = []
        least = self.graph.forward_count + 1
        for after, storage in reversed(self._forward_cuts()):
            boundary = self._boundary(after, storage, least)
            if boundary is not None:
                cuts.append((after, storage, boundary))
                least = boundary
        return cuts[::-1]

    def _forward_cuts(self) -> list[tuple[int, int]]:
        """Places after which the forward pass reads one earlier activation only, which the backward pass reads too.

        An activation that the backward pass does not read is no good place for a checkpoint: kept for a stage's sake,
        it would serve nothing else.
        """
        last_read: dict[int, int] = {}
        for operator in self.forward:
            if operator.default().writes:  # what only updates buffers asks for nothing later on
                for implementation in _runs(operator):
                    last_read |= dict.fromkeys(implementation.reads, operator.id)
        crossing: set[int] = set()
        cuts: list[tuple[int, int]] = []
        seen: set[int] = set()
        for operator in self.forward:
            crossing |= set(operator.default().writes) & self.activations
            crossing = {x for x in crossing if last_read.get(x, -1) > operator.id}
            if len(crossing) == 1:
                (storage,) = crossing
                if storage in self._read_by_backward and storage not in seen:
                    seen.add(storage)
                    cuts.append((operator.id, storage))
        return cuts

    def _boundary(self, after: int, storage: int, least: int) -> int | None:
        """Where the backward pass goes over a cut: with the fewest bytes of gradients; None where it does not."""
        earliest, latest = least, len(self.graph.operators)
        for x, (made, first, last) in self._reads_of_backward.items():
            if made > after:
                earliest = max(earliest, last + 1)
            elif x != storage:
                latest = min(latest, first)
        maker = self.graph.operators[self.graph.producer[storage]]
        readers = self._backward_readers[storage]

        def cost(place: int) -> tuple[int, int]:
            # What reads the activation as its own output belongs ahead of the cut, what reads it as an input behind.
            misplaced = sum((x.layer == maker.layer) != (x.id >= place) for x in readers)
            return misplaced, self.gradient_bytes[place - self.graph.forward_count]

        places = range(earliest, min(latest, len(self.graph.operators) - 1) + 1)
        return min(places, key=cost, default=None)

    @cached_property
    def _backward_readers(self) -> dict[int, list[Operator]]:
        """By storage, in the order in which they run."""
        readers: dict[int, list[Operator]] = {}
        for operator in self.backward:
            for x in dict.fromkeys(operator.default().reads):
                readers.setdefault(x, []).append(operator)
        return readers

    @cached_property
    def _reads_of_backward(self) -> dict[int, tuple[int, int, int]]:
        """Of what the backward pass reads of the forward pass: its producer's id, and its first and last reader's."""
        passed = self.activations | self.keepsakes
        readers = {x: found for x, found in self._backward_readers.items() if x in passed}
        return {x: (self.graph.producer[x], found[0].id, found[-1].id) for x, found in readers.items()}

    @cached_property
    def gradient_bytes(self) -> list[int]:
        """Gradients in memory just before each backward operator, and after the last."""
        size = {x.id: self.profile.allocated_bytes(x) for x in self.graph.storages}
        last_use: dict[int, int] = {}
        for operator in self.backward:
            chosen = operator.default()
            last_use |= dict.fromkeys((*chosen.reads, *chosen.writes), operator.id)
        alive: dict[int, int] = {}
        levels = []
        for operator in self.graph.backward:
            levels.append(sum(alive.values()))
            if not operator.optional:
                alive |= {x: size[x] for x in operator.default().writes}
                alive = {x: y for x, y in alive.items() if x in self.held or last_use[x] > operator.id}
        return [*levels, sum(alive.values())]

    def schedule(self, sequence: Sequence, *, method: str) -> Schedule:
        """A sequence of stage operations as a schedule, every storage freed after its last use."""
        runs: list[Run] = []
        seen: set[int] = set()
        for operation in sequence:
            stage = self.stages[operation.stage]
            if operation.kind is Kind.BACKWARD:
                runs += [Run(x.id, x.default().name) for x in self.operators(stage.backward)]
                continue
            again = operation.stage in seen
            operators = [x for x in self.operators(stage.forward) if not (again and x.id in self.once)]
            runs += [Run(x.id, x.default(again=again).name) for x in operators]
            seen.add(operation.stage)
        return with_frees(self.graph, runs, method=method, budget_bytes=None, as_eager=True)


def _runs(operator: Operator) -> list[Implementation]:
    """As it runs the first time, and again if it may."""
    again = [operator.default(again=True)] if may_run_again(operator) else []
    return [operator.default(), *again]
