"""The plots of a sweep say what its rows say."""

from __future__ import annotations

from typing import Any

import pytest

from explorer.solution import Status
from explorer.sweeping.table import Row, Sweep
from widgets.plots.sweep_plot import batches_figure, devices_figure


def row(model: str, device: str, samples: int, speed: float | None) -> Row:
    known: dict[str, Any] = {"peak_bytes": 5, "samples_per_s": speed} if speed else {}
    return Row(
        key=f"{model}{device}{samples}",
        model=model,
        device=device,
        batch_size=samples,
        samples=samples,
        precision=None,
        optimizer=None,
        budget="device",
        method="monet",
        time_limit=1.0,
        status=Status.FEASIBLE if speed else Status.INFEASIBLE,
        device_bytes=10,
        **known,
    )


SWEEP = Sweep(
    (
        row("gpt2", "T4", 8, 20.0),
        row("gpt2", "T4", 16, 15.0),
        row("gpt2", "H100", 16, 90.0),
        row("<b>unet", "T4", 8, None),
        row("<b>unet", "H100", 8, 7.0),
    )
)


def test_which_device():
    (bars,) = devices_figure(SWEEP, "gpt2").data
    assert list(bars.y) == ["T4", "H100"]
    assert list(bars.x) == [20.0, 90.0]
    assert bars.text[0].startswith("batch 8, MONeT")
    (bars,) = devices_figure(SWEEP, "<b>unet").data
    assert (bars.y[0], bars.x[0], bars.text[0]) == ("T4", 0.0, "nothing fits")
    with pytest.raises(ValueError, match=r"the sweep has no model 'vgg'; it has 'gpt2'"):
        devices_figure(SWEEP, "vgg")


def test_largest_batch():
    gpt2, unet = batches_figure(SWEEP).data
    assert list(gpt2.x) == ["T4", "H100"]
    assert list(gpt2.y) == [16, 16]
    assert list(unet.y) == [0, 8]
    assert "<b>" not in unet.name
