"""What updates and accumulation cost: measured on stand-ins for parameters, or estimated on ``meta``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import nn, optim

from explorer.device_profile import Cost, Profile
from explorer.execution.device import CUDA_ROUNDING_BYTES
from explorer.execution.memory import settled, watch_cpu_memory
from explorer.execution.optimizers import OptimizerLike, Updater, state_bytes, state_tensors
from explorer.execution.out_of_memory import named
from explorer.execution.trained import trained_in
from explorer.execution.updating import check_apart, step_one
from explorer.graph import TrainingGraph
from explorer.profiling.counting import Counting
from explorer.rearranging import ACCUMULATE, COPY, UPDATE, update_cost_key, use_cost_key
from explorer.torch_private import optimizers_on_meta, storage_key

_RUNS = 3
_USES: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    ACCUMULATE: lambda there, fresh: there.add_(fresh),
    COPY: lambda there, fresh: torch.mul(fresh, 0.5, out=there),  # as an average has its shares
}
_ADVICE = "Profile without an optimizer, or free what else is on the device."


class Updates:
    """Costs of an optimizer's step, of the update of each parameter alone, and of adding up gradients.

    Attributes:
        costs: by the keys of ``explorer.rearranging``.
        state_bytes: what the optimizer holds from its first step on, as the device's allocator takes it.
    """

    def __init__(
        self, graph: TrainingGraph, *, names: Mapping[int, str], model: nn.Module, updater: Updater | None
    ) -> None:
        """Nothing is known yet.

        Args:
            graph: of the model.
            names: of the storages of its parameters, as ``parameter_names`` has them.
            model: with its loss, if that is a module.
            updater: None: gradients are accumulated only.
        """
        self.costs: dict[str, Cost] = {}
        self.state_bytes = 0
        self._graph = graph
        self._updater = updater
        self._parameters = trained_in(graph, names, model)

    def measure(self, device: torch.device) -> None:
        """On the device where the model is; parameters, gradients and state are there a second time meanwhile.

        Raises:
            OutOfMemory: they do not fit.
        """
        cost = _cuda_cost if device.type == "cuda" else _cpu_cost
        with settled(), named("the update of the parameters", advice=_ADVICE):
            for storage, parameter in self._parameters.items():
                there, fresh = (torch.zeros_like(parameter.detach()) for _ in range(2))
                for target, use in _USES.items():
                    key = use_cost_key(self._graph, storage, target)
                    if key not in self.costs:
                        self.costs[key] = cost(partial(use, there, fresh))
            if self._updater is not None:
                optimizer, tensors = self._stand_in(lambda x: torch.zeros_like(x.detach()))
                rounding_bytes = CUDA_ROUNDING_BYTES if device.type == "cuda" else 1
                self.state_bytes = state_bytes(optimizer, rounding_bytes=rounding_bytes, device=device.type)
                self.costs[UPDATE] = cost(optimizer.step)
                self._each(optimizer, tensors, cost)

    def estimate(self, counting: Counting, dtype: torch.dtype | None) -> None:
        """For a device that need not be here.

        Args:
            counting: for the device.
            dtype: of all floating-point numbers; None: as they are.

        Raises:
            ValueError: the optimizer looks at values, so that it has to be profiled.
        """

        def like(parameter: torch.Tensor) -> torch.Tensor:
            wanted = dtype if dtype is not None and parameter.is_floating_point() else parameter.dtype
            return torch.empty_like(parameter.detach(), device="meta", dtype=wanted)

        for storage, parameter in self._parameters.items():
            there, fresh = (like(parameter) for _ in range(2))
            for target, use in _USES.items():
                key = use_cost_key(self._graph, storage, target)
                self.costs[key] = counting.cost_of(partial(use, there, fresh), known=(there, fresh))
        if self._updater is None:
            return
        with optimizers_on_meta():
            made: list[tuple[optim.Optimizer, list[torch.Tensor]]] = []
            try:
                counting.cost_of(lambda: made.append(self._stand_in(like)), known=())
            except (RuntimeError, NotImplementedError) as error:
                raise ValueError(
                    f"{self._updater.label} looks at the values of tensors, so that it cannot be estimated: profile it "
                    f"on the device ({str(error).splitlines()[0]})"
                ) from error
            ((optimizer, tensors),) = made
            self.state_bytes = state_bytes(optimizer, rounding_bytes=CUDA_ROUNDING_BYTES, device="meta")
            known = [*tensors, *(x.grad for x in tensors if x.grad is not None), *state_tensors(optimizer)]
            known = list({storage_key(x): x for x in known}.values())
            cost = lambda run: counting.cost_of(run, known=known)  # noqa: E731 - one of two ways to know a cost
            self.costs[UPDATE] = cost(optimizer.step)
            self._each(optimizer, tensors, cost)

    def added_to(self, profile: Profile, optimizer: OptimizerLike | None) -> Profile:
        """A profile of the passes alone, with these costs, for any iteration."""
        if self._updater is None:
            return replace(profile, costs=profile.costs | self.costs)
        name = optimizer if isinstance(optimizer, str) else self._updater.label
        costs = profile.costs | self.costs
        return replace(profile, costs=costs, optimizer=name, optimizer_state_bytes=self.state_bytes)

    def _stand_in(self, like: Callable[[torch.Tensor], torch.Tensor]) -> tuple[optim.Optimizer, list[torch.Tensor]]:
        assert self._updater is not None
        return self._updater.stand_in(like, reached={id(x) for x in self._parameters.values()})

    def _each(
        self, optimizer: optim.Optimizer, tensors: list[torch.Tensor], cost: Callable[[Callable[[], object]], Cost]
    ) -> None:
        """The update of each parameter alone; of those that are alike, one. Nothing, if it cannot be alone."""
        assert self._updater is not None
        try:
            check_apart(self._updater)
        except ValueError:
            return  # such updates have no costs, so that no profile knows an iteration with them
        stand_ins = {id(x): y for x, y in zip(self._updater.trained, tensors, strict=True)}
        groups = {id(x): number for number, group in enumerate(optimizer.param_groups) for x in group["params"]}
        known: dict[object, Cost] = {}
        for storage, parameter in self._parameters.items():
            tensor = stand_ins[id(parameter)]
            alike = (tensor.shape, tensor.stride(), tensor.dtype, groups.get(id(tensor)))
            if alike not in known:
                gradient = tensor.grad
                known[alike] = cost(lambda x=tensor, gradient=gradient: _update(optimizer, x, gradient))
                tensor.grad = gradient
            self.costs[update_cost_key(self._graph, storage)] = known[alike]


def _update(optimizer: optim.Optimizer, tensor: torch.Tensor, gradient: torch.Tensor | None) -> None:
    tensor.grad = gradient
    step_one(optimizer, tensor)


def _cpu_cost(run: Callable[[], object]) -> Cost:
    run()
    workspace_bytes = watch_cpu_memory(lambda: _drop(run())).peak_bytes()
    times_ms = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        run()
        times_ms.append((time.perf_counter() - began) * 1e3)
    return Cost(statistics.median(times_ms), workspace_bytes)


def _cuda_cost(run: Callable[[], object]) -> Cost:
    run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(_RUNS):
        run()
    end.record()
    torch.cuda.synchronize()
    return Cost(start.elapsed_time(end) / _RUNS, max(0, torch.cuda.max_memory_allocated() - before))


def _drop(result: object) -> None:
    del result
