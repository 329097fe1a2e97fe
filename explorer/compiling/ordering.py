"""In which order a compiled graph runs its kernels: of four orders the one that takes the least memory.

The rules are those of ``torch._inductor.memory`` 2.13 (``reorder_for_peak_memory``): as they come; least peak memory
first (a greedy order); what waits for the earliest first; the smallest first, each after what it reads. The compiler
counts as if no kernel wrote over what it reads.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import fx

from explorer.compiling.kernels import OF_PICTURES, Kernel, base, bytes_of, name_of, val

_STAY = ("primals_", "arg", "fwd_rng_state", "bwd_rng_state")
"""How the names of inputs begin that no kernel frees."""


def in_order_of_the_compiler(kernels: Sequence[Kernel], graph: fx.Graph, *, own_layout: bool = False) -> list[Kernel]:
    """The kernels of a graph as they will run.

    Args:
        kernels: in an order that is possible.
        graph: which they compute.
        own_layout: convolutions have tensors as they are.
    """
    laid_out = [x for x in graph.nodes if x.op == "call_function" and name_of(x).startswith("convolution")]
    if not own_layout and any(val(x.all_input_nodes[0]).ndim == OF_PICTURES for x in laid_out):
        return list(kernels)  # what they copy into another layout, which no kernel here does, decides then
    output = next(x for x in graph.nodes if x.op == "output")
    given = [x for x in graph.nodes if x.op == "placeholder" and not x.name.startswith(_STAY)]
    task = _Task(tuple(kernels), frozenset(given), frozenset(base(x) for x in output.all_input_nodes))
    orders = [list(range(len(kernels))), task.least_peak_first(), task.earliest_first(), task.smallest_first()]
    return [kernels[x] for x in min(orders, key=task.peak_bytes)]


@dataclass(frozen=True, eq=False)
class _Task:
    """Kernels by their numbers, and what they read and write that takes memory in between."""

    kernels: tuple[Kernel, ...]
    given: frozenset[fx.Node]
    outputs: frozenset[fx.Node]

    @cached_property
    def maker(self) -> dict[fx.Node, int]:
        return {x: number for number, kernel in enumerate(self.kernels) for x in kernel.writes}

    @cached_property
    def size(self) -> list[int]:
        return [sum(map(bytes_of, x.writes)) for x in self.kernels]

    @cached_property
    def reads(self) -> list[list[fx.Node]]:
        return [[y for y in x.reads if y in self.maker or y in self.given] for x in self.kernels]

    @cached_property
    def readers(self) -> dict[fx.Node, list[int]]:
        found: dict[fx.Node, list[int]] = {x: [] for x in (*self.given, *self.maker)}
        for number, read in enumerate(self.reads):
            for x in read:
                found[x].append(number)
        return found

    @cached_property
    def before(self) -> list[set[int]]:
        return [{self.maker[y] for y in read if y in self.maker} - {x} for x, read in enumerate(self.reads)]

    @cached_property
    def after(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.kernels]
        for number, earlier in enumerate(self.before):
            for x in earlier:
                found[x].append(number)
        return found

    def peak_bytes(self, order: Sequence[int]) -> int:
        """By the compiler's count."""
        place = {x: at for at, x in enumerate(order)}
        change = [0] * (len(order) + 1)
        for node, readers in self.readers.items():
            if node in self.given and not readers:
                continue
            born = place[self.maker[node]] if node in self.maker else 0
            change[born] += bytes_of(node)
            if node not in self.outputs:
                change[max((place[x] for x in readers), default=born) + 1] -= bytes_of(node)
        peak = now = 0
        for x in change:
            now += x
            peak = max(peak, now)
        return peak

    def least_peak_first(self) -> list[int]:
        """Of what leads to no new peak, that which leaves the least memory; else that which takes the least."""
        waiting = [len(x) for x in self.before]
        unread = {x: len(readers) + (x in self.outputs) for x, readers in self.readers.items()}
        freed = [sum(bytes_of(x) for x in read if unread[x] == 1) for read in self.reads]
        for node, number in self.maker.items():
            freed[number] += bytes_of(node) if not unread[node] else 0
        read = [x for x in self.given if self.readers[x]]
        now = sum(map(bytes_of, read))
        most = max(now, sum(bytes_of(x) for x in self.outputs if x in self.maker or x in read))
        ready, order = {x for x, count in enumerate(waiting) if not count}, []
        while ready:
            room = most - now
            chosen = min(ready, key=lambda x: (self.size[x] if self.size[x] > room else 0, self.size[x] - freed[x], x))
            ready.discard(chosen)
            order.append(chosen)
            now += self.size[chosen]
            most = max(most, now)
            now -= freed[chosen]
            ready.update(self._released(chosen, waiting))
            for x in self.reads[chosen]:
                unread[x] -= 1
                if unread[x] == 1:
                    for reader in self.readers[x]:
                        freed[reader] += bytes_of(x)
        return order

    def earliest_first(self) -> list[int]:
        """First what waited for the earliest."""
        waiting, place, order = [len(x) for x in self.before], {}, []
        ready: list[tuple[list[int], int]] = [([], x) for x, count in enumerate(waiting) if not count]
        while ready:
            _, chosen = heapq.heappop(ready)
            place[chosen] = len(order)
            order.append(chosen)
            for x in self._released(chosen, waiting):
                heapq.heappush(ready, (sorted(place[y] for y in self.before[x]), x))
        return order

    def smallest_first(self) -> list[int]:
        """Those with the least to read and write first, each after what it reads."""
        size = [x + sum(map(bytes_of, read)) for x, read in zip(self.size, self.reads, strict=True)]
        order: dict[int, None] = {}
        for first in sorted(range(len(size)), key=lambda x: (size[x], x)):
            pending = [first]
            while pending:
                missing = [x for x in self.before[pending[-1]] if x not in order]
                if missing:
                    pending.append(min(missing, key=lambda x: (size[x], x)))
                else:
                    order[pending.pop()] = None
        return list(order)

    def _released(self, chosen: int, waiting: list[int]) -> list[int]:
        """What no longer waits, now that one has run."""
        for x in self.after[chosen]:
            waiting[x] -= 1
        return [x for x in self.after[chosen] if not waiting[x]]
