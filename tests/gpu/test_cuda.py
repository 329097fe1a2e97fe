"""What needs a CUDA device; ``python -m tests.gpu`` runs the same without pytest (see docs/devices.md)."""

from __future__ import annotations

import pytest

from tests.gpu.checks import CHECKS, Check, Skipped


@pytest.mark.gpu
@pytest.mark.parametrize("check", CHECKS, ids=lambda x: x.name)
def test_on_a_gpu(check: Check) -> None:
    try:
        check.run("cuda")
    except Skipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("check", [x for x in CHECKS if x.name in ("out of memory", "cuDNN, FFT, forward")])
def test_the_checks_themselves_on_a_cpu(check: Check) -> None:
    check.run("cpu")
