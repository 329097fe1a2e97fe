"""The one file that touches PyTorch's private tracing API: a module to its joint ATen graph.

Verified on torch 2.11 to 2.13.
"""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch._functorch._aot_autograd import descriptors
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.distributions import Distribution
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from explorer.capture.batch import TrainingStep
from explorer.capture.fakes import mended
from explorer.capture.in_place import InPlaceAsInEager
from explorer.capture.interface import Interface, Stored, distinct_leaves, plain_tensors_as_buffers
from explorer.capture.libraries import positions_of_the_model
from explorer.capture.products import ProductsOfEager, with_plain_calls
from explorer.capture.recurrent import size_workspaces
from explorer.capture.results import ResultStructure
from explorer.exclusion import TRACING
from explorer.torch_private import (
    OpOverload,
    as_if_compiling,
    eager_operators,
    gradients_in_dense_layouts,
    without_checkpoints,
)

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
        output: for a tangent, the index in ``Traced.outputs`` of the output whose gradient it is.
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
        outputs: the tensors of the step's result; after those, tensors that several of them are views of, which carry
            their gradients.
        mutations: (graph input, node with its new value) for each buffer that takes its new value at the end of the
            forward pass.
        gradients: (graph input, node with its gradient) for each input that gets one.
        result: rebuilds the step's result from its ``outputs``.
        returned: how many of the outputs the result has.
        refused: for each of those, whether it has no gradient here but has one in eager mode.
        differentiable: likewise, whether it carries a gradient.
        given: likewise, whether it is the caller's own tensor, and no view of one.
        changed: graph inputs that the forward pass changes, at its end or on the way.
        as_compiled: it is what the model does while it is compiled, because otherwise it looks at values: the same
            mathematics, but library code may take other kernels then, with other last bits.
    """

    graph: fx.Graph
    inputs: tuple[GraphInput, ...]
    outputs: tuple[Any, ...]
    mutations: tuple[tuple[GraphInput, fx.Node], ...]
    gradients: tuple[tuple[GraphInput, fx.Node], ...]
    result: ResultStructure
    returned: int
    refused: tuple[bool, ...]
    differentiable: tuple[bool, ...]
    given: tuple[bool, ...]
    changed: tuple[GraphInput, ...]
    as_compiled: bool = False


def trace(step: TrainingStep, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    """Trace forward and backward of ``step`` on fake tensors; no memory, no computation, no state changed.

    Raises:
        ValueError: its control flow or shapes depend on tensor values (names the source line), it stores what a
            scheduled step would not, or nothing that it returns needs a gradient.
    """
    leaves, structure = pytree.tree_flatten((args, kwargs))
    with contextlib.ExitStack() as stack:
        mode = stack.enter_context(_fake_mode([*step.parameters(), *step.buffers(), *leaves]))
        for context in (TRACING, _clean_notes(), fx_traceback.preserve_node_meta(), _layer_notes(step)):
            stack.enter_context(context)
        stack.enter_context(_as_in_eager_mode())
        stack.enter_context(positions_of_the_model(leaves))
        interface = Interface(step, stack.enter_context(plain_tensors_as_buffers(step)))
        stack.enter_context(interface.without_autocast())
        fake_args, fake_kwargs = pytree.tree_unflatten(distinct_leaves(mode, leaves), structure)
        as_compiled = False
        try:
            try:
                joint = aot_export_joint_with_descriptors(stack, interface, fake_args, fake_kwargs)
            except (RuntimeError, NotImplementedError) as refused:
                # Some library code leaves out questions about values while it is compiled (mask checks, for example),
                # or kernels that tracing does not know.
                try:
                    with as_if_compiling():
                        joint = aot_export_joint_with_descriptors(stack, interface, fake_args, fake_kwargs)
                except _DATA_DEPENDENT:
                    raise  # of the model's own: what the library asked is answered
                except Exception as error:
                    raise refused from error
                as_compiled = True
        except Exception as error:
            raise _explained(error) from error
    resolved = _resolve(joint, interface)
    for graph_input in resolved.inputs:
        if graph_input.source is Source.INPUT:
            graph_input.node.meta.setdefault("val", leaves[int(graph_input.name)])
    size_workspaces(resolved.graph)
    with_plain_calls(resolved.graph)
    return replace(resolved, as_compiled=as_compiled)


@contextlib.contextmanager
def _fake_mode(tensors: list[Any]) -> Iterator[FakeTensorMode]:
    """The mode to trace in: that of the tensors if they are fake already. It remembers nothing of earlier traces.

    PyTorch's cache of what an operator returns confuses views with tensors of their own, so that what is captured
    would depend on what was captured before.
    """
    mode = detect_fake_mode(tensors) or FakeTensorMode(allow_non_fake_inputs=True)
    cached, mode.cache_enabled = mode.cache_enabled, False
    try:
        with mode:
            yield mode
    finally:
        mode.cache_enabled = cached


@contextlib.contextmanager
def _as_in_eager_mode() -> Iterator[None]:
    """While open, tracing meets what a step runs in eager mode, of operators and results.

    What is compiled within the model runs as it was written.
    """
    with contextlib.ExitStack() as stack:
        for context in (torch.compiler.set_stance("force_eager"), mended(), eager_operators()):
            stack.enter_context(context)
        for context in (without_checkpoints(), _without_validation(), _unwarned(), gradients_in_dense_layouts()):
            stack.enter_context(context)
        for mode in (ProductsOfEager(), InPlaceAsInEager()):
            stack.enter_context(mode)
        yield


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """While open, PyTorch does not mind that it looks at the gradient of a tensor that has a history."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
        yield


@contextlib.contextmanager
def _without_validation() -> Iterator[None]:
    """While open, distributions take their arguments as valid, instead of looking at values."""
    validating = Distribution._validate_args  # noqa: SLF001 - the setting has no getter
    Distribution.set_default_validate_args(value=False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(value=validating)


def _explained(error: Exception) -> Exception:
    """The error as a user should read it, or itself where it is no fault of the traced code's control flow."""
    if isinstance(error, AssertionError) and "share storage" in str(error):
        return ValueError(
            "the batch holds one memory twice (a tensor that is there twice, or a view of another), and the model "
            "changes it in place: give a copy of one of them (.clone())"
        )
    if "is not supported for tensor subclasses" in str(error):  # numpy(), tolist(), …
        return ValueError(
            f"the model takes the values of a tensor out of PyTorch{_user_line(error)}. A schedule runs PyTorch's "
            "operators only: compute it with torch instead of NumPy or Python numbers, or move it out of the model"
        )
    if not isinstance(error, _DATA_DEPENDENT) and "data-dependent" not in str(error).lower():
        return error
    place = _user_line(error)
    if any(x.name == "_detect_is_causal_mask" for x in traceback.extract_tb(error.__traceback__)):
        return ValueError(
            f"PyTorch looks at a mask to see whether it is causal{place}. A schedule is fixed before the values are "
            "known: say it beside the mask, is_causal=True or False (tgt_is_causal, memory_is_causal of nn.Transformer)"
        )
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
        if isinstance(module, torch.jit.ScriptModule):
            continue
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


def _resolve(joint: Any, interface: Interface) -> Traced:
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
