"""What PyTorch's compiler makes of a graph, as far as it can be known before it works: kernels, and what they allocate.

Inductor computes pointwise calls where they are read, as often as that is, if they read little. A result is in
memory if a kernel that is no loop reads it, or loops that do not become one; what is neither is never allocated. The
rules are those of ``torch._inductor`` 2.13 for the CPU (``StorageBox.mark_reuse``, ``CppScheduling.can_fuse``).
"""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import fx

from explorer.torch_inductor import computed_outside, operator_name, scatters_in_a_loop, shows_its_argument

aten, prims = torch.ops.aten, torch.ops.prims
_MOST_READS = 4
"""Of a result that several read: it is computed once and kept if it reads more."""
_MOST_READS_ALONE = 12
_MOST_FUSED = 64
_CONSTANTS = (
    aten.full.default,
    prims.iota.default,
    aten.scalar_tensor.default,
    aten.arange.start_step,
    aten.empty.memory_format,
)
_REDUCTIONS = ("sum", "mean", "amax", "amin", "var_mean", "var", "prod", "argmax", "argmin", "any", "all", "std")
_HEAVY = ("exp", "sigmoid", "tanh", "erf", "log", "pow")
OF_PICTURES = 4
"""Dimensions: samples, channels, and two of pixels."""
_SCATTER = ("index_put", "scatter", "scatter_add", "index_add", "scatter_reduce", "_unsafe_index_put", "index_copy")


@dataclass(frozen=True)
class Kernel:
    """One thing that the compiled step runs.

    Attributes:
        nodes: what it computes, in the graph's order; calls that others compute, too, among them.
        reads: in memory before.
        writes: in memory after.
        outside: of a library, not a loop.
    """

    nodes: tuple[fx.Node, ...]
    reads: tuple[fx.Node, ...]
    writes: tuple[fx.Node, ...]
    outside: bool

    @cached_property
    def called(self) -> fx.Node:
        """The call of a library; what is made of nothing for it, or multiplied before a sum, is computed there, too."""
        return next(x for x in reversed(self.nodes) if is_outside(x))

    @cached_property
    def traffic_bytes(self) -> int:
        """What goes through memory: each result and each argument once."""
        return sum(map(bytes_of, (*self.reads, *self.writes)))

    def may_overwrite(self, read: fx.Node, written: fx.Node) -> bool:
        """May a loop put this result where that argument was?"""
        same = bytes_of(read) == bytes_of(written) and val(read).dtype == val(written).dtype
        return same and not self.outside and not is_reduction(written)


def kernels_of(graph: fx.Graph, *, scatters_read_all: bool = True) -> list[Kernel]:
    """What runs, in order.

    Args:
        graph: a forward or a backward graph.
        scatters_read_all: from memory, as on a CPU with several threads; False: as the compiler has each of them here.
    """
    return _Lowering(graph, scatters_read_all=scatters_read_all).kernels()


def val(node: fx.Node) -> Any:
    """The fake tensor of a node."""
    return node.meta.get("val")


def bytes_of(node: fx.Node) -> int:
    """Of its own memory; of a view, of what it shows."""
    value = val(node)
    if isinstance(value, torch.Tensor):
        return _span(value) * value.element_size()
    return 0


def _span(value: torch.Tensor) -> int:
    if value.numel() == 0:
        return 0
    return min(value.numel(), 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)))


def numel(node: fx.Node) -> int:
    """How many numbers."""
    value = val(node)
    return value.numel() if isinstance(value, torch.Tensor) else 0


def name_of(node: fx.Node) -> str:
    """Of the operator, without namespace and overload."""
    return operator_name(node.target)


def is_view(node: fx.Node) -> bool:
    """Does it show the memory of its first argument?"""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, fx.Node) and is_view(source)
    return shows_its_argument(node.target)


def base(node: fx.Node) -> fx.Node:
    """What it is a view of, or itself."""
    while is_view(node):
        node = node.all_input_nodes[0]
    return node


def is_constant(node: fx.Node) -> bool:
    """Is it made of nothing, where it is read?"""
    return node.target in _CONSTANTS


def is_of_pictures(node: fx.Node) -> bool:
    """Is it a convolution in 2d on a CPU, or its backward pass? The compiler has a layout of its own for these."""
    if not name_of(node).startswith("convolution"):
        return False
    source = val(node.all_input_nodes[0])
    return source.ndim == OF_PICTURES and source.device.type == "cpu"


def is_copied(value: torch.Tensor) -> bool:
    """Does the compiler copy what is given to a convolution, to have the channels of a pixel side by side?"""
    wide = [at for at in (0, 2, 3, 1) if value.shape[at] > 1]
    strides = [value.stride(at) for at in wide]
    return strides != sorted(strides, reverse=True)


def is_reduction(node: fx.Node) -> bool:
    """Of fewer numbers than it reads."""
    return name_of(node) in _REDUCTIONS


def is_outside(node: fx.Node) -> bool:
    """Is it a library's, or a kernel of its own?"""
    return name_of(node) in _SCATTER or computed_outside(node.target)


def product_added(node: fx.Node) -> fx.Node | None:
    """The product of matrices that is computed with a sum, as ``addmm``: of nothing else, and added to what fits it.

    ``post_grad.is_valid_addmm_fusion``; of two products, the second. On a GPU, a sum that only loops read is a part of
    theirs instead.
    """
    if node.target is not aten.add.Tensor or node.kwargs or not isinstance(val(node), torch.Tensor):
        return None
    if val(node).device.type != "cpu" and all(
        torch.Tag.pointwise in getattr(x.target, "tags", ()) for x in readers(node)
    ):
        return None
    for product, other in (node.args[::-1], node.args):
        if not (isinstance(product, fx.Node) and isinstance(other, fx.Node)):
            return None
        made, added = val(product), val(other)
        alike = product.target is aten.mm.default and isinstance(added, torch.Tensor) and added.dtype == made.dtype
        if alike and len(product.users) == 1 and val(node).shape == made.shape and product is not other:
            return product
    return None


def readers(node: fx.Node) -> Iterator[fx.Node]:
    """What computes from it, also by its views."""
    for user in node.users:
        if is_view(user) or (user.target is operator.getitem and isinstance(val(node), tuple | list)):
            yield from readers(user)
        else:
            yield user


@dataclass(eq=False)
class _Loop:
    """What computes one result that is in memory, or would be if it were not fused."""

    node: fx.Node
    place: int
    nodes: set[fx.Node]
    reads: set[fx.Node]
    writes: list[fx.Node]
    outside: bool
    group: list[_Loop] = field(default_factory=list)

    @cached_property
    def domain(self) -> tuple[int, int, bool]:
        """Outer and reduced numbers; are the reduced ones the innermost?"""
        if not is_reduction(self.node):
            return max(map(numel, self.writes), default=0), 1, True
        source = self.node.all_input_nodes[0]
        dims = self.node.args[1] if len(self.node.args) > 1 and isinstance(self.node.args[1], list | tuple) else None
        shape = val(source).shape
        numbers = [x for x in dims or () if isinstance(x, int)]
        reduced = sorted(x % len(shape) for x in numbers) if numbers else list(range(len(shape)))
        inner = reduced == list(range(len(shape) - len(reduced), len(shape)))
        size = math.prod(shape[x] for x in reduced)
        return numel(source) // max(1, size), size, inner


class _Lowering:
    def __init__(self, graph: fx.Graph, *, scatters_read_all: bool) -> None:
        self.graph = graph
        self.scatters_read_all = scatters_read_all
        self.place = {x: at for at, x in enumerate(graph.nodes)}
        output = next(x for x in graph.nodes if x.op == "output")
        self.outputs = {base(x) for x in output.all_input_nodes}
        self.in_memory: dict[fx.Node, _Loop | None] = {}
        self.inlined: dict[fx.Node, tuple[set[fx.Node], set[fx.Node]]] = {}  # nodes, reads
        self.products = {x: product for x in graph.nodes if (product := product_added(x)) is not None}  # by their sums
        self.in_sums = set(self.products.values())

    def kernels(self) -> list[Kernel]:
        loops = [x for node in self.graph.nodes if (x := self._lowered(node)) is not None]
        for loop in loops:
            loop.group = [loop]
        self.after: dict[_Loop, set[_Loop]] = {x: set() for x in loops}
        for loop in loops:
            for read in loop.reads:
                if (source := self.in_memory[read]) is not None:
                    self.after[source].add(loop)
        self._fuse(loops)
        return [self._kernel(x) for x in self._in_order(loops)]

    def _in_order(self, loops: Sequence[_Loop]) -> Iterator[list[_Loop]]:
        """Groups, each as early as what it reads allows."""
        groups = {id(x.group): x.group for x in loops}
        later = {key: {id(y.group) for x in group for y in self.after[x]} - {key} for key, group in groups.items()}
        waiting = dict.fromkeys(groups, 0)
        for others in later.values():
            for key in others:
                waiting[key] += 1
        first = {key: min(x.place for x in group) for key, group in groups.items()}
        ready = [(first[key], key) for key, count in waiting.items() if not count]
        heapq.heapify(ready)
        while ready:
            _, key = heapq.heappop(ready)
            yield groups[key]
            for other in later[key]:
                waiting[other] -= 1
                if not waiting[other]:
                    heapq.heappush(ready, (first[other], other))

    def _lowered(self, node: fx.Node) -> _Loop | None:
        if node.op in ("placeholder", "get_attr"):
            self.in_memory[node] = None
            return None
        if node.op == "output" or is_view(node):
            return None
        if node.target is operator.getitem:  # of a call with several results
            source = node.args[0]
            assert isinstance(source, fx.Node)
            loop = self.in_memory.get(source)
            if loop is None:  # computed where it is read
                self.inlined[node] = self.inlined[source]
                return None
            self.in_memory[node] = loop
            loop.writes.append(node)
            loop.__dict__.pop("domain", None)
            return None
        nodes, reads = {node}, set()
        for x in map(base, node.all_input_nodes):
            if x in self.in_memory:
                reads.add(x)
            else:
                nodes |= self.inlined[x][0]
                reads |= self.inlined[x][1]
        outside = self._is_outside(node)
        if node in self.in_sums or not (outside or self._is_kept(node, reads)):
            self.inlined[node] = nodes, reads
            return None
        single = isinstance(val(node), torch.Tensor)
        loop = _Loop(node, self.place[node], nodes, reads, [node] if single else [], outside)
        self.in_memory[node] = loop
        return loop

    def _is_outside(self, node: fx.Node) -> bool:
        return is_outside(node) or node in self.products

    def _reads_all(self, node: fx.Node) -> bool:
        """From memory? Some scatters compute what they add, and where, by themselves."""
        if name_of(node) in _SCATTER and not self.scatters_read_all:
            return not scatters_in_a_loop(node)
        return self._is_outside(node)

    def _is_kept(self, node: fx.Node, reads: set[fx.Node]) -> bool:
        """Is a result of a loop put into memory, for the time being?"""
        if is_reduction(node) or node in self.outputs or not isinstance(val(node), torch.Tensor):
            return True
        if is_constant(node):
            return False
        users = set(readers(node))
        if any(map(self._reads_all, users)) or any(base(x) in self.outputs for x in node.users if is_view(x)):
            return True
        heavy = name_of(node) in _HEAVY
        return (len(users) > 1 and (len(reads) > _MOST_READS or heavy)) or len(reads) > _MOST_READS_ALONE

    def _fuse(self, loops: Sequence[_Loop]) -> None:
        reading: dict[fx.Node, list[_Loop]] = {}
        for loop in loops:
            if loop.outside:
                continue
            reads = sorted(loop.reads, key=self.place.__getitem__)  # the same groups each time
            near = [x for read in reads if (x := self.in_memory[read]) is not None]
            near += [x for read in reads for x in reading.get(read, ())]
            for other in dict.fromkeys(near):
                if other.outside or other.group is loop.group or not _alike(other, loop):
                    continue
                apart = self._between(other.group, loop.group) or self._between(loop.group, other.group)
                if len(other.group) + len(loop.group) <= _MOST_FUSED and not apart:
                    joined = [*other.group, *loop.group]
                    for x in joined:
                        x.group = joined
            for read in reads:
                reading.setdefault(read, []).append(loop)

    def _between(self, first: list[_Loop], second: list[_Loop]) -> bool:
        """Does anything have to run between two groups?"""
        last = max(x.place for x in second)
        own = {id(first), id(second)}
        seen: set[int] = set()
        pending = [y for x in first for y in self.after[x] if id(y.group) not in own]
        while pending:
            loop = pending.pop()
            if id(loop.group) in seen or min(x.place for x in loop.group) > last:
                continue
            seen.add(id(loop.group))
            for x in loop.group:
                for y in self.after[x]:
                    if id(y.group) == id(second):
                        return True
                    if id(y.group) not in own:
                        pending.append(y)
        return False

    def _kernel(self, group: list[_Loop]) -> Kernel:
        members = set(group)
        writes = [
            x
            for loop in sorted(group, key=lambda x: x.place)
            for x in loop.writes
            if loop.outside or x in self.outputs or any(y not in members for y in self.after[loop] if x in y.reads)
        ]
        made = {x for loop in group for x in (*loop.writes, loop.node)}
        nodes = sorted({x for loop in group for x in (*loop.nodes, *loop.writes)}, key=self.place.__getitem__)
        reads = sorted({x for loop in group for x in loop.reads} - made, key=self.place.__getitem__)
        return Kernel(tuple(nodes), tuple(reads), tuple(writes), group[0].outside)


def _alike(first: _Loop, second: _Loop) -> bool:
    """Do two loops run over the same numbers, so that they can be one?"""
    (outer, inner, innermost), (outer_2, inner_2, innermost_2) = first.domain, second.domain
    if not (innermost and innermost_2):
        return first.domain == second.domain and first.node not in second.reads
    return outer * inner == outer_2 * inner_2 or outer == outer_2
