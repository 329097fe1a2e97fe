"""Truth values as bits, eight to a byte: byte j holds elements j, j + m, …, j + 7m, where m is the number of bytes.

So laid out, every bit of all bytes is one contiguous eighth of the tensor, and no step needs much memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from explorer.torch_private import is_dense

_WORTH_CUTTING = 4096
"""Elements from which on eight products of an eighth are worth their memory."""
_SIGNED = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """All elements of a dense tensor as a vector, in the order in which they are stored."""
    return tensor.as_strided((tensor.numel(),), (1,))


def pack(source: torch.Tensor, condition: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """One bit for each element, in memory order.

    Args:
        source: dense.
        condition: gets a vector and returns truth values.
    """
    elements = in_memory_order(source)
    count = -(-elements.numel() // 8)
    packed = torch.zeros(count, dtype=torch.uint8, device=source.device)
    for bit, part in enumerate(_eighths(elements, count)):
        packed[: part.numel()].add_(condition(part).view(torch.uint8), alpha=1 << bit)
    return packed


def select(source: torch.Tensor, packed: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``source`` where the bit is set, +0.0 elsewhere, whatever the value there (NaN too), written to ``out``.

    Args:
        source: dense.
        packed: its bits.
        out: of the same layout, or ``source`` itself.
    """
    signed = _SIGNED[source.element_size()]
    for bit, part, chosen, result in _eighths_of(source, packed, out):
        torch.bitwise_and(part.view(signed), _ones(chosen, bit).to(signed), out=result.view(signed))
    return out


def multiply(source: torch.Tensor, packed: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``source`` times its bits (so that NaN and infinity stay or become NaN), written to ``out``; as ``select``."""
    for bit, part, chosen, result in _eighths_of(source, packed, out):
        torch.mul(part, chosen.bitwise_right_shift(bit).bitwise_and_(1), out=result)
    return out


def multiply_by_truth(source: torch.Tensor, mask: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """``source`` times truth values, written to ``out``, which may be ``source`` itself.

    On the CPU a product of two dtypes makes a copy of the truth values as numbers first; so of an eighth at a time.
    """
    alike = source.shape == mask.shape and source.stride() == mask.stride() == out.stride()
    if source.device.type != "cpu" or source.numel() < _WORTH_CUTTING or not (alike and is_dense(source)):
        return torch.mul(source, mask, out=out)
    count = -(-source.numel() // 8)
    for part, chosen, result in zip(*(_eighths(in_memory_order(x), count) for x in (source, mask, out)), strict=True):
        torch.mul(part, chosen, out=result)
    return out


def _ones(packed: torch.Tensor, bit: int) -> torch.Tensor:
    """All eight bits set where ``bit`` is, none elsewhere: as signed numbers, −1 and 0."""
    return packed.view(torch.int8).bitwise_left_shift(7 - bit).bitwise_right_shift_(7)


def _eighths_of(
    source: torch.Tensor, packed: torch.Tensor, out: torch.Tensor
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Each bit with the elements it is for, its bytes, and the place for the result."""
    count = packed.numel()
    pairs = zip(_eighths(in_memory_order(source), count), _eighths(in_memory_order(out), count), strict=True)
    for bit, (part, result) in enumerate(pairs):
        yield bit, part, packed[: part.numel()], result


def _eighths(elements: torch.Tensor, count: int) -> Iterator[torch.Tensor]:
    for start in range(0, 8 * count, count or 1):
        yield elements[start : start + count]
