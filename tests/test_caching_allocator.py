"""Each rule of PyTorch's caching allocator by hand; functions named are those of c10/cuda/CUDACachingAllocator.cpp."""

from __future__ import annotations

import itertools
import random

import pytest

from explorer.caching_allocator import Block, CachingAllocator, DeviceFullError, round_size, segment_size

KIB, MIB = 2**10, 2**20


@pytest.mark.parametrize(("asked", "taken"), [(0, 512), (1, 512), (512, 512), (513, 1024), (MIB + 1, MIB + 512)])
def test_sizes_are_rounded_to_512_bytes(asked: int, taken: int) -> None:
    """``round_size``"""
    assert round_size(asked) == taken


@pytest.mark.parametrize(
    ("asked", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ],
)
def test_segments_are_of_2_or_20_mib_or_of_their_own_size(asked: int, segment: int) -> None:
    """``get_allocation_size``"""
    assert segment_size(asked) == segment
    allocator = CachingAllocator()
    allocator.malloc(asked)
    assert allocator.reserved_bytes == segment


def test_small_blocks_share_a_segment_and_keep_out_of_large_ones() -> None:
    """``get_pool``"""
    allocator = CachingAllocator()
    large = allocator.malloc(30 * MIB)
    allocator.free(large)
    one, two = allocator.malloc(MIB), allocator.malloc(512)
    assert (one.address, two.address) == (30 * MIB, 31 * MIB)
    assert allocator.reserved_bytes == 32 * MIB


def test_a_small_block_is_split_to_the_last_512_bytes() -> None:
    """``should_split``, of the small pool."""
    allocator = CachingAllocator()
    block = allocator.malloc(MIB)
    allocator.malloc(MIB - 512)
    last = allocator.malloc(512)
    assert (allocator.reserved_bytes, block.bytes, last.address) == (2 * MIB, MIB, 2 * MIB - 512)


def test_a_large_block_is_split_if_more_than_a_mib_would_be_left() -> None:
    """``should_split``, of the large pool: with exactly 1 MiB left the block stays whole, and counts as such."""
    allocator = CachingAllocator()
    assert allocator.malloc(12 * MIB).bytes == 12 * MIB
    allocator.free(allocator.malloc(16 * MIB))
    whole = allocator.malloc(15 * MIB)
    assert whole.bytes == 16 * MIB
    assert allocator.allocated_bytes == 28 * MIB
    allocator.free(whole)
    assert allocator.malloc(15 * MIB - 512).bytes == 15 * MIB - 512
    assert allocator.reserved_bytes == 28 * MIB


def test_the_smallest_block_that_fits_is_taken_and_of_equal_ones_the_first() -> None:
    """``get_free_block`` by ``BlockComparatorSize``."""
    allocator = CachingAllocator()
    blocks = [allocator.malloc(x * MIB) for x in (40, 20, 30, 20)]
    for block in reversed(blocks):
        allocator.free(block)
    assert allocator.malloc(19 * MIB + 1).address == blocks[1].address
    assert allocator.malloc(20 * MIB).address == blocks[3].address
    assert allocator.malloc(20 * MIB).address == blocks[2].address
    assert allocator.reserved_bytes == 110 * MIB


def test_free_neighbours_become_one_block() -> None:
    """``try_merge_blocks``"""
    allocator = CachingAllocator()
    blocks = [allocator.malloc(5 * MIB) for _ in range(4)]
    assert allocator.reserved_bytes == 20 * MIB
    for number in (0, 2, 1):
        allocator.free(blocks[number])
    assert allocator.malloc(15 * MIB).address == 0
    assert allocator.reserved_bytes == 20 * MIB


def test_neighbours_in_use_keep_pieces_apart() -> None:
    """Fragmentation: 15 MiB are free, and no 10 MiB of them together."""
    allocator = CachingAllocator()
    blocks = [allocator.malloc(5 * MIB) for _ in range(8)]
    for number in (0, 2, 4):
        allocator.free(blocks[number])
    allocator.malloc(10 * MIB)
    assert allocator.reserved_bytes == 50 * MIB


def test_segments_do_not_join() -> None:
    allocator = CachingAllocator()
    for block in [allocator.malloc(20 * MIB) for _ in range(2)]:
        allocator.free(block)
    allocator.malloc(40 * MIB)
    assert allocator.reserved_bytes == 80 * MIB


def test_a_full_device_has_whole_free_segments_returned_first() -> None:
    """``release_cached_blocks``; a segment with one block in use stays."""
    allocator = CachingAllocator(limit_bytes=60 * MIB)
    free, kept, other = allocator.malloc(20 * MIB), allocator.malloc(5 * MIB), allocator.malloc(5 * MIB)
    small = allocator.malloc(512)
    for block in (free, other, small):
        allocator.free(block)
    assert allocator.reserved_bytes == 42 * MIB
    allocator.malloc(40 * MIB)
    assert allocator.flushes == 1
    assert allocator.reserved_bytes == 60 * MIB
    allocator.free(kept)


def test_a_device_that_is_too_small_says_so() -> None:
    allocator = CachingAllocator(limit_bytes=30 * MIB)
    allocator.malloc(12 * MIB)
    with pytest.raises(DeviceFullError):
        allocator.malloc(20 * MIB)


def test_an_expandable_segment_grows_by_pages() -> None:
    """``map_block``: pages of 20 MiB, of small blocks 2 MiB."""
    allocator = CachingAllocator(expandable=True)
    one = allocator.malloc(15 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    two = allocator.malloc(15 * MIB)
    assert two.address == one.address + 15 * MIB
    assert allocator.reserved_bytes == 40 * MIB
    allocator.malloc(512)
    assert allocator.reserved_bytes == 42 * MIB


def test_what_is_free_at_its_end_grows() -> None:
    """``try_allocate_expandable_block``: free and unmapped memory together."""
    allocator = CachingAllocator(expandable=True)
    allocator.malloc(15 * MIB)
    last = allocator.malloc(20 * MIB)
    allocator.free(last)
    again = allocator.malloc(40 * MIB)
    assert again.address == last.address
    assert allocator.reserved_bytes == 60 * MIB


def test_an_expandable_segment_is_split_to_the_last_512_bytes() -> None:
    """``should_split``, with expandable segments."""
    allocator = CachingAllocator(expandable=True)
    assert allocator.malloc(20 * MIB - 512).bytes == 20 * MIB - 512


def test_a_full_device_has_whole_free_pages_returned_and_filled_again_from_below() -> None:
    """``unmap_block`` and ``find_expandable_block``."""
    allocator = CachingAllocator(expandable=True, limit_bytes=80 * MIB)
    low, kept = allocator.malloc(50 * MIB), allocator.malloc(10 * MIB)
    allocator.free(low)
    allocator.malloc(60 * MIB)
    assert allocator.flushes == 1
    assert allocator.reserved_bytes == 80 * MIB
    fresh = CachingAllocator(expandable=True, limit_bytes=100 * MIB)
    low, kept = fresh.malloc(50 * MIB), fresh.malloc(10 * MIB)
    address = low.address
    fresh.free(low)
    with pytest.raises(DeviceFullError):
        fresh.malloc(90 * MIB)
    assert fresh.reserved_bytes == 20 * MIB
    assert fresh.malloc(30 * MIB).address == address
    fresh.free(kept)


def test_the_block_that_can_grow_is_spared_for_a_larger_one() -> None:
    """``get_free_block``: with expandable segments, the last block counts as large as it can become."""
    allocator = CachingAllocator(expandable=True)
    blocks = [allocator.malloc(x * MIB) for x in (12, 3, 5)]
    allocator.free(blocks[0])
    allocator.free(blocks[2])
    assert allocator.malloc(4 * MIB).address == blocks[0].address


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("limit_bytes", [None, 150 * MIB])
def test_blocks_never_overlap_and_nothing_is_lost(*, expandable: bool, limit_bytes: int | None) -> None:
    draw = random.Random(0)
    allocator = CachingAllocator(limit_bytes=limit_bytes, expandable=expandable)
    used: list[Block] = []
    for _ in range(3000):
        if used and draw.random() < 0.5:
            allocator.free(used.pop(draw.randrange(len(used))))
            continue
        try:
            used.append(allocator.malloc(int(2 ** draw.uniform(0, 25))))
        except DeviceFullError:
            assert limit_bytes is not None
        spans = sorted((x.address, x.address + x.bytes) for x in used)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        assert allocator.allocated_bytes == sum(x.bytes for x in used) <= allocator.reserved_bytes
        assert limit_bytes is None or allocator.reserved_bytes <= limit_bytes
    for block in used:
        allocator.free(block)
    allocator.limit_bytes = allocator.reserved_bytes
    with pytest.raises(DeviceFullError):
        allocator.malloc(2**45)
    assert allocator.reserved_bytes == 0
