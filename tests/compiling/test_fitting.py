"""Compiled steps for a budget: what the compiler would hold for later results is not part of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

import explorer
from explorer.compiling.choosing import tagged, without_costs
from explorer.compiling.partitioning import Partitioner, compiled
from explorer.compiling.profiling import traced_of
from explorer.compiling.running import rehearsed_peak_bytes
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
