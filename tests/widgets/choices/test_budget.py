"""Budgets as people choose them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from widgets.choices.budget import parse_budget, presets, sweep

GIB = 2**30


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("2", 2 * GIB),
        (" 0.5 ", GIB // 2),
        ("512 MiB", GIB // 2),
        ("80 %", int(0.8 * 10 * GIB)),
        ("100%", 10 * GIB),
    ],
)
def test_typed_in_any_way(typed: str, meant: int) -> None:
    assert parse_budget(typed, 10 * GIB) == meant


@pytest.mark.parametrize("typed", ["", "much", "8 elephants", "0", "-3", "0 %", "-5 %", "5 % GiB"])
def test_what_is_no_budget_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match="budget"):
        parse_budget(typed, 10 * GIB)


def test_presets_lie_between_the_ends_and_say_what_they_are() -> None:
    found = presets(3 * GIB, 20 * GIB)
    assert found[0].bytes == 20 * GIB
    assert found[-1].bytes == 3 * GIB
    assert all(a.bytes >= b.bytes for a, b in pairwise(found))
    labels = {mark.label: mark.bytes for mark in found}
    assert labels["50 % of PyTorch's peak"] == 10 * GIB
    assert labels["a GPU with 8 GiB"] == 8 * GIB
    assert "a GPU with 24 GiB" not in labels


def test_a_sweep_goes_down_to_the_smallest() -> None:
    found = sweep(100, 200, steps=5)
    assert found == (200, 175, 150, 125, 100)
    assert sweep(100, 100) == (100,)
