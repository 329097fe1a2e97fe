"""A plan decoded and judged from what is known of another equals the same plan decoded and judged from nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.peak_bound import peak_lower_bound
from explorer.solvers.search import trace
from explorer.solvers.search.arrays import GENE, PlanArrays, plan_arrays
from explorer.solvers.search.kernel import decode, judge
from explorer.solvers.search.trace import UNKNOWN, Change, PlanMemory, adopt, difference, is_known, workspace
from tests.solvers.graphs import chain, joint_profiles, profiles


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled into its callers is called by the interpreter here."""
    monkeypatch.setattr(trace, "_note_events", trace._note_events.py_func)


def judged(
    arrays: PlanArrays, genes: np.ndarray, work: PlanMemory, change: Change, budget: float
) -> tuple[float, ...] | None:
    """Peak, time and so on; None where the plan cannot run."""
    count, quickest_ms = decode.py_func(arrays, genes, work, change, np.inf)
    if count < 0:
        return None
    found = judge.py_func(arrays, work, quickest_ms, budget, 0.0, np.inf)
    return (*found, work.dead_ms[0], work.peak_at[0]) if np.isfinite(found[1]) else None


def varied(rng: np.random.Generator, arrays: PlanArrays, genes: np.ndarray) -> np.ndarray:
    """Another plan, with a few other genes."""
    genes, marks = genes.copy(), arrays.gene_start[-1] + arrays.switches.size
    for gene in rng.integers(genes.size, size=rng.integers(1, 4)):
        if gene < arrays.gene_start[-1]:
            genes[gene] ^= 1
        elif gene < marks:
            site = arrays.switches[gene - arrays.gene_start[-1]]
            genes[gene] = rng.integers(arrays.form_start[site + 1] - arrays.form_start[site])
        else:
            genes[gene] = rng.integers(arrays.backward_count + 1) if rng.random() < 0.5 else 0
    return genes


@settings(deadline=None, max_examples=150)
@given(
    st.one_of(profiles(most_forward=10), joint_profiles(several_first=True), st.just(chain(12))),
    st.integers(0, 10**6),
    st.integers(1, 3),
)
def test_plans_that_change_little_by_little_are_judged_as_from_nothing(profile: Profile, seed: int, stride: int):
    problem, rng = problem_of(profile), np.random.default_rng(seed)
    arrays = plan_arrays(problem)
    length = 20 * (arrays.forward_count + arrays.backward_count)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trace, "_PLACES", -(-arrays.backward_count // stride))
        work, fresh = workspace(arrays, length=length), workspace(arrays, length=length)
    budget = peak_lower_bound(problem).peak_bytes * rng.uniform(1, 2)
    current = np.zeros(arrays.gene_count, GENE)
    current[: arrays.gene_start[-1]] = 1
    assert judged(arrays, current, work, UNKNOWN, budget) is not None
    adopt.py_func(arrays, current, work, True, True)
    for _ in range(60):
        trial = varied(rng, arrays, current)
        expected = judged(arrays, trial, fresh, UNKNOWN, budget)
        change = difference.py_func(arrays, current, trial, work)
        found = judged(arrays, trial, work, change, budget)
        assert (found is None) == (expected is None)
        if found is None or expected is None:
            continue
        count = fresh.trial.position[-1]
        assert work.trial.position.tolist() == fresh.trial.position.tolist()
        assert work.trial.order[:count].tolist() == fresh.trial.order[:count].tolist()
        assert found == pytest.approx(expected)
        assert found[0] == expected[0]
        if rng.random() < 0.5:
            current = trial
            adopt.py_func(arrays, current, work, not is_known.py_func(work), rng.random() < 0.1)
