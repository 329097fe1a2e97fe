"""What a step makes, as blocks of memory: each with its size and the runs during which it is there."""

from __future__ import annotations

from collections import Counter

import numpy as np

from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.placement import Block, Placement
from explorer.schedule import Run, Schedule
from explorer.timeline import COLUMN, Category, Timeline


def memory_blocks(profile: Profile, schedule: Schedule, timeline: Timeline) -> list[Block]:
    """What is to be placed, in the order of first runs; at offset 0."""
    graph = profile.graph
    own_bytes = timeline.bytes[:, COLUMN[Category.WORKSPACE]] - profile.device.persistent_workspace_bytes
    followers, scratch = _overwritten(profile, schedule, timeline, own_bytes)
    stays = {(x.storage, x.start): x for x in timeline.lifetimes}
    taken = set(followers.values())
    blocks = []
    for key, stay in stays.items():
        if key in taken:
            continue
        chain = [stay]
        while (following := followers.get((chain[-1].storage, chain[-1].start))) is not None:
            chain.append(stays[following])
        size = max(profile.allocated_bytes(graph.storages[x.storage]) for x in chain)
        last = chain[-1].end
        if (chain[-1].storage, chain[-1].start) in scratch:  # it is there while that run works in it
            last += 1
            own_bytes[last] -= size
        blocks.append(Block(tuple(x.storage for x in chain), stay.start, last, 0, size))
    # A storage that a call makes a second time, to be thrown away, counts there too.
    blocks += [Block((), run, run, 0, int(own_bytes[run])) for run in np.flatnonzero(own_bytes).tolist()]
    return sorted(blocks, key=lambda x: (x.first, x.storages))


_Stay = tuple[int, int]
"""A storage, and the run from which on it is there."""


def _overwritten(
    profile: Profile, schedule: Schedule, timeline: Timeline, own_bytes: np.ndarray
) -> tuple[dict[_Stay, _Stay], set[_Stay]]:
    """Where a run works in place: the stay that it ends, to the one that takes its memory.

    Also those whose memory no result takes: the run uses it as scratch memory, and its workspace has these bytes.
    """
    graph = profile.graph
    starts = {(x.storage, x.start) for x in timeline.lifetimes}
    ending = {(x.storage, x.end): (x.storage, x.start) for x in timeline.lifetimes}
    followers: dict[_Stay, _Stay] = {}
    scratch: set[_Stay] = set()
    runs = (step for step in schedule.steps if isinstance(step, Run))
    for number, run in enumerate(runs):
        implementation = graph.operators[run.operator].implementation(run.implementation)
        if implementation.overwrites is None:
            continue
        before = ending[implementation.overwrites, number - 1]
        overwritten = graph.storages[implementation.overwrites]
        made = [x for x in implementation.writes if (x, number) in starts]
        same = [x for x in made if graph.storages[x].bytes == overwritten.bytes]
        if not same and own_bytes[number] >= profile.allocated_bytes(overwritten):
            scratch.add(before)
        elif made:
            followers[before] = ((same or made)[0], number)
    return followers, scratch


def places_exactly(profile: Profile, schedule: Schedule, timeline: Timeline, placement: Placement) -> bool:
    """Has a placement of this schedule the very blocks of this profile, workspaces included?"""
    wanted = memory_blocks(profile, schedule, timeline)
    return Counter(map(_stretch, wanted)) == Counter(map(_stretch, placement.blocks))


def _stretch(block: Block) -> tuple[tuple[int, ...], int, int, int]:
    """Without its address."""
    return block.storages, block.first, block.last, block.bytes


def check_placement(graph: TrainingGraph, placement: Placement, timeline: Timeline) -> None:
    """Does it have a place for each stay of each storage?

    Workspaces and what the allocator rounds up are another device's own, and are no error here.

    Raises:
        ValueError: a storage has no place, two, or one that is too small; names it.
    """
    ends = {(x.storage, x.start): x.end for x in timeline.lifetimes}
    for block in placement.blocks:
        first = end = block.first
        for storage in block.storages:
            if not 0 <= storage < len(graph.storages):
                raise ValueError(
                    f"the placement has storage {storage}, and the graph storages 0 to {len(graph.storages) - 1}"
                )
            found, name = ends.pop((storage, first), None), repr(graph.storages[storage].name)
            if found is None:
                raise ValueError(
                    f"the placement has {name} from run {first} on; the schedule does not make it there, or once"
                )
            if block.bytes < graph.storages[storage].bytes:
                raise ValueError(
                    f"the placement has {block.bytes} bytes for {name}, which takes {graph.storages[storage].bytes}"
                )
            first, end = found + 1, found
        # Where a run works in the memory of the last one, that is there during it, too.
        if block.storages and block.last not in {end, end + 1}:
            name = repr(graph.storages[block.storages[-1]].name)
            raise ValueError(
                f"the placement has {name} until run {block.last}; in the schedule it is there until run {end}"
            )
    if ends:
        storage, start = min(ends, key=lambda x: x[::-1])
        raise ValueError(f"the placement has no place for {graph.storages[storage].name!r}, which run {start} makes")
