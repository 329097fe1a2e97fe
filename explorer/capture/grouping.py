"""Chains of calls as operators: joined, with what their kernels may leave out or make again."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import fx

from explorer.capture.batch_norm import Remaking, chains_before_normalisation, fused_ways
from explorer.capture.chains import Memory, base, below, chains_of, readers, views
from explorer.capture.joining import element_of
from explorer.capture.normalise import is_view
from explorer.capture.passes import passes_of
from explorer.capture.recomputing import Remade, from_source, layout, step
from explorer.capture.traced import Traced
from explorer.operators.groups import Group, group_of_calls
from explorer.operators.inplace import ACCUMULATES
from explorer.operators.registry import AS_EAGER, LABEL, fits_over, value_of

_NAMED = 4


def join_groups(traced: Traced) -> Traced:
    """Join chains of calls in both passes; the graph is changed in place.

    A chain stays as it is where its calls, run one by one without freeing what they read, could take more than plain
    PyTorch's peak.

    Args:
        traced: normalised.

    Returns:
        The same graph with the interface that it has now.
    """
    passes = passes_of(traced)
    memory = Memory(traced, [*passes[0], *passes[1]])
    before = [x for x in chains_before_normalisation(passes[1], traced) if memory.allows(x)]
    apart = {y for x in before for y in x}
    chains = [[x for x in chains_of(nodes, traced, apart=apart) if memory.allows(x)] for nodes in passes]
    instead: dict[fx.Node, fx.Node] = {}
    remaking = Remaking.of(traced)
    for chain in before:
        found = _Chain.of([*chain, *sorted(chain[-1].users)], traced)
        if found is not None:
            again = remaking.from_statistics(found.given, found.group, deep=True)
            instead |= found.join(traced, again=again, in_place=True)
    for phase, later in zip(chains, (passes_of(_renewed(traced, instead))[1], ()), strict=True):
        for chain in phase:
            found = _Chain.of(chain, traced)
            if found is not None:
                again = None if later else from_source(found.given, found.group)
                instead |= found.join(traced, later=frozenset(later), again=again)
    for node in traced.graph.nodes:
        if AS_EAGER in node.meta:
            target, *arguments = node.meta[AS_EAGER]
            node.meta[AS_EAGER] = (target, *fx.map_arg(tuple(arguments), lambda x: instead.get(x, x)))
    traced.graph.lint()
    renewed = _renewed(traced, instead)
    fused_ways(renewed)
    return renewed


def _renewed(traced: Traced, instead: dict[fx.Node, fx.Node]) -> Traced:
    """With nodes in the place of those that they stand for."""
    return replace(
        traced,
        outputs=tuple(instead.get(x, x) if isinstance(x, fx.Node) else x for x in traced.outputs),
        gradients=tuple((graph_input, instead.get(x, x)) for graph_input, x in traced.gradients),
    )


@dataclass(frozen=True)
class _Chain:
    """A chain, about to be joined.

    Attributes:
        calls: in order, with the views among them that they read.
        given: what they read of others.
        results: calls that others read.
        place: the last node before the joined one.
    """

    calls: tuple[fx.Node, ...]
    given: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]
    place: fx.Node

    @classmethod
    def of(cls, chain: Sequence[fx.Node], traced: Traced) -> _Chain | None:
        """None where the graph's order has something else in between."""
        members = set(chain)
        between = {y for node in chain for x in node.all_input_nodes for y in below(x) if base(y) in members}
        inside = sorted(members | between)
        given = dict.fromkeys(x for node in inside for x in node.all_input_nodes if x not in inside)
        named = {x for x in traced.outputs if isinstance(x, fx.Node)} | {x for _, x in traced.gradients}
        others = {node: [x for x in readers(node) if x not in members] for node in chain}
        results = [x for x in inside if x in members and (others[x] or named & views(x))]
        place = max([*inside, *given])
        if not results or any(x < place for node in chain for x in others[node]):
            return None
        return cls(tuple(inside), tuple(given), tuple(results), place)

    def join(
        self,
        traced: Traced,
        *,
        later: AbstractSet[fx.Node] = frozenset(),
        again: Remade | None = None,
        in_place: bool = False,
    ) -> dict[fx.Node, fx.Node]:
        """Put the joined call in the place of the chain; returns what stands for what.

        Args:
            traced: the graph.
            later: calls of the backward pass, if the chain is of the forward pass; else none.
            again: in the backward pass, another group with the same results, and what it reads.
            in_place: may its first result take the memory of something given?
        """
        group = self.group
        alone: tuple[int, ...] = ()
        if later:
            named = {x for x in traced.outputs if isinstance(x, fx.Node)}
            others = {*later, *self.calls}
            read_on = [not others.issuperset(readers(x)) or bool(named & views(x)) for x in self.results]
            alone = tuple(at for at, wanted in enumerate(read_on) if wanted)
            alone = alone if len(alone) < len(self.results) else ()
        over = self._given_to_overwrite(again) if in_place else None
        graph = traced.graph
        with graph.inserting_after(self.place):
            args: Any = (group, self.given, alone, *(again or (None, ())), over)
            joined = graph.call_function(group_of_calls, args)
        values = tuple(map(value_of, self.results))
        joined.meta = {
            **self.results[-1].meta,
            "val": values[0] if len(values) == 1 else values,
            AS_EAGER: (group_of_calls, (group, self.given), {}),
            LABEL: _label(group),
        }
        joined.meta.pop(ACCUMULATES, None)
        return self._replaced_by(joined)

    def _replaced_by(self, joined: fx.Node) -> dict[fx.Node, fx.Node]:
        instead: dict[fx.Node, fx.Node] = {}
        after = joined
        for at, node in enumerate(self.results):
            if len(self.results) == 1:
                instead[node] = joined
            else:
                after = instead[node] = element_of(joined, at, after=after)
                after.meta = {**node.meta, "val": value_of(node)}
                after.meta.pop(ACCUMULATES, None)
        # Views that others read come after what they are views of.
        for view in sorted({x for node in self.results for x in views(node)} - set(self.results)):
            if view < joined or view in self.calls:
                after.append(view)
                after = view
        for node, other in instead.items():
            node.replace_all_uses_with(other)
        for node in reversed(self.calls):
            if not node.users:
                joined.graph.erase_node(node)
        return instead

    def _given_to_overwrite(self, again: Remade | None) -> fx.Node | None:
        """What both groups read and the gradient of a normalisation's source fits over; the first of such."""
        if self.results[0].target is not operator.getitem:
            return None  # that gradient is of no use, or not the first result
        able = (x for x in self.given if fits_over(x, self.results[0]))
        return next((x for x in able if again is None or x in again[1]), None)

    @cached_property
    def group(self) -> Group:
        """The calls."""
        number = {node: at for at, node in enumerate((*self.given, *self.calls))}
        last = {y: node for node in self.calls for x in node.all_input_nodes for y in below(x)}
        steps = [step(node, number, over_first=self._over_first(node, last)) for node in self.calls]
        return Group(
            tuple(map(layout, self.given)),
            tuple(steps),
            tuple(number[x] for x in self.results),
            tuple(map(layout, self.results)),
        ).freeing()

    def _over_first(self, node: fx.Node, last: dict[fx.Node, fx.Node]) -> bool:
        """A sum of gradients in the place of one that was made here and is read for the last time."""
        first = node.args[0] if node.meta.get(ACCUMULATES) else None
        if not isinstance(first, fx.Node) or first not in self.calls or is_view(first) or first in self.results:
            return False
        return last[first] is node and node.args[1] is not first and fits_over(first, node)


def _label(group: Group) -> str:
    """Short, for people: what is computed, in order."""
    calls = [x.target for x in group.steps if x.target is not operator.getitem]
    names = [str(x).split(".")[1].strip("_") for x in calls if not getattr(x, "is_view", False)]
    found = list(dict.fromkeys(x.removeprefix("native_") for x in names))
    return "_".join([*found[:_NAMED], *(["etc"] if len(found) > _NAMED else [])])
