"""From a normalised joint graph to the torch-free training graph and the calls that run it."""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import fx

from explorer.autocast import Autocast
from explorer.capture.batch import dtype_name
from explorer.capture.eager_memory import storage_bytes
from explorer.capture.normalise import tensors_of
from explorer.capture.passes import compared_for_equality, passes_of
from explorer.capture.traced import GraphInput, Source, Traced
from explorer.graph import FAITHFUL, Implementation, Operator, Phase, Role, Storage, TensorSpec, TrainingGraph, When
from explorer.iteration import Iteration
from explorer.operators import Guard, Variant, variants_of
from explorer.operators.encodings import Encoding, encoded_variants
from explorer.operators.registry import LABEL, ROLE, auxiliaries_of, changes_its_arguments, device_kind, served_by
from explorer.rearranging import in_iteration
from explorer.torch_private import OpOverload, storage_key

TANGENTS = "explorer.tangents"
UPDATE_BUFFERS = "explorer.update_buffers"
_ROLES = {
    Source.PARAMETER: Role.PARAMETER,
    Source.BUFFER: Role.BUFFER,
    Source.CONSTANT: Role.BUFFER,
    Source.INPUT: Role.INPUT,
}


@dataclass(frozen=True)
class Call:
    """What running an implementation calls; leaves of the arguments may be nodes of the joint graph.

    Attributes:
        target: the callable.
        args: positional arguments.
        kwargs: keyword arguments.
        results: the node that each result is bound to; None where nobody reads it.
        is_tuple: whether ``target`` returns a tuple.
        overwrites: the node whose memory becomes the result's.
        guard: what must hold before a step that makes the call.
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[fx.Node | None, ...]
    is_tuple: bool
    overwrites: fx.Node | None = None
    guard: Guard | None = None


@dataclass(frozen=True)
class Built:
    """A training graph with what torch needs to run it.

    Attributes:
        graph: torch-free.
        calls: by operator id and implementation name.
        storage_of: storage id of every tensor node.
        owners: for each storage, the nodes whose tensors it was allocated for.
        views: nodes that are re-derived from other tensors whenever they are read.
    """

    graph: TrainingGraph
    calls: dict[tuple[int, str], Call]
    storage_of: dict[fx.Node, int]
    owners: dict[int, tuple[fx.Node, ...]]
    views: frozenset[fx.Node]

    def storage_below(self, node: fx.Node) -> int:
        """The storage that a tensor, or a tuple of views, lies in."""
        source = node if node in self.storage_of else node.args[0]
        assert isinstance(source, fx.Node)
        return self.storage_of[source]

    def in_iteration(self, iteration: Iteration) -> Built:
        """The same with what autograd and optimizers do besides, as operators without calls."""
        graph = in_iteration(self.graph, iteration)
        names = {x.id: x.name for x in self.graph.operators}
        calls = {(names[number], way): call for (number, way), call in self.calls.items()}
        there = {(x.id, y.name): (x.name, y.name) for x in graph.operators for y in x.implementations}
        nothing = Call(_nothing, (), {}, (), is_tuple=True)
        return replace(self, graph=graph, calls={key: calls.get(found, nothing) for key, found in there.items()})


def build(
    traced: Traced,
    *,
    model: str,
    batch: tuple[TensorSpec, ...],
    parameters: tuple[TensorSpec, ...],
    autocast: Autocast,
    encoding: Encoding | None = None,
    fused: bool = False,
) -> Built:
    """Build the training graph of a normalised joint graph; with Gist's encodings if there is an ``encoding``."""
    return _Builder(traced, encoding).build(model, batch, parameters, autocast, fused=fused)


class _Builder:
    def __init__(self, traced: Traced, encoding: Encoding | None) -> None:
        self.traced = traced
        self.encoding = encoding
        self.storages: list[Storage] = []
        self.operators: list[Operator] = []
        self.calls: dict[tuple[int, str], Call] = {}
        self.by_data: dict[int, int] = {}
        self.storage_of: dict[fx.Node, int] = {}
        self.owners: dict[int, list[fx.Node]] = {}
        self.views: set[fx.Node] = set()
        self.names: dict[str, int] = {}
        self.tensor_inputs = [x for x in traced.inputs if x.source is Source.INPUT]
        self.held = self._held()

    def build(
        self,
        model: str,
        batch: tuple[TensorSpec, ...],
        parameters: tuple[TensorSpec, ...],
        autocast: Autocast,
        *,
        fused: bool,
    ) -> Built:
        for graph_input in self.traced.inputs:
            if graph_input.source is not Source.TANGENT:
                self._own(graph_input.node, self._input_name(graph_input, batch), _ROLES[graph_input.source])
        forward, backward = passes_of(self.traced)
        # All of them first: what the rules of the backward pass ask for is made in the forward pass.
        self.variants = {node: variants_of(node) for node in (*forward, *backward)}
        for node in compared_for_equality(forward, backward):
            self.variants[node] = tuple(x for x in self.variants[node] if x.exact)
        if self.encoding is not None:
            for node in backward:
                self.variants[node] += tuple(encoded_variants(node, self.encoding, set(forward)))
        for node in forward:
            self._add(node, Phase.FORWARD)
        self._add_update()
        self._add_tangents()
        for node in backward:
            self._add(node, Phase.BACKWARD)
        graph = TrainingGraph(
            model,
            batch,
            parameters,
            tuple(self.storages),
            tuple(self.operators),
            gradients=tuple(self._gradients()),
            autocast=autocast,
            fused=fused,
        )
        owners = {storage: tuple(nodes) for storage, nodes in self.owners.items()}
        return Built(graph, self.calls, self.storage_of, owners, frozenset(self.views))

    def _input_name(self, graph_input: GraphInput, batch: tuple[TensorSpec, ...]) -> str:
        """As the user knows it: the parameter's name in the model, the tensor's place in the batch."""
        if graph_input.source is Source.INPUT:
            return batch[self.tensor_inputs.index(graph_input)].name
        return graph_input.name.removeprefix("model.")

    def _operator_name(self, node: fx.Node) -> str:
        """``convolution_3``: what the call computes, without the tags of PyTorch's internal versions of it."""
        if (label := node.meta.get(LABEL)) is not None:
            return self._numbered(label)
        target: Any = node.target
        packet = str(target).split(".")[1] if isinstance(target, OpOverload) else target.__name__
        return self._numbered(re.sub(r"^_*(native_)?|_legit(_functional)?$", "", packet))

    def _numbered(self, base: str) -> str:
        number = self.names.get(base, 0)
        self.names[base] = number + 1
        return f"{base}_{number}" if number else base

    def _held(self) -> set[int]:
        """Storages (by address) that the caller receives."""
        nodes = [x for x in self.traced.outputs if isinstance(x, fx.Node)]
        nodes += [node for _, node in self.traced.gradients]
        return {storage_key(tensor) for node in nodes for tensor in tensors_of(node)}

    def _own(self, node: fx.Node, name: str, role: Role) -> int:
        """Enter the storage that ``node`` is the first tensor of."""
        (tensor,) = tensors_of(node)
        key = storage_key(tensor)
        if key not in self.by_data:
            role = node.meta.get(ROLE, role)
            held = not role.persistent and key in self.held
            if role is Role.GRADIENT and key in self.parameter_gradients:
                role = Role.PARAMETER_GRADIENT
            self.by_data[key] = len(self.storages)
            self.storages.append(
                Storage(
                    id=len(self.storages),
                    name=name,
                    bytes=storage_bytes(node, tensor),
                    role=role,
                    shape=tuple(tensor.shape),
                    dtype=dtype_name(tensor.dtype),
                    held=held,
                )
            )
        storage = self.by_data[key]
        self.storage_of[node] = storage
        self.owners.setdefault(storage, []).append(node)
        return storage

    @cached_property
    def parameter_gradients(self) -> set[int]:
        """Storages (by address) of the gradients of parameters."""
        pairs = self.traced.gradients
        nodes = [node for graph_input, node in pairs if graph_input.source is Source.PARAMETER]
        return {storage_key(tensor) for node in nodes for tensor in tensors_of(node)}

    def _gradients(self) -> Iterator[tuple[int, int]]:
        """Storages of each parameter of the model, and of its gradient; of the loss's too, which may have some."""
        for graph_input, node in self.traced.gradients:
            if graph_input.source is Source.PARAMETER:
                source = node if node in self.storage_of else node.args[0]
                assert isinstance(source, fx.Node)
                yield self.storage_of[graph_input.node], self.storage_of[source]

    def _add(self, node: fx.Node, phase: Phase) -> None:
        read = {storage_key(tensor) for x in node.all_input_nodes for tensor in tensors_of(x)}
        made = {storage_key(tensor) for tensor in tensors_of(node)}
        if made and made <= read:
            self._add_view(node)
            return
        # Of a plain number (the conjugate of 2j) a view is new memory.
        assert not read or not getattr(node.target, "is_view", False), f"{node.target} has memory of its own"
        if made & read:
            raise ValueError(f"{node.target} returns new memory together with a view of its input: not supported")
        outputs = _outputs(node)
        role = Role.ACTIVATION if phase is Phase.FORWARD else Role.GRADIENT
        name = self._operator_name(node)
        for index, output in outputs.items():
            self._own(output, name if index == 0 else f"{name}[{index}]", role)
        default, *others = self.variants[node]
        variants = [default, *(x for x in others if self._possible(x, phase))]
        for part in dict.fromkeys(x.part for x in variants):
            implementations = [self._implementation(node, x, outputs, phase) for x in variants if x.part == part]
            self._append(node, f"{name} {part}".rstrip(), phase, implementations, optional=bool(part))
        if phase is Phase.FORWARD:
            for kind, made in auxiliaries_of(node).items():
                self._add_auxiliary(made, kind, name)

    def _add_auxiliary(self, node: fx.Node, kind: str, of: str) -> None:
        """An optional operator that makes a compact tensor."""
        assert callable(node.target)
        self._own(node, f"{of} {kind}", Role.ACTIVATION)
        served = served_by(node)
        variant = Variant(kind, node.target, node.args, exact=served in FAITHFUL, optimization=served)
        implementation = self._implementation(node, variant, {0: node}, Phase.FORWARD)
        self._append(node, f"{of} {kind}", Phase.FORWARD, [implementation], optional=True)

    def _append(
        self, node: fx.Node, name: str, phase: Phase, implementations: list[Implementation], *, optional: bool
    ) -> None:
        layer = node.meta.get("custom", {}).get("layer", "")
        target = _target_name(node)
        found = tuple(implementations)
        self.operators.append(Operator(len(self.operators), name, target, phase, layer, found, optional=optional))

    def _possible(self, variant: Variant, phase: Phase) -> bool:
        """Is all that it reads made by now, and what it overwrites free to take?"""
        read = [self._storage_below(node) for node in argument_nodes(variant)]
        if None in read:
            return False
        late = phase is Phase.BACKWARD or variant.when is When.AGAIN
        if late and not self._changed.isdisjoint(read):
            return False  # by then it is another value
        if variant.overwrites is None:
            return True
        storage = self.storages[self.storage_of[variant.overwrites]]
        # What took more memory than it shows would keep all of that under the result's name.
        as_shown = storage.bytes == variant.overwrites.meta["val"].untyped_storage().nbytes()
        return read.count(storage.id) == 1 and as_shown and not storage.held and not storage.role.persistent

    def _add_view(self, node: fx.Node) -> None:
        for x in (node, *(user for user in node.users if user.target is operator.getitem)):
            self.views.add(x)
            for tensor in tensors_of(x):
                self.storage_of[x] = self.by_data[storage_key(tensor)]

    def _implementation(
        self, node: fx.Node, variant: Variant, outputs: dict[int, fx.Node], phase: Phase
    ) -> Implementation:
        is_tuple = not isinstance(node.meta["val"], torch.Tensor)
        count = len(node.meta["val"]) if is_tuple else 1
        numbers = variant.outputs if variant.outputs is not None else tuple(range(count))
        results = tuple(outputs.get(number) for number in numbers)
        single = len(numbers) == 1 and (variant.outputs is not None or not is_tuple)
        call = Call(
            target=variant.target,
            args=variant.args,
            kwargs=variant.kwargs,
            results=results,
            is_tuple=not single,
            overwrites=variant.overwrites,
            guard=variant.guard,
        )
        self.calls[len(self.operators), variant.name] = call
        when = variant.when
        if phase is Phase.FORWARD and when is When.ALWAYS and self._reads_changed_buffer(node):
            when = When.FIRST
        return Implementation(
            name=variant.name,
            reads=self._reads(call),
            writes=tuple(dict.fromkeys(self.storage_of[x] for x in results if x is not None)),
            cost=signature(call),
            when=when,
            exact=variant.exact,
            overwrites=None if variant.overwrites is None else self.storage_of[variant.overwrites],
            optimization=variant.optimization,
        )

    def _reads(self, call: Call) -> tuple[int, ...]:
        found = [self._storage_below(node) for node in argument_nodes(call)]
        return tuple(dict.fromkeys(x for x in found if x is not None))

    def _storage_below(self, node: fx.Node) -> int | None:
        """The storage that a tensor, or a tuple of views, lies in; None if nothing has made it yet."""
        if node.target is operator.getitem and node not in self.storage_of:
            source = node.args[0]
            assert isinstance(source, fx.Node)
            return self.storage_of.get(source)
        return self.storage_of.get(node)

    def _reads_changed_buffer(self, node: fx.Node) -> bool:
        if changes_its_arguments(node):
            return False  # a recomputation has a way of its own, which changes nothing
        return any(self._storage_below(x) in self._changed for x in node.all_input_nodes)

    @cached_property
    def _changed(self) -> frozenset[int | None]:
        """Storages of the model and the batch that the forward pass changes, at its end."""
        return frozenset(self.storage_of[graph_input.node] for graph_input in self.traced.changed)

    def _add_update(self) -> None:
        """At the end of the forward pass, buffers take their new values."""
        if not self.traced.mutations:
            return
        args = tuple(x for graph_input, node in self.traced.mutations for x in (graph_input.node, node))
        self._add_pseudo("update_buffers", UPDATE_BUFFERS, Phase.FORWARD, Call(update_buffers, args, {}, (), False))

    def _add_tangents(self) -> None:
        """The gradients of the outputs arrive from autograd, which holds them until the backward pass is done."""
        nodes = tuple(x.node for x in self.traced.inputs if x.source is Source.TANGENT)
        for node in nodes:
            self.held |= {storage_key(tensor) for tensor in tensors_of(node)}
            self._own(node, node.name, Role.GRADIENT)
        self._add_pseudo("tangents", TANGENTS, Phase.BACKWARD, Call(_nothing, (), {}, nodes, True))

    def _add_pseudo(self, name: str, target: str, phase: Phase, call: Call) -> None:
        writes = tuple(dict.fromkeys(self.storage_of[x] for x in call.results if x is not None))
        implementation = Implementation(name, self._reads(call), writes, target, when=When.FIRST)
        self.calls[len(self.operators), name] = call
        self.operators.append(Operator(len(self.operators), name, target, phase, "", (implementation,)))


def _target_name(node: fx.Node) -> str:
    return str(node.target) if isinstance(node.target, OpOverload) else f"explorer.{node.name}"


def update_buffers(*pairs: torch.Tensor) -> None:
    """Copy new values into buffers, given as old, new, old, new and so on."""
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        old.copy_(new)


def _nothing() -> tuple[()]:
    return ()


def argument_nodes(call: Call | Variant) -> list[fx.Node]:
    """The nodes among a call's arguments, in order, each once."""
    found: dict[fx.Node, None] = {}
    fx.map_arg((call.args, call.kwargs), found.setdefault)
    return list(found)


def _outputs(node: fx.Node) -> dict[int, fx.Node]:
    """Output number to the node that names it."""
    if isinstance(node.meta["val"], torch.Tensor):
        return {0: node}
    elements = [user for user in node.users if user.target is operator.getitem]
    return {int(str(element.args[1])): element for element in sorted(elements, key=lambda x: int(str(x.args[1])))}


def _lazily(tensor: torch.Tensor) -> tuple[str, ...]:
    """How what it says differs from what is stored: many calls make a copy of such a tensor first."""
    return ("conjugated",) * tensor.is_conj() + ("negated",) * tensor.is_neg()


def signature(call: Call) -> str:
    """Equal for calls that cost the same: callable, shapes, strides, dtypes, plain arguments, results in use."""

    def describe(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return tuple(
                (tuple(x.shape), x.stride(), str(x.dtype), x.storage_offset(), device_kind(x.device), *_lazily(x))
                for x in tensors_of(value)
            )
        if isinstance(value, tuple | list):
            return tuple(describe(x) for x in value)
        return device_kind(value) if isinstance(value, torch.device) else repr(value)

    kept = tuple(x is not None for x in call.results)
    described = repr((describe(call.args), sorted((k, describe(v)) for k, v in call.kwargs.items()), kept))
    function = call.target
    name = str(function) if isinstance(function, OpOverload) else f"{function.__module__}.{function.__qualname__}"
    return f"{name}#{hashlib.sha256(described.encode()).hexdigest()[:12]}"
