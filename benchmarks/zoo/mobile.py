"""The efficient classifiers: depthwise convolutions, squeeze and excitation, searched and regular designs."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.specimen import Specimen, classifier, convolution, images, normalised


def _mobilenet_v1() -> nn.Module:
    """Howard et al., 2017: depthwise and pointwise convolutions in turn."""
    layers: list[nn.Module] = [normalised(3, 16, stride=2)]
    for inputs, outputs, stride in ((16, 32, 1), (32, 48, 2), (48, 48, 1), (48, 64, 2)):
        layers += [normalised(inputs, inputs, stride=stride, groups=inputs), normalised(inputs, outputs, 1)]
    return nn.Sequential(*layers, classifier(64))


class _Excitation(nn.Module):
    """Squeeze and excitation (Hu et al., 2018)."""

    def __init__(self, width: int, activation: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(width, max(4, width // 4), 1)
        self.activation = activation
        self.expand = nn.Conv2d(max(4, width // 4), width, 1)
        self.gate = gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = F.adaptive_avg_pool2d(x, 1)
        return self.gate(self.expand(self.activation(self.reduce(scale)))) * x


class _Inverted(nn.Module):
    """The inverted residual of MobileNet-V2 (Sandler et al., 2018), as it is used ever since."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        stride: int = 1,
        kernel: int = 3,
        activation: type[nn.Module] = nn.ReLU6,
        gate: nn.Module | None = None,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        wide = 4 * inputs
        layers: list[nn.Module] = [
            normalised(inputs, wide, 1, activation=activation()),
            normalised(wide, wide, kernel, stride=stride, groups=wide, activation=activation()),
        ]
        if gate is not None:
            layers.append(_Excitation(wide, nn.ReLU() if activation is nn.Hardswish else nn.SiLU(), gate))
        self.body = nn.Sequential(*layers, convolution(wide, outputs, 1), nn.BatchNorm2d(outputs))
        self.residual = stride == 1 and inputs == outputs
        self.drop = drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        if not self.residual:
            return y
        if self.drop:  # stochastic depth, by sample
            kept = torch.empty(len(x), 1, 1, 1).bernoulli_(1 - self.drop)
            y = y * kept / (1 - self.drop)
        return x + y


def _mobilenet_v2() -> nn.Module:
    blocks = (_Inverted(16, 24, stride=2), _Inverted(24, 24), _Inverted(24, 32, stride=2))
    return nn.Sequential(normalised(3, 16, stride=2, activation=nn.ReLU6()), *blocks, classifier(32))


def _mobilenet_v3() -> nn.Module:
    """Howard et al., 2019."""
    swish = nn.Hardswish
    return nn.Sequential(
        normalised(3, 16, stride=2, activation=swish(inplace=True)),
        _Inverted(16, 24, stride=2, activation=swish, gate=nn.Hardsigmoid(inplace=True)),
        _Inverted(24, 24, kernel=5, activation=swish, gate=nn.Hardsigmoid(inplace=True)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 64),
        nn.Hardswish(inplace=True),
        nn.Dropout(0.2),
        nn.Linear(64, 10),
    )


def _efficientnet() -> nn.Module:
    """Tan and Le, 2019: SiLU, squeeze and excitation, stochastic depth."""
    return nn.Sequential(
        normalised(3, 16, stride=2, activation=nn.SiLU(inplace=True)),
        _Inverted(16, 24, stride=2, activation=nn.SiLU, gate=nn.Sigmoid()),
        _Inverted(24, 24, kernel=5, activation=nn.SiLU, gate=nn.Sigmoid(), drop=0.2),
        _Inverted(24, 24, activation=nn.SiLU, gate=nn.Sigmoid(), drop=0.2),
        classifier(24),
    )


def _mnasnet() -> nn.Module:
    """Tan et al., 2019: separable stem, inverted residuals with 5 × 5 kernels, BatchNorm of small momentum."""
    model = nn.Sequential(
        normalised(3, 16, stride=2),
        normalised(16, 16, groups=16),
        _Inverted(16, 24, stride=2, kernel=5, activation=nn.ReLU),
        _Inverted(24, 24, kernel=5, activation=nn.ReLU),
        classifier(24),
    )
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 3e-4
    return model


class _Shuffle(nn.Module):
    """ShuffleNet-V2's unit (Ma et al., 2018): half of the channels pass, then channels are shuffled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(
            normalised(half, half, 1),
            convolution(half, half, groups=half),
            nn.BatchNorm2d(half),
            normalised(half, half, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed, changed = x.chunk(2, dim=1)
        y = torch.cat([passed, self.body(changed)], 1)
        n, channels, height, width = y.shape
        return y.view(n, 2, channels // 2, height, width).transpose(1, 2).contiguous().view(n, -1, height, width)


def _shufflenet() -> nn.Module:
    stem = nn.Sequential(normalised(3, 32, stride=2), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(stem, *(_Shuffle(32) for _ in range(3)), normalised(32, 64, 1), classifier(64))


class _RegularStage(nn.Module):
    """RegNet-Y's block (Radosavovic et al., 2020)."""

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.a = normalised(inputs, outputs, 1)
        self.b = normalised(outputs, outputs, stride=stride, groups=outputs // 8)
        self.excite = _Excitation(outputs, nn.ReLU(inplace=True), nn.Sigmoid())
        self.c = nn.Sequential(convolution(outputs, outputs, 1), nn.BatchNorm2d(outputs))
        self.short = nn.Sequential(convolution(inputs, outputs, 1, stride=stride), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.c(self.excite(self.b(self.a(x)))) + self.short(x), inplace=True)


class _ConvNeXtBlock(nn.Module):
    """Liu et al., 2022: depthwise 7 × 7, LayerNorm over channels, layer scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + self.scale * y.permute(0, 3, 1, 2)


def _convnext() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 24, 4, stride=4),
        _ConvNeXtBlock(24),
        nn.Conv2d(24, 48, 2, stride=2),
        _ConvNeXtBlock(48),
        classifier(48),
    )


def _channels_last() -> nn.Module:
    model: nn.Module = _mobilenet_v2()
    return model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def _channels_last_images() -> tuple[torch.Tensor, torch.Tensor]:
    inputs, target = images(8, 64)()
    return inputs.to(memory_format=torch.channels_last), target


_loss = F.cross_entropy
_family = "Efficient classifiers"
SPECIMENS = (
    Specimen("mobilenet_v1", _family, _mobilenet_v1, images(8, 64), _loss),
    Specimen("mobilenet_v2", _family, _mobilenet_v2, images(8, 64), _loss),
    Specimen(
        "mobilenet_v2_channels_last", _family, _channels_last, _channels_last_images, _loss, ("channels-last layout",)
    ),
    Specimen("mobilenet_v3", _family, _mobilenet_v3, images(8, 64), _loss, ("hardswish in place", "dropout")),
    Specimen("mnasnet", _family, _mnasnet, images(8, 64), _loss),
    Specimen("shufflenet_v2", _family, _shufflenet, images(8, 64), _loss, ("chunk and shuffle of channels",)),
    Specimen("efficientnet", _family, _efficientnet, images(8, 64), _loss, ("stochastic depth",)),
    Specimen(
        "regnet_y",
        _family,
        lambda: nn.Sequential(
            normalised(3, 16, stride=2),
            _RegularStage(16, 32, stride=2),
            _RegularStage(32, 48, stride=2),
            classifier(48),
        ),
        images(8, 64),
        _loss,
    ),
    Specimen("convnext", _family, _convnext, images(8, 64), _loss, ("permuted LayerNorm",)),
    Specimen(
        "mobilenet_v3_bf16",
        _family,
        _mobilenet_v3,
        images(8, 64),
        _loss,
        ("autocast to bfloat16", "dropout"),
        autocast=True,
    ),
)
