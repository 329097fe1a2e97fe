"""Estimates against measurements: MONeT's profiles of a P100, and published training throughputs of other devices.

    python -m benchmarks.execution.estimates FOLDER [--tier quick] [--markdown FILE]

FOLDER is that of MONeT's published instances as JSON. For VGG-16, UNet and ResNet-50 at the sizes measured there
it compares the bytes of every activation, the time of every operator and of the step with PyTorch's own algorithms,
and, for every part of every convolution, the time of the algorithm that the estimate takes to be the fastest within a
workspace with that of the one that was.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import nn
from torch.nn import functional as F

import explorer
from benchmarks.cases import Tier, add_tier
from benchmarks.provenance import record
from explorer.capture import Capture
from explorer.capture.stand_in import capture_for_cuda
from explorer.device_profile import Profile
from explorer.graph import Operator
from explorer.models import MODELS
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.operators.registry import all_arguments
from explorer.profiling.convolution_costs import Part, convolution_cost
from explorer.profiling.convolutions import geometry_of
from explorer.profiling.devices import device_spec
from explorer.schedule import keep_all
from explorer.simulation import simulate

DEVICE = "P100-16GB"
NOISE_BYTES = 2**20
"""How far off measured workspaces are: ReLU's, which has none, is up to 0.8 MiB, for PyTorch's allocator hands out
blocks up to 1 MiB too large."""
NAMES = {Tier.QUICK: ("vgg16",), Tier.FULL: ("vgg16", "unet", "resnet50")}
CAPS = (0, 2**20, 2**23, 2**26, 2**28, 2**30, None)
KINDS = {
    "convolution": "conv2d",
    "_native_batch_norm_legit": "batch_norm",
    "relu": "relu",
    "max_pool2d_with_indices": "max_pool2d",
    "add": "add",
    "cat": "cat",
    "addmm": "linear",
    "native_dropout": "dropout",
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
    "mean": "adaptive_avg_pool2d",
}
BACKWARD_KINDS = {
    "convolution_backward": "conv2d",
    "native_batch_norm_backward": "batch_norm",
    "threshold_backward": "relu",
    "max_pool2d_with_indices_backward": "max_pool2d",
    "native_dropout_backward": "dropout",
    "_adaptive_avg_pool2d_backward": "adaptive_avg_pool2d",
}
# As PyTorch 1.5 numbers them in the lists of its cuDNN bindings.
_A = Algorithms
NUMBERS = {
    Part.FORWARD: {0: _A.EXPLICIT, 1: _A.FFT, 2: _A.FFT_TILING, 3: _A.IMPLICIT, 4: _A.PRECOMPUTED, 6: _A.WINOGRAD}
    | {7: _A.WINOGRAD_NOT_FUSED},
    Part.INPUT_GRADIENT: {0: _A.IMPLICIT, 1: _A.PRECOMPUTED, 2: _A.FFT, 3: _A.FFT_TILING, 4: _A.WINOGRAD}
    | {5: _A.WINOGRAD_NOT_FUSED},
    Part.WEIGHT_GRADIENT: {0: _A.IMPLICIT, 1: _A.PRECOMPUTED, 2: _A.FFT, 4: _A.WINOGRAD_NOT_FUSED},
}
THROUGHPUTS = (
    ("V100-16GB", "float32", 367.0),
    ("A100-80GB", "tf32", 938.0),
)
"""ResNet-50 images a second on one GPU, NVIDIA DeepLearningExamples (PyTorch, container 21.03, its own data loader)."""


@dataclass(frozen=True)
class Pair:
    """An operator, estimated and measured."""

    kind: str
    estimated_ms: float
    measured_ms: float


def main() -> None:
    """Compare and print; write the table too if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    add_tier(parser)
    parser.add_argument("--markdown", type=Path, help="write the tables there as well")
    arguments = parser.parse_args()
    record(arguments, seeds=())
    lines = [*_models(arguments.folder, NAMES[arguments.tier]), "", *_throughputs()]
    print("\n".join(lines))
    if arguments.markdown is not None:
        arguments.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _models(folder: Path, names: tuple[str, ...]) -> Iterator[str]:
    caps = " | ".join("any" if cap is None else f"{cap / 2**20:g}" for cap in CAPS)
    yield (
        "| model | activations of equal bytes | step, estimated | measured | ratio | Spearman | operators | "
        "algorithm within 1.5 × of the best, share of parts by workspace in MiB: " + caps + " |"
    )
    yield "|---" * (7 + len(CAPS)) + "|"
    for name in names:
        captured, profile = _estimated(name)
        plain = _document(folder, name, "none")
        equal, compared = _equal_bytes(profile, plain)
        pairs = list(_pairs(profile, plain))
        step_ms = simulate(profile, keep_all(profile.graph)).time_ms
        measured_ms = sum(_own_ms(op) for op in plain["ops"])
        order = spearmanr([x.estimated_ms for x in pairs], [x.measured_ms for x in pairs])[0]  # type: ignore[index]
        shares = " | ".join(f"{100 * share:.0f} %" for share in _choices(captured, _document(folder, name, "all")))
        yield (
            f"| {MODELS[name].title} | {equal} of {compared} | {step_ms:.0f} ms | {measured_ms:.0f} ms | "
            f"{step_ms / measured_ms:.2f} | {order:.3f} | {len(pairs)} | {shares} |"
        )


class MeasuredUNet(nn.Module):
    """The UNet that was measured; the package's own has transposed convolutions and 1024 channels at the bottom."""

    def __init__(self) -> None:
        """Sizes as measured."""
        super().__init__()
        downs = ((3, 64, 64), (64, 128, 128), (128, 256, 256), (256, 512, 512), (512, 512, 512))
        ups = ((1024, 512, 256), (512, 256, 128), (256, 128, 64), (128, 64, 64))
        self.down = nn.ModuleList(_twice(*channels) for channels in downs)
        self.up = nn.ModuleList(_twice(*channels) for channels in ups)
        self.head = nn.Conv2d(64, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (N, 3, H, W) → logits (N, 1, H, W)."""
        skips = [self.down[0](x)]
        for level in list(self.down)[1:]:
            skips.append(level(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for level in self.up:
            skip = skips.pop()
            x = level(torch.cat([skip, F.adaptive_avg_pool2d(x, skip.shape[2:])], dim=1))
        return self.head(x)


def _twice(*channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


def _estimated(name: str) -> tuple[Capture, Profile]:
    spec = MODELS[name]
    with torch.device("meta"):
        model, batch = MeasuredUNet() if name == "unet" else spec.build(), spec.batch()
    profile = explorer.estimate(model, batch, loss=spec.loss, device=DEVICE)
    return capture_for_cuda(model, batch, loss=spec.loss), profile


def _document(folder: Path, name: str, which: str) -> dict[str, Any]:
    return json.loads((folder / f"{name}-{which}.json").read_text(encoding="utf-8"))


def _own_ms(op: dict[str, Any]) -> float:
    """What PyTorch's own way took; optional operators are not part of it."""
    if op["kind"] == "intermediate":
        return 0.0
    if op["kind"] == "backward":
        return float(op["alternatives"][0]["ms"])
    return float(op.get("ms", 0.0))


def _packet(target: str) -> str:
    return target.split(".")[1] if "." in target else target


def _is_of_a_layer(profile: Profile, operator: Operator) -> bool:
    """Not one that makes a compact tensor, nor one that counts batches."""
    writes = operator.default().writes
    return not operator.optional and (not writes or profile.graph.storages[writes[0]].shape != ())


def _equal_bytes(profile: Profile, document: dict[str, Any]) -> tuple[int, int]:
    """How many activations have the same bytes, operator by operator in each kind's order, of how many."""
    ours: dict[str, list[int]] = defaultdict(list)
    for operator in profile.graph.forward:
        kind = KINDS.get(_packet(operator.target))
        if kind is not None and _is_of_a_layer(profile, operator):
            ours[kind].append(profile.graph.storages[operator.default().writes[0]].bytes)
    theirs: dict[str, list[int]] = defaultdict(list)
    for op in document["ops"]:
        if op["kind"] == "forward" and op["op"] != "flatten":
            theirs[op["op"]].append(op["output_bytes"])
    equal = sum(x == y for kind, sizes in theirs.items() for x, y in zip(ours[kind], sizes, strict=False))
    return equal, sum(map(len, theirs.values()))


def _pairs(profile: Profile, document: dict[str, Any]) -> Iterator[Pair]:
    """Operators of the same kind in the same order, forward and backward; a convolution's two gradients together."""
    graph = profile.graph
    for operators, kinds, measured in (
        (graph.forward, KINDS, _measured_forward(document)),
        (graph.backward, BACKWARD_KINDS, _measured_backward(document)),
    ):
        estimated: dict[str, list[float]] = defaultdict(list)
        for operator in operators:
            kind = kinds.get(_packet(operator.target))
            if kind is not None and _is_of_a_layer(profile, operator):
                estimated[kind].append(profile.cost(operator.default()).time_ms)
        for kind, times in estimated.items():
            if len(times) != len(measured[kind]):
                print(f"{graph.model}: {len(times)} operators of kind {kind}, {len(measured[kind])} measured; left out")
                continue
            yield from (Pair(kind, x, y) for x, y in zip(times, measured[kind], strict=True))


def _measured_forward(document: dict[str, Any]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for op in document["ops"]:
        if op["kind"] == "forward":
            found[op["op"]].append(_own_ms(op))
    return found


def _measured_backward(document: dict[str, Any]) -> dict[str, list[float]]:
    of: dict[tuple[str, int], float] = defaultdict(float)
    for op in document["ops"]:
        if op["kind"] == "backward":
            of[op["op"].removesuffix("_backward"), op["of"]] += _own_ms(op)
    found: dict[str, list[float]] = defaultdict(list)
    for (kind, _), ms in of.items():
        found[kind].append(ms)
    return found


def _choices(captured: Capture, document: dict[str, Any]) -> Iterator[float]:
    """For each workspace, the share of convolutions' parts where the chosen algorithm is not much slower than the best.

    Only algorithms count that both sides know; the estimate chooses by its own workspaces and times, and pays the time
    that was measured for its choice. A choice that took more than the workspace counts as a miss.
    """
    parts = list(_parts(captured, document))
    for cap in CAPS:
        good = total = 0
        for estimates, measured in parts:
            fits = {x: y["ms"] for x, y in measured.items() if cap is None or y["workspace_bytes"] <= cap + NOISE_BYTES}
            known = {x: y for x, y in estimates.items() if cap is None or y.workspace_bytes <= cap}
            if not fits or not known:
                continue
            total += 1
            choice = min(known, key=lambda x: known[x].time_ms)
            good += choice in fits and fits[choice] <= 1.5 * min(fits.values())
        yield good / total if total else float("nan")


def _parts(captured: Capture, document: dict[str, Any]) -> Iterator[tuple[dict[Any, Any], dict[Any, Any]]]:
    spec = device_spec(DEVICE)
    nodes = [x for x in captured.traced.graph.nodes if x.target is torch.ops.aten.convolution.default]
    ops = document["ops"]
    for node, forward in zip(nodes, (x for x in ops if x["op"] == "conv2d"), strict=True):
        source, weight, _, *settings = all_arguments(node)
        geometry = geometry_of(source.meta["val"], weight.meta["val"], *settings)
        result = tuple(node.meta["val"].shape)
        measured = {Part.FORWARD: forward}
        for op in ops:
            if op["kind"] == "backward" and op["of"] == forward["id"]:
                part = Part.WEIGHT_GRADIENT if op["computes"] == "weight" else Part.INPUT_GRADIENT
                # The batch needs no gradient: what was timed there is nothing.
                if part is Part.WEIGHT_GRADIENT or forward["inputs"]:
                    measured[part] = op
        for part, op in measured.items():
            numbers = NUMBERS[part]
            times = {numbers[x["algorithm"]]: x for x in op["algorithms"] if x["algorithm"] in numbers}
            yield (
                {x: convolution_cost(x, part, geometry, result, spec=spec, precision="float32") for x in times},
                times,
            )


def _throughputs() -> Iterator[str]:
    yield "| ResNet-50 on | images a second, published | estimated, PyTorch's own algorithms | fastest algorithms |"
    yield "|---|---|---|---|"
    spec = MODELS["resnet50"]
    with torch.device("meta"):
        model, batch = spec.build(), spec.batch()
    for device, precision, published in THROUGHPUTS:
        profile = explorer.estimate(model, batch, loss=spec.loss, device=device, precision=precision)
        own_ms = simulate(profile, keep_all(profile.graph)).time_ms
        images = spec.batch_size * 1e3
        fastest_ms = _fastest_ms(profile)
        yield f"| {device}, {precision} | {published:.0f} | {images / own_ms:.0f} | {images / fastest_ms:.0f} |"


def _fastest_ms(profile: Profile) -> float:
    """A step in which every convolution runs by its fastest algorithm, with all memory there is."""
    found = explorer.solve(profile, budget="70 GiB", optimizations="convolution", time_limit=5)
    assert found.time_ms is not None, "there is memory for everything"
    return found.time_ms


if __name__ == "__main__":
    main()
