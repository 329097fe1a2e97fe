"""The self-check of ``apply``: one step in eager mode and one by the schedule, compared."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from explorer.capture import Batch, Capture
from explorer.capture.batch import TrainingStep, call_arguments, flatten, with_scalar_gradients
from explorer.capture.results import tensors_of_result
from explorer.capture.traced import Source
from explorer.execution.code import generate
from explorer.execution.device import device_of, free_bytes, on_device
from explorer.execution.memory import watch_cpu_memory
from explorer.execution.out_of_memory import release
from explorer.execution.passed_checks import is_remembered, key_of, remember
from explorer.execution.scheduled import ScheduledModule, by_itself, following
from explorer.execution.shadow import Finding, OwnNormalisation, Recording, Shadow, first_unlike_eager, relative_error
from explorer.execution.steps import persistent_bytes, unchanged, without_autocast
from explorer.graph import Implementation, Optimization
from explorer.recomputing import Recomputing
from explorer.schedule import Run, Schedule, keep_all
from explorer.simulation import peak_without_workspace
from explorer.torch_errors import is_out_of_memory
from explorer.torch_private import is_dense
from explorer.units import format_bytes

TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 2e-2}
"""How far loss, gradients and buffers of a schedule that is not exact may be off, by the norms of whole tensors; what
is further off is accepted only if every single run is as near to PyTorch's own as ``LOCAL_TOLERANCE`` says."""
_FLOOR = 1e-2  # of the largest gradient's mean size: smaller gradients are rounding alone, and compared with this
_SLACK = 1.001
_SEED = 20260301


class CheckFailedError(RuntimeError):
    """A scheduled step does not compute what the model does; names the first operator that differs."""


@dataclass(frozen=True, eq=False)
class _Outcome:
    """What one step leaves behind.

    Attributes:
        tensors: results, gradients and buffers by what they are; None for a gradient that is not there.
        random: state of the random numbers.
    """

    tensors: dict[str, torch.Tensor | None]
    random: torch.Tensor

    def difference(self, other: _Outcome, *, exact: bool) -> str | None:
        """In words, the first thing in which ``other`` differs from this, the reference."""
        gradients = [x for name, x in self.tensors.items() if x is not None and _is_gradient(name)]
        floor = max((_mean_size(x) for x in gradients), default=0.0)
        for name, mine in self.tensors.items():
            theirs = other.tensors.get(name)
            if mine is None or theirs is None:
                if (mine is None) != (theirs is None):
                    return f"{name} is {'there' if mine is None else 'missing'}, unlike in eager mode"
                continue
            off = _off(mine, theirs, exact=exact, floor=_FLOOR * floor)
            if off is not None:
                return f"{name} is {off}"
        return None if torch.equal(self.random, other.random) else "the state of the random numbers differs"


def check_step(
    module: ScheduledModule, model: nn.Module, batch: Batch, *, capture: Capture, schedule: Schedule
) -> None:
    """Compare one scheduled step with one of the model; remembered by graph, schedule and versions. Nothing is changed.

    Bit for bit where the schedule is exact, within ``TOLERANCE`` otherwise; gradients only where no lossy encoding was
    asked for. A model that does not fit in eager mode is
    compared with the same step recomputed by PyTorch's own implementations, and with its forward pass in eager mode.

    Args:
        module: from ``apply``.
        model: what it was made from.
        batch: the sample batch; what is not in memory (on the device ``meta``) is not checked.
        capture: of the model.
        schedule: that ``module`` follows.

    Raises:
        CheckFailedError: the steps differ; names the first operator that does.
    """
    tensors = [x for x in (*model.parameters(), *model.buffers(), *pytree.tree_leaves(batch)) if torch.is_tensor(x)]
    if any(x.is_meta or type(x).__name__ == "FakeTensor" for x in tensors):
        return
    key = key_of(capture, schedule, device_of(model))
    if is_remembered(key):
        return
    _Check(module, model, batch, capture, schedule).run()
    remember(key)


class _Check:
    def __init__(
        self, module: ScheduledModule, model: nn.Module, batch: Batch, capture: Capture, schedule: Schedule
    ) -> None:
        self.module = module
        self.model = model
        self.batch = batch
        self.capture = capture
        self.schedule = schedule
        self.loss = capture.loss
        self.lossy = any(x.optimization is Optimization.LOSSY for x in _implementations(capture, schedule))
        self.exact = _is_exact(capture, schedule)

    def run(self) -> None:
        eager = self._eager() if self._fits() else None
        if eager is None:
            eager = self._recomputed()
            if eager is None:
                return
        mine = self._scheduled()
        if self.lossy:
            eager = replace(eager, tensors={x: y for x, y in eager.tensors.items() if not _is_gradient(x)})
        difference = eager.difference(mine, exact=self.exact)
        if difference is None:
            return
        again = self._eager()
        # Eager mode itself may not be the same twice (atomic sums on a GPU): then bits cannot be asked for.
        chancy = again is not None and eager.difference(again, exact=True) is not None
        if chancy and self.exact:
            difference = eager.difference(mine, exact=False)
            if difference is None:
                return
        self._explain(eager, difference, chancy=chancy)

    def _explain(self, eager: _Outcome, difference: str, *, chancy: bool) -> None:
        """Find the operator, and raise; a step that is only sensitive to rounding passes."""
        with self._isolated() as (args, kwargs):
            found = _shadowed(self, args, kwargs, schedule=self.schedule).finding
        if found is None:
            captured = self._following(keep_all(self.capture.graph))
            if eager.difference(captured, exact=not chancy) is not None:
                found = self._unlike_eager()
                if eager.difference(captured, exact=False) is None:
                    first = "" if found is None else f"; first at {found}"
                    warnings.warn(
                        f"steps differ from eager mode in the last bits: {difference}. What runs in another order in a "
                        f"captured step, such as work in place on a slice, is rounded otherwise{first}",
                        stacklevel=5,
                    )
                    return
            elif not self.exact:
                return
        where = f"First at {found}. " if found is not None else ""
        raise CheckFailedError(
            f"one scheduled step does not compute what the model does: {difference}. {where}This is a fault of the "
            "schedule explorer: please report it with the model. apply(…, check=False) skips this check"
        )

    def _unlike_eager(self) -> Finding | None:
        """The first operator of the captured step that is not eager mode's."""
        recording = Recording()
        with self._isolated() as (args, kwargs), self.capture.ambient.region(), OwnNormalisation(), recording:
            TrainingStep(self.model, self.loss)(*args, **kwargs)
        with self._isolated() as (args, kwargs):
            reference = _shadowed(self, args, kwargs, schedule=keep_all(self.capture.graph))
        return first_unlike_eager(self.capture, reference, recording)

    def _fits(self) -> bool:
        """Is there room for a step in eager mode, going by the sizes of its tensors?"""
        held_bytes = persistent_bytes(self.model, self.batch, loss=self.loss)
        graph = self.capture.graph
        wanted_bytes = peak_without_workspace(graph, keep_all(graph)) - held_bytes
        return wanted_bytes < free_bytes(device_of(self.model))

    def _eager(self) -> _Outcome | None:
        """Of a step in eager mode; None if it does not fit."""
        try:
            with OwnNormalisation():
                return self._outcome(TrainingStep(self.model, self.loss))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        release()
        return None

    def _scheduled(self) -> _Outcome:
        """Of a step by the schedule, whose peak is compared with its budget."""
        budget_bytes = self.schedule.budget_bytes
        peaks: list[int] = []

        def watched(run: Callable[[], None]) -> None:
            peaks.append(_peak_bytes(run, self.model, self.batch))

        made = self._outcome(self.module, around=watched)
        (peak_bytes,) = peaks
        # Where gradients are to be used up within the backward pass, here they stay.
        within = self.capture.graph.iteration.within
        own_bytes = torch.get_rng_state().nbytes  # noted meanwhile
        if budget_bytes is not None and not within and peak_bytes - own_bytes > budget_bytes * _SLACK:
            warnings.warn(
                f"one step by this schedule took {format_bytes(peak_bytes)}, more than its budget of "
                f"{format_bytes(budget_bytes)}: its profile is of another device or version. Profile here, and solve "
                "again",
                stacklevel=5,
            )
        return made

    def _recomputed(self) -> _Outcome | None:
        """Of the same graph by PyTorch's own implementations, keeping as little as possible; None if that does not fit.

        The forward pass is compared with eager mode's, which needs no activations.
        """
        try:
            reference = self._following(Recomputing(self.capture.graph).schedule(set(), method="check"))
            with OwnNormalisation():
                eager = self._outcome(TrainingStep(self.model, self.loss), backward=False)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            release()
            warnings.warn("this schedule was not checked: there is too little memory for it", stacklevel=6)
            return None
        forward = _Outcome({x: y for x, y in reference.tensors.items() if x in eager.tensors}, reference.random)
        if difference := eager.difference(forward, exact=True):
            raise CheckFailedError(f"the captured forward pass does not compute what the model does: {difference}")
        return reference

    def _following(self, schedule: Schedule) -> _Outcome:
        """Of a step by another schedule of the same graph."""
        with following(self.module, generate(self.capture, schedule)):
            return self._outcome(self.module)

    def _outcome(
        self,
        step: Callable[..., Any],
        *,
        backward: bool = True,
        around: Callable[[Callable[[], None]], None] = lambda run: run(),
    ) -> _Outcome:
        """Of one step, which is run by ``around``; copies are made after it, so that they are not in its way."""
        results: list[torch.Tensor] = []
        random: list[torch.Tensor] = []

        def run() -> None:
            with self.capture.ambient.region():
                results.extend(tensors_of_result(step(*args, **kwargs)))
            random.append(torch.get_rng_state())
            if backward:
                _go_back(results)

        with self._isolated() as (args, kwargs), torch.set_grad_enabled(backward):
            around(run)
            kept = {f"result {number}": x.detach().clone() for number, x in enumerate(results)}
            if backward:
                leaves = flatten(args, kwargs)
                owned = [(f"the gradient of {name}", x) for name, x in self.model.named_parameters()]
                owned += [(f"the gradient of {x}", y) for x, y in zip(leaves.names, leaves.leaves, strict=True)]
                kept |= {name: x.grad for name, x in owned if isinstance(x, torch.Tensor) and x.is_leaf}
            kept |= {f"the buffer {name}": x.detach().clone() for name, x in self.model.named_buffers()}
        return _Outcome(kept, random[0])

    @contextlib.contextmanager
    def _isolated(self) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Arguments of a step that changes nothing, with the same random numbers each time."""
        changed = {int(x.name) for x in self.capture.traced.changed if x.source is Source.INPUT}
        leaves, structure = pytree.tree_flatten(call_arguments(self.batch, loss=self.loss))
        leaves = [_own_leaf(x, copy=number in changed) for number, x in enumerate(leaves)]
        with (
            on_device(device_of(self.model)),
            unchanged(self.model, loss=self.loss),
            by_itself(self.module),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            torch.manual_seed(_SEED)
            yield pytree.tree_unflatten(leaves, structure)


def _own_leaf(leaf: Any, *, copy: bool) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    own = leaf.detach().clone() if copy else leaf.detach()
    return own.requires_grad_(leaf.requires_grad)


def _go_back(results: list[torch.Tensor]) -> None:
    """Backward with gradients that are not all alike, so that nothing cancels out."""
    losses = [x for x in with_scalar_gradients(results) if x.requires_grad]
    with without_autocast(losses[0].device.type):
        torch.autograd.backward(losses, [_ramp(x) for x in losses])


def _ramp(like: torch.Tensor) -> torch.Tensor:
    if like.ndim == 0:
        return torch.ones_like(like)
    ramp = torch.linspace(0.5, 1.5, like.numel(), device=like.device).to(like.dtype)
    # As the result lies in memory, where it fills its own: a step would copy one that lies otherwise.
    dense = like.untyped_storage().nbytes() == ramp.untyped_storage().nbytes() and is_dense(like)
    return ramp.as_strided(like.shape, like.stride()) if dense else ramp.view(like.shape)


def _shadowed(check: _Check, args: tuple[Any, ...], kwargs: dict[str, Any], *, schedule: Schedule) -> Shadow:
    """A step of the module, each run repeated beside it."""
    plan = type(check.module).plans[0]
    with check.capture.ambient.region():
        values = plan.bindings[check.module].values(args, kwargs)
    shadow = Shadow(check.capture, values, exact=check.exact)
    program = generate(check.capture, schedule, watch=shadow.watch)
    backward = program.backward

    def with_tangents(values: list[Any], given: list[Any]) -> Iterator[None]:
        count = len(plan.tangent_outputs)
        shadow.tangents(values[len(values) - count :])
        return backward(values, given)

    with following(check.module, replace(program, backward=with_tangents)):
        with check.capture.ambient.region():
            results = tensors_of_result(check.module(*args, **kwargs))
        _go_back(results)
    return shadow


def _implementations(capture: Capture, schedule: Schedule) -> list[Implementation]:
    operators = capture.graph.operators
    runs = [x for x in schedule.steps if isinstance(x, Run)]
    return [operators[x.operator].implementation(x.implementation) for x in runs]


def _is_gradient(name: str) -> bool:
    return name.startswith("the gradient")


def _is_exact(capture: Capture, schedule: Schedule) -> bool:
    # Where a model looks at values, library code may take other kernels in eager mode than while it is compiled.
    same_kernels = not capture.traced.as_compiled
    return same_kernels and all(x.exact for x in _implementations(capture, schedule))


def _off(mine: torch.Tensor, theirs: torch.Tensor, *, exact: bool, floor: float) -> str | None:
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return f"{theirs.dtype} {tuple(theirs.shape)} where eager mode has {mine.dtype} {tuple(mine.shape)}"
    if torch.equal(mine, theirs) or relative_error(theirs, mine) == 0:
        return None
    if not mine.is_floating_point() and not mine.is_complex():
        return "another than in eager mode"
    a, b = (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in (mine, theirs))
    same = torch.isnan(a) == torch.isnan(b)
    if bool(same.all()) and torch.equal(a.nan_to_num(), b.nan_to_num()):
        return None
    difference = float((a.double() - b.double()).norm())
    allowed = 0.0 if exact else TOLERANCE.get(a.dtype, 0.0) * (float(a.double().norm()) + floor * a.numel() ** 0.5)
    if difference <= allowed:
        return None
    return f"off by {float((a.double() - b.double()).abs().max()):.3g}, of {float(a.abs().max()):.3g} at most"


def _mean_size(tensor: torch.Tensor) -> float:
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return float(tensor.double().square().mean().sqrt()) if tensor.numel() else 0.0


def _peak_bytes(run: Callable[[], None], model: nn.Module, batch: Batch) -> int:
    device = device_of(model)
    base_bytes = persistent_bytes(model, batch)
    if device.type != "cuda":
        return base_bytes + watch_cpu_memory(run).peak_bytes()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return base_bytes + torch.cuda.max_memory_allocated() - before
