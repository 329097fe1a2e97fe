"""``python -m tests.fake_cuda tests.fake_cuda.unsplit``: a step whose large blocks are not split, measured, as JSON."""

from __future__ import annotations

import json
import sys

import torch
from torch import nn

import explorer

MIB = 2**20


class Large(nn.Module):
    """A product that is more than 10 MiB, and so has a segment of its own, which is a little larger."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.scale).square().sum()


def main() -> None:
    """Of tensors of 11 MiB and a half, in segments of 12."""
    model, batch = Large().cuda(), torch.ones(23 * MIB // 8, device="cuda")
    profile = explorer.profile(model, batch)
    schedule = explorer.keep_all(profile.graph)
    measured = explorer.measure(explorer.apply(model, schedule, batch), batch)
    found = explorer.residual(profile, schedule, measured)
    said = {"peak_bytes": measured.peak_bytes, "requested_bytes": measured.requested_peak_bytes}
    sys.stdout.write(json.dumps({**said, "unsplit_bytes": found.unsplit_bytes, "rest_bytes": found.unexplained_bytes}))


if __name__ == "__main__":
    main()
