"""A training step as Checkmate sees it (section 4.1): nodes in one fixed order, each with one way to be evaluated.

A node is an operator that runs, forward or backward; its values are the storages that it writes. Node t is evaluated
for the first time in stage t (section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from explorer.device_profile import Profile
from explorer.rearranging import UPDATE_WITHIN
from explorer.schedule import Run, Schedule, with_frees
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.problem import BackwardOperator, Form, ForwardOperator, Problem


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a node is evaluated.

    Attributes:
        implementation: its name.
        reads: storages, without persistent ones.
        writes: storages.
        time_ms: C_i.
        workspace_bytes: beyond reads and writes; below zero where it takes over the memory of what it reads.
        overwrites: the storage that is gone afterwards, or None.
    """

    implementation: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    time_ms: float
    workspace_bytes: int
    overwrites: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """An operator of the step.

    Attributes:
        operator: its id in the graph.
        first: its first evaluation.
        again: any later one; None where that is impossible.
    """

    operator: int
    first: Evaluation
    again: Evaluation | None


@dataclass(frozen=True, eq=False)
class Nodes:
    """All nodes of a training step, in order.

    Attributes:
        profile: where they come from.
        problem: the same for the solvers of MONeT's problem: PyTorch's own implementations, one form of each operator.
        nodes: position = stage of the first evaluation.
        boundary: how many are forward.
    """

    profile: Profile
    problem: Problem
    nodes: tuple[Node, ...]
    boundary: int

    @classmethod
    def of(cls, profile: Profile) -> Nodes:
        """The nodes of a profile, each as PyTorch runs it, and again in the quickest way that is no optimization."""
        problem = _one_form_each(problem_of(profile, optimizations=()))
        nodes = []
        for operator in profile.graph.operators:
            forms = problem.forms(operator.id)
            if not forms:
                continue
            first = _way(profile, operator.id, forms[0])
            again = problem.forms(operator.id, again=True) if operator.id < len(problem.forward) else forms
            repeated = _way(profile, operator.id, again[0]) if again else None
            if repeated is not None and not operator.implementation(repeated.implementation).again:
                repeated = None
            # A second evaluation of what overwrites its input would find nothing there.
            nodes.append(Node(operator.id, first, None if repeated and repeated.overwrites is not None else repeated))
        boundary = sum(node.operator < len(problem.forward) for node in nodes)
        return cls(profile, problem, tuple(nodes), boundary)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def bytes(self) -> dict[int, int]:
        """Storage to what the allocator takes for it (M_i); what nodes write."""
        graph = self.profile.graph
        written = {x for node in self.nodes for x in node.first.writes}
        return {x: self.profile.allocated_bytes(graph.storages[x]) for x in sorted(written)}

    @cached_property
    def producer(self) -> dict[int, int]:
        """Storage to the position of the node that writes it."""
        return {x: i for i, node in enumerate(self.nodes) for x in node.first.writes}

    @cached_property
    def held(self) -> frozenset[int]:
        """Storages that stay from their production to the end: outputs and parameter gradients."""
        return frozenset(x for x in self.bytes if self.profile.graph.storages[x].held)

    @cached_property
    def gradients(self) -> frozenset[int]:
        """What backward nodes write."""
        return frozenset(x for x, i in self.producer.items() if i >= self.boundary)

    @cached_property
    def lasting(self) -> frozenset[int]:
        """Storages that cannot be made again: they stay as long as anything may read them."""
        remade = {x for node in self.nodes if node.again is not None for x in node.again.writes}
        return frozenset(x for x in self.bytes if x not in remade) | self.held

    @cached_property
    def _updates(self) -> dict[int, int]:
        """Parameter to the position of the node that updates it within the backward pass."""
        graph, found = self.profile.graph, dict[int, int]()
        for i, node in enumerate(self.nodes):
            operator = graph.operators[node.operator]
            if operator.target == UPDATE_WITHIN:
                reads = operator.implementation(node.first.implementation).reads
                found |= {x: i for x in reads if x in graph.persistent}
        return found

    def last_again(self, i: int) -> int:
        """The last stage in which a node may be evaluated again: at its end, a parameter that it reads is updated."""
        node = self.nodes[i]
        assert node.again is not None
        reads = self.profile.graph.operators[node.operator].implementation(node.again.implementation).reads
        return min((self._updates.get(x, len(self.nodes)) for x in reads), default=len(self.nodes))

    @cached_property
    def forward_ms(self) -> float:
        """Every forward node once."""
        return sum(node.first.time_ms for node in self.nodes[: self.boundary])

    @cached_property
    def step_ms(self) -> float:
        """Every node once."""
        return sum(node.first.time_ms for node in self.nodes)

    def schedule(self, order: Iterable[int], *, method: str, budget_bytes: int | None) -> Schedule:
        """The schedule that evaluates nodes in an order, each storage freed after its last use.

        Args:
            order: positions; the second and every later evaluation of a node recomputes it.
            method: what made it.
            budget_bytes: what it was made to fit.
        """
        seen: set[int] = set()
        runs = []
        for i in order:
            node = self.nodes[i]
            way = node.again if i in seen else node.first
            assert way is not None, "only what can be made again is evaluated again"
            seen.add(i)
            runs.append(Run(node.operator, way.implementation))
        return with_frees(self.profile.graph, runs, method=method, budget_bytes=budget_bytes, as_eager=True)


def without_workspace(profile: Profile) -> Profile:
    """The profile as Checkmate counts memory: values alone, no workspace (section 4.4)."""
    return replace(profile, costs={key: replace(cost, workspace_bytes=0) for key, cost in profile.costs.items()})


def _one_form_each(problem: Problem) -> Problem:
    def quickest(forms: Sequence[Form]) -> tuple[Form, ...]:
        if not forms:
            return ()
        form = min(forms, key=lambda x: x.time_ms)
        # Its program does not know that a value may be gone: in place only where there is no other way.
        option = min(form.options, key=lambda x: x.overwrites is not None)
        return (replace(form, options=(option,)),)

    return replace(
        problem,
        forward=tuple(ForwardOperator(quickest(x.first), quickest(x.again), x.optional) for x in problem.forward),
        backward=tuple(BackwardOperator(quickest(x.forms[:1]), x.idle_bytes, x.made_bytes) for x in problem.backward),
    )


def _way(profile: Profile, operator: int, form: Form) -> Evaluation:
    graph = profile.graph
    implementation = graph.operators[operator].implementation(form.options[0].implementation)
    over = implementation.overwrites
    taken_over = 0 if over is None else profile.allocated_bytes(graph.storages[over])
    return Evaluation(
        implementation.name,
        tuple(dict.fromkeys(x for x in implementation.reads if x not in graph.persistent)),
        implementation.writes,
        profile.cost(implementation).time_ms,
        profile.workspace_bytes(implementation) - taken_over,
        over,
    )
