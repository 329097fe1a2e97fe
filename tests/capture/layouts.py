"""Models whose tensors lie in memory in unusual ways, or are changed where they lie; found by random programs."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.capture.wide import Body, case, regression, sample


def plain(function, *shape: int, **children: nn.Module):
    """One whose result is trained on as it is."""
    return Body(lambda m, x: function(m, m.linear(x)), shape[-1], **children), torch.randn(shape), None


@case
def overlapping_windows_as_a_result():
    return plain(lambda _, x: torch.tanh(x).unfold(1, 3, 1), 4, 6)


@case
def every_other_column_as_a_result():
    return plain(lambda _, x: torch.tanh(x)[:, ::2], 4, 6)


@case
def masked_where_it_is_transposed():
    def function(_, x):
        y = x.mT.clone().masked_fill_(x.mT > 0, 0.5)
        return (y * torch.linspace(0, 1, 5)).square().mean()

    return sample(function, 5, 6)


@case
def indices_added_where_it_is_transposed():
    def function(_, x):
        y = x.mT.clone()
        y.index_add_(0, torch.tensor([1, 3]), x[:2, :5] if x.shape[1] == 5 else x.mT[:2])
        return y.cumsum_(1).tanh()

    return sample(function, 5, 6)


@case
def written_through_an_expansion_to_its_own_shape():
    def function(_, x):
        y = x * 1.5
        y.expand_as(x).copy_(F.normalize(x, dim=1))
        return F.leaky_relu((y * 3).expand(4, 6), 0.1, inplace=True)

    return sample(function, 4, 6)


@case
def channels_last_before_a_normalisation():
    def function(m, x):
        return m.norm(x.to(memory_format=torch.channels_last))

    return sample(function, 2, 3, 4, 8, norm=nn.BatchNorm2d(3))


@case
def transposed_before_normalisations():
    return sample(
        lambda m, x: m.instance(m.batch(x.mT)), 2, 4, 4, 4, batch=nn.BatchNorm2d(4), instance=nn.GroupNorm(2, 4)
    )


@case
def convolution_whose_weight_is_frozen():
    convolution = nn.Conv1d(3, 4, 3, padding=1)
    convolution.weight.requires_grad_(requires_grad=False)
    return (
        Body(lambda m, x: m.conv(m.linear(x)), 4, conv=convolution),
        (torch.randn(2, 3, 4), torch.zeros(1)),
        regression,
    )


@case
def dropped_where_it_is_transposed():
    def function(_, x):
        y = x.mT.clone()
        F.dropout(y, 0.5, inplace=True)
        return F.alpha_dropout(y * 2, 0.3, training=True, inplace=True) * torch.empty_like(y).bernoulli_(0.5)

    return sample(function, 5, 6)


@case
def results_that_are_views_of_an_activation_in_place():
    def function(m, x):
        y = F.hardtanh(m.wide(x), inplace=True)
        return y.unfold(0, 2, 1), y.reshape(-1)

    return plain(function, 2, 3, 4, 6, wide=nn.Linear(6, 8, bias=False))
