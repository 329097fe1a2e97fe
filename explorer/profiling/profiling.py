"""From a model and a batch to a profile on the device at hand."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import fx, nn

from explorer.arguments import a_callback, a_flag
from explorer.autocast import Autocast
from explorer.capture import Batch, Capture, Loss, capture
from explorer.capture.batch import call_arguments, flatten
from explorer.capture.building import TANGENTS
from explorer.capture.traced import Source
from explorer.device_profile import Cost, Profile, round_up
from explorer.execution.device import cublas_workspace_bytes, describe_device, device_of, on_device
from explorer.execution.measuring import measure
from explorer.execution.optimizers import OptimizerLike, Updater, with_loss
from explorer.execution.out_of_memory import OutOfMemory
from explorer.execution.steps import unchanged
from explorer.execution.trained import parameter_names
from explorer.execution.updating import check_apart
from explorer.graph import TrainingGraph
from explorer.iteration import STEP_ALONE, Buckets, Iteration
from explorer.library_workspace import uses_cublas, uses_cublaslt
from explorer.operators.encodings import Encoding
from explorer.operators.fusing import why_not
from explorer.profiling.comparing import Subject, halves_of
from explorer.profiling.costing import measure_costs
from explorer.profiling.updating import Updates
from explorer.rearranging import UPDATE
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.torch_arguments import a_device, a_model
from explorer.torch_errors import explained
from explorer.units import shown

Progress = Callable[[int, int, str], None]
"""Called with (done, total, what comes next)."""

_DISTRIBUTED = (None, Buckets.OWN.value, Buckets.VIEWS.value)
_LEAST_SHARE = 0.1  # of a step, for its two passes: both it and the update are measured


def profile(  # noqa: PLR0913 - one for each thing that users may want to say
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None = None,
    device: str | torch.device | None = None,
    optimizer: OptimizerLike | None = None,
    update: str = "end",
    accumulate: bool = False,
    distributed: str | None = None,
    encoding: Encoding | str | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    fuse: bool = False,
    progress: Progress | None = None,
) -> Profile:
    """Capture a training step and measure its operators; the model is as before afterwards.

    Args:
        model: in training mode.
        batch: a tensor, tuple or dict for the model; with a loss the pair (inputs, target).
        loss: ``loss(model(inputs), target)`` is what is trained on; None if the model returns its loss.
        device: where to profile, ``"cpu"`` or ``"cuda"``; None: where the model is. The model and batch must be there.
        optimizer: what updates the parameters, so that the budget holds for whole iterations, with its state: a name
            (``"adamw"``, ``"adamw-foreach"``), the optimizer that trains the model, or a function that makes one of a
            list of parameters. None: nothing that counts.
        update: ``"end"``, after the backward pass, or ``"within"``: each parameter as soon as its gradient is complete,
            which need not be kept then (see ``update_within``).
        accumulate: plan microbatches that meet the gradients of earlier ones, and are added to them.
        distributed: ``"ddp"``: the module will be in a ``DistributedDataParallel``, whose buckets take memory beside
            the gradients; ``"ddp-views"``: with ``gradient_as_bucket_view=True``, in their place. None: in neither.
        encoding: also offer Gist's encodings (for ``method="gist"``): ``"lossless"``, ``"fp16"``, ``"fp10"``, ``"fp8"``
            or an ``Encoding``. Schedules for such a profile are applied with the same ``encoding``.
        autocast: the forward pass, loss included, is to run under ``torch.autocast`` to this dtype: ``torch.bfloat16``
            or ``torch.float16`` (with ``torch.amp.GradScaler``), or their names. None: under what is active here. The
            profile and its schedules note it; the scheduled module is called under the same.
        fuse: also offer kernels that PyTorch's compiler makes of chains of calls and of batch normalisation
            (docs/implementations.md), which takes some seconds for each kind, once. Where it does not work, there are
            none, which a warning says.
        progress: called as the work goes on.

    Returns:
        The profile.

    Raises:
        ValueError: the model cannot be captured, is not on ``device``, ``optimizer`` or ``autocast`` is unknown,
            or the arguments contradict each other.
    """
    a_device(device, a_model(model))
    a_callback(progress, "progress")
    here = device_of(model)
    updater, iteration = planned(
        model, loss, optimizer=optimizer, update=update, accumulate=accumulate, distributed=distributed
    )
    captured = capture(
        model, batch, loss=loss, encoding=encoding, autocast=autocast, fuse=a_flag(fuse, "fuse") and _can_fuse(here)
    )
    updates = Updates(captured.graph, names=parameter_names(captured), model=with_loss(model, loss), updater=updater)
    if iteration != STEP_ALONE:
        with on_device(here):
            updates.measure(here)
    measured = profile_capture(
        captured,
        model,
        batch,
        optimizer=optimizer,
        accumulate=accumulate,
        update_ms=updates.costs[UPDATE].time_ms if updater is not None else 0.0,
        progress=progress,
    )
    return updates.added_to(measured, optimizer).in_iteration(iteration)


def _can_fuse(device: torch.device) -> bool:
    reason = why_not(device.type)
    if reason:
        warnings.warn(f"{reason}: the profile has no fused operators", UserWarning, stacklevel=3)
    return not reason


def planned(
    model: nn.Module,
    loss: Loss | None,
    *,
    optimizer: OptimizerLike | None,
    update: str,
    accumulate: bool,
    distributed: str | None,
) -> tuple[Updater | None, Iteration]:
    """The optimizer, and what an iteration is.

    Raises:
        ValueError: something is unknown, or they contradict each other.
    """
    a_flag(accumulate, "accumulate")
    if update not in ("end", "within"):
        raise ValueError(f"update is {shown(update)}; allowed: 'end' or 'within', the backward pass")
    if distributed not in _DISTRIBUTED:
        raise ValueError(f"distributed is {shown(distributed)}; allowed: 'ddp', 'ddp-views', or None")
    updater = None if optimizer is None else Updater.of(optimizer, with_loss(model, loss))
    if updater is not None and update == "within" and updater.left_out:
        raise ValueError(
            f"{updater.label} leaves out {updater.left_out} parameters that get gradients, which nothing would use up "
            "within the backward pass: update='end', or freeze them (requires_grad_(False))"
        )
    if updater is not None and update == "within":
        check_apart(updater)
    label = None if updater is None else updater.label
    buckets = Buckets.NONE if distributed is None else Buckets(distributed)
    return updater, Iteration(accumulate, label, update == "within", buckets)


def profile_capture(
    captured: Capture,
    model: nn.Module,
    batch: Batch,
    *,
    optimizer: OptimizerLike | None = None,
    accumulate: bool = False,
    update_ms: float = 0.0,
    progress: Progress | None = None,
) -> Profile:
    """Measure the operators of a capture, and one plain step, if it fits; on the CPU it calibrates their sum.

    On CUDA the sum of what operators take by themselves is what a step by a schedule takes (0 to 2 % off on an H200,
    more where kernels are short); a plain one has other kernels for batch normalisation, up to a sixth quicker for a
    whole network.

    Args:
        captured: of ``model`` and ``batch``.
        model: what was captured.
        batch: real tensors on the model's device.
        optimizer: takes part in the plain step.
        accumulate: the plain step meets gradients.
        update_ms: how long the optimizer takes of it.
        progress: called as the work goes on.
    """
    device = device_of(model)
    described = describe_device(device)
    if device.type == "cuda" and uses_cublas(captured.graph):
        kept_bytes = cublas_workspace_bytes(device, biased=uses_cublaslt(captured.graph))
        described = replace(described, persistent_workspace_bytes=kept_bytes)
    subjects = subjects_of(captured, described.rounding_bytes)
    total = len(subjects) + 2
    done = iter(range(total + 1))

    def report(label: str) -> None:
        if progress is not None:
            progress(next(done), total, label)

    # The casts of autocast are operators of the graph: nothing else is cast.
    uncast = torch.autocast(device.type, enabled=False)
    apart = explained(model, batch, loss=captured.loss, callbacks=True)
    with on_device(device), unchanged(model, loss=captured.loss), apart, uncast:
        sequences, halves = _sequences(captured.graph), halves_of(captured.graph)
        given = _given(captured, model, batch)
        costs = measure_costs(subjects, sequences=sequences, halves=halves, device=device, given=given, report=report)
    costs[TANGENTS] = Cost(0.0, 0)
    report("a plain step")
    plain = None
    # One that does not fit is what schedules are for: then the operators' own times stand as they are.
    with contextlib.suppress(OutOfMemory):
        plain = measure(
            model,
            batch,
            loss=captured.loss,
            autocast=captured.graph.autocast,
            steps=2,
            optimizer=optimizer,
            accumulate=accumulate,
        )
    # Tensors that the code finds elsewhere are in memory too, though the model does not know of them.
    constants = {captured.built.storage_of[x.node] for x in captured.traced.inputs if x.source is Source.CONSTANT}
    elsewhere_bytes = sum(round_up(captured.graph.storages[x].bytes, described.rounding_bytes) for x in constants)
    raw = Profile(captured.graph, costs, described)
    report("done")
    eager_peak_bytes = None if plain is None else plain.peak_bytes + elsewhere_bytes
    if plain is None or device.type == "cuda":
        eager_time_ms = None if plain is None else plain.step_time_ms
        return replace(raw, eager_time_ms=eager_time_ms, eager_peak_bytes=eager_peak_bytes)
    passes_ms = max(plain.step_time_ms - update_ms, _LEAST_SHARE * plain.step_time_ms)
    factor = passes_ms / simulate(raw, keep_all(captured.graph)).time_ms
    calibrated = {key: replace(cost, time_ms=cost.time_ms * factor) for key, cost in costs.items()}
    return Profile(
        captured.graph,
        calibrated,
        described,
        eager_time_ms=plain.step_time_ms,
        eager_peak_bytes=eager_peak_bytes,
        calibration=factor,
    )


def _given(captured: Capture, model: nn.Module, batch: Batch) -> dict[fx.Node, torch.Tensor]:
    """What is in the batch, in buffers and in constants now, by the graph inputs for them."""
    leaves = flatten(*call_arguments(batch, loss=captured.loss)).leaves
    buffers = {f"model.{name}": x for name, x in model.named_buffers(remove_duplicate=False)}
    found = {x.node: x.constant for x in captured.traced.inputs if x.constant is not None}
    for x in captured.traced.inputs:
        value = leaves[int(x.name)] if x.source is Source.INPUT else buffers.get(x.name)
        if isinstance(value, torch.Tensor):
            found[x.node] = value
    return found


def _sequences(graph: TrainingGraph) -> list[list[str]]:
    """Cost keys in execution order: of PyTorch's own implementations, then of those that stand second, and so on."""
    most = max(len(x.implementations) for x in graph.operators)
    operators = [x for x in graph.operators if x.target != TANGENTS]
    return [
        [x.implementations[number].cost for x in operators if number < len(x.implementations)] for number in range(most)
    ]


def subjects_of(captured: Capture, rounding_bytes: int) -> dict[str, Subject]:
    """One call for each cost key, in execution order, PyTorch's own first."""
    found: dict[str, Subject] = {}
    graph = captured.graph

    def size(storages: Iterable[int]) -> int:
        return sum(round_up(graph.storages[x].bytes, rounding_bytes) for x in storages)

    calls = [x for x in graph.operators if x.target != TANGENTS]
    before = dict(zip(calls[1:], (x.implementations[0].cost for x in calls), strict=False))
    for number in range(max(len(x.implementations) for x in calls)):
        for operator in calls:
            if number >= len(operator.implementations):
                continue
            implementation = operator.implementations[number]
            if implementation.cost in found:
                continue
            alternative = number > 0 and implementation.optimization is not None
            rival = next(x for x in operator.implementations if x.writes == implementation.writes)
            rival = operator.implementations[0] if rival is implementation else rival
            over = () if implementation.overwrites is None else (implementation.overwrites,)
            found[implementation.cost] = Subject(
                call=captured.built.calls[operator.id, implementation.name],
                name=operator.name,
                written_bytes=size(implementation.writes) - size(over),
                rival=rival.cost if alternative and rival is not implementation else None,
                before=before.get(operator),
                care=number == 0 and not operator.optional,
            )
    return found
