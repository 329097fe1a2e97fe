"""Tensors of which kernels read the layout alone."""

from __future__ import annotations

import torch

from explorer.operators.convolution_algorithms import stand_in


def test_it_lies_over_an_argument_that_is_large_enough() -> None:
    small, large = torch.zeros(3), torch.zeros(4, 8)[1:]
    found = stand_in((2, 3, 4), (12, 1, 3), small, large)
    assert found.shape == (2, 3, 4)
    assert found.stride() == (12, 1, 3)
    assert found.data_ptr() == large.data_ptr()


def test_what_only_looks_large_enough_does_not_count() -> None:
    """A gradient of ones may be one number expanded; views may lie in much more memory than they are."""
    expanded, view = torch.zeros(1).expand(100), torch.zeros(100)[:5]
    found = stand_in((2, 3), None, expanded, view)
    assert found.stride() == (3, 1)
    assert found.data_ptr() not in (expanded.data_ptr(), view.data_ptr())
