"""A module to its joint ATen graph: with ``resolving`` all that touches PyTorch's private tracing API.

Verified on torch 2.11 to 2.13.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributions import Distribution
from torch.fx import traceback as fx_traceback
from torch.utils import _pytree as pytree

from explorer.capture.batch import TOLD_BY_VALUE, TrainingStep
from explorer.capture.chance import SETS_CHANCE, without_chance
from explorer.capture.explaining import DATA_DEPENDENT, explained
from explorer.capture.fakes import mended
from explorer.capture.in_place import InPlaceAsInEager
from explorer.capture.interface import Interface
from explorer.capture.known_results import results_known
from explorer.capture.libraries import positions_of_the_model
from explorer.capture.overflow import guards_without_questions
from explorer.capture.places import distinct_leaves, plain_tensors_as_buffers
from explorer.capture.products import ProductsOfEager, with_plain_calls
from explorer.capture.recurrent import size_workspaces
from explorer.capture.resolving import resolve
from explorer.capture.traced import Source, Traced
from explorer.exclusion import TRACING
from explorer.torch_private import (
    OpOverload,
    as_if_compiling,
    eager_operators,
    gradients_in_dense_layouts,
    without_checkpoints,
)


def trace(step: TrainingStep, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    """Trace forward and backward of ``step`` on fake tensors; no memory, no computation, no state changed.

    Raises:
        ValueError: its control flow or shapes depend on tensor values (names the source line), it stores what a
            scheduled step would not, or nothing that it returns needs a gradient.
    """
    leaves, structure = pytree.tree_flatten((args, kwargs))
    with contextlib.ExitStack() as stack:
        interface, distinct = stack.enter_context(as_traced(step, leaves))
        fake_args, fake_kwargs = pytree.tree_unflatten(distinct, structure)
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
                except DATA_DEPENDENT:
                    raise  # of the model's own: what the library asked is answered
                except Exception as error:
                    raise refused from error
                as_compiled = True
        except Exception as error:
            raise explained(error, step.model) from error
    resolved = resolve(joint, interface)
    for graph_input in resolved.inputs:
        if graph_input.source is Source.INPUT:
            graph_input.node.meta.setdefault("val", leaves[int(graph_input.name)])
    if interface.sets_chance_back and any(_draws(x.target) for x in resolved.graph.nodes):
        raise ValueError(SETS_CHANCE)
    size_workspaces(resolved.graph)
    with_plain_calls(resolved.graph)
    return replace(resolved, as_compiled=as_compiled)


def _draws(target: Any) -> bool:
    return isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


@contextlib.contextmanager
def as_traced(step: TrainingStep, leaves: list[Any]) -> Iterator[tuple[Interface, list[Any]]]:
    """While open, a step runs on fake tensors as it does while it is traced.

    Args:
        step: of fake tensors, or of others that are left alone.
        leaves: of its batch.

    Yields:
        What to run, and the leaves to give it.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(TRACING)  # first: a mode of fake tensors may be another thread's, too
        mode = stack.enter_context(_fake_mode([*step.parameters(), *step.buffers(), *leaves]))
        for context in (
            without_chance(step),
            _clean_notes(),
            fx_traceback.preserve_node_meta(),
            _layer_notes(step),
        ):
            stack.enter_context(context)
        stack.enter_context(_as_in_eager_mode())
        stack.enter_context(results_known(mode))
        stack.enter_context(positions_of_the_model(leaves))
        stack.enter_context(guards_without_questions())
        interface = Interface(step, stack.enter_context(plain_tensors_as_buffers(step)))
        stack.enter_context(interface.without_autocast())
        interface.hidden = {n: x for n, x in enumerate(leaves) if isinstance(x, TOLD_BY_VALUE)}
        yield interface, distinct_leaves(mode, [None if n in interface.hidden else x for n, x in enumerate(leaves)])


@contextlib.contextmanager
def _fake_mode(tensors: list[Any]) -> Iterator[FakeTensorMode]:
    """The mode to trace in, without PyTorch's cache: that of the tensors if they are fake already."""
    mode = detect_fake_mode(tensors) or FakeTensorMode(allow_non_fake_inputs=True)
    before, mode.cache_enabled = mode.cache_enabled, False
    try:
        with mode:
            yield mode
    finally:
        mode.cache_enabled = before


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
