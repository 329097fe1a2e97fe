"""Compiled steps for a budget: what the compiler would hold for later results is not part of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

import explorer
from explorer.compiling.choosing import tagged, without_costs
from explorer.compiling.fitting import _Fitting, _Plan
from explorer.compiling.partitioning import Partitioner, compiled
from explorer.compiling.profiling import traced_of
from explorer.compiling.running import Compiled, Round, rehearsed_peak_bytes
from explorer.models.transformers import LossAlone
from explorer.saved_results import CompiledStep
from explorer.simulation import simulate

VOCABULARY = 8000


def translating() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Where logits are most of the memory, the compiler takes the peak for higher than it is."""
    torch.manual_seed(0)
    config = T5Config(
        d_model=32,
        d_ff=64,
        d_kv=8,
        num_layers=2,
        num_heads=4,
        vocab_size=VOCABULARY,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        use_cache=False,
    )
    tokens = torch.randint(0, VOCABULARY, (4, 64))
    return LossAlone(T5ForConditionalGeneration(config).train()), {"input_ids": tokens, "labels": tokens}


def test_nothing_is_held_for_later_results_so_that_the_prediction_holds() -> None:
    model, batch = translating()
    traced = traced_of(model, batch)
    choice = tagged(traced, set())
    taken = rehearsed_peak_bytes(compiled(model, choice), batch)
    options = {"custom_partitioner_fn": Partitioner(choice)}
    held = rehearsed_peak_bytes(torch.compile(model, fullgraph=True, dynamic=False, options=options), batch)
    assert taken < 0.95 * held
    profile = without_costs(traced)
    predicted = simulate(profile, CompiledStep(profile).schedule(frozenset(), method="monet-compiled")).peak_bytes
    assert taken == pytest.approx(predicted, rel=0.03)


def test_what_was_compiled_is_written_for_its_model_alone(tmp_path: Path) -> None:
    model, batch = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)), torch.randn(4, 8)
    profile = explorer.profile_compiled(model, batch)
    solution = explorer.solve(profile, budget="100 %", method="monet-compiled", time_limit=1)
    assert solution.schedule is not None
    made = explorer.compiled(model, solution.schedule, batch)
    with pytest.raises(ValueError, match=r"^the schedule does not fit: "):
        explorer.export(model[:2], made, batch, form="compile", path=tmp_path / "step.py")
    with pytest.raises(ValueError, match=r"^schedule is of a compiled step: form='compile' writes it"):
        explorer.export(model, made, batch, path=tmp_path / "step.py")


class Told(_Fitting):
    """Plans by the budget that they are asked for, and what they take, in place of solving and compiling."""

    def __init__(
        self, budget_bytes: int, plans: Callable[[int], tuple[int, int, float]], takes: dict[float, int]
    ) -> None:
        super().__init__(cast("Any", None), budget_bytes)
        self.plans, self.takes = plans, takes

    def _predicted(self, planned_bytes: int) -> _Plan:
        simulated_bytes, predicted_bytes, time_ms = self.plans(planned_bytes)
        saved = frozenset([int(time_ms)])
        return _Plan(
            saved, cast("Any", time_ms), cast("Any", None), planned_bytes, simulated_bytes, predicted_bytes, time_ms
        )

    def _rehearsed(self, plan: _Plan) -> Compiled:
        self.tried.add(plan.saved)
        made = cast("Any", SimpleNamespace(measured_peak_bytes=self.takes[plan.time_ms], schedule=plan.schedule))
        self.made.append(made)
        self.rounds.append(Round(plan.planned_bytes, plan.predicted_bytes, self.takes[plan.time_ms]))
        return made

    def _time_ms(self, made: Compiled) -> float:
        return cast("float", made.schedule)

    def quickest_ms(self) -> float:
        """Of what is within the budget, once nothing better is expected."""
        last = None
        while (last := self._promising(last)) is not None:
            self._rehearsed(last)
        return min(map(self._time_ms, self._fitting()))


def test_what_is_predicted_above_the_budget_is_not_compiled_before_what_is_not() -> None:
    # The schedule for 1000 is predicted to take 1200; that for 800 keeps it with room, and nothing better is known.
    told = Told(1000, lambda asked: (1000, 1200, 10.0) if asked >= 1000 else (790, 900, 20.0), {20.0: 900})
    assert told.quickest_ms() == 20.0
    assert [x.predicted_peak_bytes for x in told.rounds] == [900]


def test_what_a_step_took_beyond_its_prediction_the_next_is_expected_to_take_too() -> None:
    told = Told(1000, lambda asked: (asked, asked, 10_000 - asked), {9000: 1100, 9100: 990, 9090: 1010})
    assert told.quickest_ms() == 9100
    assert [x.planned_bytes for x in told.rounds] == [1000, 900, 910]


def test_where_nothing_is_expected_to_fit_the_smallest_is_tried() -> None:
    told = Told(1000, lambda asked: (1000, 1300, 10.0) if asked >= 1000 else (800, 1200, 20.0), {20.0: 950})
    assert told.quickest_ms() == 20.0
