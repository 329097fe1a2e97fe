"""The strategy: ingredients that can be left out, each by its name, and what found an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from explorer.simulation import simulate
from explorer.solution import Finder, Status
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.options import Options
from explorer.solvers.strategy import ALL_STARTS, DEFAULT, INGREDIENTS, Breeding, Proving, Searching, Start
from tests.solvers.graphs import chain


@pytest.mark.parametrize("ingredient", INGREDIENTS)
def test_whatever_is_left_out_what_is_found_fits_and_says_what_found_it(ingredient: str) -> None:
    options = Options(time_limit=60.0, gap=0.1, strategy=DEFAULT.without(ingredient))
    profile = chain(12)
    knowledge = Knowledge(options.problem(profile))
    assert knowledge.search.ready(timeout=300)
    budget = (profile.fixed_bytes + 2 * knowledge.search.keep_all_peak_bytes) // 3
    found = Pursuit(knowledge, budget, options).run()
    assert found.status is Status.OPTIMAL
    assert found.schedule is not None
    assert simulate(profile, found.schedule).peak_bytes <= budget
    assert isinstance(found.finder, Finder)


def test_what_builds_on_something_goes_with_it() -> None:
    assert not DEFAULT.without("whole_bounds").blueprints
    assert DEFAULT.without("whole_bounds").population
    with pytest.raises(ValueError, match="blueprints without whole_bounds"):
        replace(DEFAULT, whole_bounds=False)
    with pytest.raises(ValueError, match="ingredient is 'luck'; allowed: 'near', 'room'"):
        DEFAULT.without("luck")


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ({"searching": Searching(longer=0.0)}, "longer"),
        ({"breeding": Breeding(temperatures=(0.1, -1.0))}, "temperatures"),
        ({"proving": Proving(stale_s=-1.0)}, "stale_s"),
    ],
)
def test_sizes_are_positive(sizes: dict, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is .*; it must be positive"):
        replace(DEFAULT, **sizes)


def test_searches_begin_with_every_kind_of_plan_in_turn() -> None:
    searches = DEFAULT.searches(seed=3)
    first = [next(searches) for _ in range(8)]
    assert [x.starts[0] for x in first] == [*ALL_STARTS, *ALL_STARTS, *ALL_STARTS][:8]
    assert all(set(x.starts) == set(ALL_STARTS) for x in first)
    assert len({x.seed for x in first}) == 8
    alone = DEFAULT.without("room").without("stricter").searches(seed=3)
    assert [next(alone).starts for _ in range(4)] == [(x,) for x in (Start.NEAR, Start.BEST, Start.NEAR, Start.BEST)]
