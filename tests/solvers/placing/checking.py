"""A judge of placements that shares nothing with what makes them."""

from __future__ import annotations

from collections.abc import Iterable


def overlapping(
    starts: Iterable[int], ends: Iterable[int], offsets: Iterable[int], sizes: Iterable[int]
) -> list[tuple[int, int]]:
    """Pairs that share a byte at some time; an end is no longer part of a life."""
    known = [tuple(map(int, x)) for x in zip(starts, ends, offsets, sizes, strict=True)]
    return [
        (i, j)
        for i, (start, end, low, size) in enumerate(known)
        for j, (other_start, other_end, other_low, other_size) in enumerate(known[:i])
        if max(start, other_start) < min(end, other_end)
        and max(low, other_low) < min(low + size, other_low + other_size)
    ]
