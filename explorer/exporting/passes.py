"""Both passes of a schedule as text that people read: names, comments, and words about each pass."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import fx

from explorer.capture import Capture
from explorer.capture.building import UPDATE_BUFFERS, Call
from explorer.capture.traced import GraphInput, Source
from explorer.execution.writing import Writer
from explorer.exporting.layout import wrapped
from explorer.exporting.sources import NoTextError, Sources
from explorer.graph import Phase
from explorer.harmless import one_line
from explorer.operators.convolution import (
    run_forward,
    run_input_gradient,
    run_parameter_gradients,
    run_weight_gradient,
)
from explorer.operators.convolution_algorithms import algorithm_called
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.schedule import Run

_ALGORITHMS = {
    run_forward: "forward",
    run_weight_gradient: "weight_gradient",
    run_input_gradient: "input_gradient",
}
_RESULTS = {
    "batch_norm": ("mean", "inverse_deviation", "running_mean", "running_var"),
    "layer_norm": ("mean", "inverse_deviation"),
    "group_norm": ("mean", "inverse_deviation"),
    "batch_norm_backward": ("of_weight", "of_bias"),
    "layer_norm_backward": ("of_weight", "of_bias"),
    "group_norm_backward": ("of_weight", "of_bias"),
    "dropout": ("mask",),
    "nll_loss_forward": ("total_weight",),
    "max_pool2d_with_indices": ("indices",),
}
"""What an operator's results are, behind the first."""
_PART = re.compile(r"(.*?)(_\d+)?\[(\d+)\]")
_FORWARD = '''\
def forward(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """The forward pass.

    Args:
        values: of the model and of the batch, as named below. The list is emptied: what it holds would stay in memory.

    Returns:
        {outputs} of the step, then what ``backward`` reads.
    """
'''
_BACKWARD = '''\
def {name}(values: list[Any], given: list[torch.Tensor | None]) -> Iterator[None]:
    """The backward pass{which}.

    Args:
        values: what it reads again of the model and of the batch, what ``forward`` saved, and the gradients of the
            step's results, as named below. The list is emptied: what it holds would stay in memory.
        given: takes gradients of parameters as soon as they are complete, in the order of ``PLAN.groups``.

    Yields:
        Nothing, where some are complete: who goes on has taken them, and their memory is no longer this pass's.
    """
'''


class TextWriter(Writer):
    """Writes passes with names that people can read, a comment at each run, and functions by their text."""

    def __init__(
        self,
        capture: Capture,
        sources: Sources,
        names: dict[fx.Node, str],
        places: Mapping[int, str],
        name: str,
        persistent: list[fx.Node],
        values: list[fx.Node],
        *,
        absent: Collection[fx.Node] = (),
    ) -> None:
        """As any writer; with functions, names and the places of operators in the model."""
        self._sources = sources
        self._names = names
        self._places = places
        super().__init__(capture, name, persistent, values, absent=absent)

    def named_as(self, node: fx.Node) -> str:
        """As people read it."""
        return self._names.get(node, node.name)

    def comment(self, step: Run) -> str:
        """Where in the model it is, and how it runs where that is not PyTorch's own way."""
        operator = self.capture.graph.operators[step.operator]
        again = operator.phase is Phase.FORWARD and self.name == "backward"
        # The name of a function is in the line already.
        target = self.capture.built.calls[step.operator, step.implementation].target
        way = "" if step.implementation in ("aten", getattr(target, "__name__", "")) else step.implementation
        parts = [self._places.get(step.operator, ""), "again" if again else "", way]
        said = one_line(", ".join(x for x in parts if x))
        return f"  # {said}" if said else ""

    def call_text(self, call: Call) -> str:
        """A call, by names that the file has."""
        target, args = call.target, call.args
        if target is run_parameter_gradients:
            gradient = args[1]
            assert isinstance(gradient, fx.Node), "a tensor"
            others = [0, *range(2, gradient.meta["val"].dim())]
            of_weight = self.call_text(replace(call, target=run_weight_gradient))
            return f"({of_weight}, {self.named_as(gradient)}.sum({others}))"
        if target in _ALGORITHMS:
            if args[0] in set(Algorithms):
                raise NoTextError(
                    f"convolutions by cuDNN's {args[0]} need nvidia-cudnn-frontend: solve without them, "
                    "optimizations other than convolution"
                )
            found = getattr(algorithm_called(args[0]), _ALGORITHMS[target])
            call, target = replace(call, target=found, args=args[1:]), found
        return self.with_arguments(self._sources.name_of(target), call)

    def literal(self, value: Any) -> str:
        """An argument; what is no tensor as Python."""
        if isinstance(value, fx.Node) or (isinstance(value, list | tuple) and not _is_plain(value)):
            return super().literal(value)
        return self._sources.literal(list(value) if isinstance(value, tuple) else value)


def _is_plain(values: Sequence[Any]) -> bool:
    return not any(isinstance(x, fx.Node) or (isinstance(x, list | tuple) and not _is_plain(x)) for x in values)


def forward_text(written: Writer, outputs: int) -> str:
    """The function, with words about it."""
    _, _, body = written.source.partition("\n")
    return _FORWARD.format(outputs=f"{outputs} results" if outputs != 1 else "The result") + wrapped(body)


def backward_text(written: Writer, arrived: Sequence[int] | None = None) -> str:
    """Likewise; for a step of whose results only those at ``arrived`` have a gradient."""
    results = " and ".join(f"result {x}" for x in arrived or ())
    which = f" of a step in which gradients came for {results} alone" if results else ""
    _, _, body = written.source.partition("\n")
    return _BACKWARD.format(name=backward_name(arrived), which=which) + wrapped(body)


def backward_name(arrived: Sequence[int] | None = None) -> str:
    """Of that function."""
    return "backward" if arrived is None else "backward_of_" + "_".join(map(str, arrived))


def places_of(capture: Capture) -> dict[int, str]:
    """The module of each operator; of what is in none but the model itself, the last one before it."""
    places = {x.id: x.layer for x in capture.graph.operators if x.layer}
    for phase, order in ((Phase.FORWARD, 1), (Phase.BACKWARD, -1)):
        last = ""
        for operator in [x for x in capture.graph.operators if x.phase is phase][::order]:
            last = operator.layer or last
            if last and operator.target != UPDATE_BUFFERS:
                places.setdefault(operator.id, f"after {last}")
    return places


def names_of(capture: Capture, reserved: set[str]) -> dict[fx.Node, str]:
    """Names of inputs, gradients and parts of results, by what they are; of others only where those are reserved."""
    traced = capture.traced
    names: dict[fx.Node, str] = {}
    for given in traced.inputs:
        names[given.node] = _input_name(capture, given)
    for given, node in traced.gradients:
        names.setdefault(node, f"gradient_of_{_input_name(capture, given)}")
    for node in capture.built.views:
        if node.name.startswith("getitem"):
            source, index = node.args
            names.setdefault(node, f"{source}_part_{index}")
    for node, storage in capture.built.storage_of.items():
        if node.name.startswith("getitem"):
            names.setdefault(node, _part_name(capture.graph.storages[storage].name))
    names |= {x: f"{x.name}_" for x in traced.graph.nodes if x.name in reserved}
    taken = reserved | {x.name for x in traced.graph.nodes if x not in names}
    for node, wanted in names.items():
        plain = re.sub(r"\W+", "_", wanted).strip("_")
        plain = plain if plain.isidentifier() and not keyword.iskeyword(plain) else f"p_{plain}"
        name, number = plain, 2
        while name in taken:
            name, number = f"{plain}_{number}", number + 1
        taken.add(name)
        names[node] = name
    return names


def _input_name(capture: Capture, given: GraphInput) -> str:
    if given.source in (Source.PARAMETER, Source.BUFFER):
        return given.name.removeprefix("model.")
    if given.source is Source.INPUT:
        return capture.batch.names[int(given.name)]
    return "gradient_of_result" if given.source is Source.TANGENT else "constant"


def _part_name(storage: str) -> str:
    """One of several results, whose storage is called ``batch_norm_3[1]``, as ``batch_norm_3_mean``."""
    found = _PART.fullmatch(storage)
    if found is None:
        return storage
    operator, number, index = found[1], found[2] or "", int(found[3])
    words = _RESULTS.get(operator, ())
    return f"{operator}{number}_{words[index - 1] if 0 < index <= len(words) else f'result_{index}'}"
