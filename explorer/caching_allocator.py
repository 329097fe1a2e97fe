"""PyTorch's CUDA caching allocator, rule by rule, for one stream, with no device.

Each rule names its function in ``c10/cuda/CUDACachingAllocator.cpp`` (PyTorch 2.11; the defaults of
``PYTORCH_CUDA_ALLOC_CONF``, with or without ``expandable_segments:True``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

MIB = 2**20
SMALLEST_BLOCK_BYTES = 512
"""``kMinBlockSize``: sizes are rounded up to multiples of it."""
SMALL_BYTES = MIB
"""``kSmallSize``: up to here, from the pool of small blocks; a large block is split if more than this would be left."""
SMALL_SEGMENT_BYTES = 2 * MIB
"""``kSmallBuffer``"""
LARGE_SEGMENT_BYTES = 20 * MIB
"""``kLargeBuffer``: what is asked of the device for a block of less than ``OWN_SEGMENT_BYTES``."""
OWN_SEGMENT_BYTES = 10 * MIB
"""``kMinLargeAlloc``: from here on, a segment of its own size, rounded up to ``SEGMENT_ROUNDING_BYTES``."""
SEGMENT_ROUNDING_BYTES = 2 * MIB
"""``kRoundLarge``"""

EXPANDABLE_ROOM_BYTES = 2**50 // LARGE_SEGMENT_BYTES * LARGE_SEGMENT_BYTES
"""Addresses of an expandable segment: more than any device has, of whole pages; large blocks' begins behind so many."""


class DeviceFullError(Exception):
    """The device has too little memory, also after all that is cached was returned to it."""


@dataclass(slots=True, eq=False)
class Block:
    """A stretch of a segment: in use, free, or, in an expandable segment, without memory behind it.

    Attributes:
        address: of its first byte.
        bytes: its size.
        small: belongs to the pool of small blocks.
        free: nobody uses it.
        mapped: there is memory behind it.
        before: its neighbour in the segment, if there is one.
        after: the neighbour behind it.
    """

    address: int
    bytes: int
    small: bool
    free: bool = False
    mapped: bool = True
    before: Block | None = None
    after: Block | None = None

    @property
    def whole(self) -> bool:
        """Is it all of its segment?"""
        return self.before is None and self.after is None


@dataclass(eq=False)
class _Pool:
    """Blocks of one kind that wait for their next use: by size, then by address (``BlockComparatorSize``)."""

    small: bool
    blocks: list[tuple[int, int, Block]] = field(default_factory=list)
    unmapped: list[tuple[int, Block]] = field(default_factory=list)

    def add(self, block: Block) -> None:
        insort(self.blocks, (block.bytes, block.address, block))  # no two have one address

    def remove(self, block: Block) -> None:
        at = bisect_left(self.blocks, (block.bytes, block.address))
        assert self.blocks[at][2] is block
        del self.blocks[at]

    def add_unmapped(self, block: Block) -> None:
        insort(self.unmapped, (block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        at = bisect_left(self.unmapped, (block.address,))
        assert self.unmapped[at][1] is block
        del self.unmapped[at]


@dataclass(eq=False, kw_only=True)
class CachingAllocator:
    """What ``torch.cuda`` would reserve for a sequence of allocations.

    Segments lie one behind the other in the order in which they were asked for: of blocks of the same size the one in
    the oldest segment is taken, where a device's driver decides.

    Attributes:
        limit_bytes: what the device has; None: as much as is asked for.
        expandable: as with ``expandable_segments:True``.
        flushing: give back all that is cached where the limit is in the way, before it is too little.
        allocated_bytes: of the blocks in use (``memory_allocated``).
        reserved_bytes: of all segments (``memory_reserved``).
        flushes: how often all that was cached went back to the device (``num_alloc_retries``).
        segments: bytes of each segment that is there, by its address; none for expandable ones.
    """

    limit_bytes: int | None = None
    expandable: bool = False
    flushing: bool = True
    allocated_bytes: int = field(default=0, init=False)
    reserved_bytes: int = field(default=0, init=False)
    flushes: int = field(default=0, init=False)
    segments: dict[int, int] = field(default_factory=dict, init=False)
    _pools: dict[bool, _Pool] = field(default_factory=lambda: {x: _Pool(small=x) for x in (True, False)}, init=False)
    _next_address: int = field(default=0, init=False)

    def malloc(self, size_bytes: int) -> Block:
        """A block of at least so many bytes.

        Raises:
            DeviceFullError: the limit is in the way.
        """
        size_bytes = round_size(size_bytes)
        pool = self._pools[size_bytes <= SMALL_BYTES]  # get_pool
        block = self._cached(pool, size_bytes) or self._fresh(pool, size_bytes)
        if block is None and self.flushing:
            # malloc: release_available_cached_blocks does nothing without max_split_size_mb.
            self.flushes += 1
            self.empty_cache()
            block = self._fresh(pool, size_bytes)
        if block is None:
            raise DeviceFullError
        if self._splits(block, size_bytes):
            rest = Block(block.address + size_bytes, block.bytes - size_bytes, pool.small, free=True)
            _insert_after(block, rest)
            block.bytes = size_bytes
            pool.add(rest)
        block.free = False
        self.allocated_bytes += block.bytes
        return block

    def free(self, block: Block) -> None:
        """Give a block back to its pool, joined with its free neighbours (``free_block``)."""
        assert not block.free
        self.allocated_bytes -= block.bytes
        block.free = True
        self._join_and_add(block)

    def empty_cache(self) -> None:
        """``release_cached_blocks``: every segment without a block in use goes back; of expandable ones, free pages."""
        for pool in (self._pools[False], self._pools[True]):
            for _, _, block in list(pool.blocks):
                if self.expandable:
                    self._unmap(pool, block)
                elif block.whole:
                    pool.remove(block)
                    self.reserved_bytes -= self.segments.pop(block.address)

    def _cached(self, pool: _Pool, size_bytes: int) -> Block | None:
        """``get_free_block``: the smallest that is large enough, and of those the first by address."""
        at = bisect_left(pool.blocks, (size_bytes,))
        if at == len(pool.blocks):
            return None
        if self.expandable:
            # There, the size that a block can grow to counts, as long as the next larger one can grow less.
            while at + 1 < len(pool.blocks) and _could_be(pool.blocks[at + 1][2]) < _could_be(pool.blocks[at][2]):
                at += 1
        return pool.blocks.pop(at)[2]

    def _fresh(self, pool: _Pool, size_bytes: int) -> Block | None:
        """``alloc_block``: memory from the device, if it has some."""
        if self.expandable:
            return self._expanded(pool, size_bytes)
        segment_bytes = segment_size(size_bytes)
        if not self._reserve(segment_bytes):
            return None
        address = self._next_address
        self._next_address += segment_bytes
        self.segments[address] = segment_bytes
        return Block(address, segment_bytes, pool.small)

    def _reserve(self, size_bytes: int) -> bool:
        if self.limit_bytes is not None and self.reserved_bytes + size_bytes > self.limit_bytes:
            return False
        self.reserved_bytes += size_bytes
        return True

    def _splits(self, block: Block, size_bytes: int) -> bool:
        """Is the rest worth a block of its own (``should_split``)?"""
        rest = block.bytes - size_bytes
        return rest >= SMALLEST_BLOCK_BYTES if block.small or self.expandable else rest > SMALL_BYTES

    def _join_and_add(self, block: Block) -> None:
        """``try_merge_blocks`` with both neighbours."""
        pool = self._pools[block.small]
        for other in (block.before, block.after):
            if other is None or not other.free or other.mapped != block.mapped:
                continue
            if other.mapped:
                pool.remove(other)
            else:
                pool.remove_unmapped(other)
            if other is block.before:
                block.address = other.address
            block.bytes += other.bytes
            _remove(other)
        if block.mapped:
            pool.add(block)
        else:
            pool.add_unmapped(block)

    def _expanded(self, pool: _Pool, size_bytes: int) -> Block | None:
        """``try_allocate_expandable_block``: map pages where free and unmapped ones together are long enough."""
        block = self._expandable(pool, size_bytes)
        if not block.mapped and not self._map(pool, block, min(block.bytes, size_bytes)):
            return None
        while block.bytes < size_bytes:
            following = block.after
            assert following is not None
            if not self._map(pool, following, min(size_bytes - block.bytes, following.bytes)):
                return None
            block = following  # which has taken in what was free before it
        pool.remove(block)
        return block

    def _expandable(self, pool: _Pool, size_bytes: int) -> Block:
        """``find_expandable_block``: the lowest address that has room."""
        for _, unmapped in pool.unmapped:
            block = unmapped
            if block.before is not None and block.before.free:
                block = block.before
            there, at = 0, block
            while at is not None and at.free:
                there += at.bytes
                at = at.after
            if there >= size_bytes:
                return block
        room = EXPANDABLE_ROOM_BYTES
        block = Block(0 if pool.small else room, room, pool.small, free=True, mapped=False)
        pool.add_unmapped(block)
        return block

    def _map(self, pool: _Pool, block: Block, size_bytes: int) -> bool:
        """``map_block``: put whole pages behind the beginning of an unmapped block."""
        page = _page_bytes(pool)
        mapped_bytes = -(-size_bytes // page) * page
        if not self._reserve(mapped_bytes):
            return False
        pool.remove_unmapped(block)
        if mapped_bytes < block.bytes:
            rest = Block(block.address + mapped_bytes, block.bytes - mapped_bytes, pool.small, free=True, mapped=False)
            _insert_after(block, rest)
            pool.add_unmapped(rest)
            block.bytes = mapped_bytes
        block.mapped = True
        self._join_and_add(block)
        return True

    def _unmap(self, pool: _Pool, block: Block) -> None:
        """``unmap_block``: give back the pages that lie within a free block."""
        page = _page_bytes(pool)
        first = -(-block.address // page) * page
        last = (block.address + block.bytes) // page * page
        if last <= first:
            return
        pool.remove(block)
        self.reserved_bytes -= last - first
        if first > block.address:
            before = Block(block.address, first - block.address, pool.small, free=True)
            if block.before is not None:
                _insert_after(block.before, before)
            else:
                before.after, block.before = block, before
            pool.add(before)
        if last < block.address + block.bytes:
            after = Block(last, block.address + block.bytes - last, pool.small, free=True)
            _insert_after(block, after)
            pool.add(after)
        block.address, block.bytes, block.mapped = first, last - first, False
        self._join_and_add(block)


def round_size(size_bytes: int) -> int:
    """``round_size``: what a block of so many bytes takes."""
    return max(1, -(-size_bytes // SMALLEST_BLOCK_BYTES)) * SMALLEST_BLOCK_BYTES


def segment_size(size_bytes: int) -> int:
    """``get_allocation_size``: what is asked of the device for a block."""
    if size_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size_bytes < OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size_bytes // SEGMENT_ROUNDING_BYTES) * SEGMENT_ROUNDING_BYTES


def _page_bytes(pool: _Pool) -> int:
    """What is mapped at once (note "Expandable Segments")."""
    return SMALL_SEGMENT_BYTES if pool.small else LARGE_SEGMENT_BYTES


def _could_be(block: Block) -> int:
    after = block.after
    return block.bytes + (after.bytes if after is not None and not after.mapped else 0)


def _insert_after(block: Block, other: Block) -> None:
    other.before, other.after = block, block.after
    if block.after is not None:
        block.after.before = other
    block.after = other


def _remove(block: Block) -> None:
    if block.before is not None:
        block.before.after = block.after
    if block.after is not None:
        block.after.before = block.before
