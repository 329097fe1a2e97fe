"""Networks of the papers' experiments that the explorer does not bring, at full size: built on ``meta``, never run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from explorer.models.resnet import ResNet, shortcut

CLASSES = 1000


def normalised(inputs: int, outputs: int, kernel: int | tuple[int, int] = 3, **options: object) -> nn.Sequential:
    """Convolution without bias, BatchNorm, ReLU; padded so that stride 1 keeps the size unless ``padding`` says."""
    sides = (kernel, kernel) if isinstance(kernel, int) else kernel
    settings: dict = {"padding": tuple(x // 2 for x in sides), "bias": False} | options
    return nn.Sequential(nn.Conv2d(inputs, outputs, sides, **settings), nn.BatchNorm2d(outputs), nn.ReLU())


def classifier(width: int) -> nn.Sequential:
    """The mean over all places, then a linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut (He et al., 2016): ResNet-18 and -34."""

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        """From ``inputs`` to ``width`` channels."""
        super().__init__()
        self.first = normalised(inputs, width, stride=stride)
        self.second = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
        self.shortcut = shortcut(inputs, width, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) → (N, width, H/stride, W/stride)."""
        return F.relu(self.second(self.first(x)) + self.shortcut(x))


class PreActivation(nn.Module):
    """He et al., *Identity mappings*, 2016: normalisation and activation come before each convolution."""

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        """From ``inputs`` to ``4 * width`` channels."""
        super().__init__()
        sizes = ((inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.norms = nn.ModuleList(nn.BatchNorm2d(read) for read, *_ in sizes)
        self.layers = nn.ModuleList(nn.Conv2d(a, b, k, s, padding=k // 2, bias=False) for a, b, k, s in sizes)
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) → (N, 4 · width, H/stride, W/stride)."""
        y = x
        for norm, layer in zip(self.norms, self.layers, strict=True):
            y = layer(F.relu(norm(y)))
        return y + self.shortcut(x)


RESNETS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}
SHALLOW = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


def resnet(depth: int) -> nn.Module:
    """ResNet-18, -34, -50, -101, -152, -200, or -1001, whose 333 blocks are of CIFAR's width."""
    if depth in RESNETS:
        return ResNet(RESNETS[depth])
    if depth == 1001:
        blocks, inputs = [], 16
        for group, width in enumerate((16, 32, 64)):
            for position in range(111):
                blocks.append(PreActivation(inputs, width, stride=2 if group and not position else 1))
                inputs = 4 * width
        return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *blocks, nn.BatchNorm2d(256), nn.ReLU(), classifier(256))
    blocks, inputs = [], 64
    for group, count in enumerate(SHALLOW[depth]):
        for position in range(count):
            width = 64 * 2**group
            blocks.append(BasicBlock(inputs, width, stride=2 if group and not position else 1))
            inputs = width
    stem = (normalised(3, 64, 7, stride=2), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *blocks, classifier(inputs))


class DenseLayer(nn.Module):
    """A layer of DenseNet (Huang et al., 2017): its output is appended to its input."""

    def __init__(self, inputs: int, growth: int) -> None:
        """Appends ``growth`` channels."""
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.squeeze = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.grow = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) → (N, C + growth, H, W)."""
        return torch.cat([x, self.grow(F.relu(self.norm2(self.squeeze(F.relu(self.norm(x))))))], 1)


DENSENETS = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}


def densenet(depth: int) -> nn.Module:
    """DenseNet-121, -161, -169 or -201."""
    width, growth, counts = DENSENETS[depth]
    layers: list[nn.Module] = [normalised(3, width, 7, stride=2), nn.MaxPool2d(3, 2, 1)]
    for number, count in enumerate(counts):
        for _ in range(count):
            layers.append(DenseLayer(width, growth))
            width += growth
        if number < len(counts) - 1:
            half = nn.Conv2d(width, width // 2, 1, bias=False)
            layers += [nn.BatchNorm2d(width), nn.ReLU(), half, nn.AvgPool2d(2)]
            width //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), classifier(width))


class Branches(nn.Module):
    """Side by side, then one concatenation."""

    def __init__(self, *branches: nn.Module) -> None:
        """All read the same."""
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Channels of all branches, in order."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def _pooled(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), normalised(inputs, outputs, 1))


def inception_v3() -> nn.Module:
    """Szegedy et al., 2016, without the auxiliary classifier; pictures of 75 × 75 or more."""
    n = normalised
    layers: list[nn.Module] = [n(3, 32, 3, stride=2, padding=0), n(32, 32, 3, padding=0), n(32, 64), nn.MaxPool2d(3, 2)]
    layers += [n(64, 80, 1), n(80, 192, 3, padding=0), nn.MaxPool2d(3, 2)]
    for width, pooled in ((192, 32), (256, 64), (288, 64)):
        five = nn.Sequential(n(width, 48, 1), n(48, 64, 5))
        three = nn.Sequential(n(width, 64, 1), n(64, 96), n(96, 96))
        layers.append(Branches(n(width, 64, 1), five, three, _pooled(width, pooled)))
    narrow = nn.Sequential(n(288, 64, 1), n(64, 96), n(96, 96, 3, stride=2, padding=0))
    layers.append(Branches(n(288, 384, 3, stride=2, padding=0), narrow, nn.MaxPool2d(3, 2)))
    for c in (128, 160, 160, 192):
        seven = nn.Sequential(n(768, c, 1), n(c, c, (1, 7)), n(c, 192, (7, 1)))
        twice = nn.Sequential(n(768, c, 1), n(c, c, (7, 1)), n(c, c, (1, 7)), n(c, c, (7, 1)), n(c, 192, (1, 7)))
        layers.append(Branches(n(768, 192, 1), seven, twice, _pooled(768, 192)))
    ahead = nn.Sequential(n(768, 192, 1), n(192, 192, (1, 7)), n(192, 192, (7, 1)), n(192, 192, 3, stride=2, padding=0))
    down = nn.Sequential(n(768, 192, 1), n(192, 320, 3, stride=2, padding=0))
    layers.append(Branches(down, ahead, nn.MaxPool2d(3, 2)))
    for width in (1280, 2048):
        first = nn.Sequential(n(width, 384, 1), Branches(n(384, 384, (1, 3)), n(384, 384, (3, 1))))
        second = nn.Sequential(n(width, 448, 1), n(448, 384), Branches(n(384, 384, (1, 3)), n(384, 384, (3, 1))))
        layers.append(Branches(n(width, 320, 1), first, second, _pooled(width, 192)))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(2048, CLASSES))


def _vgg_features(groups: Sequence[tuple[int, int]]) -> list[nn.Sequential]:
    """Groups of 3×3 convolutions with ReLUs, (width, how many) each, without the pools between them."""
    found, read = [], 3
    for width, count in groups:
        layers: list[nn.Module] = []
        for _ in range(count):
            layers += [nn.Conv2d(read, width, 3, padding=1), nn.ReLU()]
            read = width
        found.append(nn.Sequential(*layers))
    return found


VGG16_GROUPS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg19() -> nn.Module:
    """Simonyan and Zisserman, 2015, configuration E."""
    layers: list[nn.Module] = []
    for group in _vgg_features(((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))):
        layers += [*group, nn.MaxPool2d(2)]
    head = [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
    return nn.Sequential(*layers, *head, nn.Linear(4096, CLASSES))


def mobilenet_v1() -> nn.Module:
    """Howard et al., 2017."""
    layers, read = [normalised(3, 32, stride=2)], 32
    widths = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
    for width, stride in widths:
        layers += [normalised(read, read, stride=stride, groups=read), normalised(read, width, 1)]
        read = width
    return nn.Sequential(*layers, classifier(read))


class Fcn8(nn.Module):
    """Long et al., 2015, on VGG-16: predictions at strides 32, 16 and 8 are added on the way up."""

    def __init__(self, classes: int = 21) -> None:
        """A score for each class and pixel."""
        super().__init__()
        self.groups = nn.ModuleList(_vgg_features(VGG16_GROUPS))
        self.head = nn.Sequential(nn.Conv2d(512, 4096, 7, padding=3), nn.ReLU(), nn.Conv2d(4096, 4096, 1), nn.ReLU())
        self.scores = nn.ModuleList(nn.Conv2d(x, classes, 1) for x in (256, 512, 4096))
        self.up = nn.ModuleList(nn.ConvTranspose2d(classes, classes, 2, 2) for _ in range(2))
        self.last = nn.ConvTranspose2d(classes, classes, 8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) → (N, classes, H, W); H and W are multiples of 32."""
        kept = []
        for group in self.groups:
            x = F.max_pool2d(group(x), 2)
            kept.append(x)
        y = self.scores[2](self.head(x))
        y = self.up[0](y) + self.scores[1](kept[3])
        y = self.up[1](y) + self.scores[0](kept[2])
        return self.last(y)


def segnet(classes: int = 21) -> nn.Module:
    """Badrinarayanan et al., 2017: an encoder of VGG-16 and its mirror image, each convolution normalised."""
    layers: list[nn.Module] = []
    read = 3
    for width, count in VGG16_GROUPS:
        for _ in range(count):
            layers.append(normalised(read, width))
            read = width
        layers.append(nn.MaxPool2d(2))
    for number, (width, count) in enumerate(reversed(VGG16_GROUPS)):
        narrower = (*reversed(VGG16_GROUPS), (64, 0))[number + 1][0]
        layers.append(nn.Upsample(scale_factor=2))
        layers += [normalised(width, width) for _ in range(count - 1)]
        layers.append(normalised(width, narrower))
    return nn.Sequential(*layers, nn.Conv2d(64, classes, 3, padding=1))


SEGMENTING: dict[str, Callable[[], nn.Module]] = {"FCN8": Fcn8, "SegNet": segnet}
