"""What a call does, kernel by kernel: it runs on tensors without memory while every operator of ATen is seen."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.capture.batch import dtype_name
from explorer.capture.building import Call
from explorer.capture.fakes import grouped_product
from explorer.device_profile import Cost, round_up
from explorer.execution.device import CUDA_ROUNDING_BYTES
from explorer.operators.fusing import fused
from explorer.operators.groups import Layout
from explorer.profiling.convolutions import Convolutions, Plans, Precisions
from explorer.profiling.devices import DeviceSpec
from explorer.profiling.kernel_workspace import kernel_workspace_bytes
from explorer.profiling.rates import Family, KernelWork, byte_rate, time_ms
from explorer.torch_private import storage_key

_TILE = 128
_ALLOCATIONS = {"empty", "empty_strided", "new_empty", "new_empty_strided", "empty_like"}
_FAMILIES = {
    Family.REDUCTION: {"sum", "mean", "amax", "logsumexp", "var_mean", "nll_loss_forward", "nll_loss2d_forward"},
    Family.COPY: {"cat", "copy_", "clone", "_to_copy", "constant_pad_nd", "split_with_sizes_copy", "repeat", "index"},
    Family.POOLING: {
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
        "avg_pool2d",
        "avg_pool2d_backward",
        "avg_pool3d",
        "upsample_nearest2d",
        "upsample_nearest3d",
        "upsample_nearest2d_backward",
        "upsample_nearest3d_backward",
        "upsample_bilinear2d",
        "embedding",
    },
    Family.SCATTER: {
        "max_pool2d_with_indices_backward",
        "max_pool3d_with_indices_backward",
        "embedding_dense_backward",
        "upsample_bilinear2d_backward",
        "index_put",
        "index_put_",
        "scatter",
        "scatter_add",
    },
    Family.ADAPTIVE: {
        "_adaptive_avg_pool2d",
        "_adaptive_avg_pool3d",
        "_adaptive_avg_pool2d_backward",
        "_adaptive_avg_pool3d_backward",
    },
}
_FAMILY = {name: family for family, names in _FAMILIES.items() for name in names}
_NORMALISATIONS = {
    # Reads of the first tensors beyond one each: statistics first, or sums over what is reduced first.
    "_native_batch_norm_legit": 1,
    "native_batch_norm": 1,
    "native_batch_norm_backward": 2,
    "native_layer_norm": 1,
    "native_layer_norm_backward": 2,
    "native_group_norm": 1,
    "native_group_norm_backward": 2,
    "_softmax": 0,
    "_log_softmax": 0,
    "_softmax_backward_data": 2,
    "_log_softmax_backward_data": 2,
}


class Counting:
    """Estimates captured calls for one device; operators that several of them run with the same layouts, once."""

    def __init__(self, spec: DeviceSpec, precisions: Precisions, plans: Plans | None = None) -> None:
        """For a device, products of float32 in ``precisions``, and where known what cuDNN plans for it."""
        self.convolutions = Convolutions(spec, precisions, plans)
        self._prices = _Prices(spec, precisions, self.convolutions)
        self._seen: dict[Any, _Seen] = {}

    def cost(self, call: Call, *, written_bytes: int) -> Cost:
        """Time and workspace of a captured call, estimated.

        Args:
            call: with fake tensors.
            written_bytes: what its results take, as allocated; what it takes beyond them is workspace.
        """
        if call.target is fused:
            return self._prices.fused(call)
        arguments = _WithoutMemory()
        args: Any = fx.map_arg(call.args, arguments.of_node)
        kwargs: Any = pytree.tree_map_only(torch.device, lambda _: torch.device("meta"), dict(call.kwargs))
        kwargs = fx.map_arg(kwargs, arguments.of_node)
        counter = _Counter(self._prices, self._seen, known=arguments.storages())
        with torch.no_grad(), counter:
            result = call.target(*args, **kwargs)
        del result
        return Cost(counter.time_ms, max(0, counter.peak_bytes - written_bytes))

    def cost_of(self, run: Callable[[], object], *, known: Iterable[torch.Tensor]) -> Cost:
        """Time and workspace of anything that runs on ``meta``, estimated.

        Args:
            run: works on, or in, ``known``.
            known: what is there before.
        """
        counter = _Counter(self._prices, self._seen, known={storage_key(x) for x in known})
        with counter:
            run()
        return Cost(counter.time_ms, counter.peak_bytes)


class _WithoutMemory:
    """Tensors on ``meta`` in place of the fake ones; views of one storage stay views of one storage."""

    def __init__(self) -> None:
        self.bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def of_node(self, node: fx.Node) -> Any:
        return pytree.tree_map_only(torch.Tensor, self.of_tensor, node.meta["val"])

    def of_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        key = (storage_key(tensor), tensor.dtype)
        if key not in self.bases:
            count = -(-tensor.untyped_storage().nbytes() // tensor.element_size())
            self.bases[key] = torch.empty(count, dtype=tensor.dtype, device="meta")
        return self.bases[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def storages(self) -> set[int]:
        return {storage_key(x) for x in self.bases.values()}


@dataclass(frozen=True, slots=True)
class _Seen:
    """An operator of ATen that has run: another run with arguments of the same layouts needs no shapes computed.

    Attributes:
        cost: of the operator.
        made: shape, strides and dtype of each result (None for a result that is None); empty where results are
            arguments, or are to be computed anew.
        is_tuple: whether there are several results.
        argument: which positional argument is returned, written to; None for new tensors.
    """

    cost: Cost
    made: tuple[tuple[Any, Any, torch.dtype] | None, ...] = ()
    is_tuple: bool = False
    argument: int | None = None

    def results(self, args: Any) -> Any:
        """What another run returns; of None there is nothing that could stand in."""
        if self.argument is not None:
            return args[self.argument]
        made = [None if x is None else torch.empty_strided(x[0], x[1], dtype=x[2], device="meta") for x in self.made]
        return tuple(made) if self.is_tuple else made[0]

    @property
    def repeats(self) -> bool:
        """Can the results of another run be made without it?"""
        return self.argument is not None or bool(self.made)


class _Counter(TorchDispatchMode):
    """Adds up time, and watches which storages live."""

    def __init__(self, prices: _Prices, seen: dict[Any, _Seen], *, known: set[int]) -> None:
        super().__init__()
        self.prices = prices
        self.seen = seen
        self.live = dict.fromkeys(known, 0)
        self.now_bytes = 0
        self.peak_bytes = 0
        self.time_ms = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket.__name__.startswith("_fused_"):
            # An optimizer's kernel, which works in place: there is none on meta.
            self.time_ms += self.prices.cost(func, args, kwargs, None).time_ms
            return None
        if func.is_view or func is torch.ops.aten._unsafe_view.default:
            return func(*args, **kwargs)
        key = (func, _layouts(args), _layouts(tuple(kwargs.items())))
        seen = self.seen.get(key)
        if seen is not None and seen.repeats:
            result = seen.results(args)
        else:
            result = self._result(func, args, kwargs)
            if all(x.device.type == "cpu" for x in _tensors((args, result))):
                return result  # an optimizer counts its steps there
            seen = self.seen[key] = self._first(func, args, kwargs, result)
        for tensor in _tensors(result):
            self._own(tensor)
        self.time_ms += seen.cost.time_ms
        inside_bytes = round_up(seen.cost.workspace_bytes, CUDA_ROUNDING_BYTES)
        self.peak_bytes = max(self.peak_bytes, self.now_bytes + inside_bytes)
        return result

    @staticmethod
    def _result(func: Any, args: Any, kwargs: Any) -> Any:
        if func is torch.ops.aten._grouped_mm.default:
            return grouped_product(None, func, *args, **kwargs)
        return func(*args, **kwargs)

    def _first(self, func: Any, args: Any, kwargs: Any, result: Any) -> _Seen:
        """What is to be known of an operator that has run for the first time."""
        allocates = func.overloadpacket.__name__ in _ALLOCATIONS
        cost = Cost(0.0, 0) if allocates else self.prices.cost(func, args, kwargs, result)
        if func._schema.is_mutable:
            # In place, its first argument is its result; where results are written to elsewhere, shapes may change.
            return _Seen(cost, argument=0 if args and result is args[0] and not _moves(func) else None)
        several = isinstance(result, tuple | list)
        found = tuple(result) if several else (result,)
        if not all(x is None or isinstance(x, torch.Tensor) for x in found):
            return _Seen(cost)
        made = tuple(None if x is None else (x.shape, x.stride(), x.dtype) for x in found)
        return _Seen(cost, made, several)

    def _own(self, tensor: torch.Tensor) -> None:
        key = storage_key(tensor)
        if key in self.live:
            return
        storage = tensor.untyped_storage()
        self.live[key] = round_up(storage.nbytes(), CUDA_ROUNDING_BYTES)
        self.now_bytes += self.live[key]
        weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.now_bytes -= self.live.pop(key)


class _Prices:
    """What an operator of ATen costs on a device."""

    def __init__(self, spec: DeviceSpec, precisions: Precisions, convolutions: Convolutions) -> None:
        self.spec = spec
        self.precisions = precisions
        self.convolutions = convolutions

    def cost(self, func: Any, args: Any, kwargs: Any, result: Any) -> Cost:
        """Of one that has run."""
        name = func.overloadpacket.__name__
        if name in ("convolution", "convolution_backward"):
            return self._convolution(name, args, result)
        tensors = _tensors((args, kwargs))
        workspace_bytes = kernel_workspace_bytes(name, tensors, args, self.spec)
        work = self._work(name, args, kwargs, result)
        if work.family is Family.REDUCTION and workspace_bytes:
            # Partial sums, most of which stay in the cache.
            work = replace(work, moved_bytes=work.moved_bytes + workspace_bytes / 2, kernels=2)
        least_ms = _by_channels_ms(tensors[0], self.spec, backward="backward" in name) if "batch_norm" in name else 0.0
        return Cost(max(least_ms, time_ms(work, self.spec)), workspace_bytes)

    def fused(self, call: Call) -> Cost:
        """One kernel that reads and writes once what goes in and comes out; another one where it sums over rows.

        What that makes is as wide as a row, and less than what it is made from. Where sums over the batch are read by
        what makes a tensor as large (a normalisation, and its backward pass), what they are sums of is read twice.
        """
        group, given = call.args
        moved = sum(bytes_moved(x.meta["val"]) for x in given) + sum(map(_bytes_of, group.layouts))
        largest = max(prod(shape) for shape, *_ in (*group.given, *group.layouts))
        norms = [x for x in group.steps if "batch_norm" in str(x.target)]
        if norms and max(prod(shape) for shape, *_ in group.layouts) == largest:
            again = 2 if any("backward" in str(x.target) for x in norms) else 1
            moved += sum(sorted(map(_bytes_of, group.given))[-again:])
        kernels = 1 + any(shape and shape[-1] > 1 and prod(shape) < largest for shape, *_ in group.layouts)
        return Cost(time_ms(KernelWork(Family.ELEMENTWISE, moved_bytes=moved, kernels=kernels), self.spec), 0)

    def _work(self, name: str, args: Any, kwargs: Any, result: Any) -> KernelWork:
        read = _tensors((args, kwargs))
        made = _tensors(result)
        if not made and args:
            made = _tensors(args[0])  # what works on lists in place returns nothing
        moved = sum(map(bytes_moved, read)) + sum(map(bytes_moved, made))
        if name in _PRODUCTS:
            return self._product(name, read, moved)
        if "scaled_dot_product" in name:
            return self._attention(name, args, kwargs, moved)
        if name in _NORMALISATIONS:
            largest = sorted(map(bytes_moved, read))[-2:] if "backward" in name else [max(map(bytes_moved, read))]
            again = sum(largest) if _NORMALISATIONS[name] else 0
            return KernelWork(Family.NORMALISATION, moved_bytes=moved + again, kernels=2)
        if "pool" in name and name.endswith("backward") and name in _FAMILY:
            # Of its input it reads the shape alone.
            moved -= bytes_moved(read[1])
        family = _FAMILY.get(name, Family.ELEMENTWISE)
        return KernelWork(family, moved_bytes=moved)

    def _product(self, name: str, read: list[torch.Tensor], moved: int) -> KernelWork:
        first, second = read[-2:] if name in ("addmm", "addmm_", "baddbmm", "addmv") else read[:2]
        flops = (4 if first.is_complex() else 1) * _product_flops(first, second)
        if first.element_size() < 4 and any(x % _ALIGNED for x in (*first.shape[-2:], second.shape[-1])):
            flops /= _UNALIGNED
        return KernelWork(Family.MATMUL, flops, moved, self._precision(first, self.precisions.matmul))

    def _attention(self, name: str, args: Any, kwargs: Any, moved: float) -> KernelWork:
        """Two products forward, five backward; half of each where it is causal."""
        tensors = _tensors(args)
        backward = name.endswith("backward")
        query, key = tensors[1:3] if backward else tensors[:2]
        causal = any(x is True for x in args[3:]) or kwargs.get("is_causal", False)
        if "efficient" in name and not backward:
            causal = len(args) > 6 and bool(args[6])
        products = 5 if backward else 2
        flops = 2.0 * products * query.numel() * key.shape[-2] * (0.5 if causal else 1.0)
        precision = self._precision(query, self.precisions.matmul)
        return KernelWork(Family.ATTENTION, flops, moved, precision, kernels=3 if backward else 1)

    def _precision(self, tensor: torch.Tensor, single: str) -> str:
        self._check(tensor)
        names = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
        return names.get(tensor.dtype, single)

    def _check(self, tensor: torch.Tensor) -> None:
        """Refuse products in double precision, which take 2 to 64 times as long, as devices differ.

        Raises:
            ValueError: this is one.
        """
        if tensor.dtype in (torch.float64, torch.complex128):
            raise ValueError(
                f"the step has products in {dtype_name(tensor.dtype)}, and how fast {self.spec.name} is at those is "
                "not known here: estimate another precision (model.float(), precision='float16'), or profile on the "
                "device"
            )

    def _convolution(self, name: str, args: Any, result: Any) -> Cost:
        backward = name == "convolution_backward"
        source, weight = args[1:3] if backward else args[:2]
        outside = args[0] if backward else result
        self._check(source)
        settings = args[4:10] if backward else args[3:9]
        wanted = args[10] if backward else None
        cost = self.convolutions.own(source, weight, outside, settings, wanted)
        bias_ms = 0.0
        if wanted is not None and wanted[2]:
            bias_ms = time_ms(KernelWork(Family.REDUCTION, moved_bytes=bytes_moved(outside)), self.spec)
        elif wanted is None and args[2] is not None:
            # PyTorch adds it afterwards.
            bias_ms = time_ms(KernelWork(Family.ELEMENTWISE, moved_bytes=2 * bytes_moved(outside)), self.spec)
        return replace(cost, time_ms=cost.time_ms + bias_ms)


def _by_channels_ms(tensor: torch.Tensor, spec: DeviceSpec, *, backward: bool) -> float:
    """PyTorch's own batch normalisation has a block for each channel, which reads as fast as it can wait for memory.

    Forward that holds for the statistics, backward for all five passes.
    """
    moved = bytes_moved(tensor)
    channels = tensor.shape[1] if tensor.dim() > 1 else 1
    if backward:
        return 5 * moved / (channels * _BLOCK_BACKWARD_GB_S * 1e6)
    return moved / (channels * _BLOCK_GB_S * 1e6) + 2e3 * moved / byte_rate(spec, Family.ELEMENTWISE)


_BLOCK_GB_S, _BLOCK_BACKWARD_GB_S = 4.5, 10.0
"""Of a block of 512 threads on an H200."""
_ALIGNED, _UNALIGNED = 8, 0.25
"""Matrix cores want rows of half precision to begin at 16 bytes; else an H200 takes four to six times as long."""
_PRODUCTS = {"mm", "bmm", "addmm", "addmm_", "baddbmm", "mv", "addmv", "dot", "_grouped_mm"}


def _product_flops(first: torch.Tensor, second: torch.Tensor) -> float:
    """Rows and columns are padded to tiles of 64 and 128, or to a tile's half and quarter where that is all."""
    if second.dim() == 1:
        return 2.0 * first.numel()
    if second.dim() != first.dim():  # of groups: each row, or column, is of one of them
        outer, inner = (prod(x.shape[-2:]) if x.dim() == 2 else x.shape[n] for x, n in ((first, -2), (second, -1)))
        return 2.0 * outer * inner
    *batch, rows, inner = first.shape
    columns = second.shape[-1]
    return 2.0 * prod(batch) * _tiled(rows) * _tiled(columns) * (inner + 16)


def _tiled(amount: int) -> int:
    tile = _TILE if amount > _TILE else _TILE // 4
    return -(-amount // tile) * tile


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def _layouts(value: Any) -> Any:
    """Equal for arguments of the same layouts, and plain ones of the same types and values."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.device.type
    if isinstance(value, tuple | list):
        return tuple(map(_layouts, value))
    return type(value), value


def _moves(func: Any) -> bool:
    """Does it change the layout of the tensor that it works on in place?"""
    return torch.Tag.inplace_view in func.tags


def _bytes_of(layout: Layout) -> int:
    shape, strides, dtype = layout
    return prod(size for size, stride in zip(shape, strides, strict=True) if stride or size <= 1) * dtype.itemsize


def bytes_moved(tensor: torch.Tensor) -> int:
    """What is moved to read or write it once; expanded dimensions count once."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size <= 1)
    return prod(sizes) * tensor.element_size()
