"""Addresses for a schedule: what the simulator sees alive becomes rectangles, packed into one buffer."""

from __future__ import annotations

import numpy as np

from explorer.arguments import a_number
from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.placement import Block, Placement
from explorer.schedule import Run, Schedule
from explorer.simulation import CATEGORIES, Category, Timeline, simulate
from explorer.solvers.placing.packing import pack
from explorer.solvers.placing.rectangles import Rectangles
from explorer.units import format_bytes, parse_bytes


def place(
    profile: Profile, schedule: Schedule, *, buffer: int | str | None = None, time_limit: float = 10.0
) -> Placement:
    """Find an address for every tensor and workspace of a step, in as small a buffer as possible.

    Args:
        profile: graph and sizes.
        schedule: for that graph.
        buffer: will do, in bytes or as ``"8 GiB"``; None: as small as is found.
        time_limit: after that many seconds the best so far counts. Most steps take a fraction of one.

    Returns:
        The placement; ``fit`` says whether a smaller buffer is possible.

    Raises:
        ValueError: the schedule belongs to another graph or is invalid; or ``buffer`` is smaller than the load, the
            most bytes that are alive at once.
    """
    timeline = simulate(profile, schedule)
    profile = profile.in_iteration(profile.graph.iteration.as_in(schedule.identity.iteration))
    seconds = a_number(time_limit, "time_limit", above=0, what="a positive number of seconds")
    blocks = blocks_of(profile, schedule, timeline)
    sized = [x for x in blocks if x.bytes]
    rectangles = Rectangles(
        np.array([x.first for x in sized], np.int64),
        np.array([x.last + 1 for x in sized], np.int64),
        np.array([x.bytes for x in sized], np.int64),
    )
    goal_bytes = 0 if buffer is None else parse_bytes(buffer)
    if buffer is not None and goal_bytes < rectangles.load_bytes:
        raise ValueError(
            f"buffer is {format_bytes(goal_bytes)} ({goal_bytes} bytes), and the load, what is alive at once, "
            f"{format_bytes(rectangles.load_bytes)} ({rectangles.load_bytes} bytes): no placement is that small"
        )
    packing = pack(rectangles, seconds=seconds, goal_bytes=goal_bytes)
    offsets = iter(packing.offset_bytes.tolist())
    placed = tuple(Block(x.storages, x.first, x.last, next(offsets) if x.bytes else 0, x.bytes) for x in blocks)
    return Placement(placed, len(timeline.operators), packing.buffer_bytes, rectangles.load_bytes, packing.bound_bytes)


def blocks_of(profile: Profile, schedule: Schedule, timeline: Timeline) -> list[Block]:
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
    own_bytes = timeline.bytes[:, CATEGORIES.index(Category.WORKSPACE)] - profile.device.persistent_workspace_bytes
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
