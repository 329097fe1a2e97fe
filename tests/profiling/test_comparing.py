"""Alternatives measured in turns with PyTorch's own calls: what is believed of them. The times here are made up."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
import torch

from explorer.capture.building import Call
from explorer.device_profile import Cost
from explorer.profiling.comparing import Halves, Subject, in_turns

CALL = Call(torch.relu, (), {}, (), is_tuple=False)
ORDER = ("before", "own", "quick", "chance", "slow", "too large", "after", "whole", "first", "second")


def subject(name: str, *, rival: str | None = None) -> Subject:
    return Subject(CALL, name, 0, rival=rival, before="before" if name != "before" else None)


def found(costs: dict[str, float], times_ms: dict[str, Any], halves: list[Halves] | None = None) -> dict[str, float]:
    """Costs after calls took these times, each in turn."""
    rivals = {"quick": "own", "chance": "own", "slow": "own", "too large": "own", "after": "too large"}
    subjects = {x: subject(x, rival=rivals.get(x)) for x in ORDER if x in costs}
    later = {x: cycle(y if isinstance(y, list) else [y]) for x, y in times_ms.items()}
    given = {x: Cost(y, 0) for x, y in costs.items()}
    told: list[str] = []
    result = in_turns(
        given,
        subjects=subjects,
        fitting=set(subjects) - {"too large"},
        halves=halves or [],
        run_ms=lambda x: next(later[x.name]),
        report=told.append,
    )
    assert told == list(subjects)
    return {x: y.time_ms for x, y in result.items()}


def test_what_looked_quick_by_chance_does_not_count_as_quicker() -> None:
    costs = {"before": 1.0, "own": 10.0, "chance": 6.0, "quick": 6.0}
    times = {"before": 1.0, "own": [10.0, 10.4, 9.6], "chance": [10.0, 10.5, 9.7], "quick": [6.0, 6.2, 5.9]}
    after = found(costs, times)
    assert after["own"] == 10.0
    assert after["chance"] >= 9.8
    assert after["quick"] == pytest.approx(6.0, rel=0.1)


def test_what_is_slow_is_not_run_again() -> None:
    assert found({"before": 1.0, "own": 10.0, "slow": 20.0}, {"before": 1.0, "own": 10.0})["slow"] == 20.0


def test_what_does_not_fit_is_not_run_again() -> None:
    """Nor what has it for a rival."""
    costs = {"before": 1.0, "own": 10.0, "too large": 10.0, "after": 9.0}
    assert found(costs, {"before": 1.0, "own": 10.0}) == costs


@pytest.mark.parametrize(("first_ms", "factor"), [(4.0, 1.0), (5.0, 1.0), (7.0, 1.2)])
def test_halves_take_the_whole_or_longer(first_ms: float, factor: float) -> None:
    """As the proportion of their own times says."""
    costs = {"before": 1.0, "whole": 20.0, "first": 12.0, "second": 12.0}
    times = {"before": 1.0, "whole": 10.0, "first": first_ms, "second": 5.0}
    after = found(costs, times, [Halves("whole", "first", "second")])
    assert after["whole"] == 20.0
    assert after["first"] == after["second"] == pytest.approx(10.0 * factor)
