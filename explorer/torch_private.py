"""PyTorch's private calls outside tracing, in one place, tested on every supported version."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
import torch._library.simple_registry
import torch.utils.checkpoint
from torch import fx
from torch._prims_common import suggest_memory_format
from torch.autograd.function import BackwardCFunction
from torch.utils import _pytree as pytree

OpOverload = torch._ops.OpOverload
"""The type of ``torch.ops.aten.relu.default``."""

# What the guards of torch.compile compare; a compiled module, which loads nothing of the compiler.
_dict_version: Callable[[Any], int] | None = getattr(
    getattr(getattr(torch._C, "_dynamo", None), "guards", None), "dict_version", None
)


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors, real or fake, that share their memory."""
    return tensor.untyped_storage()._cdata


def is_cut_off(tensor: torch.Tensor) -> bool:
    """Is it a view that was made without gradients, of what requires one? It requires one itself, and gets none."""
    made_without = tensor.requires_grad and tensor.grad_fn is None and tensor._is_view()
    return made_without and tensor._base is not None and tensor._base.requires_grad


def own_function(tensor: torch.Tensor) -> str | None:
    """The ``torch.autograd.Function`` by which a view came from its base, as its backward node is called, if any."""
    if not tensor._is_view() or tensor._base is None:
        return None
    end, node = tensor._base.grad_fn, tensor.grad_fn
    while node is not None and node is not end:
        if isinstance(node, BackwardCFunction):
            return type(node).__name__
        node = next((x for x, _ in node.next_functions if x is not None), None)
    return None


def unviewed(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as no view: autograd ties the history of a view to that of all others of its base."""
    return tensor.detach() if tensor._is_view() else tensor


def is_of_a_transform(tensor: torch.Tensor) -> bool:
    """Is it what ``torch.func`` has in the place of a tensor, within ``vmap``, ``grad``, ``jvp``?"""
    functorch: Any = torch._C._functorch  # type: ignore[attr-defined]  # a compiled module without a stub
    return functorch.is_functorch_wrapped_tensor(tensor)


def is_transformed() -> bool:
    """Is a transform of ``torch.func`` open, or forward-mode differentiation?"""
    functorch: Any = torch._C._functorch  # type: ignore[attr-defined]  # likewise
    return torch.autograd.forward_ad._current_level >= 0 or functorch.peek_interpreter_stack() is not None


def without_memory(kind: type[Any], *, like: torch.Tensor) -> Any:
    """A tensor of a subclass that has a shape, and no storage."""
    make: Any = torch.Tensor._make_wrapper_subclass
    return make(kind, like.shape, strides=like.stride(), dtype=like.dtype, device=like.device)


def bare_binding(function: Callable[..., Any]) -> Callable[..., Any]:
    """What an OpOverload calls after a Python frame of its own; other functions as they are."""
    return function._op if isinstance(function, OpOverload) else function


@contextmanager
def without_gradient_hooks(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """While open, nothing of anybody's is called when these have their gradients."""
    # Their dicts stay: autograd has a hold of them.
    found = [y for x in tensors for y in (x._backward_hooks, x._post_accumulate_grad_hooks) if y]
    kept = [(hooks, dict(hooks)) for hooks in found]
    for hooks, _ in kept:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, before in kept:
            hooks.update(before)


def graph_is_kept() -> bool:
    """Within a backward pass: was it asked for with ``retain_graph`` or ``create_graph``?"""
    autograd: Any = torch._C._autograd  # type: ignore[attr-defined]  # a compiled module without a stub
    return autograd._get_current_graph_task_keep_graph()


def dict_versions(dicts: Iterable[Mapping[Any, Any]]) -> list[int] | None:
    """A number for each dict that any change of its keys and values changes; None where PyTorch does not tell."""
    if _dict_version is None:
        return None
    return list(map(_dict_version, dicts))


def forget_cublas_workspaces() -> None:
    """Release what PyTorch keeps for cuBLAS on CUDA devices; the next product allocates it again."""
    private: Any = torch._C
    private._cuda_clearCublasWorkspaces()


def cuda_memory_trace(run: Callable[[], None]) -> list[dict[str, Any]]:
    """The caching allocator's events on the current CUDA device during ``run``."""
    torch.cuda.memory._record_memory_history(context=None)
    try:
        run()
        torch.cuda.synchronize()
        snapshot: Any = torch.cuda.memory._snapshot()
        return snapshot["device_traces"][torch.cuda.current_device()]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def activation_budget(share: float) -> AbstractContextManager[Any]:
    """While open, ``torch.compile``'s partitioner has this ``activation_memory_budget``."""
    from torch._functorch import config

    settings: Any = config
    return settings.patch(activation_memory_budget=share)


def compiled_graph(
    module: fx.GraphModule, layouts: Sequence[tuple[Any, Any, torch.dtype]], device: torch.device
) -> Callable[..., Sequence[torch.Tensor]]:
    """A graph of ATen as code of PyTorch's compiler, without gradients; whatever is active around the call.

    Args:
        module: returns a tuple.
        layouts: shape, strides and dtype of each argument.
        device: where they will be.
    """
    with ExitStack() as stack:
        # Some of the compiler's own imports are deprecated, which is not for users to mind.
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        from torch import _inductor
        from torch._inductor import config
        from torch._subclasses import FakeTensorMode
        from torch.utils._python_dispatch import _disable_current_modes

        settings: Any = config
        for context in (_disable_current_modes(), torch.no_grad(), torch.autocast(device.type, enabled=False)):
            stack.enter_context(context)
        with FakeTensorMode():
            given: list[Any] = [torch.empty_strided(x, y, dtype=dtype, device=device) for x, y, dtype in layouts]
        # Weights are arguments like others: nothing may be folded into the code. What several loops use is computed in
        # each rather than kept in a tensor of its own, though it reads the five that a normalisation does.
        with settings.patch(keep_output_stride=True, freezing=False, realize_reads_threshold=8):
            made: Any = _inductor.compile(module, given)
    return made


_AS_TRACED = ("dropout", "native_batch_norm", "cudnn_batch_norm", "one_hot", "tensor_split", "istft", "empty")
"""Operators that a trace takes apart in Python, and rightly: dropout names its mask, batch normalisation says which
buffers it changes, the others would look at values."""


@contextmanager
def gradients_in_dense_layouts() -> Iterator[None]:
    """While open, a trace expects dense gradients of results that are not dense, such as overlapping windows.

    In the strides of a result whose elements share memory, a gradient could not be written down.
    """
    from torch._functorch import config
    from torch._functorch._aot_autograd.schemas import MemoryFormatMeta

    settings: Any = config
    layouts: Any = MemoryFormatMeta
    original = layouts.from_tensor

    def from_tensor(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with nullcontext() if is_dense(tensor) else settings.patch(guess_tangent_strides_as_outputs=False):
            return original(tensor, *args, **kwargs)

    layouts.from_tensor = staticmethod(from_tensor)
    try:
        yield
    finally:
        layouts.from_tensor = staticmethod(original)


def ones_for(result: torch.Tensor) -> torch.Tensor:
    """A gradient of ones, in the layout that a trace expects of that of this result."""
    if is_dense(result):
        return torch.ones_like(result)
    return torch.ones_like(result, memory_format=suggest_memory_format(result))


_UPDATING = ("native", "cudnn", "miopen")
_STATISTICS = {f"aten::{x}_batch_norm" for x in _UPDATING} | {
    "aten::batch_norm_update_stats",
    "aten::batch_norm_gather_stats",
    "aten::batch_norm_gather_stats_with_counts",
}
"""Operators that update running statistics, and do not declare it."""


def written_by(operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The arguments of a call that it writes to, by what the operator declares; batch normalisation's by its name."""
    declared = operator._schema.arguments
    given = {**dict(zip((x.name for x in declared), args, strict=False)), **kwargs}
    written = [given.get(x.name) for x in declared if x.alias_info is not None and x.alias_info.is_write]
    if operator._schema.name in _STATISTICS and given.get("training", True):
        written += [given.get("running_mean"), given.get("running_var")]
    return [x for x in pytree.tree_leaves(written) if isinstance(x, torch.Tensor)]


def is_dense(tensor: torch.Tensor) -> bool:
    """Has every element memory of its own? Also of what is not strided, of which nobody asks."""
    private: Any = torch
    return tensor.layout != torch.strided or private._debug_has_internal_overlap(tensor) == 0


@contextmanager
def eager_operators() -> Iterator[None]:
    """While open, ahead-of-time tracing meets the operators that eager mode runs.

    Otherwise it takes some of them apart, for the sake of symbolic shapes and of compilers: interpolation, for one,
    becomes indexing and arithmetic, with other bits and more memory.
    """
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    hidden: list[tuple[Any, Any, Any]] = []
    # A check of linear algebra's return codes counts as a side effect, whose order extra tensors would keep.
    checks: Any = torch._library.simple_registry.singleton.find("aten::_linalg_check_errors").effect
    effect, checks._effect = checks._effect, None
    try:
        for operator in _known_operators():
            if operator._opname not in _AS_TRACED:
                for key in set(keys) & operator.py_kernels.keys():
                    hidden.append((operator, key, operator.py_kernels.pop(key)))
                    operator._dispatch_cache.clear()
        dropout = torch.ops.aten.dropout.default
        for key, kernel in [(x, y) for x, y in dropout.py_kernels.items() if x in keys]:
            hidden.append((dropout, key, kernel))
            dropout.py_kernels[key] = _dropout_of_eager(kernel)
            dropout._dispatch_cache.clear()
        yield
    finally:
        for operator, key, kernel in hidden:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
        checks._effect = effect


def _dropout_of_eager(traced: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Dropout that drops nothing returns its input, not a copy of it as in a trace."""

    def dropout(source: torch.Tensor, p: float, train: bool) -> torch.Tensor:  # noqa: FBT001 - as ATen has it
        return traced(source, p, train) if p and train and source.numel() else source

    return dropout


def _known_operators() -> Iterator[Any]:
    """Those of ATen that anything in this process has named; PyTorch names those that it takes apart."""
    packets = [x for x in vars(torch.ops.aten).values() if isinstance(x, torch._ops.OpOverloadPacket)]
    for packet in packets:
        yield from (x for x in vars(packet).values() if isinstance(x, OpOverload))


@contextmanager
def fake_implementation(operator: Any, implementation: Callable[..., Any] | None) -> Iterator[None]:
    """While open, fake tensors run ``operator`` so: called with the mode, the operator and its arguments.

    None: as PyTorch has it, where this is open already.
    """
    from torch._decomp import meta_table
    from torch._subclasses import fake_impls

    # What is in the second table is not taken apart before the first is asked.
    tables: tuple[dict[Any, Any], ...] = (fake_impls.op_implementations_dict, meta_table)
    before = [x.pop(operator, None) for x in tables]
    try:
        for table in tables if implementation is not None else ():
            table[operator] = implementation
        yield
    finally:
        for table, value in zip(tables, before, strict=True):
            table.pop(operator, None)
            if value is not None:
                table[operator] = value


@contextmanager
def dispatching_by(mode: Any, run: Callable[..., Any]) -> Iterator[None]:
    """While open, operators of a mode of fake tensors run so: with the operator, its arguments and the rest.

    The rest is a function without arguments, that runs it as PyTorch does without its cache. Within another such region
    all is as there.
    """
    if "_cached_dispatch_impl" in vars(mode):
        yield
        return

    def dispatch(operator: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return run(operator, args, kwargs, lambda: mode._dispatch_impl(operator, types, args, kwargs))

    before, mode.cache_enabled = mode.cache_enabled, True
    mode._cached_dispatch_impl = dispatch
    try:
        yield
    finally:
        del mode._cached_dispatch_impl
        mode.cache_enabled = before


def fake_of(
    mode: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A fake tensor with memory of its own, where ``mode`` is dispatching."""
    from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

    with in_kernel_invocation_manager(mode):
        meta = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    return FakeTensor(mode, meta, device)


def told_by_value(tensor: Any) -> bool:
    """Does a fake tensor know the values of the real one, or what was once asked of them?"""
    return tensor.constant is not None or tensor.real_tensor is not None


def below_autograd() -> AbstractContextManager[Any]:
    """While open, operators run without a graph of autograd's, whether gradients are enabled or not."""
    private: Any = torch._C
    return private._AutoDispatchBelowAutograd()


@contextmanager
def without_checkpoints() -> Iterator[None]:
    """While open, in this thread, ``torch.utils.checkpoint`` with ``use_reentrant=True`` recomputes nothing.

    A schedule decides what is recomputed; without reentrance tracing sees no checkpoints anyway.
    """
    checkpoints: Any = torch.utils.checkpoint.CheckpointFunction
    original, thread = checkpoints.apply, threading.get_ident()

    def run(function: Callable[..., Any], preserve: object, *args: Any) -> Any:
        if threading.get_ident() != thread:  # which trains
            return original(function, preserve, *args)
        # As there, nothing gets a gradient unless an argument needs one.
        with torch.set_grad_enabled(any(isinstance(x, torch.Tensor) and x.requires_grad for x in args)):
            return function(*args)

    checkpoints.apply = staticmethod(run)
    try:
        yield
    finally:
        del checkpoints.apply


@contextmanager
def as_if_compiling() -> Iterator[None]:
    """While open, ``torch.compiler.is_compiling()`` and ``is_exporting()`` are true."""
    flags = ("_is_compiling_flag", "_is_exporting_flag")
    compiler: Any = torch.compiler
    before = [getattr(compiler, x) for x in flags]
    try:
        for flag in flags:
            setattr(compiler, flag, True)
        yield
    finally:
        for flag, value in zip(flags, before, strict=True):
            setattr(compiler, flag, value)


def saved_by_partitioner(joint: fx.GraphModule, *, outputs: int, budget: float) -> list[str]:
    """What ``torch.compile``'s partitioner saves between the passes, by the nodes' names.

    Args:
        joint: forward and backward graph as ahead-of-time autograd traces it; used up.
        outputs: how many results of the joint graph belong to the forward pass.
        budget: share of activations to save, from 0 to 1.
    """
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    with activation_budget(budget):
        forward, _ = min_cut_rematerialization_partition(joint, None, num_fwd_outputs=outputs)
    (results,) = next(x for x in forward.graph.nodes if x.op == "output").args
    assert isinstance(results, tuple | list)
    return [x.name for x in results[outputs:] if isinstance(x, fx.Node)]


@contextmanager
def optimizers_on_meta() -> Iterator[None]:
    """While open, optimizers take tensors on ``meta`` for a GPU's, on which they work on lists, or by fused kernels.

    Those for CUDA graphs (``capturable=True``) take the CPU's too, on which they are tried out.
    """
    instead = {"foreach_kernels": ("meta",), "fused_kernels": ("meta",), "capturable": ("meta", "cpu")}
    more = {f"_get_{name}_supported_devices": kinds for name, kinds in instead.items()}
    # Each kind of optimizer has these functions by names of its own module.
    modules = [x for name, x in list(sys.modules.items()) if name.startswith("torch.optim.")]
    originals = [(x, name, vars(x)[name]) for x in modules for name in more if name in vars(x)]

    def extended(original: Callable[..., list[str]], kinds: Sequence[str]) -> Callable[..., list[str]]:
        return lambda *args, **kwargs: [*original(*args, **kwargs), *kinds]

    for module, name, original in originals:
        setattr(module, name, extended(original, more[name]))
    try:
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)


def when_backward_is_complete(told: Callable[[], None]) -> None:
    """Call back once the backward pass in which this is called is through; never, where something is raised in it."""
    engine: Any = torch.autograd.Variable._execution_engine  # FSDP waits so, too
    engine.queue_callback(told)
