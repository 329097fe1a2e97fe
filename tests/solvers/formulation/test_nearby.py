"""The program of nearby recomputation: the optimum of what it leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.simulation import simulate
from explorer.solvers.formulation import grouped
from explorer.solvers.formulation.nearby import nearby
from explorer.solvers.problem.building import problem_of
from tests.solvers.graphs import profiles
from tests.solvers.minimising import SHARES, budget_between, minimum

FAR = 100
few = settings(max_examples=30, deadline=None)


@few
@given(profiles(), SHARES, st.sampled_from((1, 2, FAR)))
def test_its_optimum_is_the_whole_programs_without_what_is_far(profile: Profile, share: float, depth: int):
    problem = problem_of(profile)
    model = grouped.build(problem, budget_between(problem, share), threshold=0.0)
    near = nearby(model, depth=depth)
    upper = np.where(near.column < 0, 0.0, model.milp.upper)
    whole, found = minimum(replace(model.milp, upper=upper)), minimum(near.milp)
    assert (whole is None) == (found is None)
    if whole is None or found is None:
        return
    assert found[0] == pytest.approx(whole[0])
    assert simulate(profile, model.decode(near.whole(found[1]))).time_ms <= found[0] + 1e-9
