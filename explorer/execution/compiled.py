"""``torch.compile``'s partitioner: what it would save, as a schedule, and what a compiled step really takes."""

from __future__ import annotations

import torch
from torch import fx, nn

from explorer.arguments import a_loss, a_number, a_whole_number
from explorer.autocast import Autocast
from explorer.capture import Batch, Capture, Loss, capture
from explorer.capture.ambient import an_autocast
from explorer.capture.batch import TrainingStep, call_arguments
from explorer.capture.traced import Traced
from explorer.capture.tracing import trace
from explorer.execution.device import device_of
from explorer.execution.measuring import measure
from explorer.measurement import Measurement
from explorer.recomputing import Recomputing
from explorer.schedule import Schedule
from explorer.torch_arguments import a_batch, a_model
from explorer.torch_private import activation_budget, saved_by_partitioner
from explorer.units import shown

METHOD = "torch-compile"


def compiled_schedule(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    activation_memory_budget: float = 1.0,
) -> Schedule:
    """The schedule that ``torch.compile``'s partitioner chooses, for ``simulate`` and ``apply``.

    The partitioner (a minimum cut for the default budget of 1; a knapsack over cuts below that, see
    ``torch._functorch.config.activation_memory_budget``) divides the captured joint graph into a forward and a backward
    graph. What the forward graph saves is read back; what the backward graph needs besides runs again just before it is
    first needed. It minimises bytes saved, respectively estimated time to recompute, for what fusing compilers can
    recompute for free. It ignores workspace, the memory that recomputation itself takes, and when things are freed, and
    its budget is a share of what is saved for the backward pass, not bytes of the whole step.

    Here it sees PyTorch's operators as captured, not the smaller ones that the compiler makes of them, and every run
    is one of PyTorch's own kernels: it is the choice of what to save that is compared, not fusion.

    Args:
        model: in training mode.
        batch: as for ``profile``.
        loss: as for ``profile``.
        autocast: as for ``profile``.
        activation_memory_budget: from 0 (save inputs only) to 1 (save what a minimum cut saves).

    Raises:
        ValueError: the budget is not from 0 to 1, or the model cannot be captured.
    """
    _check(activation_memory_budget)
    captured = capture(model, batch, loss=loss, autocast=autocast)
    args, kwargs = call_arguments(batch, loss=loss)
    with torch.enable_grad(), captured.ambient.region():
        traced = trace(TrainingStep(model, loss), args, kwargs)
    names = _saved_names(traced, activation_memory_budget)
    saved = {x for name in names if (x := _storage(captured, traced, name)) is not None}
    return Recomputing(captured.graph).schedule(saved, method=f"{METHOD} {activation_memory_budget:g}")


def measure_compiled(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    activation_memory_budget: float = 1.0,
    steps: int = 3,
    backend: str = "inductor",
) -> Measurement:
    """Compile the model with ``torch.compile`` and measure real steps of it.

    Args:
        model: in training mode; as before afterwards.
        batch: as for ``measure``.
        loss: as for ``measure``.
        autocast: as for ``measure``.
        activation_memory_budget: as above.
        steps: how many are timed.
        backend: ``"inductor"`` needs a compiler for C++ (CPU) or Triton (CUDA); ``"aot_eager_decomp_partition"``
            partitions alike and runs PyTorch's own kernels.

    Raises:
        ValueError: the budget is not from 0 to 1.
    """
    _check(activation_memory_budget)
    a_batch(batch, a_model(model))
    call_arguments(batch, loss=a_loss(loss))
    a_whole_number(steps, "steps", least=1)
    if backend not in torch.compiler.list_backends(exclude_tags=()) and not callable(backend):
        allowed = ", ".join(map(repr, torch.compiler.list_backends()))
        raise ValueError(f"backend is {shown(backend)}; allowed: {allowed}, 'aot_eager_decomp_partition'")
    an_autocast(autocast, device_of(model).type)
    with activation_budget(activation_memory_budget):
        torch.compiler.reset()
        compiled = torch.compile(model, backend=backend)
        assert isinstance(compiled, nn.Module)
        try:
            # Compile before anything is watched: the compiler takes memory of its own.
            measure(compiled, batch, loss=loss, autocast=autocast, steps=1)
            return measure(compiled, batch, loss=loss, autocast=autocast, steps=steps)
        finally:
            torch.compiler.reset()


def _check(activation_memory_budget: float) -> None:
    a_number(activation_memory_budget, "activation_memory_budget", least=0, most=1, what="from 0 to 1")


def _saved_names(traced: Traced, budget: float) -> list[str]:
    """Names of the nodes that the forward graph saves; the partitioner gets a copy of the graph with the same names."""
    copied = fx.Graph()
    copied.output(copied.graph_copy(traced.graph, {}))
    module = fx.GraphModule(traced.graph.owning_module or nn.Module(), copied)
    return saved_by_partitioner(module, outputs=len(traced.outputs) + len(traced.mutations), budget=budget)


def _storage(captured: Capture, traced: Traced, name: str) -> int | None:
    """The storage below a node of the graph as it was traced; None for parameters, and for what was normalised away."""
    known = {node.name: storage for node, storage in captured.built.storage_of.items()}
    node = next((x for x in traced.graph.nodes if x.name == name), None)
    while node is not None and node.name not in known:
        # A detached or copied tensor: below it is what it was made from.
        node = node.all_input_nodes[0] if len(node.all_input_nodes) == 1 else None
    return None if node is None else known[node.name]
