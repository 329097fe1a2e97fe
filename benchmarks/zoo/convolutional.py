"""The convolutional classifiers from AlexNet to DenseNet."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.specimen import Specimen, classifier, convolution, images, normalised


class _AlexNet(nn.Module):
    """Krizhevsky et al., 2012: local response normalisation, dropout before the linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 7, stride=2, padding=2),
            nn.ReLU(inplace=True),
            nn.LocalResponseNorm(5),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(16, 32, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(32, 48, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(48, 32, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(3),
        )
        self.head = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(288, 64), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(64, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


class _Vgg(nn.Sequential):
    """Simonyan and Zisserman, 2014, with BatchNorm."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        width = 3
        for step in (16, "pool", 32, "pool", 48, 48, "pool", 64, 64, "pool"):
            if isinstance(step, int):
                layers += normalised(width, step)
                width = step
            else:
                layers.append(nn.MaxPool2d(2))
        head = (nn.Linear(4 * width, 64), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(64, 10))
        super().__init__(*layers, nn.Flatten(), *head)


class _Residual(nn.Module):
    """The bottleneck of He et al., 2015, with groups for ResNeXt (Xie et al., 2017)."""

    def __init__(
        self, inputs: int, outputs: int, *, stride: int = 1, groups: int = 1, inner: int | None = None
    ) -> None:
        super().__init__()
        inner = inner or outputs // 4
        self.body = nn.Sequential(
            *normalised(inputs, inner, 1),
            *normalised(inner, inner, 3, stride=stride, groups=groups),
            convolution(inner, outputs, 1),
            nn.BatchNorm2d(outputs),
        )
        self.short = nn.Identity()
        if inputs != outputs or stride != 1:
            self.short = nn.Sequential(convolution(inputs, outputs, 1, stride=stride), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        y += self.short(x)
        return F.relu(y, inplace=True)


def _resnet(*, groups: int = 1, wide: int = 1) -> nn.Module:
    blocks: list[nn.Module] = []
    width = 16
    for outputs, stride in ((64, 1), (64, 1), (96, 2), (128, 2)):
        inner = outputs // 4 * wide
        blocks.append(_Residual(width, outputs, stride=stride, groups=groups, inner=inner))
        width = outputs
    return nn.Sequential(*normalised(3, 16, 7, stride=2), nn.MaxPool2d(3, 2, 1), *blocks, classifier(width))


class _PreActivation(nn.Module):
    """He et al., 2016: normalisation and activation come before each convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.convolutions = nn.ModuleList(convolution(width, width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for norm, layer in zip(self.norms, self.convolutions, strict=True):
            y = layer(F.relu(norm(y)))
        return x + y


class _Dense(nn.Module):
    """A layer of DenseNet (Huang et al., 2017): its output is appended to its input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.squeeze = convolution(inputs, 4 * growth, 1)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.grow = convolution(4 * growth, growth)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.squeeze(F.relu(self.norm(x), inplace=True))
        return torch.cat([x, self.grow(F.relu(self.norm2(y), inplace=True))], 1)


def _densenet() -> nn.Module:
    layers: list[nn.Module] = [*normalised(3, 16, 3, stride=2)]
    width = 16
    for block in range(2):
        for _ in range(3):
            layers.append(_Dense(width, 8))
            width += 8
        if block == 0:
            layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), convolution(width, width // 2, 1), nn.AvgPool2d(2)]
            width //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(inplace=True), classifier(width))


class _Inception(nn.Module):
    """Four branches behind one concatenation (Szegedy et al., 2014)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.one = normalised(inputs, width, 1)
        self.three = nn.Sequential(normalised(inputs, width, 1), normalised(width, width))
        self.five = nn.Sequential(normalised(inputs, width // 2, 1), normalised(width // 2, width, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), normalised(inputs, width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


class _GoogLeNet(nn.Module):
    """Inception blocks, with an auxiliary head that joins the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(normalised(3, 16, 7, stride=2), nn.MaxPool2d(3, 2, ceil_mode=True))
        self.blocks = nn.ModuleList([_Inception(16, 12), _Inception(48, 16), _Inception(64, 16)])
        self.auxiliary = classifier(64)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.stem(x)
        x = self.blocks[1](self.blocks[0](x))
        auxiliary = self.auxiliary(x)
        return self.head(self.blocks[2](x)), auxiliary


def _two_heads(outputs: tuple[torch.Tensor, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs[0], target) + 0.3 * F.cross_entropy(outputs[1], target)


class _Factorised(nn.Module):
    """Inception-v3 (Szegedy et al., 2016): 7 × 7 as 1 × 7 and 7 × 1, average pooling in a branch."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.one = normalised(inputs, width, 1)
        self.seven = nn.Sequential(
            normalised(inputs, width // 2, 1),
            nn.Conv2d(width // 2, width // 2, (1, 7), padding=(0, 3), bias=False),
            nn.BatchNorm2d(width // 2, eps=0.001),
            nn.ReLU(inplace=True),
            nn.Conv2d(width // 2, width, (7, 1), padding=(3, 0), bias=False),
            nn.BatchNorm2d(width, eps=0.001),
            nn.ReLU(inplace=True),
        )
        self.pool = normalised(inputs, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = F.avg_pool2d(x, kernel_size=3, stride=1, padding=1)
        return torch.cat([self.one(x), self.seven(x), self.pool(pooled)], 1)


def _inception_v3() -> nn.Module:
    return nn.Sequential(
        normalised(3, 16, 3, stride=2), nn.MaxPool2d(3, 2), _Factorised(16, 16), _Factorised(48, 16), classifier(48)
    )


class _Fire(nn.Module):
    """SqueezeNet's module (Iandola et al., 2016)."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.squeeze(x), inplace=True)
        return torch.cat([F.relu(self.expand1(x), inplace=True), F.relu(self.expand3(x), inplace=True)], 1)


def _squeezenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        _Fire(32, 8, 32),
        _Fire(64, 8, 32),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        _Fire(64, 12, 48),
        nn.Dropout(0.5),
        nn.Conv2d(96, 10, 1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


_loss = F.cross_entropy
_family = "Convolutional classifiers"
SPECIMENS = (
    Specimen("alexnet", _family, _AlexNet, images(8, 64), _loss, ("dropout", "local response norm")),
    Specimen("vgg_bn", _family, _Vgg, images(8, 32), _loss, ("dropout",)),
    Specimen("resnet", _family, _resnet, images(8, 64), _loss, ("`+=` and ReLU in place",)),
    Specimen("resnext", _family, lambda: _resnet(groups=4), images(8, 64), _loss, ("grouped convolutions",)),
    Specimen("wide_resnet", _family, lambda: _resnet(wide=2), images(8, 64), _loss),
    Specimen(
        "preactivation_resnet",
        _family,
        lambda: nn.Sequential(convolution(3, 24), *(_PreActivation(24) for _ in range(3)), classifier(24)),
        images(8, 32),
        _loss,
    ),
    Specimen("densenet", _family, _densenet, images(8, 64), _loss, ("concatenation",)),
    Specimen("googlenet", _family, _GoogLeNet, images(8, 64), _two_heads, ("auxiliary head", "dropout")),
    Specimen("inception_v3", _family, _inception_v3, images(8, 64), _loss),
    Specimen("squeezenet", _family, _squeezenet, images(8, 64), _loss, ("dropout",)),
)
