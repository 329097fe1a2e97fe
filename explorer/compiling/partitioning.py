"""What a file for ``torch.compile`` does: which results to save, said to PyTorch's own partitioner.

The compiler traces the model's forward and backward pass into one graph, and has a partitioner decide what the first
saves for the second. This one tags the graph's nodes, then lets PyTorch's minimum cut divide it. All calls here are
needed in the file, also those that PyTorch does not promise to keep: the graph is compared with the one planned for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.utils.checkpoint import CheckpointPolicy


@dataclass(frozen=True)
class Choice:
    """What is saved of one joint graph.

    Attributes:
        graph: the graph's digest.
        inputs: shapes and dtypes of its inputs, for messages.
        saved: names of the nodes whose results are saved.
        again: names of those that are computed again where the backward pass needs them.
        torch_version: that traced it.
        channels_last: do convolutions run with the channels of a pixel side by side, in both passes, or with tensors
            laid out as the model has them? None: as the compiler decides. On a CPU that has channels last where a
            graph has a forward convolution, and copies tensors to and fro in backward passes, which have none.
    """

    graph: str
    inputs: tuple[str, ...]
    saved: tuple[str, ...]
    again: tuple[str, ...]
    torch_version: str
    channels_last: bool | None = None


class Step(nn.Module):
    """A model with its loss: called with (inputs, target), returns the loss."""

    def __init__(self, model: nn.Module, loss: Any) -> None:
        """``loss`` is called with the model's result and the target."""
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, inputs: Any, target: Any) -> torch.Tensor:
        """Inputs are one tensor, a tuple of the model's arguments, or a dict of them."""
        if isinstance(inputs, dict):
            return self.loss(self.model(**inputs), target)
        return self.loss(self.model(*inputs) if isinstance(inputs, tuple | list) else self.model(inputs), target)


class Partitioner(CustomPartitionerFn):
    """Divides the joint graph of a choice, and no other."""

    def __init__(self, choice: Choice) -> None:
        """``choice`` is part of what the compiler's caches go by."""
        self.choice = choice

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **told: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Forward and backward graph.

        Raises:
            ValueError: the graph is another one; says what differs.
        """
        tidied(gm)
        if digest_of(gm.graph) != self.choice.graph:
            raise ValueError(self._difference(gm.graph))
        tag(gm.graph, saved=self.choice.saved, again=self.choice.again)
        return min_cut_rematerialization_partition(gm, joint_inputs, **told)

    def uuid(self) -> str:
        """Other choices have others: what was compiled for one is never taken for another."""
        return hashlib.sha256(repr(self.choice).encode()).hexdigest()

    def _difference(self, graph: fx.Graph) -> str:
        here, there = described_inputs(graph), self.choice.inputs
        if len(here) == len(there):
            for one, other in zip(here, there, strict=True):
                if one != other:
                    return (
                        f"the compiled step was planned for an input {other}, and this one is {one}: batches of other "
                        "shapes need a plan of their own (for a smaller last batch: drop_last=True)"
                    )
        made = self.choice.torch_version
        if made == str(torch.__version__):
            return (
                "the compiler traces another graph than the one that the choice was made for: since then parameters "
                "were frozen or unfrozen, modules changed between training and evaluation, a number or another "
                "attribute that the forward pass reads was changed, or autocast is another one"
            )
        return (
            f"torch {torch.__version__} traces another graph than the one that the choice was made for; it was planned "
            f"with torch {made}: plan again with this one"
        )


def compiled(model: nn.Module, choice: Choice) -> nn.Module:
    """The model, compiled with the choice; its first step compiles. Without gradients the model runs as it is.

    A step raises ValueError where the graph is another one than the choice was made for.
    """
    # The compiler would hold memory that was freed until a later result of the same size takes it, also at the peak.
    options: Any = {"custom_partitioner_fn": Partitioner(choice), "allow_buffer_reuse": False}
    if choice.channels_last is not None:
        options["layout_optimization"] = options["force_layout_optimization"] = choice.channels_last
    module: Any = torch.compile(model, fullgraph=True, dynamic=False, options=options)
    run = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return model(*args, **kwargs)  # each shape compiled would count among the few that a graph may have
        try:
            return run(*args, **kwargs)
        except BackendCompilerFailed as error:
            if isinstance(error.inner_exception, ValueError):
                raise error.inner_exception from None
            raise

    module.forward = forward
    return module


def tidied(module: fx.GraphModule) -> None:
    """Without what nobody reads, or what is there twice: as PyTorch's partitioner sees the graph, too."""
    module.graph.eliminate_dead_code()
    module.graph = fx_graph_cse(module.graph)


def tag(graph: fx.Graph, *, saved: Sequence[str], again: Sequence[str]) -> None:
    """Say to the minimum cut what is saved, and what is not."""
    policies = dict.fromkeys(saved, CheckpointPolicy.MUST_SAVE) | dict.fromkeys(again, CheckpointPolicy.MUST_RECOMPUTE)
    for node in graph.nodes:
        if node.name in policies:
            node.meta["recompute"] = policies[node.name]


def described_inputs(graph: fx.Graph) -> tuple[str, ...]:
    """Shape and dtype of each input."""
    return tuple(described(x) for x in graph.nodes if x.op == "placeholder")


def described(node: fx.Node) -> str:
    """Shape and dtype."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def digest_of(graph: fx.Graph) -> str:
    """Equal for equal graphs: what is called on what, in which shapes."""
    lines = [f"{x.name} {x.op} {x.target} {described(x)} {x.args} {x.kwargs}" for x in graph.nodes]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
