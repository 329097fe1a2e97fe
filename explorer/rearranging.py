"""What a training iteration does with gradients, beside one forward and backward pass: as operators of its graph.

Accumulation adds a fresh gradient to the one of earlier microbatches; an update uses it. Either stands in the graph as
an operator that reads the gradient, so that solvers, the simulator and the panels know it like any other: a gradient
that such an operator has read need not be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from explorer.graph import Implementation, Operator, Phase, Role, Storage, TrainingGraph, When
from explorer.iteration import STEP_ALONE, Buckets, Iteration

ACCUMULATE = "explorer.accumulate"
COPY = "explorer.copy"
UPDATE = "explorer.update"
UPDATE_WITHIN = "explorer.update_within"
ADDED = frozenset({ACCUMULATE, COPY, UPDATE, UPDATE_WITHIN})
"""What stands for something that autograd or an optimizer does with gradients: no call of the step's own."""


def in_iteration(graph: TrainingGraph, iteration: Iteration) -> TrainingGraph:
    """The same passes in another iteration.

    Args:
        graph: of a training step, in any iteration.
        iteration: wanted.

    Raises:
        ValueError: the graph does not say which gradient belongs to which parameter.
    """
    plain = _plain(graph)
    if iteration != STEP_ALONE and not plain.gradients:
        raise ValueError(
            f"the graph of {graph.model} does not say which gradient is whose: profile or estimate the model again"
        )
    used_up = {gradient for _, gradient in plain.gradients} if iteration.uses_up else set()
    storages = [replace(x, held=x.held and x.id not in used_up) for x in plain.storages]
    buffers = _buffers(plain, iteration)
    added = _added(plain, iteration, {gradient: x.id for gradient, x in buffers.items() if gradient is not None})
    order = [x for operator in plain.operators for x in (operator, *added.get(operator.id, ()))]
    return replace(
        plain,
        storages=(*storages, *buffers.values()),
        operators=tuple(replace(x, id=number) for number, x in enumerate(order)),
        iteration=iteration,
    )


def update_cost_key(graph: TrainingGraph, parameter: int) -> str:
    """The name of the cost of an update of one parameter: equal ones share it."""
    storage = graph.storages[parameter]
    return f"{UPDATE_WITHIN}#{storage.dtype}{list(storage.shape)}"


def use_cost_key(graph: TrainingGraph, parameter: int, target: str) -> str:
    """The name of the cost of adding a gradient to another, or of copying a share of it to a bucket."""
    storage = graph.storages[parameter]
    return f"{target}#{storage.dtype}{list(storage.shape)}"


def uses_gradients(operator: Operator) -> bool:
    """Does it stand for something that autograd or an optimizer does with gradients?"""
    return operator.target in ADDED


def _plain(graph: TrainingGraph) -> TrainingGraph:
    """Without the operators of any iteration."""
    of_parameters = {gradient for _, gradient in graph.gradients}
    storages = [
        replace(x, held=x.held or x.id in of_parameters) for x in graph.storages if x.role is not Role.GRADIENT_BUFFER
    ]
    operators = [x for x in graph.operators if x.target not in ADDED]
    numbered = tuple(replace(x, id=number) for number, x in enumerate(operators))
    return replace(graph, storages=tuple(storages), operators=numbered, iteration=STEP_ALONE)


def _buffers(graph: TrainingGraph, iteration: Iteration) -> dict[int | None, Storage]:
    """By gradients: what those are added, or copied, to; by None: buckets beside them."""
    found: dict[int | None, Storage] = {}
    if iteration.accumulate or iteration.buckets is Buckets.VIEWS:
        for number, (parameter, gradient) in enumerate(graph.gradients, start=len(graph.storages)):
            of, fresh = graph.storages[parameter], graph.storages[gradient]
            name = f"{of.name} ({'accumulated gradient' if iteration.accumulate else 'gradient in its bucket'})"
            found[gradient] = Storage(number, name, fresh.bytes, Role.GRADIENT_BUFFER, of.shape, of.dtype)
    if iteration.buckets is Buckets.OWN:
        number, size = len(graph.storages) + len(found), sum(graph.storages[x].bytes for _, x in graph.gradients)
        found[None] = Storage(number, "buckets of gradients", size, Role.GRADIENT_BUFFER, (size,), "uint8")
    return found


def _added(graph: TrainingGraph, iteration: Iteration, buffers: Mapping[int, int]) -> dict[int, list[Operator]]:
    """The operators of an iteration, by the one that they stand behind; without numbers yet."""
    added: dict[int, list[Operator]] = {}
    for at, pairs in _complete_after(graph).items() if iteration.uses_up else ():
        for parameter, gradient in pairs:
            name = graph.storages[parameter].name
            if gradient in buffers:
                target = ACCUMULATE if iteration.buckets is Buckets.NONE else COPY
                key, reads = use_cost_key(graph, parameter, target), (gradient, buffers[gradient])
                verb = "accumulate" if iteration.accumulate else "copy"
                made = _operator(f"{verb} {name}", target, Phase.BACKWARD, reads, key)
            else:
                key, reads = update_cost_key(graph, parameter), (gradient, parameter)
                made = _operator(f"update {name}", UPDATE_WITHIN, Phase.UPDATE, reads, key)
            added.setdefault(at, []).append(made)
    if iteration.optimizer is not None and not iteration.within:
        reads = tuple(
            x for parameter, gradient in graph.gradients for x in (buffers.get(gradient, gradient), parameter)
        )
        last = added.setdefault(len(graph.operators) - 1, [])
        last.append(_operator("update", UPDATE, Phase.UPDATE, reads, UPDATE))
    return added


def _operator(name: str, target: str, phase: Phase, reads: tuple[int, ...], cost: str) -> Operator:
    layer = name.partition(" ")[2].rpartition(".")[0]  # of the parameter
    return Operator(-1, name, target, phase, layer, (Implementation(target, reads, (), cost, when=When.FIRST),))


def _complete_after(graph: TrainingGraph) -> dict[int, list[tuple[int, int]]]:
    """By operators of the backward pass: pairs of parameter and gradient that nothing reads after them, small first.

    What is updated, or added, first is gone first, and the work on a large gradient takes memory beside it.
    """
    last: dict[int, int] = {}
    for operator in graph.backward:
        for implementation in operator.implementations:
            last |= dict.fromkeys((*implementation.reads, *implementation.writes), operator.id)
    found: dict[int, list[tuple[int, int]]] = {}
    for parameter, gradient in graph.gradients:
        found.setdefault(max(last[gradient], last.get(parameter, 0)), []).append((parameter, gradient))
    return {at: sorted(pairs, key=lambda x: graph.storages[x[1]].bytes) for at, pairs in found.items()}
