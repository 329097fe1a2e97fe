"""MONeT with everything is no slower than its checkpointing alone, and that than any other method, but for gaps."""

from __future__ import annotations

import pytest

from explorer import keep_all, load_profile, simulate, solve
from explorer.solvers.methods.table import METHODS, Answers
from explorer.solvers.options import Options

# A measured one, and an estimated one of another kind; ``benchmarks/methods/compare.py`` does any.
PROFILES = ("resnet50-small-cpu", "vgg16-a100-80gb")
# An order of its own may take less memory than any schedule in the captured one.
OTHERS = tuple(x.name for x in METHODS.values() if x.answers is Answers.CURVE and x.name != "model")


@pytest.mark.thorough("vgg16-a100-80gb")
@pytest.mark.parametrize("name", PROFILES)
def test_nothing_is_quicker_than_monet(name: str) -> None:
    profile = load_profile(name)
    plain = simulate(profile, keep_all(profile.graph))
    activations = plain.peak_bytes - profile.fixed_bytes
    budgets = [profile.fixed_bytes + round(share * activations) for share in (1.0, 0.85, 0.75)]
    others = {x: METHODS[x].solve(profile, budgets, options=Options(x)) for x in OTHERS}
    for number, budget in enumerate(budgets):
        joint = solve(profile, budget=budget, steps=2, seed=0)
        checkpointing = solve(profile, budget=budget, steps=2, seed=0, optimizations="none")
        assert joint.time_ms is not None
        assert checkpointing.time_ms is not None
        assert joint.time_ms <= checkpointing.time_ms * (1 + (joint.gap() or 0.0)) + 1e-6
        for other, answers in others.items():
            found_ms = answers[number].time_ms
            if found_ms is not None:
                slack = 1 / (1 - (checkpointing.gap() or 0.0))
                assert checkpointing.time_ms <= found_ms * slack + 1e-6, other
