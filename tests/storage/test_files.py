"""Profiles and schedules on disk: what goes in comes out, and damage is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorer import load_profile, load_schedule
from explorer.schedule import keep_all
from tests.test_simulation import small_profile


def test_round_trips(tmp_path: Path) -> None:
    profile = small_profile()
    schedule = keep_all(profile.graph)
    profile.save(tmp_path / "profile.json")
    schedule.save(tmp_path / "schedule.json")
    assert load_profile(tmp_path / "profile.json") == profile
    assert load_schedule(tmp_path / "schedule.json") == schedule
    assert load_profile(tmp_path / "profile.json").digest == profile.digest


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    small_profile().save(path)
    return path


def test_truncation_is_noticed(saved: Path) -> None:
    saved.write_text(saved.read_text()[:-40])
    with pytest.raises(ValueError, match="not complete JSON"):
        load_profile(saved)


def test_tampering_is_noticed_and_an_edit_by_hand_possible(saved: Path) -> None:
    document = json.loads(saved.read_text())
    document["content"]["costs"]["draw"]["time_ms"] = 0.5
    saved.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="checksum does not match"):
        load_profile(saved)
    del document["checksum"]
    saved.write_text(json.dumps(document))
    assert load_profile(saved).costs["draw"].time_ms == 0.5


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("costs", "draw", "time_ms"), -1.0, "time_ms is -1.0; it must be 0 or more"),
        (("costs", "draw", "workspace_bytes"), "many", "workspace_bytes"),
        (("costs", "draw", "workspace_bytes"), 2**63, "workspace_bytes is an int of 64 bits"),
        (("graph", "storages", 2, "bytes"), -5, "in bytes is -5; it must be a whole number"),
        (("graph", "storages", 2, "bytes"), 2**60, "in bytes is an int of 61 bits"),
        (("device", "rounding_bytes"), 0, "rounding_bytes is 0"),
        (("device", "rounding_bytes"), -512, "rounding_bytes is -512"),
        (("device", "persistent_workspace_bytes"), -1, "persistent_workspace_bytes is -1"),
        (("device", "memory_bytes"), 2**70, "memory_bytes is an int of 71 bits"),
        (("optimizer_state_bytes",), -1, "optimizer_state_bytes is -1"),
        (("eager_peak_bytes",), -1, "eager_peak_bytes is -1"),
        (("eager_time_ms",), float("inf"), "eager_time_ms is inf"),
        (("calibration",), -2.0, "calibration is -2.0"),
        (("graph", "operators", 1, "implementations", 0, "reads"), [8], "before anything wrote it"),
        (("graph", "operators", 1, "implementations", 0, "cost"), "gone", "has no cost for 'gone'"),
        (("graph", "operators", 1, "id"), 5, "has id 5 at position 1"),
    ],
)
def test_invalid_content_is_refused(saved: Path, path: tuple[str | int, ...], value: object, message: str) -> None:
    document = json.loads(saved.read_text())
    del document["checksum"]
    target = document["content"]
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    saved.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=message):
        load_profile(saved)


def test_other_kinds_and_versions_are_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds 'Profile', not a Schedule"):
        load_schedule(saved)
    document = json.loads(saved.read_text())
    document["schema"] = 99
    saved.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="schema version 99; this version reads 1"):
        load_profile(saved)
    with pytest.raises(ValueError, match="cannot read"):
        load_profile(tmp_path / "absent.json")
    with pytest.raises(ValueError, match="no bundled profile 'nothing-like-it'"):
        load_profile("nothing-like-it")
