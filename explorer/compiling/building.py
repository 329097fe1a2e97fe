"""A compiled step as a training graph: its operators are kernels, its storages what those put into memory.

PyTorch's own minimum cut comes first: what it computes again costs nothing, inside of other kernels. What it saves
may be computed again instead, by loops or by a library, and everything else that the forward pass puts into memory may
be saved: that is what schedules of this graph decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import torch
from torch import fx

from explorer.compiling.joint import Joint
from explorer.compiling.kernels import Kernel, base, bytes_of, is_copied, is_of_pictures, is_view, kernels_of, val
from explorer.compiling.ordering import in_order_of_the_compiler
from explorer.graph import Implementation, Operator, Phase, Role, Storage, TensorSpec, TrainingGraph, When

INPLACE = "in place of "
CHANNELS_LAST = " with channels last"
"""How copies are called that the compiler makes for convolutions."""
_SMALL = 64
"""A result this many times smaller than the largest one is saved or not as PyTorch's minimum cut has it."""
_MOST_RESULTS = 3
"""Of a kernel that runs again, whose results may be wanted apart."""


@dataclass(frozen=True)
class Work:
    """What a cost is of.

    Attributes:
        kernel: that runs; of one that runs again, the part that does.
        traffic_bytes: what goes through memory.
        own_layout: a convolution's tensors are laid out as the model has them, not as the compiler would.
    """

    kernel: Kernel
    traffic_bytes: int
    own_layout: bool = False


@dataclass
class Built:
    """A training graph with what it was made of.

    Attributes:
        graph: the training graph; storages have the names of nodes of the joint graph.
        work: by cost key.
        kept: names of storages that are saved or not as PyTorch's minimum cut has it.
        saved: names of those that it saves.
        own_layout: as for ``build``.
        strides: by cost key without them, which of them have keys of their own.
    """

    graph: TrainingGraph
    work: dict[str, Work]
    kept: frozenset[str]
    saved: frozenset[str]
    own_layout: bool
    strides: dict[str, list[list[tuple[int, ...]]]]


def build(
    joint: Joint,
    *,
    model: str,
    batch: tuple[TensorSpec, ...],
    parameters: tuple[TensorSpec, ...],
    persistent_bytes: int,
    own_layout: bool = False,
) -> Built:
    """Make the training graph of a step that is compiled.

    Args:
        joint: the joint graph.
        model: class name.
        batch: its tensors.
        parameters: likewise.
        persistent_bytes: of model and batch; what no call reads of them is a storage of its own.
        own_layout: of convolutions of pictures on a CPU: as the model has its tensors, not as the compiler would.
    """
    graph = TrainingGraph(model, batch, parameters, (), (), compiled=True)
    return _Building(joint, persistent_bytes, own_layout).built(graph, *joint.divided(ratio=1.0))


def rebuilt(joint: Joint, built: Built, *, saved: Sequence[str], again: Sequence[str]) -> Built:
    """The graph of the step that a choice makes: all that it computes again is there, as kernels of the backward pass.

    Args:
        joint: the joint graph.
        built: of that, without a choice.
        saved: names of nodes that are saved.
        again: names of those that are computed again.
    """
    held = [x.bytes for x in built.graph.storages if x.role.persistent and "tangents" not in x.name]
    strides = {x: list(y) for x, y in built.strides.items()}
    building = _Building(joint, sum(held), built.own_layout, strides=strides, scatters_read_all=False)
    return building.built(built.graph, *joint.divided(saved=saved, again=again))


@dataclass
class _Building:
    joint: Joint
    persistent_bytes: int
    own_layout: bool
    copies: dict[int, int] = field(default_factory=dict)
    strides: dict[str, list[list[tuple[int, ...]]]] = field(default_factory=dict)
    scatters_read_all: bool = True  # so that a schedule fits whatever threads run it
    storages: list[Storage] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    work: dict[str, Work] = field(default_factory=dict)
    number: dict[str, int] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def built(self, described: TrainingGraph, forward: fx.Graph, backward: fx.Graph) -> Built:
        """With the model, batch and parameters of ``described``."""
        self.nodes = {x.name: x for x in self.joint.module.graph.nodes}
        results, gradients = _results(forward), _results(backward)
        own, saved = results[: self.joint.outputs], results[self.joint.outputs :]
        self.saved = {self._owner(x) for x in saved if x is not None}
        held = {base(x).name for x in own if x is not None}
        self._given()
        kernels = self._kernels(forward)
        sizes = [bytes_of(x) for kernel in kernels for x in kernel.writes]
        self.small_bytes = max(sizes, default=0) // _SMALL
        self.fixed = {x.name for kernel in kernels for x in kernel.writes if bytes_of(x) <= self.small_bytes}
        # What is saved for the backward pass is copied by the first loop, the rest where it is read.
        self._with_channels_last(x for kernel in kernels for x in self._copied(kernel) if base(x).name in self.saved)
        for kernel in kernels:
            self._forward(kernel, held)
        made = {base(x).name for x in gradients if x is not None}
        for kernel in self._kernels(backward):
            self._backward(kernel, made)
        graph = replace(described, storages=tuple(self.storages), operators=tuple(self.operators))
        return Built(graph, self.work, frozenset(self.fixed), frozenset(self.saved), self.own_layout, self.strides)

    def _kernels(self, graph: fx.Graph) -> list[Kernel]:
        found = kernels_of(graph, scatters_read_all=self.scatters_read_all)
        return in_order_of_the_compiler(found, graph, own_layout=self.own_layout)

    def _owner(self, node: fx.Node) -> str:
        """Of the memory of a result, which may be a view that has another name in a divided graph."""
        return base(self.nodes[node.name]).name if node.name in self.nodes else base(node).name

    def _given(self) -> None:
        """Model, batch, and the gradients that the backward pass begins with."""
        static = set(self.joint.static)
        places = [x for x in self.joint.module.graph.nodes if x.op == "placeholder"]
        seen_bytes = 0
        for at, node in enumerate(places):
            if not isinstance(val(node), torch.Tensor):
                continue
            role = Role.PARAMETER if at in static and "tangents" not in node.name else Role.INPUT
            self._storage(node, role)
            seen_bytes += bytes_of(node) if "tangents" not in node.name else 0
        rest = max(0, self.persistent_bytes - seen_bytes)
        if rest:
            self.storages.append(Storage(len(self.storages), "not read by calls", rest, Role.BUFFER, (), "uint8"))

    def _storage(self, node: fx.Node, role: Role, *, held: bool = False) -> int:
        value = val(node)
        made = Storage(
            len(self.storages),
            node.name,
            bytes_of(node),
            role,
            tuple(value.shape),
            str(value.dtype).removeprefix("torch."),
            held,
        )
        self.storages.append(made)
        self.number[node.name] = made.id
        return made.id

    def _reads(self, kernel: Kernel, *, backward: bool = False) -> tuple[int, ...]:
        """By storages; of the model and the batch, the copy with channels last is saved where there is one."""
        found = dict.fromkeys(self.number[y] for x in kernel.reads if (y := self._owner(x)) in self.number)
        if backward or (kernel.outside and is_of_pictures(kernel.called)):
            return tuple(self.copies.get(x, x) for x in found)
        return tuple(found)

    def _copied(self, kernel: Kernel) -> Iterator[fx.Node]:
        """What the compiler copies of model and batch for a convolution."""
        if not self.own_layout and kernel.outside and is_of_pictures(kernel.called):
            for x in kernel.called.args[:2]:
                assert isinstance(x, fx.Node)
                if base(x).op == "placeholder" and base(x).name in self.number and is_copied(val(x)):
                    yield x

    def _with_channels_last(self, nodes: Iterable[fx.Node]) -> None:
        """Copy what was not copied before."""
        found = {y: x for x in nodes if (y := self.number[base(x).name]) not in self.copies}
        if not found:
            return
        for number, node in found.items():
            copy = replace(
                self.storages[number],
                id=len(self.storages),
                name=f"{base(node).name}{CHANNELS_LAST}",
                bytes=val(node).numel() * val(node).element_size(),
                role=Role.ACTIVATION,
            )
            self.storages.append(copy)
            self.copies[number] = copy.id
        traffic_bytes = 2 * sum(self.storages[self.copies[x]].bytes for x in found)
        key = f"loop of {traffic_bytes} bytes"
        self.work.setdefault(key, Work(Kernel((), tuple(found.values()), (), False), traffic_bytes))
        made = tuple(self.copies[x] for x in found)
        way = Implementation("as compiled", tuple(found), made, key, When.FIRST)
        name = f"channels_last_{len(self.operators)}"
        self.operators.append(Operator(len(self.operators), name, "loop", Phase.FORWARD, "", (way,)))
        self.names.add(name)

    def _forward(self, kernel: Kernel, held: set[str]) -> None:
        self._with_channels_last(self._copied(kernel))
        reads = self._reads(kernel)
        writes = [self._storage(x, Role.ACTIVATION, held=x.name in held) for x in kernel.writes]
        if not writes:
            return
        random = any(_draws(x) for x in kernel.nodes)
        ways = [self._way("first" if random else "as compiled", kernel, reads, writes, random=random)]
        ways += self._in_place(kernel, ways[0])
        if random or len(writes) > 1:
            ways += self._again(kernel)
        self._operator(kernel, Phase.FORWARD, ways)

    def _backward(self, kernel: Kernel, gradients: set[str]) -> None:
        reads = self._reads(kernel, backward=True)
        writes = []
        for x in kernel.writes:
            parameter = x.name in gradients
            writes.append(self._storage(x, Role.PARAMETER_GRADIENT if parameter else Role.GRADIENT, held=parameter))
        if not writes:
            return
        way = self._way("as compiled", kernel, reads, writes)
        self._operator(kernel, Phase.BACKWARD, [way, *self._in_place(kernel, way)])

    def _operator(self, kernel: Kernel, phase: Phase, ways: Sequence[Implementation]) -> None:
        main = kernel.writes[0]
        name = main.name
        while name in self.names:
            name += "_"
        self.names.add(name)
        target = str(main.args[0].target if str(main.target).endswith("getitem>") else main.target)  # type: ignore[union-attr]
        layer = str(main.meta.get("custom", {}).get("layer", "")) or _layer(main)
        self.operators.append(
            Operator(len(self.operators), name, target if kernel.outside else "loop", phase, layer, tuple(ways))
        )

    def _way(
        self, name: str, kernel: Kernel, reads: Sequence[int], writes: Sequence[int], *, random: bool = False
    ) -> Implementation:
        return Implementation(
            name,
            tuple(reads),
            tuple(writes),
            self._cost(kernel),
            When.FIRST if random or len(writes) > 1 else When.ALWAYS,
        )

    def _cost(self, kernel: Kernel) -> str:
        own_layout = False
        if kernel.outside:
            called = kernel.called
            own_layout = self.own_layout and is_of_pictures(called)
            tensors = [val(x) for x in called.all_input_nodes if isinstance(val(x), torch.Tensor)]
            given = ", ".join(f"{x.dtype} {tuple(x.shape)}" for x in tensors)
            rest = tuple(x for x in called.args if not isinstance(x, fx.Node))
            key = f"{called.target} {given} {rest}{' in its own layout' if own_layout else ''}"
            # Of other strides the cost is another, but schedules fit whatever strides a batch has.
            seen = self.strides.setdefault(key, [])
            strides = [x.stride() for x in tensors]
            if strides not in seen:
                seen.append(strides)
            key += f", layout {at}" if (at := seen.index(strides)) else ""
        else:
            key = f"loop of {kernel.traffic_bytes} bytes"
        self.work.setdefault(key, Work(kernel, kernel.traffic_bytes, own_layout))
        return key

    def _in_place(self, kernel: Kernel, way: Implementation) -> Iterator[Implementation]:
        """``way`` with a result where an argument was, which the compiler does wherever nothing reads that later."""
        for read in kernel.reads:
            number = self.number.get(self._owner(read))
            if number is None or self.storages[number].role.persistent or is_view(read):
                continue
            if any(kernel.may_overwrite(read, x) for x in kernel.writes):
                yield replace(way, name=f"{INPLACE}{self.storages[number].name}", overwrites=number)

    def _again(self, kernel: Kernel) -> Iterator[Implementation]:
        """Some of the results, from what the kernel reads or from others of its results."""
        large = [x for x in kernel.writes if bytes_of(x) > self.small_bytes]
        many = len(large) > _MOST_RESULTS
        wanted = [large, *([x] for x in large)] if many else _subsets(large)
        seen = set()
        for some in wanted:
            others = [x for x in large if x not in some]
            for there in ([], *([x] for x in others)) if many else ([], *_subsets(others)):
                part = self._part(kernel, some, {*there, *(x for x in kernel.writes if x.name in self.fixed)})
                if part is None:
                    continue
                reads = self._reads(part)
                writes = tuple(self.number[x.name] for x in some)
                if (key := (frozenset(reads), writes)) not in seen:
                    seen.add(key)
                    name = "again " + " ".join(x.name for x in some)
                    name += " from " + " ".join(x.name for x in there) if there else ""
                    yield Implementation(name, reads, writes, self._cost(part), When.AGAIN)

    def _part(self, kernel: Kernel, wanted: Sequence[fx.Node], there: set[fx.Node]) -> Kernel | None:
        """What computes some results alone; None where that would draw other random numbers."""
        inside = set(kernel.nodes)
        ends = {*kernel.reads, *there}
        random = {x for x in kernel.nodes if _draws(x)}
        drawn = _behind(random, inside)
        nodes: set[fx.Node] = set()
        reads: set[fx.Node] = set()
        pending = list(wanted)
        while pending:
            node = pending.pop()
            if node in nodes:
                continue
            if node in random:
                return None
            kept = node.name in self.saved and node in drawn and node not in wanted
            if node in ends or kept:
                reads.add(node)
                continue
            nodes.add(node)
            pending += [base(x) if base(x) in inside | ends else x for x in node.all_input_nodes]
            reads |= {base(x) for x in node.all_input_nodes if base(x) not in inside and base(x).name in self.number}
        reads = {x for x in reads if x.name in self.number}
        ordered = sorted(reads, key=lambda x: self.number[x.name])
        return Kernel(tuple(x for x in kernel.nodes if x in nodes), tuple(ordered), tuple(wanted), kernel.outside)


def _behind(nodes: set[fx.Node], inside: set[fx.Node]) -> set[fx.Node]:
    """These, and all that depends on them within a kernel."""
    found = set(nodes)
    pending = list(nodes)
    while pending:
        for user in pending.pop().users:
            if user in inside and user not in found:
                found.add(user)
                pending.append(user)
    return found


def _subsets(items: Sequence[fx.Node]) -> list[list[fx.Node]]:
    return [list(x) for count in range(1, len(items) + 1) for x in combinations(items, count)]


def _results(graph: fx.Graph) -> list[fx.Node | None]:
    (results,) = next(x for x in graph.nodes if x.op == "output").args
    return [x if isinstance(x, fx.Node) else None for x in results]  # type: ignore[union-attr]


def _draws(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _layer(node: fx.Node) -> str:
    """Path of the module that a call came from."""
    stack = node.meta.get("nn_module_stack") or {}
    last = list(stack.values())[-1:] if isinstance(stack, dict) else []
    path = str(last[0][0]) if last else ""
    return path.replace("L['self'].", "").replace("L['self']", "").replace("_modules['", "").replace("']", "")
