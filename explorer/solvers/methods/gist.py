"""Gist: one schedule, in which what waits for the backward pass is encoded and nothing is recomputed.

Jain, Phanishayee, Mars, Tang, Pekhimenko: *Gist: Efficient Data Encoding for Deep Neural Network Training*, ISCA 2018;
as MONeT compares with it (its section 5 and appendix E, table 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator, Optimization, TrainingGraph
from explorer.schedule import Run, Schedule, with_frees
from explorer.solution import Solution
from explorer.solvers.methods.answers import best_of
from explorer.solvers.options import Options

_ENCODED = {Optimization.SPARSE, Optimization.LOSSY}


def gist(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> tuple[Solution, ...]:
    """Gist's single point: the same schedule for every budget, which fits or not.

    It optimises nothing: four rules decide for every feature map that the backward pass reads. *Binarize*: a ReLU's
    output that only the ReLU and a pooling behind it read becomes one bit for each element, and the pooling's indices
    one byte for each window. *Sparse storage, dense compute*: a ReLU's output (or a pooling's behind one) that a
    convolution reads becomes compressed sparse rows. *Delayed precision reduction*: every other feature map becomes
    16, 10 or 8 bits wide. *In place*: a ReLU runs over its input. It ignores time, workspace, recomputation and
    budgets; tensors of fewer than three dimensions stay as they are.

    The profile must offer the encodings: ``explorer.profile(…, encoding="fp16")``. Without, only the first and the last
    rule apply, and the answer says so. With reduced precision, gradients are not those of PyTorch.
    """
    graph = profile.graph
    schedule = gist_schedule(graph, method=options.method)
    answers = best_of(profile, [schedule], budgets_bytes, method=options.method)
    offered = any(x.optimization in _ENCODED for op in graph.operators for x in op.implementations)
    if offered:
        return answers
    note = "the profile offers no encodings (profile(…, encoding='fp16')), so this is binarize and in place alone"
    return tuple(replace(x, message=f"{x.message}; {note}") for x in answers)


def gist_schedule(graph: TrainingGraph, *, method: str) -> Schedule:
    """Decide for every feature map, then run every operator once."""
    chosen = _Assignment(graph)
    for storage in chosen.feature_maps():
        chosen.encode(storage)
    chosen.in_place()
    read = {x for implementation in chosen.implementation.values() for x in implementation.reads}
    runs = [
        Run(x.id, chosen.implementation[x.id].name if not x.optional else x.default().name)
        for x in graph.operators
        if not x.optional or (x.id < graph.forward_count and read & set(x.default().writes))
    ]
    return with_frees(graph, runs, method=method, budget_bytes=None, as_eager=True)


class _Assignment:
    """An implementation for every operator, PyTorch's own to begin with."""

    def __init__(self, graph: TrainingGraph) -> None:
        self.graph = graph
        self.implementation = {x.id: x.default() for x in graph.operators if not x.optional}
        self.dropped: set[int] = set()

    def feature_maps(self) -> list[int]:
        """What the backward pass reads of what the forward pass makes, largest first."""
        made = {x for op in self.graph.forward for x in op.default().writes}
        made -= {x.id for x in self.graph.storages if x.held}
        read = {x for op in self._backward() for x in op.default().reads} & made
        return sorted(read, key=lambda x: -self.graph.storages[x].bytes)

    def encode(self, storage: int) -> None:
        """Let no backward operator read ``storage`` itself, if each has another way: by bits, or from an encoding."""
        readers = [x for x in self._backward() if storage in self.implementation[x.id].reads]
        binarized = [self._without(x, storage, {Optimization.INTERMEDIATE}) for x in readers]
        # Bits suffice only where they do for all; sparse or reduced, the tensor serves every reader.
        encoded = [self._without(x, storage, _ENCODED) for x in readers]
        mixed = [one or other for one, other in zip(encoded, binarized, strict=True)]
        for ways in (binarized, mixed):
            if all(x is not None for x in ways):
                self.implementation |= {op.id: x for op, x in zip(readers, ways, strict=True) if x is not None}
                self.dropped.add(storage)
                return

    def _without(self, operator: Operator, storage: int, allowed: set[Optimization]) -> Implementation | None:
        """The way to run it that reads neither ``storage`` nor what others gave up, and least besides."""
        gone = self.dropped | {storage}
        own = operator.default()
        able = [
            x
            for x in operator.implementations
            if x.optimization in allowed and x.overwrites is None and x.writes == own.writes and not gone & set(x.reads)
        ]
        return min(able, key=lambda x: sum(self.graph.storages[y].bytes for y in x.reads), default=None)

    def in_place(self) -> None:
        """Every ReLU and the like runs over its input, unless that is read later."""
        last_read: dict[int, int] = {}
        for number, implementation in sorted(self.implementation.items()):
            last_read |= dict.fromkeys(implementation.reads, number)
        for optional in (x for x in self.graph.forward if x.optional):
            for x in optional.default().reads:
                last_read[x] = max(last_read.get(x, 0), optional.id)
        for operator in self.graph.forward:
            for x in operator.implementations:
                over = x.overwrites
                if x.first and x.optimization is Optimization.INPLACE and over is not None and not operator.optional:
                    source = self.graph.storages[over]
                    if last_read.get(over) == operator.id and not source.held and _one_source(x, self.graph):
                        self.implementation[operator.id] = x

    def _backward(self) -> Iterable[Operator]:
        return (x for x in self.graph.backward if not x.optional)


def _one_source(implementation: Implementation, graph: TrainingGraph) -> bool:
    """Activations read one tensor; sums and products are not Gist's."""
    return len(set(implementation.reads) - graph.persistent) == 1
