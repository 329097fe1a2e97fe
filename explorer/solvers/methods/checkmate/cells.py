"""Which entries of Checkmate's matrices R and S are variables, and what the others are.

With ``freedom`` FULL every node may be evaluated again in any later stage that can make use of it, as published. That
is for small graphs: n² entries. With LEAN only forward nodes are, in stages of backward nodes that read an activation.
The forward part of R is then a diagonal, so that a value stays through all of the forward stages after its last reader
or through none, and S has one variable for those; gradients live from their production to their last reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from explorer.solvers.methods.checkmate.nodes import Evaluation, Nodes


class Freedom(StrEnum):
    """Which nodes may be evaluated again, and when."""

    FULL = "any node in any later stage"
    LEAN = "forward nodes before backward nodes that read an activation"


@dataclass(frozen=True, eq=False)
class Cells:
    """R and S of section 4.2 without the entries that an optimum has no use for.

    Attributes:
        nodes: of the step.
        freedom: see ``Freedom``.
    """

    nodes: Nodes
    freedom: Freedom

    @cached_property
    def useful(self) -> tuple[list[int], dict[int, int]]:
        """The last stage in which evaluating each node again can be of use, and the last for which each value can."""
        nodes = self.nodes
        again = [-1] * len(nodes)
        last: dict[int, int] = dict.fromkeys(nodes.bytes, -1)
        for i in range(len(nodes) - 1, -1, -1):
            node, way = nodes.nodes[i], self.again(i)
            if way is not None:
                wanted = max((last[x] for x in way.writes if x not in nodes.held), default=-1)
                again[i] = min(wanted, nodes.last_again(i))
                for x in way.reads:
                    last[x] = max(last[x], again[i])
            for x in node.first.reads:
                last[x] = max(last[x], i)
        return again, last

    def again(self, i: int) -> Evaluation | None:
        """How a node may be evaluated again, None if it is not."""
        if self.freedom is Freedom.LEAN and i >= self.nodes.boundary:
            return None
        return self.nodes.nodes[i].again

    @cached_property
    def stages(self) -> list[list[int]]:
        """The nodes that each stage may evaluate again, in order (the variables of R)."""
        again, _ = self.useful
        return [
            [i for i in range(stage) if stage <= again[i] and self.again(i) is not None] if self._open(stage) else []
            for stage in range(len(self.nodes))
        ]

    def _open(self, stage: int) -> bool:
        """Is there recomputation in this stage?"""
        if self.freedom is Freedom.FULL:
            return True
        reads, boundary = self.nodes.nodes[stage].first.reads, self.nodes.boundary
        return stage > boundary and any(self.nodes.producer[x] < boundary for x in reads)

    @cached_property
    def r_columns(self) -> dict[tuple[int, int], int]:
        """(stage, node) to the column of R."""
        cells = [(stage, i) for stage, found in enumerate(self.stages) for i in found]
        return {cell: column for column, cell in enumerate(cells)}

    @cached_property
    def s_columns(self) -> dict[tuple[int, int], int | None]:
        """(stage, storage) to the column of S, None where it is 1; absent where it is 0."""
        columns: dict[tuple[int, int], int | None] = {}
        shared: dict[int, int] = {}
        count = 0
        for x in self.nodes.bytes:
            sure = self._surely_until(x)
            end = len(self.nodes) - 1 if x in self.nodes.held else self.useful[1][x]
            for stage in range(self.nodes.producer[x] + 1, end + 1):
                if stage <= sure:
                    columns[stage, x] = None
                elif self.freedom is Freedom.LEAN and stage <= self.nodes.boundary:
                    if x not in shared:
                        shared[x] = count
                        count += 1
                    columns[stage, x] = shared[x]
                else:
                    columns[stage, x] = count
                    count += 1
        return columns

    @cached_property
    def s_count(self) -> int:
        """How many variables S has; at least one, which may stand for nothing, for a program needs columns."""
        return 1 + max((x for x in self.s_columns.values() if x is not None), default=0)

    def _surely_until(self, x: int) -> int:
        """Up to which stage a value stays in any case, because a first evaluation reads it and nothing makes it again.

        In lean cells nothing is made again in the forward stages.
        """
        if x in self.nodes.held:
            return len(self.nodes)
        producer = self.nodes.producer[x]
        way = self.again(producer)
        readers = self._first_readers[x]
        if way is None or x not in way.writes:
            return max(readers, default=-1)
        if self.freedom is Freedom.LEAN:
            return max((i for i in readers if i <= self.nodes.boundary), default=-1)
        return -1

    @cached_property
    def _first_readers(self) -> dict[int, list[int]]:
        readers: dict[int, list[int]] = {x: [] for x in self.nodes.bytes}
        for i, node in enumerate(self.nodes.nodes):
            for x in node.first.reads:
                readers[x].append(i)
        return readers

    @cached_property
    def evaluations(self) -> list[list[tuple[int, Evaluation]]]:
        """What each stage may evaluate, in order; its own node, for the first time, comes last."""
        result: list[list[tuple[int, Evaluation]]] = []
        for stage, found in enumerate(self.stages):
            again = [(i, way) for i in found if (way := self.again(i)) is not None]
            result.append([*again, (stage, self.nodes.nodes[stage].first)])
        return result
