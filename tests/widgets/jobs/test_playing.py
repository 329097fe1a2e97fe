"""A sweep over budgets where there are none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import explorer


class Product(nn.Module):
    """One weight, one product: nothing can be made again."""

    def __init__(self) -> None:
        """Random weights."""
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1000))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        """1000 numbers to a loss."""
        return (self.weight * numbers).sum()


def test_where_no_schedule_takes_less_a_sweep_says_so() -> None:
    profile = explorer.profile(Product(), torch.randn(1000))
    with explorer.explore(profile) as made:
        made.wait(120)
        said = made._view.controls.headline.text
        assert said == "as plain PyTorch: nothing to recompute is known to save memory here"
        made._view.controls.play.click()
        assert "nothing to sweep: no schedule is known that takes less than the" in made.message
        assert made.status != "playing"
        with pytest.raises(ValueError, match="nothing to sweep"):
            made.play()
