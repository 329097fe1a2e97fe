"""A schedule as a Python file that needs torch alone: both passes as plain calls, and what makes a step of them."""

from __future__ import annotations

import inspect
import keyword
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, cast

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from explorer.capture import Batch, Capture, Loss
from explorer.capture.batch import TensorLayout
from explorer.capture.building import Call
from explorer.capture.results import tree_of, unsayable
from explorer.capture.traced import Source
from explorer.execution.applying import capture_for, check_captured
from explorer.execution.code import Passes, write_passes
from explorer.execution.returning import made_by_step
from explorer.execution.writing import Writer
from explorer.exporting import runtime
from explorer.exporting.layout import filled, imports, loadable, rows, section, wrapped
from explorer.exporting.sources import NoTextError, Sources
from explorer.graph import Phase
from explorer.harmless import in_docstring, one_line
from explorer.operators.convolution import (
    run_forward,
    run_input_gradient,
    run_parameter_gradients,
    run_weight_gradient,
)
from explorer.operators.convolution_algorithms import algorithm_called
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.schedule import Run, Schedule
from explorer.units import format_bytes

_ALGORITHMS = {
    run_forward: "forward",
    run_weight_gradient: "weight_gradient",
    run_input_gradient: "input_gradient",
}
_RUNTIME_IMPORTS = (
    "import inspect",
    "import sys",
    "import warnings",
    "from collections.abc import Callable",
    "from collections.abc import Iterator",
    "from collections.abc import Sequence",
    "from dataclasses import dataclass",
    "from typing import Any",
    "import torch",
    "from torch import nn",
    "from torch.autograd.function import once_differentiable",
)
_RESERVED = {"sys", "torch", "aten", "forward", "backward", "scheduled", "PLAN", "leaves", "result", "values", "given"}
_MOST_RESULTS = 3
"""Of a step, for each choice of which there is a backward pass; of more, there is one for each alone, …"""
_MOST_ALONE = 8
"""… of up to so many."""


def python_text(model: nn.Module, schedule: Schedule, batch: Batch, *, loss: Loss | None, check: bool) -> str:
    """The whole file.

    Raises:
        ValueError: as ``export``.
        CheckFailedError: likewise.
    """
    captured = capture_for(model, schedule, batch, loss=loss)
    _check(captured)
    try:
        text = _File(captured, schedule, model).text()
    except NoTextError as error:
        raise ValueError(f"this schedule cannot be a file on torch alone: {error}") from error
    compile(text, "<exported file>", "exec")  # what is no Python is found here, not by who loads it
    if check:
        check_captured(model, captured, schedule, batch)
    return text


def _check(captured: Capture) -> None:
    """Raises ValueError for what such a file cannot say."""
    traced = captured.traced
    made = set(made_by_step(captured))
    if captured.graph.iteration.within:
        raise ValueError("updates within the backward pass are this package's: plan with update='end' to export")
    if any(traced.given) or not set(range(traced.returned)) <= made:
        raise ValueError(
            "the step returns more than an exported file can give: tensors that it was given, or views of others; let "
            "the model return its loss alone, or name a loss"
        )
    if any(x.name.startswith("loss.") for x in traced.inputs if x.source in (Source.PARAMETER, Source.BUFFER)):
        raise ValueError(
            "the loss has parameters or buffers of its own, which an exported file does not know: put it in the model"
        )


class _TextWriter(Writer):
    """Writes passes with names that people can read, a comment at each run, and functions by their text."""

    def __init__(
        self,
        capture: Capture,
        sources: Sources,
        names: dict[fx.Node, str],
        name: str,
        persistent: list[fx.Node],
        values: list[fx.Node],
        *,
        absent: Collection[fx.Node] = (),
    ) -> None:
        self._sources = sources
        self._names = names
        super().__init__(capture, name, persistent, values, absent=absent)

    def named_as(self, node: fx.Node) -> str:
        return self._names.get(node, node.name)

    def comment(self, step: Run) -> str:
        operator = self.capture.graph.operators[step.operator]
        again = operator.phase is Phase.FORWARD and self.name == "backward"
        parts = [operator.layer, "again" if again else "", step.implementation if step.implementation != "aten" else ""]
        said = one_line(", ".join(x for x in parts if x))
        return f"  # {said}" if said else ""

    def call_text(self, call: Call) -> str:
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
        if isinstance(value, fx.Node) or (isinstance(value, list | tuple) and not _is_plain(value)):
            return super().literal(value)
        return self._sources.literal(list(value) if isinstance(value, tuple) else value)


def _is_plain(values: Sequence[Any]) -> bool:
    return not any(isinstance(x, fx.Node) or (isinstance(x, list | tuple) and not _is_plain(x)) for x in values)


class _File:
    """The text of one file."""

    def __init__(self, captured: Capture, schedule: Schedule, model: nn.Module) -> None:
        self.evaluating = tuple(path for path, module in model.named_modules() if not module.training)
        self.captured = captured
        self.schedule = schedule
        self.model = model
        self.traced = captured.traced
        own = {name for name in vars(runtime) if not name.startswith("__")}
        self.names = self._names(_RESERVED | own)
        nodes = {self.names.get(x) or x.name for x in self.traced.graph.nodes}
        self.sources = Sources(_RESERVED | own | nodes)
        self.position: dict[int, int] = {}
        places = [i for i, x in enumerate(self.traced.inputs) if x.source in (Source.PARAMETER, Source.BUFFER)]
        self.places = places
        self.position |= {index: number for number, index in enumerate(places)}
        for index, given in enumerate(self.traced.inputs):
            if given.source is Source.INPUT:
                self.position[index] = len(places) + int(given.name)

    def text(self) -> str:
        """All of it."""
        write = partial(_TextWriter, self.captured, self.sources, self.names)
        passes = write_passes(self.captured, self.schedule, write)
        partial_passes = dict(self._partial_passes(write))
        plan, result = self._plan(passes), self._result()
        constants = {**passes.forward.scope, **passes.backward.scope}
        for written in partial_passes.values():
            constants |= written.scope
        tensors = [f"{name} = {self.sources.literal(value)}" for name, value in constants.items()]
        end = inspect.getsource(runtime)
        end = end[end.index("@dataclass") :]
        head = [
            f'"""{self._words()}"""',
            "\n\n".join(["from __future__ import annotations", *imports([*_RUNTIME_IMPORTS, *self.sources.imports])]),
            "aten = torch.ops.aten",
        ]
        parts = [
            *([section("Ways to run operators")] if self.sources.functions else []),
            *(x.rstrip() for x in (*self.sources.classes, *self.sources.functions)),
            *(["\n".join(made)] if (made := [*self.sources.constants, *self.sources.made]) else []),
            *(["\n".join(tensors)] if tensors else []),
            section("The step"),
            wrapped(passes.forward.source),
            wrapped(passes.backward.source),
            *(wrapped(_named(x.source, arrived)) for arrived, x in partial_passes.items()),
            section("Running it"),
            end.rstrip(),
            section("This schedule's"),
            self._leaves(),
            result,
            plan,
            self._scheduled(list(partial_passes)),
        ]
        return loadable("\n\n\n".join(head), "\n\n\n".join(parts)).replace("\n\n\n\n", "\n\n\n")

    def _partial_passes(self, write: Callable[..., Writer]) -> Iterator[tuple[tuple[int, ...], Writer]]:
        """Backward passes of steps that are trained on some of their results, by which."""
        tangents = [x.node for x in self.traced.inputs if x.source is Source.TANGENT]
        most = len(tangents) - 1 if len(tangents) <= _MOST_RESULTS else int(len(tangents) <= _MOST_ALONE)
        for count in range(1, most + 1):
            for arrived in combinations(range(len(tangents)), count):
                absent = [x for at, x in enumerate(tangents) if at not in arrived]
                yield arrived, write_passes(self.captured, self.schedule, write, absent=absent).backward

    def _words(self) -> str:
        budget = self.schedule.budget_bytes
        within = "" if budget is None else f" within {format_bytes(budget)}"
        call = "scheduled_model(inputs, target)" if self.captured.loss is not None else "scheduled_model(batch)"
        return (
            f"One training step of {in_docstring(self.captured.graph.model)}{within}, by a schedule: "
            f"{in_docstring(self.schedule.method)}.\n\n"
            "    scheduled_model = scheduled(model)  # shares the model's parameters\n"
            f"    loss = {call}\n"
            "    loss.backward()\n\n"
            f"Made and tested with torch {torch.__version__}; needs nothing but what the model needs.\n"
        )

    def _names(self, reserved: set[str]) -> dict[fx.Node, str]:
        """Names of inputs, by what they are; others have those of their nodes, unless these are reserved."""
        names: dict[fx.Node, str] = {}
        for given in self.traced.inputs:
            if given.source in (Source.PARAMETER, Source.BUFFER):
                wanted = given.name.removeprefix("model.")
            elif given.source is Source.INPUT:
                wanted = self.captured.batch.names[int(given.name)]
            elif given.source is Source.TANGENT:
                wanted = "gradient_of_result"
            else:
                wanted = "constant"
            names[given.node] = wanted
        for node, storage in self.captured.built.storage_of.items():
            if node.name.startswith("getitem"):
                names.setdefault(node, self.captured.graph.storages[storage].name)
        names |= {x: f"{x.name}_" for x in self.traced.graph.nodes if x.name in reserved}
        taken = reserved | {x.name for x in self.traced.graph.nodes if x not in names}
        for node, wanted in names.items():
            plain = re.sub(r"\W+", "_", wanted).strip("_")
            plain = plain if plain.isidentifier() and not keyword.iskeyword(plain) else f"p_{plain}"
            name, number = plain, 2
            while name in taken:
                name, number = f"{plain}_{number}", number + 1
            taken.add(name)
            names[node] = name
        return names

    def _plan(self, passes: Passes) -> str:
        traced, batch = self.traced, self.captured.batch
        parameters = []
        for index in self.places:
            node = traced.inputs[index].node
            value = node.meta["val"]
            path = traced.inputs[index].name.removeprefix("model.")
            trained = runtime.found_at(self.model, path).requires_grad
            parameters.append((path, tuple(value.shape), value.stride(), value.dtype, trained))
        leaves = [
            (name, x.shape, x.dtype, x.strides, trained) if isinstance(x, TensorLayout) else x
            for name, x, trained in zip(batch.names, batch.leaves, self.captured.batch_gradients, strict=True)
        ]
        at = {x: index for index, x in enumerate(traced.inputs)}
        of_gradient = [self.position[at[x]] for x, _ in traced.gradients]
        tensors = made_by_step(self.captured)
        tangents = [x for x in traced.inputs if x.source is Source.TANGENT]
        layouts = tuple((tensors.index(cast("int", x.output)), x.node.meta["val"].stride()) for x in tangents)
        casts = self.captured.graph.autocast
        kind = next(iter(x.node.meta["val"].device.type for x in traced.inputs if x.source is Source.PARAMETER))
        literal = self.sources.literal
        lines = [
            f"torch_version={str(torch.__version__)!r},",
            f"device={kind!r},",
            rows("parameters", [literal(x) for x in parameters]),
            f"parameter_count={sum(1 for _ in self.model.parameters())},",
            rows("state", [literal(x) for x in runtime.state_of(self.model)]),
            rows("batch", [literal(x) for x in leaves]),
            f"inputs={tuple(self.position[x] for x in passes.inputs)!r},",
            f"backward_inputs={tuple(self.position[x] for x in passes.backward_inputs)!r},",
            f"output_count={passes.output_count},",
            f"groups={tuple(tuple(of_gradient[x] for x in group) for group in passes.groups)!r},",
            f"tangents={layouts!r},",
            f"structure={self._structure()},",
            "leaves=leaves,",
            "result=result,",
            f"refused={tuple(tensors.index(x) for x, no in enumerate(traced.refused) if no)!r},",
            f"autocast={'None' if casts is None or casts.dtype is None else 'torch.' + casts.dtype},",
            f"evaluating={self.evaluating!r},",
            rows("conditions", self._conditions()),
        ]
        body = "\n".join(textwrap.indent(filled(x), "    ") for x in lines)
        return f"PLAN = Plan(\n{body}\n)"

    def _conditions(self) -> list[str]:
        at = {x.node: index for index, x in enumerate(self.traced.inputs)}
        found = []
        for step in self.schedule.steps:
            if isinstance(step, Run):
                guard = self.captured.built.calls[step.operator, step.implementation].guard
                if guard is not None:
                    of = tuple(None if x is None else self.position[at[x]] for x in guard.of)
                    found.append(f"({self.sources.name_of(guard.holds)}, {of!r}, {guard.reason!r})")
        return list(dict.fromkeys(found))

    def _structure(self) -> str:
        structure = self.captured.batch.structure
        args, kwargs = pytree.tree_unflatten([0] * structure.num_leaves, structure)
        return self.sources.literal((tuple(args), kwargs))

    def _leaves(self) -> str:
        """Where the parts of a call's arguments are."""
        structure = self.captured.batch.structure
        numbered = pytree.tree_unflatten(list(range(structure.num_leaves)), structure)
        found = [_place(path) for path, _ in pytree.tree_flatten_with_path(numbered)[0]]
        listed = ",\n".join(found)
        body = textwrap.indent(f"return [\n{textwrap.indent(listed, '    ')},\n]", "    ")
        return f'def leaves(args, kwargs):\n    """The parts of a batch."""\n{body}'

    def _result(self) -> str:
        tensors = made_by_step(self.captured)
        found = tree_of(self.traced.result, [f"tensors[{tensors.index(x)}]" for x in range(self.traced.returned)])
        if found is None:
            raise NoTextError(f"the step returns {unsayable(self.traced.result)}")
        shown, classes = found
        for kind in classes:
            self.sources.imports[f"from {kind.__module__} import {kind.__name__}"] = None
        return f'def result(tensors):\n    """What a step returns."""\n    return {shown}'

    def _scheduled(self, partial_passes: Sequence[tuple[int, ...]]) -> str:
        has_loss = self.captured.loss is not None
        count = sum(x.source is Source.TANGENT for x in self.traced.inputs)
        names = {tuple(range(count)): "backward"} | {x: _name_of(x) for x in partial_passes}
        backward = ", ".join(f"{arrived!r}: {name}" for arrived, name in names.items())
        return (
            "def scheduled(model: nn.Module) -> Any:\n"
            f'    """{in_docstring(self.captured.graph.model)} by this schedule; shares everything with ``model``."""\n'
            f"    passes = Passes(forward, {{{backward}}}, scheduled, has_loss={has_loss})\n"
            "    return scheduled_module(model, PLAN, passes)"
        )


def _name_of(arrived: Sequence[int]) -> str:
    return "backward_of_" + "_".join(map(str, arrived))


def _named(source: str, arrived: Sequence[int]) -> str:
    return source.replace("def backward(", f"def {_name_of(arrived)}(", 1)


def _place(path: tuple[Any, ...]) -> str:
    section, *rest = path
    text = "args" if section.idx == 0 else "kwargs"
    for key in rest:
        if isinstance(key, pytree.SequenceKey):
            text += f"[{key.idx}]"
        elif isinstance(key, pytree.MappingKey):
            text += f"[{key.key!r}]"
        else:
            raise NoTextError(f"a batch with parts at {path}; let it be made of tensors, tuples, lists and dicts")
    return text
