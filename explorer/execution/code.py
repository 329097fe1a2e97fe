"""A schedule as straight-line Python: one function forward, one generator backward, with a ``del`` at every free."""

from __future__ import annotations

import math
import operator
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import fx

from explorer.capture import Capture
from explorer.capture.building import TANGENTS, Call, argument_nodes
from explorer.capture.traced import Source
from explorer.execution.absence import Absence, zeros
from explorer.execution.completion import completed_after
from explorer.execution.returning import made_by_step
from explorer.graph import Phase, Role
from explorer.rearranging import ADDED, UPDATE
from explorer.schedule import Free, Run, Schedule, Step
from explorer.torch_private import bare_binding


def _file(name: str) -> str:
    return f"<schedule {name}>"


_FILES = {_file(name): name for name in ("forward", "backward")}
Forward = Callable[[list[Any]], list[Any]]
Backward = Callable[[list[Any], list[Any]], Iterator[None]]


@dataclass(frozen=True)
class Program:
    """The two passes of a schedule.

    Attributes:
        forward: takes the values of ``inputs``, returns the flat outputs, then what is saved for the backward pass.
        backward: takes ``backward_inputs``, then the saved values, then the tangents; and a list, to which it adds, one
            group after the other, the gradients that are complete, yielding after each group.
        inputs: positions in ``Traced.inputs`` that the forward pass reads.
        backward_inputs: positions that the backward pass reads.
        output_count: how many of the forward pass's results are outputs.
        groups: positions in ``Traced.gradients`` of those that are complete together, in that order.
        places: what runs in which line, by the name of the pass and the line's number.
        schedule: what was compiled.
        fills_sums: as in ``Absence``.
    """

    forward: Forward
    backward: Backward
    inputs: tuple[int, ...]
    backward_inputs: tuple[int, ...]
    output_count: int
    groups: tuple[tuple[int, ...], ...]
    places: dict[tuple[str, int], str]
    schedule: Schedule
    fills_sums: bool = False

    def place(self, error: BaseException) -> str:
        """The operator in whose line an error was raised."""
        frames = [x for x in traceback.extract_tb(error.__traceback__) if x.filename in _FILES]
        found = (self.places.get((_FILES[x.filename], x.lineno or 0)) for x in reversed(frames))
        return next((x for x in found if x is not None), "a scheduled step")


Watch = Callable[[Run, Sequence[fx.Node], Sequence[Any]], None]
"""Called after each run with what it made: nodes of the joint graph, and the tensors that stand for them."""


def generate(
    capture: Capture,
    schedule: Schedule,
    *,
    probe: Callable[[], None] | None = None,
    watch: Watch | None = None,
    absent: Collection[fx.Node] = (),
) -> Program:
    """Compile a schedule that the simulator has accepted.

    Both take a list and empty it, so that no caller keeps alive what they free.

    Args:
        capture: the schedule's.
        schedule: valid.
        probe: called before each run, and at the end of the forward pass.
        watch: called after each run that makes something.
        absent: tangents that have not come; the backward pass leaves out what only serves them.
    """
    steps = list(schedule.steps)
    boundary = next(i for i, x in enumerate(steps) if isinstance(x, Run) and _is_tangents(capture, x))
    traced = capture.traced
    plain = [x for x in traced.inputs if x.source in (Source.PARAMETER, Source.BUFFER, Source.INPUT)]
    outputs = [cast("fx.Node", traced.outputs[index]) for index in made_by_step(capture)]

    forward = Writer(capture, "forward", [x.node for x in plain], [], probe=probe, watch=watch)
    for step in steps[:boundary]:
        forward.write(step)
    # What the caller receives and the backward pass reads is saved too: the same tensor, no second copy.
    saved = _read_later(capture, steps[boundary:], list(forward.live))
    forward.finish([*outputs, *saved])

    tangents = [x.node for x in traced.inputs if x.source is Source.TANGENT]
    needed = _inputs_read(capture, steps[boundary:])
    backward_plain = [x.node for x in plain if x.node in needed]
    values = [*saved, *tangents]
    backward = Writer(capture, "backward", backward_plain, values, probe=probe, watch=watch, absent=absent)
    # The update at the end is an optimizer's, after the pass.
    passes = [x for x in steps if not (isinstance(x, Run) and capture.graph.operators[x.operator].target == UPDATE)]
    groups = completed_after(capture, passes[boundary + 1 :])
    for number, step in enumerate(passes[boundary + 1 :], start=1):
        backward.write(step)
        if number in groups:
            backward.give([traced.gradients[x][1] for x in groups[number]])

    position = {x.node: index for index, x in enumerate(traced.inputs)}
    return Program(
        forward=forward.compile(),
        backward=backward.compile(),
        inputs=tuple(position[x.node] for x in plain),
        backward_inputs=tuple(position[node] for node in backward_plain),
        output_count=len(outputs),
        groups=tuple(groups.values()),
        places=forward.places | backward.places,
        schedule=schedule,
        fills_sums=backward.gradients is not None and backward.gradients.fills_sums,
    )


def _is_tangents(capture: Capture, step: Run) -> bool:
    return capture.graph.operators[step.operator].target == TANGENTS


def _calls(capture: Capture, steps: Iterable[Any]) -> Iterable[Call]:
    for step in steps:
        if isinstance(step, Run):
            yield capture.built.calls[step.operator, step.implementation]


def _read_later(capture: Capture, steps: list[Any], candidates: list[fx.Node]) -> list[fx.Node]:
    """Those candidates whose storage the backward pass frees or reads."""
    storage_of = capture.built.storage_of
    used = {step.storage for step in steps if isinstance(step, Free)}
    used |= {storage for call in _calls(capture, steps) for storage in _storages(capture, call)}
    return [node for node in candidates if storage_of[node] in used]


def _storages(capture: Capture, call: Call) -> set[int]:
    return {capture.built.storage_below(node) for node in argument_nodes(call)}


def _inputs_read(capture: Capture, steps: list[Any]) -> set[fx.Node]:
    """Graph inputs below what the backward pass reads, through views."""
    found: set[fx.Node] = set()
    pending = [node for call in _calls(capture, steps) for node in argument_nodes(call)]
    pending += [node for _, node in capture.traced.gradients]
    seen: set[fx.Node] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "placeholder":
            found.add(node)
        elif node in capture.built.views:
            pending.extend(node.all_input_nodes)
    return found


class Writer:
    """Writes one function, keeping track of which tensors and views have a name at each point."""

    def __init__(
        self,
        capture: Capture,
        name: str,
        persistent: list[fx.Node],
        values: list[fx.Node],
        *,
        probe: Callable[[], None] | None = None,
        watch: Watch | None = None,
        absent: Collection[fx.Node] = (),
    ) -> None:
        """Begin a function.

        Args:
            capture: what the steps belong to.
            name: of the function.
            persistent: graph inputs among its arguments.
            values: the arguments that follow.
            probe: as for ``generate``.
            watch: likewise.
            absent: likewise.
        """
        self.capture = capture
        self.name = name
        self.scope: dict[str, Any] = {}
        self.probe = probe
        self.watch = watch
        self.places: dict[tuple[str, int], str] = {}
        self.live: dict[fx.Node, None] = dict.fromkeys(x for x in values if x not in absent)
        self.views: dict[fx.Node, None] = {}
        self.named: set[fx.Node] = set(persistent)
        self.given: set[int] = set()
        self.gradients = Absence(capture, absent) if absent else None
        arguments = [node.name for node in (*persistent, *values)]
        self.lines = [f"def {name}(values{', given' if name == 'backward' else ''}):"]
        if arguments:
            self.lines.append(f"    {', '.join(arguments)}, = values")
        self.lines.append("    values.clear()")

    @property
    def source(self) -> str:
        """Python text of the function as written so far."""
        return "\n".join(self.lines) + "\n"

    def compile(self) -> Any:
        """The function, or generator."""
        exec(compile(self.source, _file(self.name), "exec"), self.scope)  # noqa: S102  (our own text)
        return self.scope[self.name]

    def write(self, step: Step) -> None:
        """Add a step of the schedule."""
        if isinstance(step, Free):
            self._free(step.storage)
        else:
            self._run(step)

    def finish(self, results: list[fx.Node]) -> None:
        """End the function, which returns what stands for these nodes."""
        for node in results:
            self._ensure(node)
        self._probe()
        self.lines.append(f"    return [{', '.join(node.name for node in results)}]")

    def give(self, gradients: list[fx.Node]) -> None:
        """Hand complete gradients over, and go on when asked to; None for those that are absent."""
        absent = [self.gradients is not None and self.gradients.lacks(node) for node in gradients]
        for node, missing in zip(gradients, absent, strict=True):
            if not missing:
                self._ensure(node)
        names = ["None" if missing else node.name for node, missing in zip(gradients, absent, strict=True)]
        self.lines.append(f"    given += [{', '.join(names)}]")
        # Nothing here may hold what autograd gets: it takes a gradient as it is only if nobody else has it.
        for storage in map(self.capture.built.storage_below, gradients):
            self._free(storage)
            self.given.add(storage)
        self.lines.append("    yield")

    def _run(self, step: Run) -> None:
        if self.capture.graph.operators[step.operator].target in ADDED:
            self._probe()
            return
        call = self.capture.built.calls[step.operator, step.implementation]
        if self.gradients is not None:
            made = self.gradients.instead(call)
            if made is None:
                return  # it serves nothing but gradients that have not come
            call, zeros = made
            for node in zeros:
                self._zeros(node)
        self._probe()
        for node in argument_nodes(call):
            self._ensure(node)
        # A second run makes again what was freed; what is still alive stays, and the new copy goes at once.
        fresh = [x if x is not None and not self._is_there(x) else None for x in call.results]
        names = [node.name if node is not None else "_" for node in fresh]
        text = self._call_text(call)
        bound_to = ", ".join(names) + (", = " if call.is_tuple else " = ") if names else ""
        self.lines.append(f"    {bound_to}{text}")
        self.places[self.name, len(self.lines)] = self._place(step)
        self._watch(step, [x for x in fresh if x is not None])
        if "_" in names:
            self.lines.append("    _ = None")
        if call.overwrites is not None:
            # That memory is the result's now: nothing may go by the name of what was there.
            self._free(self.capture.built.storage_below(call.overwrites))
        self.live |= dict.fromkeys(x for x in fresh if x is not None)

    def _is_there(self, node: fx.Node) -> bool:
        """Is it in memory already? In the backward pass, what the caller received in the forward pass is."""
        storage = self.capture.graph.storages[self.capture.built.storage_below(node)]
        received = self.name == "backward" and storage.held and storage.role is Role.ACTIVATION
        return node in self.live or storage.id in self.given or received

    def _watch(self, step: Run, made: list[fx.Node]) -> None:
        if self.watch is not None and made:
            watch = self._global("watch", self.watch)
            values = ", ".join(node.name for node in made)
            self.lines.append(f"    {watch}({self._global('run', step)}, {self._global('nodes', made)}, [{values}])")

    def _zeros(self, node: fx.Node) -> None:
        """A gradient that has not come, for an operator that also reads one that has."""
        value = node.meta["val"]
        layout = ", ".join(self._literal(x) for x in (tuple(value.shape), value.stride(), value.dtype, value.device))
        self.lines.append(f"    {node.name} = {self._global('zeros', zeros)}({layout})")
        self.live[node] = None

    def _place(self, step: Run) -> str:
        operator = self.capture.graph.operators[step.operator]
        again = " again" if operator.phase is Phase.FORWARD and self.name == "backward" else ""
        layer = f" of {operator.layer}" if operator.layer else ""
        return f"the {self.name} pass, operator {operator.name!r}{again}{layer}, by {step.implementation!r}"

    def _probe(self) -> None:
        if self.probe is not None:
            self.lines.append(f"    {self._global('probe', self.probe)}()")

    def _free(self, storage: int) -> None:
        nodes = [x for x in (*self.live, *self.views) if self.capture.built.storage_below(x) == storage]
        if nodes:
            self.lines.append(f"    del {', '.join(node.name for node in nodes)}")
        for node in nodes:
            self.live.pop(node, None)
            self.views.pop(node, None)

    def _ensure(self, node: fx.Node) -> None:
        """Give ``node`` a name: re-derive it from the tensor below, if it is a view."""
        if node in self.live or node in self.views or node in self.named:
            return
        if node.op in ("get_attr", "placeholder"):
            self._constant(node)
            return
        assert node in self.capture.built.views, f"{node.name} is not in memory"
        for source in node.all_input_nodes:
            self._ensure(source)
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, fx.Node)
            self.lines.append(f"    {node.name} = {source.name}[{index}]")
        else:
            text = self._call_text(Call(_callable(node), node.args, dict(node.kwargs), (), is_tuple=False))
            self.lines.append(f"    {node.name} = {text}")
        self.views[node] = None

    def _constant(self, node: fx.Node) -> None:
        constant = next(x.constant for x in self.capture.traced.inputs if x.node is node)
        assert constant is not None, f"{node.name} was not passed"
        self.scope[node.name] = constant
        self.named.add(node)

    def _call_text(self, call: Call) -> str:
        key = self._global(getattr(call.target, "__name__", "call").replace(".", "_"), bare_binding(call.target))
        parts = [self._literal(x) for x in call.args]
        parts += [f"{name}={self._literal(x)}" for name, x in call.kwargs.items()]
        return f"{key}({', '.join(parts)})"

    def _literal(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return value.name
        if isinstance(value, list | tuple):
            inner = ", ".join(self._literal(x) for x in value)
            return f"[{inner}]"
        if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
            return repr(value)
        return self._global("constant", value)

    def _global(self, stem: str, value: Any) -> str:
        """A global name for ``value``; equal objects share one."""
        number = 0
        while (key := f"{stem}__{number}") in self.scope:
            if self.scope[key] is value:
                return key
            number += 1
        self.scope[key] = value
        return key


def _callable(node: fx.Node) -> Callable[..., Any]:
    assert callable(node.target)
    return node.target
