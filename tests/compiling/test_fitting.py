"""Compiled steps for a budget: what the compiler holds for later results is not part of a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

import explorer
from explorer.compiling.choosing import tagged
from explorer.compiling.partitioning import Partitioner, compiled
from explorer.compiling.profiling import traced_of
from explorer.compiling.running import rehearsed_peak_bytes
from explorer.models.transformers import LossAlone

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


@pytest.mark.thorough
def test_a_budget_that_held_memory_breaks_is_kept_without(tmp_path: Path) -> None:
    model, batch = translating()
    choice = tagged(traced_of(model, batch), set())
    takes = {x: rehearsed_peak_bytes(compiled(model, replace(choice, reuse=x)), batch) for x in (True, False)}
    assert takes[False] < 0.95 * takes[True]
    found = explorer.compiled_within(model, batch, budget=(takes[False] + takes[True]) // 2, time_limit=2)
    assert found.measured_peak_bytes is not None
    assert found.budget_bytes is not None
    assert found.measured_peak_bytes <= found.budget_bytes
    assert not found.choice.reuse
    assert [x.reuse for x in found.rounds[:2]] == [True, False]
    text = explorer.export(model, found, batch, form="compile", path=tmp_path / "step.py").read_text()
    assert "    reuse=False,\n" in text
    assert "was measured" in text


def test_with_and_without_are_two_entries_of_the_compiler_s_caches() -> None:
    model, batch = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)), torch.randn(4, 8)
    choice = tagged(traced_of(model, batch), set())
    assert choice.reuse
    assert Partitioner(choice).uuid() != Partitioner(replace(choice, reuse=False)).uuid()
    wanted = [torch.autograd.grad(model(batch).sum(), list(model.parameters()))]
    for reuse in (True, False):
        module = compiled(model, replace(choice, reuse=reuse))
        wanted.append(torch.autograd.grad(module(batch).sum(), list(model.parameters())))
    for same in zip(*wanted, strict=True):
        torch.testing.assert_close(list(same[1:]), [same[0]] * 2)


def test_what_was_compiled_is_written_as_it_is_and_for_its_model_alone(tmp_path: Path) -> None:
    model, batch = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)), torch.randn(4, 8)
    profile = explorer.profile_compiled(model, batch)
    solution = explorer.solve(profile, budget="100 %", method="monet-compiled", time_limit=1)
    assert solution.schedule is not None
    made = explorer.compiled(model, solution.schedule, batch)
    frugal = replace(made, choice=replace(made.choice, reuse=False))
    text = explorer.export(model, frugal, batch, form="compile", path=tmp_path / "step.py").read_text()
    assert "    reuse=False,\n" in text
    with pytest.raises(ValueError, match=r"^the schedule does not fit: "):
        explorer.export(model[:2], made, batch, form="compile", path=tmp_path / "step.py")
    with pytest.raises(ValueError, match=r"^schedule is of a compiled step: form='compile' writes it"):
        explorer.export(model, made, batch, path=tmp_path / "step.py")
