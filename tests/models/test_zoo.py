"""Architectures of the zoo that differ most, by random schedules: eager mode's bits and bytes, on other batches."""

from __future__ import annotations

import pytest

import explorer
from benchmarks.zoo import ZOO
from benchmarks.zoo.comparing import bits, distance
from explorer.simulation import simulate
from tests.schedules import random_schedule

NAMES = (
    "barlow_twins",  # a buffer assigned anew; BatchNorm of rows, whose backward pass in place has other bits
    "denoising_autoencoder",  # one tensor as input and target, a loss that keeps the memory of its elements
    "fno",  # complex numbers, a part of a spectrum written in place
    "moco",  # a queue written in place, a frozen encoder
    "odd_paddings",  # circular padding, padding="valid"
    "unet_bilinear",  # kernels that tracing would take apart
)


@pytest.mark.thorough("unet_bilinear", "barlow_twins")
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", NAMES)
def test_random_schedules_train_as_eager_mode_does(name: str) -> None:
    specimen = ZOO[name]
    model, batch, loss = specimen.model(), specimen.sample(0), specimen.loss
    with specimen.precision():
        profile = explorer.profile(model, batch, loss=loss)
    plain = explorer.keep_all(profile.graph)
    assert profile.eager_peak_bytes is not None
    assert simulate(profile, plain).peak_bytes <= 1.001 * profile.eager_peak_bytes
    exact = random_schedule(profile.graph, 1, keep=0.6, allowed=lambda x: x.exact)
    for schedule in (plain, exact):
        with specimen.precision():
            scheduled = explorer.apply(specimen.model(), schedule, batch, loss=loss, check=False)
            measured = explorer.measure(scheduled, batch, steps=1).peak_bytes
        assert measured == pytest.approx(simulate(profile, schedule).peak_bytes, rel=1e-3)
        scheduled.load_state_dict(specimen.model().state_dict())
        assert bits(specimen, scheduled, specimen.model(), steps=2) is None
    joint = random_schedule(profile.graph, 2, keep=0.6, allowed=lambda _: True)
    with specimen.precision():
        scheduled = explorer.apply(specimen.model(), joint, batch, loss=loss, check=False)
    assert distance(specimen, scheduled, specimen.model(), steps=3).beyond is None
