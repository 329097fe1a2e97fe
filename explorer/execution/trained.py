"""Which parameters a captured step has gradients for: what it does not reach, an optimizer leaves alone."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from explorer.capture import Capture
from explorer.capture.traced import Source
from explorer.graph import TrainingGraph


def parameter_names(captured: Capture) -> dict[int, str]:
    """Of each parameter's storage its name, behind ``model.`` or ``loss.``."""
    inputs = [x for x in captured.traced.inputs if x.source is Source.PARAMETER]
    return {captured.built.storage_of[x.node]: x.name for x in inputs}


def trained_in(graph: TrainingGraph, names: Mapping[int, str], model: nn.Module) -> dict[int, nn.Parameter]:
    """The parameters of ``model`` that get gradients, by their storages.

    Args:
        graph: of the model.
        names: as ``parameter_names`` has them.
        model: with its loss, if that is a module.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {storage: parameters[_path(names[storage], parameters)] for storage, _ in graph.gradients}


def _path(name: str, parameters: dict[str, nn.Parameter]) -> str:
    """Of a parameter in model and loss together: their list counts them, where there are both."""
    section, path = name.split(".", 1)
    return path if path in parameters and section == "model" else f"{('model', 'loss').index(section)}.{path}"
