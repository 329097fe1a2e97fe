"""The one initialisation that the convolutional networks share."""

from __future__ import annotations

from torch import nn


def initialise_convolutions(model: nn.Module) -> None:
    """Kaiming-normal weights by fan-out, zero biases (He et al., 2015); everything else keeps torch's defaults."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Conv3d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
