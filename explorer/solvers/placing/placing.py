"""Addresses for a schedule: what the simulator sees alive becomes rectangles, packed into one buffer."""

from __future__ import annotations

import numpy as np

from explorer.arguments import a_number
from explorer.device_profile import Profile
from explorer.placement import Block, Placement
from explorer.schedule import Schedule
from explorer.simulation import profile_for, simulate
from explorer.solvers.placing.packing import pack
from explorer.solvers.placing.rectangles import Rectangles
from explorer.stays import memory_blocks
from explorer.units import amount_of_bytes, format_bytes


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
    profile = profile_for(schedule, profile=profile)
    seconds = a_number(time_limit, "time_limit", above=0, what="a positive number of seconds")
    blocks = memory_blocks(profile, schedule, timeline)
    sized = [x for x in blocks if x.bytes]
    rectangles = Rectangles(
        np.array([x.first for x in sized], np.int64),
        np.array([x.last + 1 for x in sized], np.int64),
        np.array([x.bytes for x in sized], np.int64),
    )
    goal_bytes = 0 if buffer is None else amount_of_bytes(buffer, name="buffer")
    if buffer is not None and goal_bytes < rectangles.load_bytes:
        raise ValueError(
            f"buffer is {format_bytes(goal_bytes)} ({goal_bytes} bytes), and the load, what is alive at once, "
            f"{format_bytes(rectangles.load_bytes)} ({rectangles.load_bytes} bytes): no placement is that small"
        )
    packing = pack(rectangles, seconds=seconds, goal_bytes=goal_bytes)
    offsets = iter(packing.offset_bytes.tolist())
    placed = tuple(Block(x.storages, x.first, x.last, next(offsets) if x.bytes else 0, x.bytes) for x in blocks)
    runs, load_bytes = len(timeline.operators), rectangles.load_bytes
    return Placement(placed, runs, packing.buffer_bytes, load_bytes, packing.bound_bytes, schedule.fingerprint)
