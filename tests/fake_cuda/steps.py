"""``python -m tests.fake_cuda.steps LIBRARY``: cases from standard input, each with what was found out of it, as JSON.

A case is ``{"model", "sizes", "dtype", "autocast", "capability", "device"}``. What a real CUDA device would capture is
captured of fake CUDA tensors and compared with the estimate's capture; then schedules are run on them, and their
storages followed.
"""

from __future__ import annotations

import copy
import json
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

from tests.fake_cuda.device import load

load(sys.argv[1])

# ruff: noqa: E402 - torch comes after the device
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import explorer
from explorer.capture import capture
from explorer.capture.attention import Architecture
from explorer.capture.stand_in import capture_for_cuda
from explorer.device_profile import Profile, round_up
from explorer.execution.scheduled import StepPlan
from explorer.execution.steps import persistent_bytes, step_of
from explorer.models import model_spec
from explorer.profiling.devices import device_spec
from explorer.profiling.estimating import estimate_capture, precisions_of
from explorer.schedule import keep_all
from explorer.simulation import simulate
from tests.schedules import random_schedule

_ROUNDING_BYTES = 512
_DEVICES = {"8.0": "A100-80GB", "9.0": "H200"}


class Followed(TorchDispatchMode):
    """Bytes of the storages that are alive while it is open, by weak references to them."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.elsewhere: Counter[str] = Counter()
        self.peak_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.alive = {key: x for key, x in self.alive.items() if not x[0].expired()}
        result = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor, str(func))
        return result

    def add(self, tensor: torch.Tensor, made_by: str) -> None:
        storage = tensor.untyped_storage()
        if tensor.device != self.device:
            self.elsewhere[f"{made_by} on {tensor.device}"] += storage.nbytes()
            return
        reference = StorageWeakRef(storage)
        self.alive[reference.cdata] = (reference, round_up(storage.nbytes(), _ROUNDING_BYTES))
        self.peak_bytes = max(self.peak_bytes, sum(x for _, x in self.alive.values()))


def on_fake_cuda(model: nn.Module, batch: Any, dtype: torch.dtype | None, device: str) -> tuple[nn.Module, Any]:
    """Copies without values, there; within a fake mode."""

    def placed(x: torch.Tensor) -> torch.Tensor:
        wanted = dtype if dtype is not None and x.dtype.is_floating_point else x.dtype
        made = torch.empty_strided(x.shape, x.stride(), dtype=wanted, device=device)
        return nn.Parameter(made, requires_grad=x.requires_grad) if isinstance(x, nn.Parameter) else made

    known: dict[int, Any] = {id(x): placed(x) for x in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, known), pytree.tree_map_only(torch.Tensor, placed, batch)


def found_out(case: dict[str, Any]) -> dict[str, Any]:
    """Whether the graphs are the same, and the peaks of some schedules: followed, and predicted without and with
    workspace."""
    spec = model_spec(case["model"])
    dtype = getattr(torch, case["dtype"]) if case["dtype"] else None
    autocast = getattr(torch, case["autocast"]) if case["autocast"] else None
    with torch.device("meta"):
        model, batch = spec.build(), spec.batch(**case["sizes"])
    device = device_spec(_DEVICES[case["capability"]])
    architecture = Architecture(device.compute_capability)
    estimated = capture_for_cuda(
        model, batch, loss=spec.loss, dtype=dtype, autocast=autocast, architecture=architecture
    )
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        real, given = on_fake_cuda(model, batch, dtype, case["device"])
    captured = capture(real, given, loss=spec.loss, autocast=autocast)
    difference = captured.graph.identity.difference(estimated.graph.identity)
    found = {"difference": difference, "operators": len(captured.graph.operators), "runs": []}
    if difference is not None or not case["schedules"]:
        return found
    profile = estimate_capture(captured, spec=device, precisions=precisions_of(device, None))
    profile = replace(profile, device=replace(profile.device, persistent_workspace_bytes=0))
    schedules = [keep_all(captured.graph)]
    schedules += [random_schedule(captured.graph, seed, keep=0.7, allowed=_is_here) for seed in range(2)]
    with mode:
        runs = [_run(profile, schedule, (real, given, spec.loss), case["device"]) for schedule in schedules]
    return {**found, "runs": runs}


def _is_here(implementation: explorer.graph.Implementation) -> bool:
    """Not a family of cuDNN's, for which PyTorch's own call stands in."""
    return not any(x in implementation.name for x in ("GEMM", "FFT", "Winograd"))


def _run(profile: Profile, schedule: explorer.Schedule, sample: Any, device: str) -> dict[str, Any]:
    model, batch, loss = sample
    module = explorer.apply(model, schedule, batch, loss=loss)
    step = step_of(module, batch)
    followed = Followed(device)
    for tensor in (*model.parameters(), *model.buffers(), *pytree.tree_leaves(batch)):
        followed.add(tensor, "the caller")
    base_bytes = persistent_bytes(model, batch)
    with followed:
        step()
    bare = replace(profile, costs={key: replace(x, workspace_bytes=0) for key, x in profile.costs.items()})
    return {
        "base_bytes": base_bytes,
        "followed_bytes": followed.peak_bytes,
        "without_workspace_bytes": simulate(bare, schedule).peak_bytes,
        "with_workspace_bytes": simulate(profile, schedule).peak_bytes,
        "elsewhere": dict(followed.elsewhere),
    }


# What looks at values cannot be asked of fake tensors, and a number becomes a tensor by way of the CPU.
StepPlan.program_for = lambda self, values: self.program  # noqa: ARG005 - the argument's name
_tensor = torch.tensor
torch.tensor = lambda data, *, dtype=None, device=None, **more: _tensor(data, dtype=dtype, **more).to(device or "cpu")

if __name__ == "__main__":
    sys.stdout.write(json.dumps([found_out(x) for x in json.load(sys.stdin)]))
