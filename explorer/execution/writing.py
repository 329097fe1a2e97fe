"""Writing the passes of a step: runs and frees as lines of Python, with a name for every tensor that is in memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

from torch import fx

from explorer.capture import Capture
from explorer.capture.building import Call, argument_nodes
from explorer.execution.absence import Absence, zeros
from explorer.graph import Phase, Role
from explorer.rearranging import ADDED
from explorer.schedule import Free, Run, Step
from explorer.torch_private import bare_binding

Watch = Callable[[Run, Sequence[fx.Node], Sequence[Any]], None]
"""Called after each run with what it made: nodes of the joint graph, and the tensors that stand for them."""


def file_of(name: str) -> str:
    """As tracebacks name the text of a pass."""
    return f"<schedule {name}>"


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
        arguments = [self.named_as(node) for node in (*persistent, *values)]
        self.lines = [f"def {name}(values{', given' if name == 'backward' else ''}):"]
        if arguments:
            self.lines.append(f"    {', '.join(arguments)}{',' if len(arguments) == 1 else ''} = values")
        self.lines.append("    values.clear()")

    @property
    def source(self) -> str:
        """Python text of the function as written so far."""
        return "\n".join(self.lines) + "\n"

    def compile(self) -> Any:
        """The function, or generator."""
        exec(compile(self.source, file_of(self.name), "exec"), self.scope)  # noqa: S102  (our own text)
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
        self.lines.append(f"    return [{', '.join(map(self.named_as, results))}]")

    def give(self, gradients: list[fx.Node]) -> None:
        """Hand complete gradients over, and go on when asked to; None for those that are absent."""
        absent = [self.gradients is not None and self.gradients.lacks(node) for node in gradients]
        for node, missing in zip(gradients, absent, strict=True):
            if not missing:
                self._ensure(node)
        names = ["None" if missing else self.named_as(x) for x, missing in zip(gradients, absent, strict=True)]
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
        names = [self.named_as(node) if node is not None else "_" for node in fresh]
        text = self.call_text(call)
        wanted = [index for index, name in enumerate(names) if name != "_"]
        self.lines.append(f"    {_bound(text, names, wanted, is_tuple=call.is_tuple)}{self.comment(step)}")
        self.places[self.name, len(self.lines)] = self._place(step)
        self._watch(step, [x for x in fresh if x is not None])
        if len(wanted) > 1 and "_" in names:
            self.lines.append("    del _")
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
            values = ", ".join(map(self.named_as, made))
            self.lines.append(f"    {watch}({self._global('run', step)}, {self._global('nodes', made)}, [{values}])")

    def _zeros(self, node: fx.Node) -> None:
        """A gradient that has not come, for an operator that also reads one that has."""
        value = node.meta["val"]
        layout = ", ".join(self.literal(x) for x in (tuple(value.shape), value.stride(), value.dtype, value.device))
        self.lines.append(f"    {self.named_as(node)} = {self._global('zeros', zeros)}({layout})")
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
            self.lines.append(f"    del {', '.join(map(self.named_as, nodes))}")
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
            self.lines.append(f"    {self.named_as(node)} = {self.named_as(source)}[{index}]")
        else:
            text = self.call_text(Call(_callable(node), node.args, dict(node.kwargs), (), is_tuple=False))
            self.lines.append(f"    {self.named_as(node)} = {text}")
        self.views[node] = None

    def _constant(self, node: fx.Node) -> None:
        constant = next(x.constant for x in self.capture.traced.inputs if x.node is node)
        assert constant is not None, f"{node.name} was not passed"
        self.scope[self.named_as(node)] = constant
        self.named.add(node)

    def named_as(self, node: fx.Node) -> str:
        """What stands for a node's tensor in the text."""
        return node.name

    def comment(self, _step: Run) -> str:
        """What follows a run in its line."""
        return ""

    def call_text(self, call: Call) -> str:
        """A call, its arguments as they are named."""
        key = self._global(getattr(call.target, "__name__", "call").replace(".", "_"), bare_binding(call.target))
        return self.with_arguments(key, call)

    def with_arguments(self, key: str, call: Call) -> str:
        """Likewise, of what is called by a name."""
        parts = [self.literal(x) for x in call.args]
        parts += [f"{name}={self.literal(x)}" for name, x in call.kwargs.items()]
        return f"{key}({', '.join(parts)})"

    def literal(self, value: Any) -> str:
        """An argument."""
        if isinstance(value, fx.Node):
            return self.named_as(value)
        if isinstance(value, list | tuple):
            inner = ", ".join(self.literal(x) for x in value)
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


def _bound(text: str, names: list[str], wanted: list[int], *, is_tuple: bool) -> str:
    """A call whose wanted results have names; of others nothing stays, or the last one, which is called ``_``."""
    if not wanted:
        return text
    if not is_tuple:
        return f"{names[0]} = {text}"
    if len(wanted) == 1:
        return f"{names[wanted[0]]} = {text}[{wanted[0]}]"
    return f"{', '.join(names)} = {text}"


def _callable(node: fx.Node) -> Callable[..., Any]:
    assert callable(node.target)
    return node.target
