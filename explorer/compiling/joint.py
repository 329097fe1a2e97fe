"""The graph that PyTorch's compiler is about to divide into a forward and a backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.exc import TorchDynamoException

from explorer.capture import Batch, Loss
from explorer.compiling.partitioning import Step, digest_of, tag, tidied
from explorer.execution.steps import step_of, unchanged
from explorer.torch_inductor import joint_graph, partitioned

_SAID = 250


@dataclass(frozen=True)
class Joint:
    """A joint graph of forward and backward pass, as Inductor's partitioner meets it.

    Attributes:
        module: the graph.
        outputs: how many of its results are the forward pass's.
        static: positions of the inputs that are the model's.
        digest: of the graph.
    """

    module: fx.GraphModule
    outputs: int
    static: tuple[int, ...]
    digest: str

    def divided(
        self, *, saved: Iterable[str] = (), again: Iterable[str] = (), ratio: float | None = None
    ) -> tuple[fx.Graph, fx.Graph]:
        """Forward and backward graph by PyTorch's minimum cut; nodes have the names that they have here.

        Args:
            saved: nodes that are saved.
            again: nodes that are computed again.
            ratio: PyTorch's own budget.
        """
        graph = fx.Graph()
        graph.output(graph.graph_copy(self.module.graph, {}))
        for copied, node in zip(graph.nodes, self.module.graph.nodes, strict=True):
            copied.meta = dict(node.meta)
        tag(graph, saved=tuple(saved), again=tuple(again))
        module = fx.GraphModule(self.module, graph)
        forward, backward = partitioned(module, outputs=self.outputs, static=self.static, ratio=ratio)
        return forward.graph, backward.graph


def joint_of(model: nn.Module, batch: Batch, *, loss: Loss | None = None) -> Joint:
    """Trace a training step as ``torch.compile`` does; the model is as before afterwards.

    Raises:
        ValueError: the compiler cannot make one graph of the step (says where it breaks), or nothing is trained.
    """
    step = model if loss is None else Step(model, loss)

    def compile_with(options: dict[str, Any]) -> nn.Module:
        module = torch.compile(step, fullgraph=True, dynamic=False, options=options)
        assert isinstance(module, nn.Module)
        return module

    torch.compiler.reset()
    try:
        with unchanged(model, loss=loss):
            found = joint_graph(lambda module: step_of(module, batch)(), compile_with)
    except (TorchDynamoException, ValueError) as error:
        reason = error if isinstance(error, TorchDynamoException) else error.__cause__
        if not isinstance(reason, TorchDynamoException):
            raise
        raise broken(model, reason) from error
    finally:
        torch.compiler.reset()
    if not found:
        raise ValueError("torch.compile divides no graph of this step: is every parameter frozen?")
    module = found[0]["module"]
    tidied(module)
    return Joint(
        module,
        found[0]["num_fwd_outputs"],
        tuple(found[0].get("static_lifetime_input_indices") or ()),
        digest_of(module.graph),
    )


def broken(model: nn.Module, error: Exception) -> ValueError:
    """What to tell of a step that the compiler cannot take as one graph."""
    said = " ".join(str(error).split())[:_SAID]
    return ValueError(
        f"torch.compile cannot make one graph of {type(model).__name__}'s step, which a choice of what to save is for: "
        f"{said}. Move what breaks the graph out of the model (torch._dynamo.explain names each break), or compile and "
        "plan the parts, or use explorer.apply, which needs no compiler"
    )
