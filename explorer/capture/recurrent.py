"""LSTM layers on a CPU: one call of oneDNN, which saves for its backward pass what tracing cannot tell the size of."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from explorer.torch_private import below_autograd

aten = torch.ops.aten


def lstm_layer(*args: Any) -> tuple[torch.Tensor, ...]:
    """``aten.mkldnn_rnn_layer`` as autograd runs it: without gradients enabled it would save nothing."""
    with below_autograd(), torch.enable_grad():
        return aten.mkldnn_rnn_layer.default(*args)


def size_workspaces(graph: fx.Graph) -> None:
    """Enter what LSTM layers save with the size that it has, which takes a run of each kind of layer."""
    sizes: dict[str, torch.Size] = {}
    for node in graph.nodes:
        if node.target is aten.mkldnn_rnn_layer.default:
            args = [x.meta["val"] if isinstance(x, fx.Node) else x for x in node.args]
            kind = repr([(x.shape, x.dtype) if isinstance(x, torch.Tensor) else x for x in args])
            if kind not in sizes:
                sizes[kind] = lstm_layer(*map(_zeros, args))[3].shape
            *results, workspace = node.meta["val"]
            with workspace.fake_mode:
                made = workspace.new_empty(sizes[kind])
            node.target = lstm_layer
            node.meta = {**node.meta, "val": (*results, made)}
            for element in node.users:
                if element.args[1] == 3:
                    element.meta = {**element.meta, "val": made}


def _zeros(value: Any) -> Any:
    return torch.zeros(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value
