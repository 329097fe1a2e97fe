"""Published instances: the import, and the judge's agreement with the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.published_judge import judge_in, plan_of
from explorer import load_profile, simulate
from explorer.schedule import keep_all
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.schedules import schedule_of

ZOO = Path(__file__).parents[3] / "shared" / "monet-zoo"
INSTANCES = sorted(ZOO.glob("*.json"))

pytestmark = pytest.mark.skipif(not INSTANCES, reason="the published instances are not beside this checkout")


@pytest.mark.parametrize("path", INSTANCES, ids=lambda x: x.stem)
def test_judge_and_simulator_agree(path: Path) -> None:
    profile = load_profile(path)
    problem = problem_of(profile)
    everything = [(operator.id, 0) for operator in profile.graph.operators]
    quickest = schedule_of(problem, everything, method="test", budget_bytes=None)
    for schedule in (keep_all(profile.graph), quickest):
        timeline = simulate(profile, schedule)
        verdict = judge_in(ZOO).judge(json.loads(path.read_text()), plan_of(profile, schedule))
        assert timeline.peak_bytes == pytest.approx(verdict["peak_gib"] * 2**30, abs=1)
        assert timeline.time_ms == pytest.approx(verdict["ms"], rel=1e-12)


def test_incomplete_instance(tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    path.write_text(json.dumps({"ops": [{"kind": "forward"}], "fixed_bytes": 1, "optimizations": "all"}))
    with pytest.raises(ValueError, match="not a valid published instance"):
        load_profile(path)
