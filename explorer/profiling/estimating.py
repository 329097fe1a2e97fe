"""From a model and a batch to a profile for a device that is not here: sizes from metadata, times from data sheets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from explorer.arguments import a_callback, a_flag
from explorer.autocast import Autocast
from explorer.capture import Batch, Capture, Loss
from explorer.capture.attention import Architecture
from explorer.capture.building import TANGENTS, Call
from explorer.capture.depth import capture_in_depth
from explorer.device_profile import Cost, Device, Profile
from explorer.execution.device import CUDA_ROUNDING_BYTES
from explorer.execution.optimizers import OptimizerLike, with_loss
from explorer.execution.trained import parameter_names
from explorer.graph import TrainingGraph
from explorer.iteration import STEP_ALONE
from explorer.library_workspace import CUBLASLT_BYTES, uses_cublas, uses_cublaslt
from explorer.operators.convolution import (
    run_forward,
    run_input_gradient,
    run_parameter_gradients,
    run_weight_gradient,
)
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.profiling.comparing import halves_like_wholes, halves_of
from explorer.profiling.convolution_costs import Part
from explorer.profiling.convolutions import Convolutions, Plans, Precisions, geometry_of
from explorer.profiling.counting import Counting, bytes_moved
from explorer.profiling.devices import PRECISIONS, DeviceSpec, device_spec
from explorer.profiling.kernel_workspace import kernel_workspace_bytes
from explorer.profiling.profiling import Progress, planned, subjects_of
from explorer.profiling.rates import Family, KernelWork, time_ms
from explorer.profiling.updating import Updates
from explorer.torch_arguments import a_model
from explorer.units import shown

_HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
_FAMILIES = tuple(x.value for x in Algorithms)
_PARTS = {
    run_forward: Part.FORWARD,
    run_input_gradient: Part.INPUT_GRADIENT,
    run_weight_gradient: Part.WEIGHT_GRADIENT,
    run_parameter_gradients: Part.WEIGHT_GRADIENT,
}


def estimate(  # noqa: PLR0913 - one for each thing that users may want to say
    model: nn.Module,
    batch: Batch,
    *,
    device: str | Path | DeviceSpec,
    loss: Loss | None = None,
    precision: str | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    optimizer: OptimizerLike | None = None,
    update: str = "end",
    accumulate: bool = False,
    distributed: str | None = None,
    fuse: bool = False,
    progress: Progress | None = None,
) -> Profile:
    """Capture a training step and estimate what it costs on a device that need not be here.

    Bytes of tensors are exact, workspaces on the safe side. Times come from published rates, efficiencies by family of
    operators and models of cuDNN's families of algorithms (docs/devices.md); the profile's device is marked as
    estimated. Nothing is computed and no memory taken: model and batch may be on ``meta``.

    Args:
        model: in training mode, anywhere; it is not changed.
        batch: a tensor, tuple or dict for the model; with a loss the pair (inputs, target).
        device: a name of the table (``"A100-80GB"``), the path of a YAML file with a device of your own, or figures.
        loss: ``loss(model(inputs), target)`` is what is trained on; None if the model returns its loss.
        precision: of products in float32: ``"float32"``, or ``"tf32"`` where the device has it; ``"float16"`` or
            ``"bfloat16"`` makes all floating-point tensors so. None is PyTorch's default: convolutions in TF32 where
            the device has it, other products in float32.
        autocast: as for ``profile``, by CUDA's rules: parameters stay as they are, and products, among others, run in
            this dtype. ``precision="bfloat16"`` instead makes the whole model so, parameters and optimizer state too;
            ``"float32"`` and ``"tf32"`` go with autocast, for products that it leaves in float32.
        optimizer: as for ``profile``.
        update: as for ``profile``.
        accumulate: as for ``profile``.
        distributed: as for ``profile``.
        fuse: as for ``profile``; kernels of fused chains are expected to read and write once what goes in and comes
            out.
        progress: called as the work goes on.

    Returns:
        The profile.

    Raises:
        ValueError: the model cannot be captured, ``device``, ``precision``, ``autocast`` or ``optimizer`` is unknown,
            or arguments contradict each other.
    """
    a_model(model)
    a_callback(progress, "progress")
    spec = device if isinstance(device, DeviceSpec) else device_spec(device)
    if precision is not None and (not isinstance(precision, str) or precision not in PRECISIONS):
        raise ValueError(f"precision {shown(precision)} is unknown; allowed: {', '.join(PRECISIONS)}, or None")
    half = _HALVES.get(precision or "")
    if half is not None and autocast is not None:
        raise ValueError(
            f"precision is {precision!r}, which makes the whole model so, and autocast is {shown(str(autocast))}, "
            "which casts for single operators: give one of them"
        )
    updater, iteration = planned(
        model, loss, optimizer=optimizer, update=update, accumulate=accumulate, distributed=distributed
    )
    captured, graph = capture_in_depth(
        model,
        batch,
        loss=loss,
        dtype=half,
        autocast=autocast,
        architecture=Architecture(spec.compute_capability, spec.cudnn_attention),
        fuse=a_flag(fuse, "fuse"),
    )
    precisions = precisions_of(spec, precision)
    estimated = estimate_capture(captured, spec=spec, precisions=precisions, progress=progress)
    estimated = replace(estimated, graph=graph)
    if iteration == STEP_ALONE:
        return estimated
    names = {storage: f"model.{graph.storages[storage].name}" for storage, _ in graph.gradients}
    if graph is captured.graph:
        names = parameter_names(captured)
    updates = Updates(graph, names=names, model=with_loss(model, loss), updater=updater)
    updates.estimate(Counting(spec, precisions), half)
    return updates.added_to(estimated, optimizer).in_iteration(iteration)


def precisions_of(spec: DeviceSpec, precision: str | None) -> Precisions:
    """What ``precision`` means on a device (see ``estimate``)."""
    tf32 = "tf32" if "tf32" in spec.matrix_tflops else "float32"
    if precision is None:
        return Precisions(matmul="float32", convolution=tf32)
    if precision == "tf32":
        return Precisions(matmul=tf32, convolution=tf32)
    return Precisions(matmul="float32", convolution="float32")


def estimate_capture(
    captured: Capture,
    *,
    spec: DeviceSpec,
    precisions: Precisions,
    plans: Plans | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Estimate the operators of a capture.

    Args:
        captured: for CUDA.
        spec: the device.
        precisions: of products in float32.
        plans: cuDNN's for the device, where they are known: their workspace instead of the model's.
        progress: called as the work goes on.
    """
    graph = captured.graph
    subjects = subjects_of(captured, CUDA_ROUNDING_BYTES)
    costs: dict[str, Cost] = {TANGENTS: Cost(0.0, 0)}
    counting = Counting(spec, precisions, plans)
    for number, (key, subject) in enumerate(subjects.items()):
        if progress is not None:
            progress(number, len(subjects), subject.name)
        if subject.call.target in _PARTS and subject.call.args[0] in _FAMILIES:
            costs[key] = _family_cost(subject.call, counting.convolutions)
        else:
            costs[key] = counting.cost(subject.call, written_bytes=subject.written_bytes)
    if progress is not None:
        progress(len(subjects), len(subjects), "done")
    costs |= halves_like_wholes(halves_of(graph), costs)
    return Profile(graph, costs, _described(spec, graph))


def _described(spec: DeviceSpec, graph: TrainingGraph) -> Device:
    return Device(
        name=spec.name,
        kind="cuda",
        torch_version=str(torch.__version__),  # see ``describe_device``
        rounding_bytes=CUDA_ROUNDING_BYTES,
        persistent_workspace_bytes=_cublas_bytes(spec, graph),
        memory_bytes=spec.memory_bytes,
        estimated=True,
    )


def _cublas_bytes(spec: DeviceSpec, graph: TrainingGraph) -> int:
    """Forward and backward pass run in threads of their own, each with a handle; products with a bias use cuBLASLt."""
    if not uses_cublas(graph):
        return 0
    return 2 * spec.handle_bytes + (CUBLASLT_BYTES if uses_cublaslt(graph) else 0)


def _family_cost(call: Call, convolutions: Convolutions) -> Cost:
    """Of a convolution by one of cuDNN's families, from shapes alone."""
    part = _PARTS[call.target]
    family, first, second, third, *settings = call.args
    spec, bias_ms, bias_bytes = convolutions.spec, 0.0, 0
    if part is Part.FORWARD:
        source, weight = first.meta["val"], second.meta["val"]
        assert call.results[0] is not None, "a convolution has one result"
        outside = call.results[0].meta["val"]
        if third is not None:
            bias_ms = time_ms(KernelWork(Family.ELEMENTWISE, moved_bytes=2 * bytes_moved(outside)), spec)
    else:
        outside, other = first.meta["val"], second.meta["val"]
        shaped = other.new_empty(third) if isinstance(third, list) else third
        source, weight = (shaped, other) if part is Part.INPUT_GRADIENT else (other, shaped)
        if call.target is run_parameter_gradients:
            bias_ms = time_ms(KernelWork(Family.REDUCTION, moved_bytes=bytes_moved(outside)), spec)
            dims = [0, *range(2, outside.dim())]
            bias_bytes = kernel_workspace_bytes("sum", [outside], (outside, dims), spec)
    geometry = geometry_of(source, weight, *settings)
    cost = convolutions.family(Algorithms(family), part, geometry, tuple(outside.shape))
    return Cost(cost.time_ms + bias_ms, max(cost.workspace_bytes, bias_bytes))
