"""An explorer of a bundled profile shows what comes with the package before its solver says anything."""

from __future__ import annotations

from pathlib import Path

import pytest

import explorer
from explorer.solution import Finder, Solution


@pytest.mark.parametrize("order", [False, True])
def test_the_first_schedule_is_one_that_comes_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, order: bool
) -> None:
    monkeypatch.setenv("SCHEDULE_EXPLORER_CACHE", str(tmp_path))
    seen: list[Solution] = []
    with explorer.explore("resnet50-a100-80gb", budget="65 %", time_limit=2, order=order) as opened:
        opened.observe(lambda change: seen.append(change["new"]), "solution")
        opened.wait()
        first, last = (opened.solution if not seen else seen[0]), opened.solution
        assert first is not None
        assert last is not None
        assert first.finder is Finder.RECALLED
        assert first.schedule is not None
        assert first.budget_bytes == first.schedule.budget_bytes == opened.budget_bytes
        assert first.time_ms is not None
        assert last.time_ms is not None
        assert last.time_ms <= first.time_ms
        bound_ms = first.bound_ms()
        assert bound_ms is None or bound_ms <= last.time_ms, "what is proven of a smaller budget is not of this one"


def test_without_a_memory_nothing_is_known_before_it_is_searched() -> None:
    seen: list[Solution] = []
    with explorer.explore("resnet50-a100-80gb", budget="65 %", time_limit=1) as opened:
        opened.observe(lambda change: seen.append(change["new"]), "solution")
        opened.wait()
        assert opened.solution is not None
    assert all(x is None or x.finder is not Finder.RECALLED for x in (*seen, opened.solution))
