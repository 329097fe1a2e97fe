"""The map has every tensor where the placement has it, and knows what collides."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from explorer import load_profile
from explorer.device_profile import Profile
from explorer.schedule import Schedule, keep_all
from explorer.simulation import simulate
from explorer.solvers.placing.placing import place
from explorer.timeline import CATEGORIES, Category
from tests.schedules import random_schedule
from tests.widgets.trained import Trained
from widgets.scene.addresses import AddressMap, address_map, reserved_map


def mapped(profile: Profile, schedule: Schedule) -> AddressMap:
    """Placed."""
    return address_map(profile, simulate(profile, schedule), place(profile, schedule))


@pytest.mark.parametrize("keep", [0.0, 0.4, 1.0])
def test_at_every_run_the_map_has_what_the_timeline_has(trained: Trained, keep: float) -> None:
    profile = trained.profile
    schedule = random_schedule(profile.graph, 7, keep=keep)
    timeline = simulate(profile, schedule)
    found = mapped(profile, schedule)
    amounts = np.zeros_like(timeline.bytes)
    for x in found.rectangles:
        amounts[x.first : x.last + 1, CATEGORIES.index(x.category)] += x.bytes
    there = {x.category for x in found.rectangles}
    # A tensor that takes over a larger one's memory has all of it, so nothing less is there than alive.
    for column, category in enumerate(CATEGORIES):
        if category in there:
            assert (amounts[:, column] >= timeline.bytes[:, column]).all(), category
    assert found.load_bytes <= found.buffer_bytes
    assert not found.collisions


def test_what_is_moved_by_hand_collides_with_all_that_lies_there(trained: Trained) -> None:
    found = mapped(trained.profile, keep_all(trained.profile.graph))
    own = max(found.rectangles, key=lambda x: x.bytes)
    others = [x for x in found.rectangles if x.block != own.block and x.meets(own)]
    other = max(others, key=lambda x: x.bytes)
    moved = found.moved(own.block, to_bytes=other.offset_bytes)
    assert {x.offset_bytes for x in moved.of(own.block)} == {other.offset_bytes}
    wanted = {x for y in moved.of(own.block) for x in moved.rectangles if x.block != y.block and x.collides(y)}
    assert {x for _, x in moved.collisions} == wanted
    assert other in wanted
    above = found.moved(own.block, to_bytes=2.0 * found.buffer_bytes)
    assert not above.collisions
    assert above.buffer_bytes == 2 * found.buffer_bytes + own.bytes
    assert found.moved(own.block, to_bytes=-5.0).of(own.block)[0].offset_bytes == 0


def test_an_edge_that_is_near_attracts(trained: Trained) -> None:
    found = mapped(trained.profile, keep_all(trained.profile.graph))
    own = max(found.rectangles, key=lambda x: x.bytes)
    edge = max(x.end_bytes for x in found.rectangles if x.block != own.block and x.meets(own))
    assert found.near(own.block, at_bytes=edge + found.buffer_bytes / 200) == edge
    assert found.near(own.block, at_bytes=edge + found.buffer_bytes / 50) != edge


def test_a_bundled_network_has_every_block(subtests: pytest.Subtests) -> None:
    for name in ("resnet50-small-cpu", "gpt2-a100-80gb"):
        with subtests.test(name):
            profile = load_profile(name)
            schedule = keep_all(profile.graph)
            placement = place(profile, schedule)
            found = address_map(profile, simulate(profile, schedule), placement)
            assert {x.block for x in found.rectangles} == set(range(len(placement.blocks)))
            assert len(found.rectangles) == sum(max(1, len(x.storages)) for x in placement.blocks)


@pytest.mark.parametrize("allocator", ["caching", "expandable"])
def test_in_the_allocators_segments_everything_lies_apart(trained: Trained, allocator: str) -> None:
    profile = trained.profile
    line = simulate(profile, keep_all(profile.graph), allocator=allocator)
    reservation = line.reservation
    assert reservation is not None
    found = reserved_map(profile, line, reservation)
    assert found.load_bytes <= found.buffer_bytes <= found.reserved_bytes == reservation.peak_bytes
    assert {x.category for x in found.rectangles} >= {Category.PARAMETERS, Category.INPUTS, Category.SAVED}
    for run in range(found.runs):
        # Those that follow each other within a run's call, in place, share one block.
        there = {(x.block, x.offset_bytes, x.end_bytes) for x in found.rectangles if x.first <= run <= x.last}
        ends = sorted((low, high) for _, low, high in there)
        assert all(x[1] <= y[0] for x, y in pairwise(ends))
        assert sum(high - low for low, high in ends) == reservation.unlimited.allocated_bytes[run]
