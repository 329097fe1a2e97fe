"""What layouts of convolutions are worth in compiled steps: channels last, or the model's own, and the compiler's way.

    python -m benchmarks.execution.compiled_layouts [MODEL …] [--rounds 15] [--threads 1] [--json FILE]

Each network is compiled three times, saving what PyTorch's minimum cut does: as the compiler decides for each graph,
with channels last in both passes, and in the model's own layout; steps take turns. Beside the measured ratio stands the
one that the choice goes by: of the costs of kernels, of which convolutions were run in either layout.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.execution.beside_compile import WithLoss
from benchmarks.execution.compiled_choice import resnet50, unet
from benchmarks.provenance import add_rows, record
from benchmarks.timing_in_turns import paired_ratio, times_in_turns_ms
from explorer.compiling.choosing import tagged
from explorer.compiling.partitioning import compiled
from explorer.compiling.profiling import Traced, profiles_of, traced_of
from explorer.compiling.running import rehearsed_peak_bytes
from explorer.device_profile import Profile
from explorer.execution.steps import step_of, unchanged
from explorer.models import model_spec

Made = tuple[nn.Module, Any]


def _bundled(name: str, samples: int, pixels: int) -> Made:
    spec = model_spec(name)
    return WithLoss(spec), spec.batch(batch_size=samples, image_size=pixels)


MODELS: dict[str, Callable[[], Made]] = {
    "resnet50, 16 of 64": resnet50,
    "resnet50, 4 of 128": partial(_bundled, "resnet50", 4, 128),
    "unet, 4 of 96": unet,
    "unet, whole, 2 of 64": partial(_bundled, "unet", 2, 64),
    "vgg16, 2 of 64": partial(_bundled, "vgg16", 2, 64),
    "googlenet, 8 of 64": partial(_bundled, "googlenet", 8, 64),
    "mobilenet_v2, 8 of 64": partial(_bundled, "mobilenet_v2", 8, 64),
    "mobilenet_v2, 2 of 160": partial(_bundled, "mobilenet_v2", 2, 160),
}


@dataclass(frozen=True)
class Row:
    """A network.

    Attributes:
        case: network, samples and pixels of a side.
        own: is its own layout chosen?
        predicted_ratio: time in its own layout / with channels last, by costs, …
        last_ratio: with channels last in both passes / as the compiler decides, measured: the median over rounds, …
        last_ratio_error: … and its standard error.
        own_ratio: in its own layout / as the compiler decides, …
        own_ratio_error: … likewise.
        compiler_bytes: measured peak as the compiler decides, …
        last_bytes: … with channels last, …
        own_bytes: … and in its own layout.
    """

    case: str
    own: bool
    predicted_ratio: float
    last_ratio: float
    last_ratio_error: float
    own_ratio: float
    own_ratio_error: float
    compiler_bytes: int
    last_bytes: int
    own_bytes: int


def main() -> None:
    """Print a row for each network, and put them among those of a JSON file if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="; ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also put the rows here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run = record(options)
    for name in options.models or MODELS:
        row = measured(name, rounds=options.rounds)
        print(row, flush=True)
        if options.json:
            add_rows(options.json, [asdict(row)], run, by="case")


def measured(name: str, *, rounds: int) -> Row:
    """One network in both layouts."""
    torch.manual_seed(0)
    model, batch = MODELS[name]()
    traced = traced_of(model, batch)
    profiles = profiles_of(traced, torch.device("cpu"))
    last, own = (tagged(traced, traced.built.saved, own_layout=x) for x in (False, True))
    choices = {"compiler": replace(last, channels_last=None), "last": last, "own": own}
    modules = {x: compiled(model, choice) for x, choice in choices.items()}
    peaks = {x: rehearsed_peak_bytes(module, batch) for x, module in modules.items()}
    steps = {x: step_of(module, batch) for x, module in modules.items()}
    with unchanged(model):
        for step in steps.values():
            step()
        times = times_in_turns_ms(steps, rounds=rounds)
    torch.compiler.reset()
    last_ratio, last_error = paired_ratio(times["last"], times["compiler"])
    own_ratio, own_error = paired_ratio(times["own"], times["compiler"])
    return Row(
        case=name,
        own=traced.is_own_layout(profiles[0].graph.identity),
        predicted_ratio=_ratio_of_costs(traced, profiles),
        last_ratio=last_ratio,
        last_ratio_error=last_error,
        own_ratio=own_ratio,
        own_ratio_error=own_error,
        compiler_bytes=peaks["compiler"],
        last_bytes=peaks["last"],
        own_bytes=peaks["own"],
    )


def _ratio_of_costs(traced: Traced, profiles: Sequence[Profile]) -> float:
    """By which the choice was made."""
    times_ms = {
        traced.is_own_layout(x.graph.identity): sum(x.cost(y.default()).time_ms for y in x.graph.operators)
        for x in profiles
    }
    return times_ms[True] / times_ms[False]


if __name__ == "__main__":
    main()
