"""What a call does, kernel by kernel: it runs on tensors without memory while every operator of ATen is seen."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.capture.building import Call
from explorer.device_profile import Cost, round_up
from explorer.execution.device import CUDA_ROUNDING_BYTES
from explorer.operators.convolution_algorithms import Geometry
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.operators.fusing import fused
from explorer.operators.groups import Layout
from explorer.profiling.convolution_costs import Part, convolution_cost
from explorer.profiling.devices import DeviceSpec
from explorer.profiling.rates import Family, KernelWork, time_ms
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
    "native_layer_norm": 0,
    "native_layer_norm_backward": 2,
    "native_group_norm": 1,
    "native_group_norm_backward": 2,
    "_softmax": 0,
    "_log_softmax": 0,
    "_softmax_backward_data": 2,
    "_log_softmax_backward_data": 2,
}


@dataclass(frozen=True, slots=True)
class Precisions:
    """In what float32 products are computed.

    Attributes:
        matmul: ``"float32"`` or ``"tf32"``.
        convolution: likewise.
    """

    matmul: str
    convolution: str


class Counting:
    """Estimates captured calls for one device; operators that several of them run with the same layouts, once."""

    def __init__(self, spec: DeviceSpec, precisions: Precisions) -> None:
        """For a device, and products of float32 in ``precisions``."""
        self._prices = _Prices(spec, precisions)
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
            result = func(*args, **kwargs)
            if all(x.device.type == "cpu" for x in _tensors((args, result))):
                return result  # an optimizer counts its steps there
            seen = self.seen[key] = self._first(func, args, kwargs, result)
        for tensor in _tensors(result):
            self._own(tensor)
        self.time_ms += seen.cost.time_ms
        inside_bytes = round_up(seen.cost.workspace_bytes, CUDA_ROUNDING_BYTES)
        self.peak_bytes = max(self.peak_bytes, self.now_bytes + inside_bytes)
        return result

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

    def __init__(self, spec: DeviceSpec, precisions: Precisions) -> None:
        self.spec = spec
        self.precisions = precisions

    def cost(self, func: Any, args: Any, kwargs: Any, result: Any) -> Cost:
        """Of one that has run."""
        name = func.overloadpacket.__name__
        if name in ("convolution", "convolution_backward"):
            return self._convolution(name, args, result)
        return Cost(time_ms(self._work(name, args, kwargs, result), self.spec), 0)

    def fused(self, call: Call) -> Cost:
        """One kernel that reads and writes once what goes in and comes out; another one where it sums over rows."""
        group, given = call.args
        moved = sum(bytes_moved(x.meta["val"]) for x in given) + sum(map(_bytes_of, group.layouts))
        kernels = 1 + any(len(y[0]) < len(group.given[0][0]) for y in group.layouts)
        return Cost(time_ms(KernelWork(Family.ELEMENTWISE, moved_bytes=moved, kernels=kernels), self.spec), 0)

    def _work(self, name: str, args: Any, kwargs: Any, result: Any) -> KernelWork:
        read = _tensors((args, kwargs))
        made = _tensors(result)
        if not made and args:
            made = _tensors(args[0])  # what works on lists in place returns nothing
        moved = sum(map(bytes_moved, read)) + sum(map(bytes_moved, made))
        if name in _PRODUCTS:
            first, second = read[-2:] if name in ("addmm", "addmm_", "baddbmm", "addmv") else read[:2]
            return KernelWork(
                Family.MATMUL, _product_flops(first, second), moved, self._precision(first, self.precisions.matmul)
            )
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
        names = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
        return names.get(tensor.dtype, single)

    def _convolution(self, name: str, args: Any, result: Any) -> Cost:
        backward = name == "convolution_backward"
        source, weight = args[1:3] if backward else args[:2]
        outside = args[0] if backward else result
        settings = args[4:10] if backward else args[3:9]
        geometry = geometry_of(source, weight, *settings)
        wanted = args[10] if backward else [True, False, False]
        parts = (Part.INPUT_GRADIENT, Part.WEIGHT_GRADIENT) if backward else (Part.FORWARD,)
        costs = [
            own_convolution(part, geometry, tuple(outside.shape), spec=self.spec, precisions=self.precisions)
            for part, asked in zip(parts, wanted, strict=False)
            if asked
        ]
        bias_ms = 0.0
        if backward and wanted[2]:
            bias_ms = time_ms(KernelWork(Family.REDUCTION, moved_bytes=bytes_moved(outside)), self.spec)
        elif not backward and args[2] is not None:
            # PyTorch adds it afterwards.
            bias_ms = time_ms(KernelWork(Family.ELEMENTWISE, moved_bytes=2 * bytes_moved(outside)), self.spec)
        return Cost(sum(x.time_ms for x in costs) + bias_ms, max((x.workspace_bytes for x in costs), default=0))


_PRODUCTS = {"mm", "bmm", "addmm", "addmm_", "baddbmm", "mv", "addmv", "dot"}


def own_convolution(
    part: Part, geometry: Geometry, result: tuple[int, ...], *, spec: DeviceSpec, precisions: Precisions
) -> Cost:
    """What PyTorch chooses by itself: GEMM with a table, as on the P100 in every layer that MONeT measured."""
    if geometry.groups > 1 and geometry.groups == geometry.source[1]:
        return _depthwise(part, geometry, result, spec)
    precision = convolution_precision(geometry.dtype, precisions)
    return convolution_cost(Algorithms.PRECOMPUTED, part, geometry, result, spec=spec, precision=precision)


def _depthwise(part: Part, geometry: Geometry, result: tuple[int, ...], spec: DeviceSpec) -> Cost:
    """PyTorch's own kernels for one channel a group: every place of a window is read for itself."""
    size = geometry.dtype.itemsize
    moved = (prod(geometry.source) + prod(result)) * size
    flops = 2.0 * prod(result) * prod(geometry.weight[1:])
    kernels = 2 if part is Part.WEIGHT_GRADIENT else 1
    return Cost(time_ms(KernelWork(Family.DEPTHWISE, flops, moved, kernels=kernels), spec), 0)


def convolution_precision(dtype: torch.dtype, precisions: Precisions) -> str:
    """Of a convolution's products."""
    return {torch.float16: "float16", torch.bfloat16: "bfloat16"}.get(dtype, precisions.convolution)


def geometry_of(source: torch.Tensor, weight: torch.Tensor, *settings: Any) -> Geometry:
    """Of a convolution of ATen on a CUDA device."""
    stride, padding, dilation, transposed, output_padding, groups = settings
    count = len(stride)
    return Geometry(
        source=tuple(source.shape),
        weight=tuple(weight.shape),
        stride=tuple(stride),
        padding=tuple(padding) * (count // len(padding)),
        dilation=tuple(dilation),
        transposed=transposed,
        output_padding=tuple(output_padding),
        groups=groups,
        dtype=source.dtype,
        device="cuda",
    )


def _product_flops(first: torch.Tensor, second: torch.Tensor) -> float:
    """Rows and columns are padded to tiles of 64 and 128, or to a tile's half and quarter where that is all."""
    if second.dim() == 1:
        return 2.0 * first.numel()
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
