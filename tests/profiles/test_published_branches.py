"""Importing a published instance with branches: an instance of that form, made here."""

from __future__ import annotations

from typing import Any

import pytest

from explorer import keep_all, simulate, solve
from explorer.profiles.published import profile_of

MIB = 2**20
BRANCHES = 3


def forward(number: int, op: str, inputs: list[int], mib: int, **more: Any) -> dict[str, Any]:
    costs = {"ms": 1.0, "workspace_bytes": 0, "recompute_ms": 1.0, "recompute_workspace_bytes": 0}
    return {"id": number, "kind": "forward", "op": op, "inputs": inputs, "output_bytes": mib * MIB, **costs, **more}


def backward(number: int, of: int, gradients: list[int], mib: int, *alternatives: tuple[int, int]) -> dict[str, Any]:
    """``alternatives``: what each needs, and its workspace in MiB."""
    choices = [{"needs": [needs], "ms": 1.0, "workspace_bytes": mib * MIB} for needs, mib in alternatives]
    made = {"gradient_inputs": gradients, "output_bytes": mib * MIB, "parameter_gradient_bytes": 0}
    return {"id": number, "kind": "backward", "of": of, "op": f"backward_of_{of}", **made, "alternatives": choices}


def branched() -> dict[str, Any]:
    """Each branch is a normalisation and a ReLU; all are read by one ``cat``, whose gradient all ReLUs read."""
    ops = [forward(0, "conv2d", [], 1)]
    for _ in range(BRANCHES):
        ops.append(forward(len(ops), "batch_norm", [0], 1))
        over = {"over": len(ops) - 1, "ms": 1.0, "workspace_bytes": -MIB}
        ops.append(forward(len(ops), "relu", [len(ops) - 1], 1, inplace=over))
    relus = list(range(2, len(ops), 2))
    ops.append(forward(len(ops), "cat", relus, BRANCHES))
    cat = len(ops) - 1
    ops.append({**forward(cat + 1, "loss", [cat], 0), "kind": "loss"})
    ops.append(backward(cat + 2, cat, [], BRANCHES, (cat, 0)))
    for relu in reversed(relus):
        ops.append(backward(len(ops), relu, [cat + 2], 1, (relu - 1, -1), (relu, -1)))
        ops.append(backward(len(ops), relu - 1, [len(ops) - 1], 1, (0, 0)))
    return {
        "model": "branches",
        "batch_size": 1,
        "device": "none",
        "dtype": "float32",
        "fixed_bytes": 1000,
        "optimizations": "all",
        "ops": ops,
    }


def test_a_gradient_that_other_branches_read_is_not_overwritten() -> None:
    profile = profile_of(branched())
    relus = [x for x in profile.graph.backward if any(y.name == "alternative 1" for y in x.implementations)]
    assert len(relus) == BRANCHES
    overwritten = [{y.overwrites for y in x.implementations} for x in relus]
    # The last of them is the gradient's last reader, and takes its place.
    assert overwritten[:-1] == [{None}] * (BRANCHES - 1)
    assert overwritten[-1] == {next(x for x in relus[-1].default().reads if profile.graph.storages[x].bytes == 3 * MIB)}
    plain = simulate(profile, keep_all(profile.graph))
    assert plain.peak_bytes < sum(x.bytes for x in profile.graph.storages)


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_it_is_solved_as_any_other(share: float) -> None:
    profile = profile_of(branched())
    budget = int(share * simulate(profile, keep_all(profile.graph)).peak_bytes)
    found = solve(profile, budget=budget, steps=1)
    assert found.schedule is not None
    assert simulate(profile, found.schedule).peak_bytes <= budget


def test_a_workspace_below_zero_without_a_gradient_as_large_counts_as_none() -> None:
    document = branched()
    for op in document["ops"]:
        for choice in op.get("alternatives", ()):
            choice["workspace_bytes"] *= 10
    profile = profile_of(document)
    assert all(y.overwrites is None for x in profile.graph.backward for y in x.implementations)
    assert all(cost.workspace_bytes == 0 for cost in profile.costs.values())
