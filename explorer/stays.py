"""What a step makes, as blocks of memory: each with its size and the runs during which it is there."""

from __future__ import annotations

import numpy as np

from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.placement import Block
from explorer.schedule import Run, Schedule
from explorer.timeline import COLUMN, Category, Timeline


def memory_blocks(profile: Profile, schedule: Schedule, timeline: Timeline) -> list[Block]:
    """What is to be placed, in the order of first runs; at offset 0."""
    graph = profile.graph
    followers = _followers(graph, schedule, timeline)
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
        blocks.append(Block(tuple(x.storage for x in chain), stay.start, chain[-1].end, 0, size))
    # A storage that a call makes a second time, to be thrown away, counts there too.
    own_bytes = timeline.bytes[:, COLUMN[Category.WORKSPACE]] - profile.device.persistent_workspace_bytes
    blocks += [Block((), run, run, 0, int(own_bytes[run])) for run in np.flatnonzero(own_bytes).tolist()]
    return sorted(blocks, key=lambda x: (x.first, x.storages))


_Stay = tuple[int, int]
"""A storage, and the run from which on it is there."""


def _followers(graph: TrainingGraph, schedule: Schedule, timeline: Timeline) -> dict[_Stay, _Stay]:
    """Where a run works in place: the stay that it ends, to the one that takes its memory."""
    starts = {(x.storage, x.start) for x in timeline.lifetimes}
    ending = {(x.storage, x.end): (x.storage, x.start) for x in timeline.lifetimes}
    followers: dict[_Stay, _Stay] = {}
    runs = (step for step in schedule.steps if isinstance(step, Run))
    for number, run in enumerate(runs):
        implementation = graph.operators[run.operator].implementation(run.implementation)
        if implementation.overwrites is None:
            continue
        before = ending[implementation.overwrites, number - 1]
        size = graph.storages[implementation.overwrites].bytes
        made = [x for x in implementation.writes if (x, number) in starts]
        if made:
            same = [x for x in made if graph.storages[x].bytes == size]
            followers[before] = ((same or made)[0], number)
    return followers
