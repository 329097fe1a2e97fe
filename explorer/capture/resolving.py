"""Inputs and outputs of a traced graph: parameters, buffers, the batch, gradients, new values of buffers."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch._functorch._aot_autograd import descriptors

from explorer.capture.interface import Interface, Stored
from explorer.capture.traced import GraphInput, Source, Traced
from explorer.torch_private import OpOverload


def resolve(joint: Any, interface: Interface) -> Traced:
    """The interface of a joint graph, by what PyTorch notes beside its inputs and outputs.

    Args:
        joint: as ``aot_export_joint_with_descriptors`` returns it.
        interface: that was traced.

    Raises:
        ValueError: the forward pass changes or stores what a scheduled step would not, a gradient is sparse, or nothing
            that is returned needs one.
    """
    module: fx.GraphModule = joint.graph_module
    nodes = list(module.graph.nodes)
    results = nodes[-1]
    pairs = list(zip(results.args[0], results.meta["desc"], strict=True))
    plain = [x for x in pairs if isinstance(x[1], descriptors.PlainAOTOutput)]
    returned = len(plain) - len(interface.stored)
    with_tangent = {x.meta["desc"].output for x in nodes if isinstance(x.meta.get("desc"), descriptors.TangentAOTInput)}
    outputs = plain[:returned]
    outputs += [x for x in pairs if isinstance(x[1], descriptors.IntermediateBaseAOTOutput) and x[1] in with_tangent]
    position = {described: index for index, (_, described) in enumerate(outputs)}
    given = [node for node in nodes if node.op in ("placeholder", "get_attr")]
    inputs = tuple(_graph_input(node, module, position) for node in given)
    by_descriptor = {x.node.meta["desc"]: x for x in inputs if x.node.op == "placeholder"}
    mutations: dict[GraphInput, fx.Node] = {}
    gradients = []
    for value, described in pairs:
        if isinstance(described, descriptors.InputMutationAOTOutput):
            changed = by_descriptor[described.mutated_input]
            if value.meta["val"].shape != changed.node.meta["val"].shape:
                raise ValueError(
                    "the forward pass changes the shape of a tensor of the batch or the model in place (unsqueeze_, "
                    "t_, squeeze_ …), so that the next step would begin with another one: use unsqueeze, t, squeeze …"
                )
            mutations[changed] = value
        elif isinstance(described, descriptors.GradAOTOutput) and value is not None:
            of = by_descriptor[described.grad_of]
            if value.meta["val"].layout is not torch.strided:
                raise ValueError(
                    f"the gradient of {of.name.removeprefix('model.')} is a sparse tensor, of which no schedule knows "
                    "the size: use dense gradients (sparse=False for an embedding)"
                )
            gradients.append((of, value))
    if not gradients:
        raise ValueError("nothing that the model returns needs a gradient: is every parameter frozen?")
    for stored, (node, _) in zip(interface.stored, plain[returned:], strict=True):
        mutations |= _update(stored, node, inputs)
    assert interface.structure is not None
    return Traced(
        graph=module.graph,
        inputs=inputs,
        outputs=tuple(value for value, _ in outputs),
        mutations=tuple(mutations.items()),
        gradients=tuple(gradients),
        result=interface.structure,
        returned=returned,
        refused=interface.refused,
        enters_autocast=interface.enters_autocast,
        asked=interface.asked,
        differentiable=interface.differentiable,
        given=interface.given,
        changed=tuple(mutations),
    )


def _update(stored: Stored, value: fx.Node, inputs: tuple[GraphInput, ...]) -> dict[GraphInput, fx.Node]:
    """How a scheduled step stores a tensor: in the buffer that it takes the place of, or not at all if it may.

    It may where each step makes the tensor anew and reads nothing of it before: a mask that is built when it is first
    needed, of constants; a weight that is normalised, of parameters and buffers.
    """
    sources = _sources(value)
    target = next((x for x in inputs if x.source is Source.BUFFER and x.name == stored.buffer), None)
    found = {x.source for x in inputs if x.node in sources}
    if target is None:
        if any(_is_random(x) for x in sources) or found - {Source.CONSTANT}:
            raise stored.refusal()
        return {}
    passing = Source.INPUT in found or any(_is_random(x) for x in sources)
    if stored.is_plain and not passing and not target.node.users.keys() - {value}:
        return {}
    if not stored.fits:
        raise stored.refusal()
    return {target: value}


def _sources(node: fx.Node) -> set[fx.Node]:
    """The node and all that it is made from."""
    pending, seen = [node], {node}
    while pending:
        for x in pending.pop().all_input_nodes:
            if x not in seen:
                seen.add(x)
                pending.append(x)
    return seen


def _is_random(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _graph_input(node: fx.Node, module: fx.GraphModule, position: dict[Any, int]) -> GraphInput:
    if node.op == "get_attr":
        return GraphInput(node, Source.CONSTANT, str(node.target), constant=_attribute(module, str(node.target)))
    described = node.meta["desc"]
    if isinstance(described, descriptors.TangentAOTInput):
        if described.output not in position:
            raise _changed_with_gradient(described.output)
        return GraphInput(node, Source.TANGENT, node.name, output=position[described.output])
    if isinstance(described, descriptors.ParamAOTInput):
        return GraphInput(node, Source.PARAMETER, described.target.removeprefix("step."))
    if isinstance(described, descriptors.BufferAOTInput):
        return GraphInput(node, Source.BUFFER, described.target.removeprefix("step."))
    return GraphInput(node, Source.INPUT, str(described.idx))


def _changed_with_gradient(described: Any) -> ValueError:
    target = getattr(getattr(described, "mutated_input", None), "target", None)
    if target is None:
        return ValueError(
            "the forward pass changes a tensor in place that it was given and that requires a gradient: change a copy "
            "(.clone()) instead"
        )
    name = target.removeprefix("step.model.")
    return ValueError(
        f"the forward pass changes the parameter {name!r} in place (as max_norm of an embedding does), which a "
        "scheduled step does not: do so between the steps, under torch.no_grad(); for max_norm, leave it out and call "
        "torch.embedding_renorm_ there"
    )


def _attribute(module: nn.Module, path: str) -> torch.Tensor:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value
