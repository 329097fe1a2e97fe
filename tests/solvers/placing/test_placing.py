"""Placements of schedules: the simulator's bytes at addresses, in place where runs are, and none for another graph."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import explorer
from explorer.device_profile import Profile
from explorer.placement import Block, Fit, Placement, _load_bytes
from explorer.profiles.loading import bundled_profiles, load_profile
from explorer.schedule import Run, keep_all, read_schedule
from explorer.simulation import simulate
from explorer.solvers.placing.placing import place
from tests.schedules import random_schedule
from tests.solvers.graphs import joint_profiles, profiles
from tests.solvers.placing.checking import overlapping


def check(profile: Profile, schedule, placement: Placement) -> None:
    """Nothing overlaps, and what lies in the buffer at each run is what the simulator has there."""
    blocks = placement.blocks
    columns = zip(*((x.first, x.last + 1, x.offset_bytes, x.bytes) for x in blocks), strict=True)
    assert not overlapping(*columns)
    timeline = simulate(profile, schedule)
    alive = np.zeros(len(timeline.operators), np.int64)
    for block in blocks:
        alive[block.first : block.last + 1] += block.bytes
    assert alive.tolist() == (timeline.total_bytes - profile.fixed_bytes).tolist()
    assert placement.load_bytes == alive.max(initial=0) == timeline.peak_bytes - profile.fixed_bytes


@settings(deadline=None, max_examples=60)
@given(st.one_of(profiles(most_forward=8), joint_profiles()), st.integers(0, 10**6))
def test_a_placement_has_what_the_simulator_has(profile: Profile, seed: int):
    schedule = random_schedule(profile.graph, seed, keep=0.5)
    placement = place(profile, schedule)
    assert placement.fit is Fit.PROVEN
    sizes_differ = any(
        profile.graph.storages[x].bytes != profile.graph.storages[block.storages[0]].bytes
        for block in placement.blocks
        for x in block.storages
    )
    if not sizes_differ:
        check(profile, schedule, placement)


@pytest.mark.parametrize("name", bundled_profiles())
def test_bundled_profiles_have_no_fragmentation(name: str):
    profile = load_profile(name)
    if len(profile.graph.operators) > 1000:
        pytest.skip("the judge compares all pairs")
    schedule = keep_all(profile.graph)
    placement = place(profile, schedule)
    assert placement.buffer_bytes == placement.load_bytes
    check(profile, schedule, placement)


def test_a_run_in_place_keeps_the_address():
    profile = load_profile("resnet50-small-cpu")
    placement = place(profile, keep_all(profile.graph))
    assert any(len(x.storages) > 1 for x in placement.blocks)
    assert any(x.is_workspace for x in placement.blocks)


def test_what_a_run_uses_as_scratch_memory_is_there_once():
    profile = load_profile("gpt2-a100-80gb")
    schedule = random_schedule(profile.graph, 0, keep=1.0, allowed=lambda x: "in place" in x.name, in_place=1.0)
    assert any("parts, in place" in x.implementation for x in schedule.steps if isinstance(x, Run))
    check(profile, schedule, place(profile, schedule))


def test_a_placement_is_saved_with_its_schedule(tmp_path: Path):
    profile = load_profile("unet-p100-16gb")
    schedule = keep_all(profile.graph)
    placed = schedule.with_placement(explorer.place(profile, schedule))
    placed.save(tmp_path / "placed.json")
    assert read_schedule(tmp_path / "placed.json") == placed
    assert "fit" not in repr(placed) and "buffer" in repr(placed)
    text = (tmp_path / "placed.json").read_text(encoding="utf-8")
    (tmp_path / "placed.json").write_text(text.replace('"offset_bytes":0', '"offset_bytes":1', 1), encoding="utf-8")
    with pytest.raises(ValueError, match="checksum does not match"):
        read_schedule(tmp_path / "placed.json")


def test_bad_input_is_refused():
    profile, other = load_profile("unet-p100-16gb"), load_profile("vgg16-p100-16gb")
    schedule = keep_all(profile.graph)
    with pytest.raises(ValueError, match="the schedule does not belong to this profile"):
        place(profile, keep_all(other.graph))
    load = place(profile, schedule).load_bytes
    with pytest.raises(ValueError, match=rf"buffer is 1.00 KiB \(1024 bytes\), and the load.*\({load} bytes\)"):
        place(profile, schedule, buffer="1 KiB")
    assert place(profile, schedule, buffer=2 * load).buffer_bytes <= 2 * load
    with pytest.raises(ValueError, match="time_limit is 0; it must be a positive number"):
        place(profile, schedule, time_limit=0)
    placement = place(other, keep_all(other.graph))
    with pytest.raises(ValueError, match="the placement is for a schedule of"):
        schedule.with_placement(placement)
    with pytest.raises(ValueError, match="of a buffer of 1"):
        replace(placement, buffer_bytes=1)


def test_a_damaged_placement_is_refused_where_it_is_made():
    profile = load_profile("resnet50-small-cpu")
    placement = place(profile, keep_all(profile.graph))
    load = placement.load_bytes

    def changed(**values: Any) -> dict[str, Any]:
        return {"blocks": tuple(replace(x, **values) for x in placement.blocks)}

    for damage, told in (
        (changed(offset_bytes=0), r"two blocks of a placement overlap.*at 0 to \d+ bytes from run \d+ to \d+ and"),
        (changed(offset_bytes=0.0), r"a block's offset_bytes is 0.0; it must be a whole number"),
        (changed(storages=[1]), r"a block's storages are \[1\]"),
        (changed(bytes=1), rf"load_bytes is {load}; most bytes of these blocks at once are \d+"),
        ({"blocks": ()}, rf"load_bytes is {load}; most bytes of these blocks at once are 0"),
        ({"blocks": [*placement.blocks]}, "a placement's blocks are a list"),
        ({"load_bytes": -5}, "a placement's load_bytes is -5; it must be a whole number, 0 or more"),
        ({"bound_bytes": 0}, rf"bound_bytes is 0; it must be from load_bytes, {load}"),
        ({"bound_bytes": placement.buffer_bytes + 1}, "to buffer_bytes"),
        ({"buffer_bytes": placement.buffer_bytes + 1}, "the highest end of a block is"),
    ):
        with pytest.raises(ValueError, match=told):
            replace(placement, **damage)


@given(st.lists(st.tuples(*[st.integers(0, 8)] * 3, st.integers(0, 4)), max_size=12))
def test_overlaps_are_those_that_a_judge_finds(drawn: list[tuple[int, int, int, int]]):
    blocks = tuple(Block((), min(a, b), max(a, b), offset, size) for a, b, offset, size in drawn)
    columns = zip(*((x.first, x.last + 1, x.offset_bytes, x.bytes) for x in blocks), strict=True)
    ends = [x.offset_bytes + x.bytes for x in blocks if x.bytes]
    alive = np.zeros(9, np.int64)
    for x in blocks:
        alive[x.first : x.last + 1] += x.bytes
    highest = max(ends, default=0)
    # One that is empty lies within the buffer as well as any.
    blocks = tuple(x if x.bytes else replace(x, offset_bytes=0) for x in blocks)
    if blocks and overlapping(*columns):
        with pytest.raises(ValueError, match="overlap"):
            Placement(blocks, 9, highest, int(alive.max()), highest)
    else:
        assert repr(Placement(blocks, 9, highest, int(alive.max()), highest))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda x: replace(x, storages=(99999,)), "the placement has storage 99999, and the graph storages 0 to"),
        (lambda x: replace(x, storages=()), "the placement has no place for"),
        (lambda x: replace(x, bytes=x.bytes // 2), r"the placement has \d+ bytes for '.*', which takes \d+"),
        (lambda x: replace(x, last=max(x.first, x.last - 3)), "there until run"),
        (lambda _: None, "the placement has no place for"),
        (lambda x: replace(x, storages=(x.storages[0] + 1,)), "the placement has .* from run"),
    ],
)
def test_a_placement_of_something_else_is_refused_where_the_profile_is_known(damage: Any, told: str, tmp_path: Path):
    profile = load_profile("resnet50-small-cpu")
    schedule = keep_all(profile.graph)
    placement = place(profile, schedule)
    largest = max((x for x in placement.blocks if len(x.storages) == 1 and x.last - x.first > 5), key=lambda x: x.bytes)
    blocks = tuple(y for x in placement.blocks if (y := damage(x) if x is largest else x) is not None)
    highest, load = max(x.offset_bytes + x.bytes for x in blocks), _load_bytes(blocks)
    damaged = replace(placement, blocks=blocks, load_bytes=load, bound_bytes=load, buffer_bytes=highest)
    schedule.with_placement(damaged).save(tmp_path / "damaged.json")
    read = explorer.load_schedule(tmp_path / "damaged.json")
    with pytest.raises(ValueError, match=told):
        simulate(profile, read)


def test_another_devices_workspaces_are_no_damage():
    placed, other = load_profile("vgg16-p100-16gb"), load_profile("vgg16-a100-80gb")
    schedule = keep_all(placed.graph)
    if not schedule.identity.difference(other.graph.identity):
        schedule = schedule.with_placement(place(placed, schedule))
        assert simulate(other, schedule).peak_bytes == simulate(other, keep_all(other.graph)).peak_bytes
    profile = perceptron(16)
    larger = replace(profile, costs={x: replace(y, workspace_bytes=4096) for x, y in profile.costs.items()})
    schedule = keep_all(profile.graph).with_placement(place(profile, keep_all(profile.graph)))
    assert simulate(larger, schedule).peak_bytes > simulate(profile, schedule).peak_bytes


def test_thousands_of_blocks_are_checked_at_once():
    blocks = tuple(Block((), i, i + 50, i % 51, 1) for i in range(5000))
    started = time.process_time()
    Placement(blocks, 5050, 51, 51, 51)
    assert time.process_time() - started < 1  # a twentieth of that, on a quiet machine


def test_a_placement_is_for_one_schedule_of_one_graph(tmp_path: Path):
    narrow, wide = (perceptron(width) for width in (16, 256))
    schedules = [keep_all(x.graph) for x in (narrow, wide)]
    placement = place(narrow, schedules[0])
    other = random_schedule(narrow.graph, 0, keep=1.0)
    assert schedules[0].with_placement(placement).placement is placement
    for schedule in (schedules[1], replace(schedules[0], steps=other.steps)):
        if schedule.fingerprint != schedules[0].fingerprint:
            with pytest.raises(ValueError, match=r"for another schedule, or another graph|is for a schedule of"):
                schedule.with_placement(placement)
    placed = replace(schedules[0], budget_bytes=17).with_placement(placement)
    placed.save(tmp_path / "placed.json")
    assert read_schedule(tmp_path / "placed.json") == placed


def test_what_no_buffer_can_be_is_called_buffer():
    profile = perceptron(16)
    with pytest.raises(ValueError, match="buffer -1 must be positive"):
        place(profile, keep_all(profile.graph), buffer=-1)


def perceptron(width: int) -> Profile:
    """Equal calls, of another width."""
    with torch.device("meta"):
        model, batch = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 8)), torch.empty(4, 8)
    return explorer.estimate(model, batch, device="A100-40GB")
