"""Plain types and back: what cannot be read is refused with the place where it stands."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from explorer.device_profile import Cost, Device, Profile
from explorer.graph import Operator
from explorer.profiles.loading import load_profile
from explorer.profiling.devices import DeviceSpec
from explorer.schedule import Free, Run, Schedule, keep_all
from explorer.storage.conversion import WrongContentError, from_plain, to_plain
from tests.test_simulation import small_profile


@pytest.mark.parametrize("name", ["resnet50-small-cpu", "unet-a100-80gb"])
def test_what_is_bundled_comes_back_as_it_was(name: str) -> None:
    profile = load_profile(name)
    schedule = keep_all(profile.graph)
    for value, kind in ((profile, Profile), (schedule, Schedule)):
        assert from_plain(json.loads(json.dumps(to_plain(value))), kind) == value


def test_a_union_is_told_by_its_fields() -> None:
    plain = to_plain(small_schedule := keep_all(small_profile().graph))
    assert {tuple(x) for x in plain["steps"]} == {("operator", "implementation"), ("storage",)}
    assert {type(x) for x in from_plain(plain, Schedule).steps} == {Run, Free}
    assert small_schedule.budget_bytes is plain["budget_bytes"] is None


def test_numbers_as_people_write_them() -> None:
    plain = {
        "memory_gib": 4,
        "bandwidth_gb_s": "1e3",
        "vector_tflops": 1.5,
        "cublas_workspace_bytes": 2e6,
        "source": "x",
    }
    spec = from_plain(plain, DeviceSpec)
    assert (spec.memory_gib, spec.bandwidth_gb_s, spec.cublas_workspace_bytes) == (4.0, 1000.0, 2_000_000)
    assert type(spec.memory_gib) is float


class Version(str):
    """As PyTorch's own version is."""

    __slots__ = ()


def test_what_passes_for_a_string_or_a_number_is_stored_as_one() -> None:
    plain = to_plain((Cost(np.float64(1.5), True), Device("x", "cpu", Version("2.13"))))
    assert json.loads(json.dumps(plain)) == plain
    assert {type(x) for x in plain[0].values()} == {float, bool}
    assert type(plain[1]["torch_version"]) is str


OPERATOR: dict[str, Any] = {"id": 0, "name": "a", "target": "b", "phase": "forward", "layer": "", "implementations": []}


@pytest.mark.parametrize(
    ("content", "kind", "told"),
    [
        ([1], Cost, "its structure: it must be an object with the fields of Cost, not [1]"),
        ({"time_ms": 1.0}, Cost, "workspace_bytes: it is missing"),
        ({"time_ms": True, "workspace_bytes": 1}, Cost, "time_ms: it must be a number, not True"),
        ({"time_ms": "soon", "workspace_bytes": 1}, Cost, "time_ms: it must be a number, not 'soon'"),
        ({"time_ms": 1, "workspace_bytes": 1.5}, Cost, "workspace_bytes: it must be a whole number, not 1.5"),
        ({"time_ms": -1, "workspace_bytes": 1}, Cost, "its structure: time_ms is -1.0; it must be 0 or more"),
        ({"name": 1, "kind": "cpu", "torch_version": ""}, Device, "name: it must be a string, not 1"),
        ({"name": "", "kind": "", "torch_version": "", "memory_bytes": "2"}, Device, "memory_bytes: it must be int or"),
        ({"name": "", "kind": "", "torch_version": "", "estimated": 1}, Device, "estimated: it must be true or false"),
        ({**OPERATOR, "phase": "sideways"}, Operator, "phase: it is 'sideways'; allowed: 'forward', 'backward'"),
        ({**OPERATOR, "implementations": {}}, Operator, "implementations: it must be a list, not {}"),
        ({**OPERATOR, "implementations": [{"name": "c"}]}, Operator, "implementations.0.reads: it is missing"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(content: Any, kind: type, told: str) -> None:
    with pytest.raises(WrongContentError) as refused:
        from_plain(content, kind)
    assert str(refused.value).startswith(told)
