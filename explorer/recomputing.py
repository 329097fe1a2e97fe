"""Schedules from a choice of what to keep: everything else is computed again when the backward pass asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property

from explorer.graph import Operator, TrainingGraph
from explorer.schedule import Run, Schedule, with_frees


class Recomputing:
    """PyTorch's own implementations, with what they read and write when they run again."""

    def __init__(self, graph: TrainingGraph) -> None:
        """``graph`` is what the schedules are for."""
        self.graph = graph
        self.forward = [x for x in graph.forward if not x.optional]
        self.backward = [x for x in graph.backward if not x.optional]

    @cached_property
    def keepsakes(self) -> frozenset[int]:
        """Storages that are to be kept whatever the choice: what was drawn at random, and results for the caller."""
        kept = {x.id for x in self.graph.storages if x.held}
        for operator in self.forward:
            written = set(operator.default().writes)
            if not may_run_again(operator):
                kept |= written
            else:
                again = operator.default(again=True)
                kept |= (written - set(again.writes)) | (written & set(again.reads))
        return frozenset(kept)

    def schedule(
        self,
        saved: AbstractSet[int],
        *,
        method: str,
        together: Mapping[int, Iterable[int]] | None = None,
        as_eager: bool = False,
    ) -> Schedule:
        """Keep ``saved`` after the forward pass; compute the rest again, once, just before it is first read.

        Args:
            saved: storages of the forward pass.
            method: what made the choice.
            together: operator ids by operator id: what runs again whenever that operator does. None: nothing.
            as_eager: in place where eager mode is.
        """
        runs = [Run(x.id, x.default().name) for x in self.forward]
        available = set(saved) | self.keepsakes | self.graph.persistent
        for operator in self.backward:
            wanted: set[int] = set()
            self._ask([x for x in operator.default().reads if x not in available], available, wanted, together or {})
            for number in sorted(wanted):
                again = self.graph.operators[number].default(again=True)
                runs.append(Run(number, again.name))
                available |= set(again.writes)
            runs.append(Run(operator.id, operator.default().name))
            available |= set(operator.default().writes)
        return with_frees(self.graph, runs, method=method, budget_bytes=None, as_eager=as_eager)

    def _ask(
        self, missing: list[int], available: set[int], wanted: set[int], together: Mapping[int, Iterable[int]]
    ) -> None:
        """Add to ``wanted`` every operator that has to run again for ``missing``."""
        pending = [self.graph.producer[x] for x in missing]
        while pending:
            number = pending.pop()
            if number in wanted or not may_run_again(self.graph.operators[number]):
                continue
            wanted.add(number)
            pending += together.get(number, ())
            reads = self.graph.operators[number].default(again=True).reads
            pending += [self.graph.producer[x] for x in reads if x not in available]


def may_run_again(operator: Operator) -> bool:
    """Not if it draws random numbers or updates a buffer."""
    return any(x.again for x in operator.implementations)
