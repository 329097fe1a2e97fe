"""Private calls of PyTorch's compiler, in one place: what it leaves to libraries, and how it divides a joint graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from explorer.torch_private import OpOverload, activation_budget

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_int_mm")


def computed_outside(target: Any) -> bool:
    """Does the compiler call a library for this operator, in place of writing a loop?"""
    from torch._inductor import lowering

    if not isinstance(target, OpOverload):
        return False
    known: Any = lowering
    return target._opname in _PRODUCTS or target in known.fallbacks or target not in known.lowerings


def lays_out_convolutions() -> bool:
    """Has the compiler a layout of its own for convolutions of pictures on a CPU?"""
    from torch._inductor import config

    settings: Any = config
    mkldnn: Any = torch.backends.mkldnn
    return bool(settings.layout_optimization and mkldnn.is_available() and mkldnn.enabled)


def scatters_in_a_loop(node: fx.Node) -> bool:
    """Does the compiler write a loop for a scatter, which computes what it adds? With several threads often not.

    ``torch._inductor.utils.use_scatter_fallback`` and ``lowering.index_put_impl_``; others are counted as calls.
    """
    from torch._inductor import config

    if torch.are_deterministic_algorithms_enabled():
        return False
    settings: Any = config
    name, (into, *rest) = operator_name(node.target), node.args
    value: Any = into.meta["val"] if isinstance(into, fx.Node) else None
    numbers = isinstance(value, torch.Tensor) and value.dtype not in (torch.int64, torch.bool)
    if name == "scatter_add":
        threads = settings.cpp.threads if settings.cpp.threads >= 1 else torch.get_num_threads()
        many = settings.cpp.fallback_scatter_reduce_sum and (settings.cpp.dynamic_threads or threads != 1)
        return numbers and not (many and value.device.type == "cpu")
    if name in ("index_put", "_unsafe_index_put"):
        indices = [x.meta["val"].dtype for x in _fx_nodes(rest[0])]
        adds = len(rest) > 2 and bool(rest[2])
        return not {torch.bool, torch.uint8}.intersection(indices) and (numbers or not adds)
    return name == "scatter" and "reduce" not in node.kwargs


def _fx_nodes(value: Any) -> list[fx.Node]:
    """Those in an argument."""
    found: list[fx.Node] = []
    fx.map_arg(value, found.append)
    return found


def operator_name(target: Any) -> str:
    """Of what a node calls, without namespace and overload."""
    return target._opname if isinstance(target, OpOverload) else getattr(target, "__name__", str(target))


def shows_its_argument(target: Any) -> bool:
    """Does an operator return a view?"""
    if not isinstance(target, OpOverload):
        return False
    returns = target._schema.returns
    return bool(returns) and returns[0].alias_info is not None and not returns[0].alias_info.is_write


def may_be_called_again(target: Any) -> bool:
    """Does an operator neither change its arguments nor draw random numbers?"""
    if not isinstance(target, OpOverload):
        return False
    return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags


def partitioned(
    module: fx.GraphModule, *, outputs: int, static: Sequence[int], ratio: float | None = None
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward graph, by PyTorch's minimum cut and the tags that nodes have.

    Args:
        module: the joint graph; used up.
        outputs: how many of its results are the forward pass's.
        static: positions of the inputs that are there before and after.
        ratio: PyTorch's own ``activation_memory_budget``; None: what is set.
    """
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    settings: Any = config
    share = settings.activation_memory_budget if ratio is None else ratio
    with activation_budget(share):
        return min_cut_rematerialization_partition(
            module, None, num_fwd_outputs=outputs, static_lifetime_input_indices=list(static)
        )


class _Look(CustomPartitionerFn):
    """Sees a joint graph, and divides none."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def __call__(self, gm: fx.GraphModule, _: Sequence[object], **told: Any) -> Any:
        self.found.append({"module": gm, **told})
        raise _Seen

    def uuid(self) -> None:
        """None: nothing is looked up, and nothing kept."""


class _Seen(Exception):  # noqa: N818 - no error: it ends a compilation that has shown what was asked
    pass


def joint_graph(run: Callable[[Any], None], compile_with: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """The joint graphs that the compiler is about to divide when a step runs, each with what it tells of it.

    Args:
        run: runs a step of a compiled module.
        compile_with: compiles the module with these options.

    Returns:
        ``module``, ``num_fwd_outputs`` and ``static_lifetime_input_indices`` of the first graph; nothing where none
        was divided.
    """
    with warnings.catch_warnings(action="ignore"):  # some of the compiler's own imports are deprecated
        import_module("torch._inductor.compile_fx")
    look = _Look()
    try:
        run(compile_with({"custom_partitioner_fn": look}))
    except Exception:
        if not look.found:
            raise
    return look.found


@contextmanager
def without_kernels() -> Iterator[None]:
    """While open, what is compiled for the CPU allocates, frees and calls libraries as ever, and computes no loops.

    A compiler for C++ takes minutes for a network, and what a step allocates is known before. Integers that loops would
    make are 0, as they may be indices. Nothing of this is kept in caches.
    """
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codecache import PyCodeCache

    compiler: Any = AsyncCompile
    original = compiler.cpp_pybinding

    def idle(_: Any, kinds: Sequence[str], __: str) -> Callable[..., None]:
        places = [at for at, kind in enumerate(kinds) if "*" in kind and "const" not in kind and "int" in kind]

        def run(*args: Any) -> None:
            for at in places:
                args[at].zero_()

        return run

    PyCodeCache.cache_clear()
    compiler.cpp_pybinding = idle
    settings: Any = config
    try:
        with settings.patch(force_disable_caches=True), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="dynamo_pgo force disabled")
            yield
    finally:
        compiler.cpp_pybinding = original
        PyCodeCache.cache_clear()
