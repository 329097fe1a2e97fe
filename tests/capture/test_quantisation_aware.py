"""Models that are prepared for quantisation-aware training: captured once they have seen a tensor, else told to."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.nn import functional as F

import explorer

BATCH = torch.randn(4, 8), torch.tensor([0, 1, 2, 0])

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


def test_a_prepared_model_is_captured_after_its_first_pass() -> None:
    torch.manual_seed(0)
    layers = (quantization.QuantStub(), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), quantization.DeQuantStub())
    model = nn.Sequential(*layers)
    model.qconfig = quantization.get_default_qat_qconfig("x86")  # type: ignore[assignment]
    model = quantization.prepare_qat(model.train())
    with pytest.raises(ValueError, match=r"weight_fake_quant .* run the model once before"):
        explorer.profile(model, BATCH, loss=F.cross_entropy)
    model(BATCH[0])
    profile = explorer.profile(model, BATCH, loss=F.cross_entropy)
    scheduled = explorer.apply(model, explorer.keep_all(profile.graph), BATCH, loss=F.cross_entropy)
    scheduled(*BATCH).backward()
    found = [x.grad for x in model.parameters()]
    model.zero_grad()
    F.cross_entropy(model(BATCH[0]), BATCH[1]).backward()
    assert all(torch.equal(a, x.grad) for a, x in zip(found, model.parameters(), strict=True))  # type: ignore[arg-type]


def test_what_asks_a_tensor_in_each_step_is_named() -> None:
    model = nn.Sequential(quantization.FakeQuantize(), nn.Linear(8, 3))
    with pytest.raises(ValueError, match=r"0 is a FakeQuantize, .* FusedMovingAvgObsFakeQuantize"):
        explorer.profile(model, BATCH, loss=F.cross_entropy)
