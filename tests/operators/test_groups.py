"""Chains of calls as one operator: what their steps are, and what the compiler makes of them."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from explorer.operators import fusing
from explorer.operators.feed_forward import Value
from explorer.operators.fusing import fused
from explorer.operators.groups import Group, GroupStep, Layout, group_of_calls

aten = torch.ops.aten
LAYOUT: Layout = ((6, 8), (8, 1), torch.float32)
ROW: Layout = ((6, 1), (1, 1), torch.float32)


def root_mean_square() -> Group:
    """x · rsqrt(mean x²): the factor and the result are asked for."""
    steps = (
        GroupStep(aten.pow.Tensor_Scalar, (Value(0), 2)),
        GroupStep(aten.mean.dim, (Value(1), [-1], True)),
        GroupStep(aten.rsqrt.default, (Value(2),)),
        GroupStep(aten.mul.Tensor, (Value(0), Value(3))),
    )
    return Group((LAYOUT,), steps, (3, 4), (ROW, LAYOUT)).freeing()


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    with mock.patch.dict("explorer.operators.fusing._COMPILED", clear=True):
        yield


def test_calls_one_by_one() -> None:
    x = torch.randn(6, 8)
    factor, result = group_of_calls(root_mean_square(), [x])
    assert torch.equal(factor, x.pow(2).mean(-1, keepdim=True).rsqrt())
    assert torch.equal(result, x * factor)


def test_nothing_is_kept_longer_than_needed() -> None:
    assert [x.frees for x in root_mean_square().steps] == [(), (1,), (2,), ()]


def test_some_of_the_results() -> None:
    """With no step that only the others need."""
    x = torch.randn(6, 8)
    alone = root_mean_square().only((0,))
    assert len(alone.steps) == 3
    assert torch.equal(group_of_calls(alone, [x]), x.pow(2).mean(-1, keepdim=True).rsqrt())


def test_what_leads_to_a_value() -> None:
    group = root_mean_square()
    assert group.leading_to((4,), ()) == {0, 1, 2, 3, 4}
    assert group.leading_to((4,), (3,)) == {0, 3, 4}


def test_lists_and_names_are_looked_into() -> None:
    x = torch.randn(6, 8)
    both = GroupStep(aten.cat.default, ([Value(0), Value(1)], 1))
    cast = GroupStep(aten._to_copy.default, (Value(2),), (("dtype", torch.float64),))
    wide: Layout = ((6, 16), (16, 1), torch.float64)
    group = Group((LAYOUT,), (GroupStep(aten.neg.default, (Value(0),)), both, cast), (3,), (wide,)).freeing()
    assert torch.equal(group_of_calls(group, [x]), torch.cat([x, -x], 1).double())


def test_sums_in_place_of_what_was_made_here() -> None:
    steps = (
        GroupStep(aten.neg.default, (Value(0),)),
        GroupStep(aten.add.Tensor, (Value(1), Value(0)), in_place=True),
    )
    x = torch.randn(6, 8)
    assert torch.equal(group_of_calls(Group((LAYOUT,), steps, (2,), (LAYOUT,)).freeing(), [x]), torch.zeros(6, 8))


def test_keys_tell_what_is_computed() -> None:
    group = root_mean_square()
    assert group.key == root_mean_square().key
    other = Group((((6, 8), (1, 6), torch.float32),), group.steps, group.results, group.layouts)
    assert other.key != group.key != group.only((1,)).key


def test_the_compiler_computes_the_same() -> None:
    x = torch.randn(6, 8)
    expected = group_of_calls(root_mean_square(), [x.double()])
    for found, exact in zip(fused(root_mean_square(), [x]), expected, strict=True):
        assert found.stride() == exact.stride()
        torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=1e-6)


def test_results_are_tensors_of_their_own() -> None:
    """A compiler sees that two results are equal, or one is what was given, and returns a tensor twice."""
    steps = (
        GroupStep(aten.mul.Tensor, (Value(0), 1)),
        GroupStep(aten.exp.default, (Value(0),)),
        GroupStep(aten.exp.default, (Value(0),)),
    )
    x = torch.randn(6, 8)
    found = fused(Group((LAYOUT,), steps, (1, 2, 3), (LAYOUT,) * 3).freeing(), [x])
    assert len({y.data_ptr() for y in (x, *found)}) == 4
    for made, expected in zip(found, (x, x.exp(), x.exp()), strict=True):
        torch.testing.assert_close(made, expected)


def test_without_a_compiler_the_calls_are_made_one_by_one() -> None:
    x = torch.randn(6, 8)
    expected = group_of_calls(root_mean_square(), [x])
    with mock.patch.object(fusing, "why_not", return_value="no compiler"):
        with pytest.warns(UserWarning, match="no compiler: operators .* one by one"):
            found = fused(root_mean_square(), [x])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fused(root_mean_square(), [x])
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_what_keeps_the_compiler_from_working_is_said() -> None:
    """In a process of its own: which compiler there is, PyTorch finds out once."""
    program = "from explorer.operators.fusing import why_not; print(why_not('cpu'))"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={"CXX": "/no/such/compiler", "PATH": "", "PYTHONPATH": ":".join(sys.path), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert found.stdout.startswith("PyTorch's compiler does not work here ("), found.stderr
