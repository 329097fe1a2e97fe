"""The one file that touches PyTorch's private tracing API: a module to its joint ATen graph.

Verified on torch 2.11 to 2.13.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import torch
from torch import fx, nn
from torch._functorch._aot_autograd import descriptors
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from explorer.exclusion import TRACING

_DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)


class Source(StrEnum):
    """Where the value of a graph input comes from when the step runs."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    CONSTANT = "constant"
    TANGENT = "tangent"


@dataclass(frozen=True)
class GraphInput:
    """A placeholder (or constant) of the joint graph.

    Attributes:
        node: in the graph.
        source: which kind of value.
        name: of the parameter or buffer in the step's module; for an input the index of its leaf, as text.
        constant: the value itself, for a constant.
        output: for a tangent, the index of the plain output whose gradient it is.
    """

    node: fx.Node
    source: Source
    name: str
    constant: torch.Tensor | None = None
    output: int | None = None


@dataclass(frozen=True)
class Traced:
    """A joint graph with its interface resolved.

    Attributes:
        graph: ATen calls of forward and backward.
        inputs: every placeholder and constant.
        outputs: flat outputs of the step: nodes or plain values.
        mutations: (graph input, node with its new value) for each buffer that the forward pass changes.
        gradients: (graph input, node with its gradient) for each input that gets one.
        output_structure: rebuilds the step's result from ``outputs``.
    """

    graph: fx.Graph
    inputs: tuple[GraphInput, ...]
    outputs: tuple[Any, ...]
    mutations: tuple[tuple[GraphInput, fx.Node], ...]
    gradients: tuple[tuple[GraphInput, fx.Node], ...]
    output_structure: pytree.TreeSpec


def trace(step: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    """Trace forward and backward of ``step`` on fake tensors; no memory, no computation, no state changed.

    Raises:
        ValueError: its control flow or shapes depend on tensor values (names the source line), or nothing that it
            returns needs a gradient.
    """
    with contextlib.ExitStack() as stack:
        for context in (TRACING, _clean_notes(), _layer_notes(step), fx_traceback.preserve_node_meta()):
            stack.enter_context(context)
        try:
            joint = aot_export_joint_with_descriptors(stack, step, args, kwargs)
            traced = step
        except _DATA_DEPENDENT as refused:
            # Some library code asks for tensor values that export knows to specialise (mask checks, for example).
            try:
                traced = torch.export.export(step, args, kwargs, strict=False).module()
                joint = aot_export_joint_with_descriptors(stack, traced, args, kwargs)
            except Exception as error:
                raise _explained(refused) from error
        except Exception as error:
            raise _explained(error) from error
    resolved = _resolve(joint, traced, {name for name, _ in step.named_buffers(remove_duplicate=False)})
    leaves = pytree.tree_leaves((args, kwargs))
    for graph_input in resolved.inputs:
        if graph_input.source is Source.INPUT:
            graph_input.node.meta.setdefault("val", leaves[int(graph_input.name)])
    return resolved


def _explained(error: Exception) -> Exception:
    """The error as a user should read it, or itself where it is no fault of the traced code's control flow."""
    if not isinstance(error, _DATA_DEPENDENT) and "data-dependent" not in str(error).lower():
        return error
    place = _user_line(error)
    return ValueError(
        f"the model's control flow or shapes depend on the values of tensors{place}. A schedule is fixed before the "
        "values are known: replace the branch by torch.where or a mask, or move it out of the model."
    )


def _user_line(error: BaseException) -> str:
    """Where the innermost frame outside torch and this package stands, as `` at file.py:12: code``."""
    ours = (Path(torch.__file__).parent, Path(__file__).parents[1])
    frames: list[traceback.FrameSummary] = []
    seen: BaseException | None = error
    while seen is not None and not frames:
        frames = [x for x in traceback.extract_tb(seen.__traceback__) if not _below(x.filename, ours)]
        seen = seen.__cause__ or seen.__context__
    if not frames:
        return ""
    # The calling script or cell comes first; the innermost line is the one that asked for the value.
    last = frames[-1]
    return f" at {last.filename}:{last.lineno}: {last.line}"


def _below(filename: str, folders: tuple[Path, ...]) -> bool:
    return any(Path(filename).is_relative_to(folder) for folder in folders)


@contextlib.contextmanager
def _clean_notes() -> Iterator[None]:
    """Begin without annotations: torch 2.11 leaves those of a trace that failed behind."""
    left_behind, fx_traceback.current_meta = fx_traceback.current_meta, {}
    try:
        yield
    finally:
        fx_traceback.current_meta = left_behind


@contextlib.contextmanager
def _layer_notes(step: nn.Module) -> Iterator[None]:
    """While open, every traced call is annotated with the path of the innermost module that made it."""
    open_notes: list[contextlib.AbstractContextManager[None]] = []

    def enter(path: str) -> Any:
        def hook(*_: Any) -> None:
            note = fx_traceback.annotate({"layer": path})
            note.__enter__()
            open_notes.append(note)

        return hook

    def leave(*_: Any) -> None:
        open_notes.pop().__exit__(None, None, None)

    handles = []
    for path, module in step.named_modules():
        handles.append(
            module.register_forward_pre_hook(enter(path.removeprefix("model").removeprefix(".")), prepend=True)
        )
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        while open_notes:
            leave()


def _resolve(joint: Any, traced: nn.Module, buffers: set[str]) -> Traced:
    module: fx.GraphModule = joint.graph_module
    nodes = list(module.graph.nodes)
    inputs = tuple(
        _graph_input(node, module, traced, buffers) for node in nodes if node.op in ("placeholder", "get_attr")
    )
    by_descriptor = {x.node.meta["desc"]: x for x in inputs if x.node.op == "placeholder"}
    results = nodes[-1]
    outputs: list[Any] = []
    mutations = []
    gradients = []
    for value, described in zip(results.args[0], results.meta["desc"], strict=True):
        if isinstance(described, descriptors.PlainAOTOutput):
            outputs.append(value)
        elif isinstance(described, descriptors.InputMutationAOTOutput):
            mutations.append((by_descriptor[described.mutated_input], value))
        elif isinstance(described, descriptors.GradAOTOutput) and value is not None:
            gradients.append((by_descriptor[described.grad_of], value))
        else:
            assert value is None, described
    if not gradients:
        raise ValueError("nothing that the model returns needs a gradient: is every parameter frozen?")
    return Traced(module.graph, inputs, tuple(outputs), tuple(mutations), tuple(gradients), joint.out_spec)


def _graph_input(node: fx.Node, module: fx.GraphModule, traced: nn.Module, buffers: set[str]) -> GraphInput:
    if node.op == "get_attr":
        return GraphInput(node, Source.CONSTANT, str(node.target), constant=_attribute(module, str(node.target)))
    described = node.meta["desc"]
    if isinstance(described, descriptors.TangentAOTInput):
        return GraphInput(node, Source.TANGENT, node.name, output=cast("Any", described.output).idx)
    if isinstance(described, descriptors.ParamAOTInput):
        return GraphInput(node, Source.PARAMETER, described.target)
    if isinstance(described, descriptors.BufferAOTInput):
        if described.target in buffers:
            return GraphInput(node, Source.BUFFER, described.target)
        # Export turns tensors that the code made on the way into buffers of its own.
        return GraphInput(node, Source.CONSTANT, described.target, constant=_attribute(traced, described.target))
    return GraphInput(node, Source.INPUT, str(described.idx))


def _attribute(module: nn.Module, path: str) -> torch.Tensor:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value
