"""Gist's encodings of what waits for the backward pass: sparse storage, and reduced precision.

Jain et al., ISCA 2018, as MONeT's appendix E describes them. Both belong to a capture only if it is asked for them.
*Sparse storage, dense compute*: the output of a ReLU, or of a max-pooling behind one, as compressed sparse rows of 256
columns, so that a column takes one byte. It loses nothing; how much memory it takes depends on the values, and the
graph counts with an assumed density. *Delayed precision reduction*: everything else in 16, 10 or 8 bits, after the
forward pass has used it in full. It is lossy. Operators compute on the decoded tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.bits import in_memory_order
from explorer.operators.registry import Variant, all_arguments, auxiliary, is_dense, value_of

aten = torch.ops.aten
FORMATS = {"fp16": 16, "fp10": 10.67, "fp8": 8}
"""Bits a number takes: three of ten share four bytes."""
_COLUMNS = 256
_CHUNK = 2**18  # elements that are encoded or decoded at a time: what takes workspace
_MANY = 1024  # feature maps have more elements than that
_LARGEST = {"fp16": 65504.0, "fp10": 63488.0, "fp8": 448.0}
_POOLED = (aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)


@dataclass(frozen=True, slots=True)
class Encoding:
    """Which of Gist's encodings a capture offers.

    Attributes:
        precision: ``"fp16"``, ``"fp10"`` or ``"fp8"``; None: no reduced precision, so nothing is lost.
        density: share of elements other than zero that sparse storage is counted with. What it takes in a step is
            what the values need.
    """

    precision: str | None = None
    density: float = 0.5

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown precision, or a density that is no share."""
        if self.precision not in (None, *FORMATS):
            allowed = ", ".join(map(repr, ("lossless", *FORMATS)))
            raise ValueError(f"encoding is {self.precision!r}; allowed: {allowed}")
        if not 0 < self.density <= 1:
            raise ValueError(f"density is {self.density}; it must be above 0 and at most 1")

    @classmethod
    def of(cls, encoding: Encoding | str) -> Encoding:
        """From what users write: ``"lossless"`` or a precision."""
        if isinstance(encoding, Encoding):
            return encoding
        return cls(None if encoding == "lossless" else encoding)


def encoded_variants(node: fx.Node, encoding: Encoding, forward: set[fx.Node]) -> Iterator[Variant]:
    """Ways to run a backward call that read a feature map encoded: one for each that it reads.

    Args:
        node: a call of the backward pass.
        encoding: what is wanted.
        forward: calls of the forward pass.
    """
    for position, source in enumerate(node.args):
        if not isinstance(source, fx.Node) or not _is_feature_map(source, forward):
            continue
        code = _code(source, encoding)
        if code is None:
            continue
        sparse = code.startswith("csr")
        optimization = Optimization.LOSSY if encoding.precision else Optimization.SPARSE
        args = (source, code, encoding.density) if sparse else (source, code)
        # Results of one call go by their number.
        name = code if source.target is not operator.getitem or source.args[1] == 0 else f"{code} of {source.args[1]}"
        made = auxiliary(source, name, encode_sparse if sparse else encode_dense, *args, optimization=optimization)
        if sparse:
            source.meta["explorer.density"] = encoding.density
        value = value_of(source)
        layout = (list(value.shape), list(value.stride()), value.dtype)
        rest = tuple(None if at == position else x for at, x in enumerate(node.args))
        if source not in rest:
            yield Variant(
                f"argument {position} from {code}",
                call_decoded,
                (made, *layout, code, node.target, position, *rest),
                kwargs=dict(node.kwargs),
                exact=False,
                optimization=optimization,
            )


def _is_feature_map(node: fx.Node, forward: set[fx.Node]) -> bool:
    """Something that the forward pass computes, with room and places: (N, C, …)."""
    call = node.args[0] if node.target is operator.getitem else node
    value = node.meta.get("val")
    if call not in forward or not isinstance(value, torch.Tensor) or value.dtype is not torch.float32:
        return False
    return value.dim() >= 3 and value.numel() >= _MANY and is_dense(node) and value.storage_offset() == 0


def _code(source: fx.Node, encoding: Encoding) -> str | None:
    """The smaller of what may be had: compressed rows where zeros are many, reduced precision, or nothing."""
    count = value_of(source).numel()
    candidates = {}
    if encoding.precision:
        candidates[encoding.precision] = dense_bytes(count, encoding.precision)
    if _has_zeros(source):
        code = f"csr {encoding.precision}" if encoding.precision else "csr"
        candidates[code] = sparse_bytes(count, round(encoding.density * count), code)
    smallest = min(candidates, key=candidates.__getitem__, default=None)
    return smallest if smallest is not None and candidates[smallest] < 4 * count else None


def _has_zeros(source: fx.Node) -> bool:
    call = source.args[0] if source.target is operator.getitem else source
    if isinstance(call, fx.Node) and call.target in _POOLED and source.args[1:] == (0,):
        call = call.args[0]
    if not isinstance(call, fx.Node):
        return False
    return call.target is aten.relu.default or (call.target is aten.hardtanh.default and all_arguments(call)[1] == 0)


def dense_bytes(count: int, code: str) -> int:
    """What ``count`` numbers take in a format; ``"csr"`` stands for their own."""
    if code == "fp10":
        return 4 * -(-count // 3)
    return count * {"csr": 4, "fp16": 2, "fp8": 1}[code]


def sparse_bytes(count: int, nonzero: int, code: str) -> int:
    """What compressed rows take: where each begins, a column for each number, the numbers."""
    rows = -(-count // _COLUMNS)
    return 4 * (rows + 1) + _whole_words(nonzero) + dense_bytes(nonzero, code.removeprefix("csr "))


def _whole_words(size: int) -> int:
    return 4 * -(-size // 4)


def encode_dense(source: torch.Tensor, code: str) -> torch.Tensor:
    """All elements in the order in which they are stored, in reduced precision, as bytes."""
    elements = in_memory_order(source)
    encoded = torch.empty(dense_bytes(elements.numel(), code), dtype=torch.uint8, device=source.device)
    step = _CHUNK // 3 * 3
    for start in range(0, elements.numel(), step):
        part = elements[start : start + step]
        place = dense_bytes(start, code)
        encoded[place : place + dense_bytes(part.numel(), code)] = _reduced(part, code)
    return encoded


def encode_sparse(source: torch.Tensor, code: str, density: float) -> torch.Tensor:  # noqa: ARG001 - see nominal_sparse
    """Compressed sparse rows of 256 columns, as bytes: where rows begin (int32), columns (uint8), numbers."""
    elements = in_memory_order(source)
    parts = [x.ne(0) for x in elements.split(_CHUNK)]
    counts = torch.cat([_by_row(x) for x in parts])
    begins = torch.zeros(len(counts) + 1, dtype=torch.int32, device=source.device)
    torch.cumsum(counts, 0, dtype=torch.int32, out=begins[1:])
    total = int(begins[-1])
    precision = code.removeprefix("csr ")
    encoded = torch.empty(sparse_bytes(elements.numel(), total, code), dtype=torch.uint8, device=source.device)
    heads, tails = 4 * len(begins), 4 * len(begins) + _whole_words(total)
    encoded[:heads] = begins.view(torch.uint8)
    numbers = torch.empty(total, dtype=source.dtype, device=source.device)
    done = 0
    for start, mask in enumerate(parts):
        places = mask.nonzero().squeeze(1)
        encoded[heads + done : heads + done + len(places)] = places.bitwise_and(_COLUMNS - 1).to(torch.uint8)
        numbers[done : done + len(places)] = elements[start * _CHUNK : start * _CHUNK + mask.numel()][places]
        done += len(places)
    encoded[tails:] = numbers.view(torch.uint8) if precision == "csr" else _reduced(numbers, precision)
    return encoded


def nominal_sparse(source: torch.Tensor, code: str, density: float) -> torch.Tensor:
    """Bytes as ``encode_sparse`` makes them of a tensor with that share of elements other than zero."""
    size = sparse_bytes(source.numel(), round(density * source.numel()), code)
    return torch.empty(size, dtype=torch.uint8, device=source.device)


encode_sparse.nominal = nominal_sparse  # type: ignore[attr-defined]  # its size is known from values alone


def decode(
    encoded: torch.Tensor, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, code: str
) -> torch.Tensor:
    """The tensor again, in full precision."""
    result = torch.empty_strided(shape, strides, dtype=dtype, device=encoded.device)
    elements = in_memory_order(result)
    if code.startswith("csr"):
        _decode_sparse(encoded, elements, code.removeprefix("csr "))
        return result
    step = _CHUNK // 3 * 3
    for start in range(0, elements.numel(), step):
        part = elements[start : start + step]
        place = dense_bytes(start, code)
        part.copy_(_restored(encoded[place : place + dense_bytes(part.numel(), code)], part.numel(), code))
    return result


def _decode_sparse(encoded: torch.Tensor, elements: torch.Tensor, precision: str) -> None:
    elements.zero_()
    heads = 4 * (-(-elements.numel() // _COLUMNS) + 1)
    begins = encoded[:heads].view(torch.int32)
    total = int(begins[-1])
    tails = heads + _whole_words(total)
    numbers = (
        encoded[tails:].view(torch.float32) if precision == "csr" else _restored(encoded[tails:], total, precision)
    )
    rows = _CHUNK // _COLUMNS
    for first in range(0, len(begins) - 1, rows):
        ends = begins[first : first + rows + 1].long()
        low, high = int(ends[0]), int(ends[-1])
        row = torch.repeat_interleave(ends.diff())
        places = row.mul_(_COLUMNS).add_(encoded[heads + low : heads + high])
        elements[first * _COLUMNS : (first + rows) * _COLUMNS].index_copy_(
            0, places, numbers[low:high].to(elements.dtype)
        )


def _by_row(mask: torch.Tensor) -> torch.Tensor:
    """How many are set in each 256; the last row may be shorter."""
    missing = -mask.numel() % _COLUMNS
    padded = torch.nn.functional.pad(mask, (0, missing)) if missing else mask
    return padded.view(-1, _COLUMNS).sum(1)


def _reduced(numbers: torch.Tensor, code: str) -> torch.Tensor:
    """A vector in a format, as bytes: rounded to the nearest, what is too large to the largest; NaN stays."""
    limit = _LARGEST[code]
    clamped = numbers.clamp(-limit, limit)
    if code == "fp8":
        return clamped.to(torch.float8_e4m3fn).view(torch.uint8)
    half = clamped.to(torch.float16)
    if code == "fp16":
        return half.view(torch.uint8)
    # Sign and exponent of a half, 4 of its 10 bits of mantissa: a carry goes over into the exponent, as it should.
    bits = half.view(torch.int16).int().bitwise_and_(0xFFFF).add_(0x20).bitwise_right_shift_(6)
    threes = torch.nn.functional.pad(bits, (0, -bits.numel() % 3)).view(-1, 3)
    packed = threes[:, 0] | (threes[:, 1] << 10) | (threes[:, 2] << 20)
    return packed.view(torch.uint8)


def _restored(encoded: torch.Tensor, count: int, code: str) -> torch.Tensor:
    """The vector again."""
    if code == "fp8":
        return encoded.view(torch.float8_e4m3fn).to(torch.float32)
    if code == "fp16":
        return encoded.view(torch.float16)
    packed = encoded.view(torch.int32)
    threes = torch.stack([packed & 0x3FF, (packed >> 10) & 0x3FF, (packed >> 20) & 0x3FF], 1)
    return (threes << 6).to(torch.int16).view(torch.float16).view(-1)[:count]


def call_decoded(
    encoded: torch.Tensor,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: torch.dtype,
    code: str,
    kernel: Any,
    position: int,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """PyTorch's own kernel on the decoded tensor, which is its argument number ``position``."""
    source = decode(encoded, shape, strides, dtype, code)
    return kernel(*args[:position], source, *args[position + 1 :], **kwargs)
