from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional

import explorer
from explorer import Profile, Status, keep_all, simulate, solve
from explorer.capture import capture
from explorer.device_profile import Cost, Device
from explorer.models.gpt import GPT, GPTConfig
from explorer.solvers.methods import rotor
from explorer.solvers.methods.rotor.chain import Kind, Operation, Sequence, in_segments, keep_everything
from explorer.solvers.methods.rotor.costing import chain_of
from explorer.solvers.methods.rotor.stages import Blocks
from explorer.solvers.methods.rotor.table import solve as fill
from explorer.solvers.methods.table import METHODS
from explorer.solvers.options import Options
from explorer.timeline import Timeline
from tests.execution.models import Sample, branches, shared, tied_attention
from tests.schedules import keep_all_apart
from tests.solvers.methods.rotor.exhaustive import time_ms

NAMES = ("rotor", "rotor-revolve", "checkpoint-sequential")


class Residual(nn.Module):
    """Shortcuts around convolutions, batch normalisation and dropout, in a row."""

    def __init__(self, blocks: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Dropout(0.2), nn.ReLU())
            for _ in range(blocks)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = functional.relu(x + block(x))
        return self.head(x.mean((2, 3)))


def residual() -> Sample:
    torch.manual_seed(0)
    return Residual().train(), (torch.randn(8, 3, 16, 16), torch.randint(0, 5, (8,))), functional.cross_entropy


def decoder() -> Sample:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=40, context=32, layers=4, heads=2, width=32, dropout=0.1)).train()
    return model, (torch.randint(40, (4, 32)), torch.randint(40, (4, 32))), None


@cache
def profile_of(sample: str) -> Profile:
    """The captured graph with costs drawn at random."""
    model, batch, loss = SAMPLES[sample]()
    graph = capture(model, batch, loss=loss).graph
    rng = random.Random(1)
    keys = sorted({x.cost for operator in graph.operators for x in operator.implementations})
    costs = {key: Cost(rng.uniform(1, 9), rng.choice((0, 0, 1000, 9000))) for key in keys}
    return Profile(graph, costs, Device("none", "cpu", "none", rounding_bytes=64))


SAMPLES = {
    "residual": residual,
    "decoder": decoder,
    "branches": branches,
    "tied attention": tied_attention,
    "shared": shared,
}


@pytest.mark.parametrize(("sample", "stages"), [("residual", 10), ("decoder", 13)])
def test_stages_are_the_blocks(sample: str, stages: int):
    blocks = Blocks(profile_of(sample))
    assert len(blocks.stages) == stages
    count = blocks.graph.forward_count
    assert [x for stage in blocks.stages for x in stage.forward] == list(range(count))
    backward = [x for stage in reversed(blocks.stages) for x in stage.backward]
    assert backward == list(range(count, len(blocks.graph.operators)))
    assert f"chain of {stages} stages" in blocks.description


def _more_in_place_ms(profile: Profile, timeline: Timeline) -> float:
    """What runs in place, as in eager mode, take more than others: here costs are drawn at random."""
    extra_ms = 0.0
    for run, (number, name) in enumerate(zip(timeline.operators, timeline.implementations, strict=True)):
        operator = profile.graph.operators[number]
        if operator.implementation(name).overwrites is not None:
            extra_ms += max(0.0, timeline.times_ms[run] - profile.cost(operator.default()).time_ms)
    return extra_ms


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_model_counts_no_less_than_the_simulator(sample: str):
    """Nor more where everything is saved, but for what no backward pass reads."""
    profile = profile_of(sample)
    blocks = Blocks(profile)
    chain = chain_of(blocks)
    memory_bytes = chain.peak_bytes(keep_everything(chain))
    found = [
        *fill(chain, memory_bytes=memory_bytes).sequences(),
        *fill(chain, memory_bytes=memory_bytes, save=False).sequences(),
    ]
    found += [in_segments(chain, x) for x in range(1, len(chain) + 1)]
    found += [_random_sequence(len(chain), random.Random(seed)) for seed in range(20)]
    for sequence in found:
        timeline = simulate(profile, blocks.schedule(sequence, method="test"))
        modelled = profile.fixed_bytes + chain.peak_bytes(sequence)
        assert timeline.peak_bytes <= modelled
        assert timeline.time_ms <= time_ms(chain, sequence) + _more_in_place_ms(profile, timeline) + 1e-6
    plain_bytes = simulate(profile, keep_all_apart(profile.graph)).peak_bytes
    assert plain_bytes <= profile.fixed_bytes + memory_bytes <= 1.05 * plain_bytes


def _random_sequence(length: int, rng: random.Random) -> Sequence:
    """Save, or run on to a random checkpoint; then the chain behind, then the chain before it."""
    result: list[Operation] = []

    def run(s: int, t: int) -> None:
        if s == t or rng.random() < 0.3:
            result.append(Operation(Kind.ALL, s))
            if s < t:
                run(s + 1, t)
            result.append(Operation(Kind.BACKWARD, s))
            return
        checkpoint = rng.randint(s + 1, t)
        result.append(Operation(Kind.CHECKPOINT, s))
        result.extend(Operation(Kind.EMPTY, x) for x in range(s + 1, checkpoint))
        run(checkpoint, t)
        run(s, checkpoint - 1)

    run(0, length - 1)
    return tuple(result)


@pytest.mark.parametrize("sample", ["residual", "decoder"])
@pytest.mark.parametrize("name", NAMES)
def test_answers_fit(name: str, sample: str):
    profile = profile_of(sample)
    plain = simulate(profile, keep_all(profile.graph))
    budgets = [int(share * plain.peak_bytes) for share in (1.0, 0.9, 0.8, 0.6, 0.1)]
    found = METHODS[name].solve(profile, budgets, options=Options(name))
    times = [x.time_ms for x in found if x.time_ms is not None]
    assert times == sorted(times)
    for solution, budget in zip(found, budgets, strict=True):
        if solution.schedule is not None:
            timeline = simulate(profile, solution.schedule)
            assert timeline.peak_bytes == solution.peak_bytes <= budget
            assert solution.schedule.method == name
    assert found[0].schedule is not None
    assert found[-1].status is Status.INFEASIBLE
    assert found[-1].minimum is not None
    if name == "rotor":
        assert found[0].time_ms == pytest.approx(plain.time_ms)


def test_rotor_is_no_slower_than_what_it_is_compared_with():
    profile = profile_of("residual")
    plain = simulate(profile, keep_all(profile.graph))
    budgets = [int(share * plain.peak_bytes) for share in (0.95, 0.85, 0.75, 0.65)]
    best, *others = (METHODS[name].solve(profile, budgets, options=Options(name)) for name in NAMES)
    for other in others:
        for mine, theirs in zip(best, other, strict=True):
            if theirs.time_ms is not None:
                assert mine.time_ms is not None
                assert mine.time_ms <= theirs.time_ms * 1.01  # the model's times are those of whole stages


def test_what_is_no_chain_is_named():
    class Dense(nn.Module):
        """Every layer reads all before it, and so does the last."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen = [self.layers[0](x)]
            for layer in self.layers:
                seen.append(torch.tanh(layer(torch.stack(seen).sum(0))) * seen[0])
            return (torch.stack(seen[1:]).sum(0) * seen[0]).sum()

    graph = capture(Dense().train(), torch.randn(4, 6)).graph
    keys = {x.cost for operator in graph.operators for x in operator.implementations}
    profile = Profile(graph, dict.fromkeys(keys, Cost(1.0, 0)), Device("none", "cpu", "none"))
    blocks = Blocks(profile)
    solution = solve(profile, budget=10**6, method="rotor")
    if blocks.separate:
        assert "the largest of which has" in solution.message
    else:
        assert solution.status is Status.UNSUITED
        assert "no chain" in solution.message


class Again(nn.Module):
    """One layer, several times: its gradients are added up, by eager mode in place."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.last = nn.Linear(64, 64), nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.tanh(self.again(x))
        return self.last(x)


@pytest.mark.parametrize("update", ["end", "within"])
def test_with_everything_kept_gradients_of_shared_weights_are_added_as_in_eager_mode(update: str):
    model, batch = Again(), (torch.randn(16, 64), torch.randint(5, (16,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    asked = {"loss": functional.cross_entropy, "optimizer": optimizer, "update": update}
    profile = explorer.profile(model, batch, **asked)
    line = simulate(profile, keep_all(profile.graph))
    for name in METHODS:
        found = solve(profile, budget=line.peak_bytes, method=name, time_limit=5, remember=False)
        assert found.schedule is not None or found.status is Status.UNSUITED, name
        if name == "rotor":
            assert (found.peak_bytes, found.time_ms) == (line.peak_bytes, pytest.approx(line.time_ms))
            # This compares a step's results and gradients with eager mode's, bit by bit.
            explorer.apply(model, found.schedule, batch, loss=functional.cross_entropy)


def test_where_time_is_short_those_that_are_likely_to_fit_are_judged_and_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch,
):
    profile = profile_of("residual")
    plain = simulate(profile, keep_all(profile.graph))
    smallest = solve(profile, budget=1, method="rotor").minimum
    budgets = [smallest.budget_bytes, (smallest.budget_bytes + plain.peak_bytes) // 2, plain.peak_bytes, 1]
    whole = METHODS["rotor"].solve(profile, budgets, options=Options("rotor"))
    assert not any("were judged" in x.message for x in whole)
    judgings = iter(range(10**6))
    monkeypatch.setattr(rotor.time, "monotonic", lambda: next(judgings))  # a second each
    for seconds in (1, 5, 20):
        for budget, best in zip(budgets, whole, strict=True):
            found = METHODS["rotor"].solve(profile, [budget], options=Options("rotor", time_limit=seconds))[0]
            assert "schedules were judged in time" in found.message
            if found.schedule is None:
                assert found.status is Status.UNKNOWN
            else:
                assert found.peak_bytes <= budget and found.time_ms >= best.time_ms
            if seconds == 20 and best.schedule is not None:
                assert found.time_ms == best.time_ms
