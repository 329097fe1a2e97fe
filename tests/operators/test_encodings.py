"""Gist's encodings: what they keep, what they lose, and that nobody gets them without asking."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import explorer
from explorer.capture import capture
from explorer.graph import Optimization
from explorer.operators.encodings import (
    Encoding,
    decode,
    dense_bytes,
    encode_dense,
    encode_sparse,
    nominal_sparse,
    sparse_bytes,
)
from explorer.schedule import Run

PRECISIONS = {"fp16": 2**-11, "fp10": 2**-5, "fp8": 2**-4}
"""Half a unit in the last place, relative."""
ENCODED = {Optimization.SPARSE, Optimization.LOSSY}


def restored(source: torch.Tensor, code: str) -> torch.Tensor:
    encoded = encode_sparse(source, code, 0.5) if code.startswith("csr") else encode_dense(source, code)
    return decode(encoded, list(source.shape), list(source.stride()), source.dtype, code)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=3, max_size=4), st.integers(0, 10), st.booleans())
def test_sparse_storage_loses_nothing(shape: list[int], seed: int, last: bool):  # noqa: FBT001
    generator = torch.Generator().manual_seed(seed)
    source = torch.randn(shape, generator=generator).relu()
    if last and len(shape) == 4:
        source = source.contiguous(memory_format=torch.channels_last)
    assert torch.equal(restored(source, "csr"), source)
    encoded = encode_sparse(source, "csr", 0.5)
    assert encoded.numel() == sparse_bytes(source.numel(), int(source.count_nonzero()), "csr")


@pytest.mark.parametrize("size", [1, 255, 256, 257, 2**18 - 1, 2**18, 2**18 + 300])
@pytest.mark.parametrize("code", ["fp10", "csr", "csr fp10"])
def test_sizes_around_rows_and_chunks(size: int, code: str):
    source = torch.randn(size).relu()
    error = (restored(source, code) - source).abs()
    assert bool((error <= source * 2**-5 + 1e-5).all())


@pytest.mark.parametrize("code", PRECISIONS)
def test_reduced_precision_rounds_to_the_nearest(code: str):
    source = torch.randn(7, 5, 9) * 10
    small = 2**-6 if code == "fp8" else 2**-14  # the smallest normal numbers
    error = (restored(source, code) - source).abs()
    assert bool((error <= source.abs().clamp_min(small) * PRECISIONS[code] * 1.001).all())
    assert encode_dense(source, code).numel() == dense_bytes(source.numel(), code)
    twice = restored(restored(source, code), code)
    assert torch.equal(twice, restored(source, code))


@pytest.mark.parametrize("code", [*PRECISIONS, *(f"csr {x}" for x in PRECISIONS)])
def test_extremes(code: str):
    source = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, 0.0, 1.0, -2.0])
    found = restored(source, code)
    assert bool(found[0].isnan())
    assert bool(found[1:].isfinite().all())
    assert found[1] == -found[2] == found[3]
    assert found[4:].tolist() == [0.0, 1.0, -2.0]


def test_nominal_size_is_that_of_the_density():
    source = torch.randn(64, 256).relu()
    density = float(source.count_nonzero()) / source.numel()
    for code in ("csr", "csr fp16"):
        assert nominal_sparse(source, code, density).numel() == encode_sparse(source, code, density).numel()


def test_what_is_allowed():
    with pytest.raises(ValueError, match="encoding is 'fp4'; allowed: 'lossless', 'fp16', 'fp10', 'fp8'"):
        Encoding.of("fp4")
    with pytest.raises(ValueError, match=r"density is 0\.0; it must be above 0 and at most 1"):
        Encoding(density=0.0)


class Network(nn.Module):
    """What Gist has rules for: ReLU before a pooling, ReLU before a convolution, normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.third = nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.norm(self.first(x))), 2)
        x = functional.relu(self.second(x))
        return self.head(self.third(x).mean((2, 3)))


def sample() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return Network().train(), (torch.randn(8, 3, 32, 32), torch.randint(0, 4, (8,)))


def test_nothing_is_captured_that_was_not_asked_for():
    model, batch = sample()
    plain = capture(model, batch, loss=functional.cross_entropy).graph
    assert not ENCODED & {x.optimization for op in plain.operators for x in op.implementations}
    offered = capture(model, batch, loss=functional.cross_entropy, encoding="fp16").graph
    assert {x.optimization for op in offered.operators for x in op.implementations} >= {Optimization.LOSSY}
    lossless = capture(model, batch, loss=functional.cross_entropy, encoding="lossless").graph
    assert Optimization.LOSSY not in {x.optimization for op in lossless.operators for x in op.implementations}
    assert Optimization.SPARSE in {x.optimization for op in lossless.operators for x in op.implementations}
    assert not any(x.exact for op in offered.operators for x in op.implementations if x.optimization in ENCODED)


@pytest.mark.parametrize(("encoding", "error"), [("lossless", 1e-6), ("fp16", 2e-3), ("fp10", 0.1), ("fp8", 0.2)])
def test_gist(encoding: str, error: float):
    model, batch = sample()
    loss = functional.cross_entropy
    profile = explorer.profile(model, batch, loss=loss, encoding=encoding)
    graph = profile.graph
    plain = explorer.simulate(profile, explorer.keep_all(graph))
    # No other method chooses an encoding by itself.
    other = explorer.solve(profile, budget=plain.peak_bytes, time_limit=0.5, remember=False)
    assert other.schedule is not None
    chosen = [graph.operators[x.operator].implementation(x.implementation) for x in runs(other.schedule)]
    assert not ENCODED & {x.optimization for x in chosen}

    solution = explorer.solve(profile, budget="1 GiB", method="gist")
    assert solution.schedule is not None
    assert waiting_bytes(profile, solution.schedule) < 0.7 * waiting_bytes(profile, explorer.keep_all(graph))
    names = {x.implementation for x in runs(solution.schedule)}
    code = "csr" if encoding == "lossless" else encoding
    assert "from offsets" in names  # binarize: the pooling
    assert any(x.startswith("argument ") and x.endswith(code) for x in names)
    assert "in place" in names
    assert not solution.schedule.recomputed(graph)

    module = explorer.apply(copy.deepcopy(model), solution.schedule, batch, loss=loss, encoding=encoding)
    reference = loss(model(batch[0]), batch[1])
    reference.backward()
    found = module(*batch)
    found.backward()
    assert torch.equal(found, reference)  # the forward pass is computed in full precision
    for mine, theirs in zip(module.parameters(), model.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert (mine.grad - theirs.grad).norm() <= error * theirs.grad.norm() + 1e-6


def waiting_bytes(profile: explorer.Profile, schedule: explorer.Schedule) -> int:
    """What the forward pass leaves for the backward pass. (The peak of so small a network is that of workspace.)"""
    timeline = explorer.simulate(profile, schedule)
    boundary = timeline.operators.index(profile.graph.forward_count)
    waiting = (x.storage for x in timeline.lifetimes if x.start < boundary <= x.end)
    return sum(profile.graph.storages[x].bytes for x in waiting)


def runs(schedule: explorer.Schedule) -> list[Run]:
    return [x for x in schedule.steps if isinstance(x, Run)]


def test_without_encodings_gist_says_so():
    model, batch = sample()
    profile = explorer.profile(model, batch, loss=functional.cross_entropy)
    solution = explorer.solve(profile, budget="1 GiB", method="gist")
    assert "offers no encodings" in solution.message


def test_a_schedule_is_applied_with_its_encoding():
    model, batch = sample()
    profile = explorer.profile(model, batch, loss=functional.cross_entropy, encoding="fp8")
    solution = explorer.solve(profile, budget="1 GiB", method="gist")
    assert solution.schedule is not None
    with pytest.raises(ValueError, match="does not fit"):
        explorer.apply(model, solution.schedule, batch, loss=functional.cross_entropy)
