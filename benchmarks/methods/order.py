"""What the order of operators alone saves, and what it saves before MONeT.

    python -m benchmarks.methods.order [MODEL …] [--random 500] [--json FILE]

Orders of random tasks are compared with exhaustive search. Of every bundled model, at batch 1, 32 and its own, and of
AlexNet, whose peaks MODeL's authors published, profiles are estimated for an A100 with SGD and with Adam; the gain is
that of ``method="model"``, in per cent of plain PyTorch's peak with the update at the end. Then MONeT is asked at
shares of that peak: with updates at the end, within the backward pass, and within it in another order; equal time for
each.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import explorer
from benchmarks.provenance import add_rows, record
from explorer.device_profile import Profile
from explorer.models import MODELS, model_spec
from explorer.solvers.methods.checkmate.nodes import without_workspace
from explorer.solvers.ordering.order import best_order
from explorer.solvers.ordering.schedules import least_memory
from explorer.solvers.updates import with_updates
from tests.solvers.ordering.tasks import least_peak_bytes, random_task

ALEXNET = "alexnet"
RANDOM = "random tasks"
"""In place of a model: how many orders are as good as any, and proven."""
TENSORS = "tensors alone"
"""In place of a model: of some models, what an order saves of the bytes of tensors, with no workspace at all."""
OF_TENSORS = (
    *((x, 1) for x in ("resnet50", "vit_b16", "googlenet", "vgg16", "mobilenet_v2")),
    *((x, 32) for x in ("vgg16", "googlenet", ALEXNET)),
)
"""Model and batch, with SGD."""
OPTIMIZERS = ("sgd", "adam")
BATCHES = {"unet": (1,), "unet3d": (), "gpt2": (1,)}
"""Beside a model's own; of the others 1 and 32."""
JOINT = (("vgg16", 176, 0.6), ("vgg16", 32, 0.6), ("resnet50", 1, 0.7), ("googlenet", 1, 0.7))
"""Model, batch and share of the peak."""
_TIME_LIMIT_S = 8.0


@dataclass(frozen=True)
class Gain:
    """A model, batch and optimizer.

    Attributes:
        model: its name.
        batch: samples.
        optimizer: its name.
        operators: of the step with updates within the backward pass.
        peak_bytes: of plain PyTorch with the update at the end; the libraries' own workspace is in it.
        library_bytes: what that is.
        within: what updates within the backward pass save, 0.1 for 10 % of that.
        order: what the best order with those saves.
        most: no order saves more.
        step: what the best order of forward and backward pass alone, with the update at the end, saves.
        seconds: to find the order and the bound, everything compiled.
    """

    model: str
    batch: int
    optimizer: str
    operators: int
    peak_bytes: int
    library_bytes: int
    within: float
    order: float
    most: float
    step: float
    seconds: float


@dataclass(frozen=True)
class Joint:
    """MONeT at a budget.

    Attributes:
        model: its name.
        batch: samples.
        share: budget over plain PyTorch's peak.
        end: overhead over plain PyTorch with updates at the end, 0.1 for 10 %; None: nothing found.
        within: with updates within the backward pass, over plain PyTorch with such updates.
        ordered: the same, in another order.
    """

    model: str
    batch: int
    share: float
    end: float | None
    within: float | None
    ordered: float | None


def main() -> None:
    """Print the tables; write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    everything = [*MODELS, ALEXNET, TENSORS]
    parser.add_argument("models", nargs="*", help=f"of {', '.join(everything)}; all of them unless said")
    parser.add_argument("--random", type=int, default=500, help="random tasks")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if unknown := set(arguments.models) - set(everything):
        parser.error(f"no model is called {', '.join(sorted(unknown))}; there are: {', '.join(everything)}")
    provenance = record(arguments, seeds=(0,))
    equal, proven = random_tasks(arguments.random)
    print(f"random tasks: {equal} of {arguments.random} equal to exhaustive search, {proven} proven")
    if arguments.json is not None:
        row = {"model": RANDOM, "count": arguments.random, "equal": equal, "proven": proven}
        add_rows(arguments.json, [row], provenance, by="model")
    print("model         batch  optimizer  operators  within     order   at most  step alone  seconds")
    for name in arguments.models or everything:
        if name == TENSORS:
            gains = [gain(x, batch, "sgd", tensors_alone=True) for x, batch in OF_TENSORS]
        else:
            gains = [gain(name, batch, x) for batch in _batches(name) for x in OPTIMIZERS]
        for x in gains:
            shares = "  ".join(f"{-100 * y:+7.2f} %" for y in (x.within, x.order, x.most, x.step))
            print(
                f"{x.model:12}  {x.batch:5}  {x.optimizer:9}  {x.operators:9}  {shares}  {x.seconds:5.2f}", flush=True
            )
        joint = [monet(*x) for x in JOINT if x[0] == name]
        for x in joint:
            found = ", ".join("–" if y is None else f"{100 * y:+.2f} %" for y in (x.end, x.within, x.ordered))
            print(f"{name:12}  {x.batch:5}  at {x.share} of the peak: {found}", flush=True)
        if arguments.json is not None:
            row = {"model": name, "gains": [asdict(x) for x in gains], "joint": [asdict(x) for x in joint]}
            add_rows(arguments.json, [row], provenance, by="model")


def random_tasks(count: int) -> tuple[int, int]:
    """How many orders are as good as any, and how many are proven to be."""
    random = np.random.default_rng(0)
    equal = proven = 0
    for _ in range(count):
        task = random_task(random)
        order = best_order(task)
        equal += order.peak_bytes == least_peak_bytes(task)
        proven += order.peak_bytes == order.lower_bound_bytes
    return equal, proven


def gain(name: str, batch: int, optimizer: str, *, tensors_alone: bool = False) -> Gain:
    """Of one model, batch and optimizer; of tensors alone, nobody's workspace is in the peak."""
    profile = estimated(name, batch, optimizer)
    if tensors_alone:
        bare = without_workspace(profile)
        profile = replace(bare, device=replace(bare.device, persistent_workspace_bytes=0))
    peak = _plain_bytes(profile)
    within = with_updates(profile, "within")
    began = time.perf_counter()
    found = least_memory(within)
    seconds = time.perf_counter() - began
    best = min(explorer.simulate(within, x).peak_bytes for x in found.schedules)
    alone = min(explorer.simulate(profile, x).peak_bytes for x in least_memory(profile).schedules)
    return Gain(
        model=name,
        batch=batch,
        optimizer=optimizer,
        operators=len(within.graph.operators),
        peak_bytes=peak,
        library_bytes=profile.device.persistent_workspace_bytes,
        within=1 - _plain_bytes(within) / peak,
        order=1 - best / peak,
        most=1 - found.lower_bound_bytes / peak,
        step=1 - alone / peak,
        seconds=seconds,
    )


def monet(name: str, batch: int, share: float) -> Joint:
    """MONeT at a share of the peak."""
    profile = estimated(name, batch, "sgd")
    budget = round(share * _plain_bytes(profile))

    def overhead(update: str, *, order: bool) -> float | None:
        planned = with_updates(profile, update)
        found = explorer.solve(planned, budget=budget, time_limit=_TIME_LIMIT_S, remember=False, order=order)
        plain_ms = explorer.simulate(planned, explorer.keep_all(planned.graph)).time_ms
        return None if found.time_ms is None else found.time_ms / plain_ms - 1

    end, within, ordered = (overhead(x, order=y) for x, y in (("end", False), ("within", False), ("within", True)))
    return Joint(name, batch, share, end, within, ordered)


def _batches(name: str) -> list[int]:
    own = () if name == ALEXNET else (model_spec(name).batch_size,)
    return sorted({*BATCHES.get(name, (1, 32)), *own})


def estimated(name: str, batch: int, optimizer: str) -> Profile:
    """A bundled model's, or AlexNet's, for an A100, with the update at the end."""
    with torch.device("meta"):
        if name == ALEXNET:
            model, sample, loss = (
                alexnet(),
                (torch.empty(batch, 3, 224, 224), torch.empty(batch, dtype=torch.long)),
                cross_entropy,
            )
        else:
            spec = model_spec(name)
            model, sample, loss = spec.build(), spec.batch(batch_size=batch), spec.loss
    return explorer.estimate(model, sample, loss=loss, optimizer=optimizer, device="a100-80gb", precision="tf32")


def alexnet() -> nn.Module:
    """AlexNet in one column, after Krizhevsky, *One weird trick for parallelizing convolutional neural networks*, 2014.

    The README of MODeL's own code has its peak at a batch of 32, 0.5618 GB, and what their program leaves, 0.4783.
    """
    return nn.Sequential(
        *_convolution(3, 64, 11, stride=4, padding=2, pool=True),
        *_convolution(64, 192, 5, padding=2, pool=True),
        *_convolution(192, 384, 3, padding=1),
        *_convolution(384, 256, 3, padding=1),
        *_convolution(256, 256, 3, padding=1, pool=True),
        nn.AdaptiveAvgPool2d((6, 6)),
        nn.Flatten(),
        *(nn.Dropout(), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True)),
        *(nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True)),
        nn.Linear(4096, 1000),
    )


def _convolution(
    read: int, made: int, kernel: int, *, padding: int, stride: int = 1, pool: bool = False
) -> list[nn.Module]:
    layer = [nn.Conv2d(read, made, kernel, stride=stride, padding=padding), nn.ReLU(inplace=True)]
    return [*layer, nn.MaxPool2d(3, stride=2)] if pool else layer


def _plain_bytes(profile: Profile) -> int:
    return explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes


if __name__ == "__main__":
    main()
