"""A schedule as a Python file that needs torch alone: both passes as plain calls, and what makes a step of them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import cast

import torch
from torch import nn

from explorer.capture import Batch, Capture, Loss
from explorer.capture.batch import TensorLayout
from explorer.capture.results import tree_of, unsayable
from explorer.capture.traced import Source
from explorer.execution.applying import capture_for, check_captured
from explorer.execution.code import Passes, write_passes
from explorer.execution.returning import made_by_step
from explorer.execution.writing import Writer
from explorer.exporting import planned, runtime
from explorer.exporting.layout import WIDTH, broken, imports, loadable, rows, section
from explorer.exporting.parts import leaves_text, modules_told, structure_text, value_text
from explorer.exporting.passes import TextWriter, backward_name, backward_text, forward_text, names_of, places_of
from explorer.exporting.sources import NoTextError, Sources
from explorer.harmless import in_docstring
from explorer.schedule import Run, Schedule
from explorer.units import format_bytes

_RUNTIME_IMPORTS = (
    "import inspect",
    "import sys",
    "import warnings",
    "from collections.abc import Callable",
    "from collections.abc import Iterator",
    "from collections.abc import Sequence",
    "from dataclasses import dataclass",
    "from enum import Enum",
    "from typing import Any",
    "import torch",
    "from torch import nn",
    "from torch.autograd import forward_ad",
    "from torch.autograd.function import once_differentiable",
)
FIRST_WORDS = "One training step of"
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


class _File:
    """The text of one file."""

    def __init__(self, captured: Capture, schedule: Schedule, model: nn.Module) -> None:
        self.evaluating = tuple(path for path, module in model.named_modules() if not module.training)
        self.captured = captured
        self.schedule = schedule
        self.model = model
        self.traced = captured.traced
        own = {name for name in {**vars(planned), **vars(runtime)} if not name.startswith("__")}
        self.names = names_of(captured, _RESERVED | own)
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
        write = partial(TextWriter, self.captured, self.sources, self.names, places_of(self.captured))
        passes = write_passes(self.captured, self.schedule, write)
        partial_passes = dict(self._partial_passes(write))
        plan, result = self._plan(passes), self._result()
        constants = {**passes.forward.scope, **passes.backward.scope}
        for written in partial_passes.values():
            constants |= written.scope
        tensors = [f"{name} = {self.sources.literal(value)}" for name, value in constants.items()]
        made = [*self.sources.constants, *self.sources.made, *tensors]
        fixed = [text[text.index("@dataclass") :].rstrip() for text in map(inspect.getsource, (planned, runtime))]
        head = [
            f'"""{self._words()}"""',
            "\n\n".join(["from __future__ import annotations", *imports([*_RUNTIME_IMPORTS, *self.sources.imports])]),
            "aten = torch.ops.aten",
        ]
        parts = [
            *([section("Ways to run operators")] if self.sources.functions else []),
            *(x.rstrip() for x in (*self.sources.classes, *self.sources.functions)),
            *(["\n".join(x for line in made for x in broken(line))] if made else []),
            section("The step"),
            forward_text(passes.forward, passes.output_count),
            backward_text(passes.backward),
            *(backward_text(x, arrived) for arrived, x in partial_passes.items()),
            section("Running it"),
            *fixed,
            section("This schedule's"),
            leaves_text(self.captured.batch.structure),
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
        what = (
            f"{FIRST_WORDS} {in_docstring(self.captured.graph.model)}{within}, by a schedule: "
            f"{in_docstring(self.schedule.method)}."
        )
        return (
            f"{textwrap.fill(what, WIDTH, break_long_words=False)}\n\n"
            "    scheduled_model = scheduled(model)  # shares the model's parameters\n"
            f"    loss = scheduled_model({self._given()})\n"
            "    loss.backward()\n\n"
            f"Made and tested with torch {torch.__version__}; needs nothing but what the model needs.\n"
        )

    def _given(self) -> str:
        """How a batch is passed on: a pair with the target, one tensor, several, or keywords."""
        if self.captured.loss is not None:
            return "inputs, target"
        args, _ = self.captured.batch.structure.children()
        return {0: "**batch", 1: "batch"}.get(args.num_children, "*batch")

    def _plan(self, passes: Passes) -> str:
        traced, batch = self.traced, self.captured.batch
        parameters = []
        for index in self.places:
            node = traced.inputs[index].node
            value = node.meta["val"]
            path = traced.inputs[index].name.removeprefix("model.")
            trained = planned.found_at(self.model, path).requires_grad
            parameters.append((path, tuple(value.shape), value.stride(), value.dtype, trained))
        literal = self.sources.literal
        leaves = [
            literal((name, x.shape, x.dtype, x.strides, trained))
            if isinstance(x, TensorLayout)
            else value_text(self.sources, name, x)
            for name, x, trained in zip(batch.names, batch.leaves, self.captured.batch_gradients, strict=True)
        ]
        at = {x: index for index, x in enumerate(traced.inputs)}
        written = tuple(self.position[x] for x, given in enumerate(traced.inputs) if given in traced.changed)
        of_gradient = [self.position[at[x]] for x, _ in traced.gradients]
        tensors = made_by_step(self.captured)
        tangents = [x for x in traced.inputs if x.source is Source.TANGENT]
        layouts = tuple((tensors.index(cast("int", x.output)), x.node.meta["val"].stride()) for x in tangents)
        casts = self.captured.graph.autocast
        kind = next(iter(x.node.meta["val"].device.type for x in traced.inputs if x.source is Source.PARAMETER))
        lines = [
            f"torch_version={str(torch.__version__)!r},",
            f"device={kind!r},",
            rows("parameters", [literal(x) for x in parameters]),
            f"parameter_count={sum(1 for _ in self.model.parameters())},",
            rows("state", [literal(x) for x in planned.state_of(self.model)]),
            rows("modules", modules_told(self.sources, self.model)),
            rows("batch", leaves),
            f"inputs={tuple(self.position[x] for x in passes.inputs)!r},",
            f"backward_inputs={tuple(self.position[x] for x in passes.backward_inputs)!r},",
            f"written={written!r},",
            f"output_count={passes.output_count},",
            f"groups={tuple(tuple(of_gradient[x] for x in group) for group in passes.groups)!r},",
            f"tangents={layouts!r},",
            f"structure={structure_text(self.sources, batch.structure)},",
            "leaves=leaves,",
            "result=result,",
            f"refused={tuple(tensors.index(x) for x, no in enumerate(traced.refused) if no)!r},",
            f"autocast={'None' if casts is None or casts.dtype is None else 'torch.' + casts.dtype},",
            f"evaluating={self.evaluating!r},",
            rows("conditions", self._conditions()),
        ]
        body = "\n".join(x for line in textwrap.indent("\n".join(lines), "    ").splitlines() for x in broken(line))
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

    def _result(self) -> str:
        tensors = made_by_step(self.captured)
        given = [f"tensors[{tensors.index(x)}]" for x in range(self.traced.returned)]
        shown = tree_of(self.traced.result, given, self.sources.class_name)
        if shown is None:
            raise NoTextError(f"the step returns {unsayable(self.traced.result)}")
        head = 'def result(tensors: Sequence[torch.Tensor]) -> Any:\n    """What a step returns."""'
        return "\n".join([head, *broken(f"    return {shown}")])

    def _scheduled(self, partial_passes: Sequence[tuple[int, ...]]) -> str:
        has_loss = self.captured.loss is not None
        count = sum(x.source is Source.TANGENT for x in self.traced.inputs)
        names = {tuple(range(count)): "backward"} | {x: backward_name(x) for x in partial_passes}
        backward = ", ".join(f"{arrived!r}: {name}" for arrived, name in names.items())
        return (
            "def scheduled(model: nn.Module) -> Any:\n"
            f'    """{in_docstring(self.captured.graph.model)} by this schedule; shares everything with ``model``."""\n'
            f"    passes = Passes(forward, {{{backward}}}, scheduled, has_loss={has_loss})\n"
            "    return scheduled_module(model, PLAN, passes)"
        )
