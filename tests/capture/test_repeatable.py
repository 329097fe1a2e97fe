"""One model has one identity: in this process and in another, whatever was captured before."""

from __future__ import annotations

import subprocess
import sys

import torch

from explorer.capture import capture
from tests.capture.wide import CASES

_NAMES = ("spectral_convolution", "in_place_on_views", "masked_assignment", "convolution_circular", "lstm")
_IN_A_PROCESS = """
import sys, torch
from explorer.capture import capture
from tests.capture.wide import CASES
for name in sys.argv[1:]:
    torch.manual_seed(0)
    model, batch, loss = CASES[name]()
    print(capture(model, batch, loss=loss).graph.identity)
"""


def test_a_fresh_process_captures_the_same() -> None:
    command = [sys.executable, "-c", _IN_A_PROCESS, *reversed(_NAMES)]
    there = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    here = []
    for name in _NAMES:
        torch.manual_seed(0)
        model, batch, loss = CASES[name]()
        here.append(str(capture(model, batch, loss=loss).graph.identity))
    assert here == there[::-1]
