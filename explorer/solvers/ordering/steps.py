"""A training step as a task, and an order of it as a schedule."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator, Role, TrainingGraph, When
from explorer.rearranging import UPDATE, uses_gradients
from explorer.recomputing import may_run_again
from explorer.schedule import Run, Schedule, keep_all, with_frees
from explorer.solvers.ordering.task import Task


@dataclass(frozen=True)
class Halves:
    """An operator of the backward pass in two runs instead of one, which may be far apart and in either order.

    Attributes:
        whole: the run that does all of it.
        part: what it can do alone: the gradient of the input.
        rest: the run of the optional operator that does what is left: the weight's.
    """

    whole: Run
    part: Run
    rest: Run


@dataclass(frozen=True)
class OrderedSteps:
    """The runs of a step without recomputation, to be put in order.

    Attributes:
        profile: graph and costs.
        runs: in the captured order.
        any_way: operators keep behind what any of their implementations reads, not only the one that runs: then an
            order of them is one of the graph.
    """

    profile: Profile
    runs: tuple[Run, ...]
    any_way: bool = False

    @classmethod
    def of(cls, profile: Profile, *, halved: Collection[Halves] = (), any_way: bool = False) -> OrderedSteps:
        """What plain PyTorch runs, but for some operators in two halves."""
        apart = {x.whole.operator: (x.part, x.rest) for x in halved}
        plain = [x for x in keep_all(profile.graph).steps if isinstance(x, Run)]
        return cls(profile, tuple(y for x in plain for y in apart.get(x.operator, (x,))), any_way)

    @cached_property
    def task(self) -> Task:
        """Run number ``i`` is its operator ``i``."""
        graph, profile = self.profile.graph, self.profile
        ways = [graph.operators[x.operator].implementation(x.implementation) for x in self.runs]
        made = dict.fromkeys(x for way in ways for x in way.writes)
        number = {storage: position for position, storage in enumerate(made)}
        taken = [0 if x.overwrites is None else profile.allocated_bytes(graph.storages[x.overwrites]) for x in ways]
        return Task(
            reads=tuple(tuple(dict.fromkeys(number[x] for x in way.reads if x in number)) for way in ways),
            writes=tuple(tuple(number[x] for x in way.writes) for way in ways),
            tensor_bytes=tuple(profile.allocated_bytes(graph.storages[x]) for x in made),
            workspace_bytes=tuple(profile.workspace_bytes(x) - y for x, y in zip(ways, taken, strict=True)),
            before=_before(graph, self.runs, ways, any_way=self.any_way),
            held=frozenset(number[x] for x in made if graph.storages[x].held),
            fixed_bytes=profile.fixed_bytes,
            forward=sum(x.operator < graph.forward_count for x in self.runs),
        )

    def schedule(self, order: Sequence[int], *, method: str, budget_bytes: int | None = None) -> Schedule:
        """The runs in an order of ``task``, each storage freed after its last use."""
        runs = [self.runs[x] for x in order]
        return with_frees(self.profile.graph, runs, method=method, budget_bytes=budget_bytes)


def halves_of(graph: TrainingGraph) -> tuple[Halves, ...]:
    """Operators of the backward pass that can run as two, by implementations that compute the same bits."""
    return tuple(found for x in graph.backward if x.optional and (found := _halves(graph, x)) is not None)


def _halves(graph: TrainingGraph, optional: Operator) -> Halves | None:
    rest = optional.default()
    whole = graph.operators[graph.producer[rest.writes[0]]]
    left = set(whole.default().writes) - set(rest.writes)
    for way in whole.implementations:
        if way.first and way.exact and rest.exact and set(way.writes) == left and way.overwrites is None:
            first = Run(whole.id, whole.default().name)
            return Halves(first, Run(whole.id, way.name), Run(optional.id, rest.name))
    return None


def _before(
    graph: TrainingGraph, runs: Sequence[Run], ways: Sequence[Implementation], *, any_way: bool
) -> tuple[frozenset[int], ...]:
    """What comes before each run beside what makes the tensors that it reads."""
    operators = [graph.operators[x.operator] for x in runs]
    forward = sum(x.id < graph.forward_count for x in operators)
    before: list[set[int]] = [set() for _ in runs]
    if forward < len(runs):
        before[forward] |= set(range(forward))
        for at in range(forward + 1, len(runs)):
            before[at].add(forward)
    rules = (
        _as_captured(graph, operators),
        _after_readers(graph, operators, ways),
        _after_all_it_may_read(graph, operators) if any_way else (),
    )
    for rule in rules:
        for later, earlier in rule:
            if earlier != later:
                before[later].add(earlier)
    return tuple(map(frozenset, before))


def _as_captured(graph: TrainingGraph, operators: Sequence[Operator]) -> Iterator[tuple[int, int]]:
    """What draws random numbers, or reads a buffer that changes, does so in the captured order: later, earlier."""
    once = [at for at, x in enumerate(operators) if not (may_run_again(x) or uses_gradients(x))]
    yield from zip(once[1:], once, strict=False)
    buffers: dict[int, list[int]] = {}
    for at, operator in enumerate(operators):
        for x in operator.default().reads:
            if graph.storages[x].role is Role.BUFFER:
                buffers.setdefault(x, []).append(at)
    for readers in buffers.values():
        if any(way.when is not When.ALWAYS for at in readers for way in operators[at].implementations):
            yield from zip(readers[1:], readers, strict=False)


def _after_readers(
    graph: TrainingGraph, operators: Sequence[Operator], ways: Sequence[Implementation]
) -> Iterator[tuple[int, int]]:
    """What overwrites a tensor comes after all others that read it; what uses a gradient, after its parameter's."""
    readers: dict[int, list[int]] = {}
    for at, (operator, way) in enumerate(zip(operators, ways, strict=True)):
        if not uses_gradients(operator):
            for x in way.reads:
                readers.setdefault(x, []).append(at)
    parameter = {gradient: x for x, gradient in graph.gradients}
    for at, (operator, way) in enumerate(zip(operators, ways, strict=True)):
        if way.overwrites is not None:
            yield from ((at, x) for x in readers[way.overwrites])
        if operator.target == UPDATE:
            yield from ((at, x) for x in range(at))
        elif uses_gradients(operator):
            yield from ((at, x) for x in readers.get(parameter[way.reads[0]], ()))


def _after_all_it_may_read(graph: TrainingGraph, operators: Sequence[Operator]) -> Iterator[tuple[int, int]]:
    """As the graph's own check wants it: whatever implementation is chosen later, what it reads is there."""
    place = {x.id: at for at, x in enumerate(operators)}
    parameter = {gradient: x for x, gradient in graph.gradients}
    readers: dict[int, list[int]] = {}
    for at, operator in enumerate(operators):
        for needed in needed_by(graph, operator, known=place):
            yield at, needed
        for x in {x for way in operator.implementations for x in way.reads} if not uses_gradients(operator) else ():
            readers.setdefault(x, []).append(at)
    for at, operator in enumerate(operators):
        if uses_gradients(operator) and operator.target != UPDATE:
            yield from ((at, x) for x in readers.get(parameter[operator.default().reads[0]], ()))


def needed_by(graph: TrainingGraph, operator: Operator, *, known: Mapping[int, int]) -> set[int]:
    """Places of what must have run before an operator, whatever its implementation; of optional ones, what they need.

    Args:
        graph: the operator's.
        operator: any.
        known: places, by ids of operators that are not optional.
    """
    found: set[int] = set()
    pending, seen = [operator], {operator.id}
    while pending:
        one = pending.pop()
        needed = {graph.producer.get(x, one.id) for way in one.implementations for x in way.reads}
        # An optional one of the backward pass makes what another makes too, and comes behind that.
        needed |= {graph.producer[x] for way in one.implementations for x in way.writes} if one.optional else set()
        for x in needed - seen:
            seen.add(x)
            if x in known:
                found.add(known[x])
            else:
                pending.append(graph.operators[x])
    return found
