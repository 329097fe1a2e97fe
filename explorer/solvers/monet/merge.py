"""Fewer decisions: activations too small to decide on, operators whose recomputation never stands alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from explorer.solvers.problem import Call, CheckpointProblem

PINNED_SHARE = 1e-3


@dataclass(frozen=True, slots=True)
class Node:
    """Forward operators that are recomputed together, in one go.

    Attributes:
        members: forward operators in the order in which they run.
        place: index of the operator at whose place in the forward order the node runs.
        reads: activations with a choice that must be alive before it.
        writes: activations with a choice that it makes.
        time_ms: of one recomputation.
        peak_bytes: its worst moment, on top of what is alive before it (reads stay alive throughout).
    """

    members: tuple[int, ...]
    place: int
    reads: frozenset[int]
    writes: frozenset[int]
    time_ms: float
    peak_bytes: int


@dataclass(frozen=True, eq=False)
class MergedProblem:
    """A checkpointing problem after pinning and merging.

    Attributes:
        problem: the original.
        nodes: what can be recomputed, in the order of a sweep.
        pinned: activations kept from the forward pass to their last use without asking.
        relaxed: pinned activations are free, in memory and in time.
    """

    problem: CheckpointProblem
    nodes: tuple[Node, ...]
    pinned: frozenset[int]
    relaxed: bool = False

    @cached_property
    def producer(self) -> dict[int, int]:
        """Activation to the index of the node that makes it again; absent where none does."""
        return {x: position for position, node in enumerate(self.nodes) for x in node.writes}

    @cached_property
    def charged(self) -> frozenset[int]:
        """Pinned activations that take memory from their production until they are of no more use."""
        return frozenset() if self.relaxed else self.pinned & self.last_useful[0].keys()

    @cached_property
    def representative(self) -> dict[int, frozenset[int]]:
        """Activation that was merged away to what its node writes instead."""
        return {
            x: node.writes
            for node in self.nodes
            for member in node.members[:-1]
            for x in _again(self.problem, member).writes
            if x in _node(self.problem, member, self.pinned).writes and x not in node.writes
        }

    @cached_property
    def needs(self) -> tuple[frozenset[int], ...]:
        """For each backward operator, the activations with a choice that it reads."""
        return tuple(frozenset(self._choosable(op.needs)) for op in self.problem.backward)

    @cached_property
    def last_useful(self) -> tuple[dict[int, int], dict[int, int]]:
        """Last backward operator that needs something for which an activation, or a node, is of use.

        Returns:
            By activation (pinned ones included), and by node. What is of no use at all is absent.
        """
        activations: dict[int, int] = {}
        nodes: dict[int, int] = {}
        for t in range(len(self.problem.backward) - 1, -1, -1):
            pending = list(self.problem.backward[t].needs)
            while pending:
                x = pending.pop()
                if x in activations or self.problem.activations[x].held:
                    continue
                activations[x] = t
                node = self.producer.get(x)
                if node is not None and node not in nodes:
                    nodes[node] = t
                    for member in self.nodes[node].members:
                        pending += [y for y in _again(self.problem, member).reads if y not in self.representative]
        return activations, nodes

    def bytes(self, activations: Iterable[int]) -> int:
        """Their sizes together."""
        return sum(self.problem.activations[x].bytes for x in activations)

    def _choosable(self, activations: Iterable[int]) -> list[int]:
        return [x for x in activations if x not in self.pinned and not self.problem.activations[x].held]


def merge(problem: CheckpointProblem, *, pinned_share: float = PINNED_SHARE, fold: bool = True) -> MergedProblem:
    """Pin the smallest activations and fold operators into their only user: fewer decisions, much the same schedules.

    Pinning takes the smallest activations, ``pinned_share`` of all bytes together at most: statistics of a
    normalisation, scalars. It costs that much memory at worst.

    Folding operator i into j is by dominance: no backward operator reads what i makes again (x_i), j alone reads it
    in recomputations, and what j makes is no larger. Instead of keeping x_i from the forward pass one keeps what j
    makes, at no cost in time or memory. A *recomputed* x_i that outlives a backward operator could be turned into
    what j makes at once, instead of later, for the same time; only where j's inputs or its own peak do not fit at
    that earlier moment is a schedule lost. The bound of a folded model is for schedules that recompute i and j
    together.

    The node runs where i did if j reads nothing else that is made again (j's result takes x_i's place); else where j
    did, which is allowed when nothing runs in between or i's inputs are no larger than x_i.

    Args:
        problem: to reduce.
        pinned_share: share of the bytes of all activations that may be kept without asking.
        fold: whether to fold operators.
    """
    pinned = _pinned(problem, pinned_share)
    nodes = _single(problem, pinned)
    if fold:
        nodes = _fold(problem, nodes)
    return MergedProblem(problem, tuple(sorted(nodes, key=lambda node: node.place)), pinned)


def relax(problem: CheckpointProblem, *, pinned_share: float = PINNED_SHARE) -> MergedProblem:
    """A smaller problem that no schedule is excluded from, for bounds: any schedule costs at least as much.

    Pinned activations are to be counted as free. An operator i is folded into its only user j where j reads nothing
    else that is made again. The node stands for i: it runs when i runs, with i's inputs and peak, and is charged j's
    time too, for each rerun of i that serves anything is followed by one of j. Having x_i counts as having what j
    makes, which is no larger.
    """
    pinned = _pinned(problem, pinned_share)
    nodes = _fold(problem, _single(problem, pinned), relaxed=True)
    return MergedProblem(problem, tuple(sorted(nodes, key=lambda node: node.place)), pinned, relaxed=True)


def _pinned(problem: CheckpointProblem, share: float) -> frozenset[int]:
    free = [(x.bytes, position) for position, x in enumerate(problem.activations) if not x.held]
    allowed = share * sum(size for size, _ in free)
    pinned, total = [], 0
    for size, position in sorted(free):
        total += size
        if total > allowed:
            break
        pinned.append(position)
    return frozenset(pinned)


def _again(problem: CheckpointProblem, operator: int) -> Call:
    again = problem.forward[operator].again
    assert again is not None
    return again


def _node(problem: CheckpointProblem, operator: int, pinned: frozenset[int]) -> Node:
    """One operator alone. What it reads of its own making (a dropout mask) it cannot make again."""
    again = _again(problem, operator)
    decided = {x for x in (*again.reads, *again.writes) if x not in pinned and not problem.activations[x].held}
    reads = frozenset(again.reads) & decided
    peak = sum(problem.activations[x].bytes for x in again.writes) + again.workspace_bytes
    return Node((operator,), operator, reads, (frozenset(again.writes) & decided) - reads, again.time_ms, peak)


def _single(problem: CheckpointProblem, pinned: frozenset[int]) -> list[Node]:
    return [_node(problem, i, pinned) for i, op in enumerate(problem.forward) if op.again is not None]


def _fold(problem: CheckpointProblem, nodes: list[Node], *, relaxed: bool = False) -> list[Node]:
    needed = {x for op in problem.backward for x in op.needs}
    by_place = {node.place: node for node in nodes}
    for place in sorted(by_place, reverse=True):
        first = by_place[place]
        then = _only_user(first, by_place, needed)
        if then is None:
            continue
        passed = frozenset(x for x in first.writes if x in then.reads)
        size = {x: problem.activations[x].bytes for x in first.reads | first.writes | then.writes}
        if sum(size[x] for x in then.writes) > sum(size[x] for x in passed):
            continue
        made_again = {x for node in by_place.values() for x in node.writes}
        early = not (then.reads - passed) & made_again
        between = any(first.place < other < then.place for other in by_place)
        late = not between or sum(size[x] for x in first.reads) <= sum(size[x] for x in passed)
        if not early and (relaxed or not late):
            continue
        del by_place[first.place], by_place[then.place]
        merged = _joined(first, then, passed, sum(size[x] for x in passed))
        if early:
            merged = replace(merged, place=first.place)
        if relaxed:
            merged = replace(merged, reads=first.reads, peak_bytes=first.peak_bytes)
        by_place[merged.place] = merged
    return list(by_place.values())


def _only_user(node: Node, by_place: dict[int, Node], needed: set[int]) -> Node | None:
    if not node.writes or node.writes & needed:
        return None
    users = [other for other in by_place.values() if other is not node and other.reads & node.writes]
    return users[0] if len(users) == 1 else None


def _joined(first: Node, then: Node, passed: frozenset[int], passed_bytes: int) -> Node:
    return Node(
        members=first.members + then.members,
        place=then.place,
        reads=first.reads | (then.reads - passed),
        writes=then.writes,
        time_ms=first.time_ms + then.time_ms,
        peak_bytes=max(first.peak_bytes, passed_bytes + then.peak_bytes),
    )
