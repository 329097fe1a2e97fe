"""Fewer decisions: activations too small to decide on, operators whose recomputation never stands alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from explorer.solvers.formulation.ways import Way, form_ways, frontier, unconditional
from explorer.solvers.problem.problem import BackwardOperator, Form, ForwardOperator, Problem
from explorer.solvers.problem.sets import in_all

PINNED_SHARE = 1e-3


@dataclass(frozen=True, slots=True)
class MergedNode:
    """Forward operators that are recomputed together, in one go, with the same reads and writes in every way.

    Attributes:
        members: forward operators in the order in which they run.
        place: index of the operator at whose place the node runs; nodes with one place are alternatives to each other.
        reads: activations with a choice that must be alive before it; they stay alive throughout unless overwritten.
        writes: activations with a choice that it makes.
        ways: how it can run, quickest first.
        passed: activations that only go from one member to the next.
    """

    members: tuple[int, ...]
    place: int
    reads: frozenset[int]
    writes: frozenset[int]
    ways: tuple[Way, ...]
    passed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class StageForm:
    """Ways to run a backward operator that need the same activations with a choice (D_k^l)."""

    reads: frozenset[int]
    ways: tuple[Way, ...]


@dataclass(frozen=True, eq=False)
class MergedProblem:
    """A problem after pinning and merging.

    Attributes:
        problem: the original.
        nodes: what can be recomputed, in the order of a sweep.
        pinned: activations kept from the forward pass to their last use without asking.
        negligible_bytes: a slower way that saves no more than this is no choice.
        relaxed: for bounds. Pinned activations are free, in memory and in time; ways that are left out cost nothing.
    """

    problem: Problem
    nodes: tuple[MergedNode, ...]
    pinned: frozenset[int]
    negligible_bytes: int = 0
    relaxed: bool = False

    @cached_property
    def producers(self) -> dict[int, tuple[int, ...]]:
        """Activation to the indices of the nodes that make it again; absent where none does."""
        found: dict[int, list[int]] = {}
        for position, node in enumerate(self.nodes):
            for x in node.writes:
                found.setdefault(x, []).append(position)
        return {x: tuple(nodes) for x, nodes in found.items()}

    @cached_property
    def alternatives(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the nodes at each place, in the order of a sweep."""
        places: dict[int, list[int]] = {}
        for position, node in enumerate(self.nodes):
            places.setdefault(node.place, []).append(position)
        return tuple(tuple(places[x]) for x in sorted(places))

    @cached_property
    def charged(self) -> frozenset[int]:
        """Pinned activations that take memory from their production until they are of no more use."""
        return frozenset() if self.relaxed else self.pinned & self.last_useful[0].keys()

    @cached_property
    def representative(self) -> dict[int, frozenset[int]]:
        """Activation that was merged away to what its node writes instead."""
        return {x: node.writes for node in self.nodes for x in node.passed}

    @cached_property
    def first(self) -> tuple[tuple[Way, ...], ...]:
        """The ways of each first run; those of one form after those of another."""
        return tuple(
            tuple(
                way
                for f, form in enumerate(operator.first)
                for way in frontier(
                    form_ways(self.problem, form, f), negligible_bytes=self.negligible_bytes, relaxed=self.relaxed
                )
            )
            for operator in self.problem.forward
        )

    @cached_property
    def stages(self) -> tuple[tuple[StageForm, ...], ...]:
        """The forms of each backward operator that no other form of it beats; none where it never runs."""
        return tuple(self._stage(op.forms) for op in self.problem.backward)

    @cached_property
    def needs(self) -> tuple[frozenset[int], ...]:
        """For each backward operator, the activations with a choice that every form reads."""
        return tuple(frozenset(in_all(x.reads for x in stage)) for stage in self.stages)

    @cached_property
    def offers(self) -> tuple[frozenset[int], ...]:
        """For each backward operator, the activations with a choice that a form reads."""
        return tuple(frozenset().union(*(x.reads for x in stage)) for stage in self.stages)

    @cached_property
    def last_useful(self) -> tuple[dict[int, int], dict[int, int]]:
        """Last backward operator a form of which reads something for which an activation, or a node, is of use.

        Returns:
            By activation (pinned ones included), and by node. What is of no use at all is absent.
        """
        activations: dict[int, int] = {}
        nodes: dict[int, int] = {}
        for t in range(len(self.problem.backward) - 1, -1, -1):
            pending = [x for form in self.problem.backward[t].forms for x in form.reads]
            while pending:
                x = pending.pop()
                if x in activations or self.problem.activations[x].held:
                    continue
                activations[x] = t
                for node in self.producers.get(x, ()):
                    if node not in nodes:
                        nodes[node] = t
                        pending += self._all_reads(node)
        return activations, nodes

    def bytes(self, activations: Iterable[int]) -> int:
        """Their sizes together."""
        return sum(self.problem.activations[x].bytes for x in activations)

    def has_choice(self, activation: int) -> bool:
        """Is it to be decided whether to keep it?"""
        return activation not in self.pinned and not self.problem.activations[activation].held

    def _all_reads(self, index: int) -> list[int]:
        """What the members of a node read, pinned activations included."""
        node = self.nodes[index]
        found: list[int] = []
        for position, member in enumerate(node.members):
            for f in {way.forms[position] for way in node.ways}:
                found += [x for x in self.problem.forward[member].again[f].reads if x not in node.passed]
        return found

    def _stage(self, forms: tuple[Form, ...]) -> tuple[StageForm, ...]:
        groups: dict[frozenset[int], list[Way]] = {}
        for f, form in enumerate(forms):
            reads = frozenset(x for x in form.reads if self.has_choice(x))
            groups.setdefault(reads, []).extend(form_ways(self.problem, form, f))
        if self.relaxed:
            found = [StageForm(x, unconditional(y, negligible_bytes=self.negligible_bytes)) for x, y in groups.items()]
        else:
            found = [StageForm(x, _possible(y, self.pinned, self.negligible_bytes)) for x, y in groups.items()]
        return tuple(x for n, x in enumerate(found) if not any(_beats(y, x) for m, y in enumerate(found) if m != n))


def _beats(one: StageForm, other: StageForm) -> bool:
    """Does a form read less than another and do as well in every respect?"""
    return one.reads < other.reads and all(
        any(x.time_ms <= y.time_ms and x.bytes <= y.bytes and x.overwrites <= y.overwrites for x in one.ways)
        for y in other.ways
    )


def merge(problem: Problem, *, pinned_share: float = PINNED_SHARE) -> MergedProblem:
    """Pin the smallest activations and fold operators into their only user: fewer decisions, much the same schedules.

    Pinning takes the smallest activations, ``pinned_share`` of all bytes together at most: statistics of a
    normalisation, scalars. It costs that much memory at worst. So does leaving out ways that save no more than that.
    What not every first run makes (a bit mask) is never pinned: that would cost time.

    Folding operator i into j is by dominance: no backward operator reads what i makes again (x_i), j alone reads it
    in recomputations, and what j makes is no larger. Instead of keeping x_i from the forward pass one keeps what j
    makes, at no cost in time or memory. A *recomputed* x_i that outlives a backward operator could be turned into
    what j makes at once, instead of later, for the same time; only where j's inputs or its own peak do not fit at
    that earlier moment is a schedule lost. The bound of a folded model is for schedules that recompute i and j
    together. The node's ways are the Pareto set of the combinations of i's and j's: in place between them where j can
    (max(c_i, c_j)), else with both results in memory (max(c_i, |x_i| + c_j)).

    The node runs where i did if j reads nothing else that is made again (j's result takes x_i's place); else where j
    did, which is allowed when nothing runs in between or i's inputs are no larger than x_i.

    Args:
        problem: to reduce.
        pinned_share: share of the bytes of all activations that may be kept without asking, or is not worth a choice.
    """
    return _merged(problem, pinned_share, relaxed=False)


def relax(problem: Problem, *, pinned_share: float = PINNED_SHARE) -> MergedProblem:
    """A smaller problem that no schedule is excluded from, for bounds: any schedule costs at least as much.

    Pinned activations are to be counted as free, overwriting asks for nothing, and a way takes no more memory than the
    slower ones that are left out beside it. An operator i is folded into its only user j where j reads nothing else
    that is made again. The node stands for i: it runs when i runs, with i's inputs and peak, and is charged j's time
    too, for each rerun of i that serves anything is followed by one of j. Having x_i counts as having what j makes,
    which is no larger.
    """
    return _merged(problem, pinned_share, relaxed=True)


def _merged(problem: Problem, pinned_share: float, *, relaxed: bool) -> MergedProblem:
    total = sum(x.bytes for x in problem.activations if not x.held)
    negligible = int(pinned_share * total)
    pinned = _pinned(problem, pinned_share * total)
    nodes = [node for i in range(len(problem.forward)) for node in _nodes(problem, i, pinned)]
    if relaxed:
        nodes = [replace(x, ways=unconditional(x.ways, negligible_bytes=negligible)) for x in nodes]
    else:
        nodes = [replace(x, ways=_possible(x.ways, pinned, negligible)) for x in nodes]
    nodes = _Folding(problem, nodes, negligible, relaxed=relaxed).fold()
    return MergedProblem(problem, tuple(sorted(nodes, key=lambda node: node.place)), pinned, negligible, relaxed)


def _pinned(problem: Problem, allowed_bytes: float) -> frozenset[int]:
    always = {
        x
        for op in problem.forward
        if not op.optional
        for x in frozenset.intersection(*(frozenset(f.writes) for f in op.first))
    }
    forms = [form for op in (*problem.forward, *problem.backward) for form in _forms(op)]
    # Where every option overwrites something, that cannot always be kept.
    forced = {x.overwrites for form in forms if None not in {x.overwrites for x in form.options} for x in form.options}
    free = [(x.bytes, n) for n, x in enumerate(problem.activations) if not x.held and n in always - forced]
    pinned, total = [], 0
    for size, position in sorted(free):
        total += size
        if total > allowed_bytes:
            break
        pinned.append(position)
    return frozenset(pinned)


def _forms(operator: ForwardOperator | BackwardOperator) -> tuple[Form, ...]:
    return (*operator.first, *operator.again) if isinstance(operator, ForwardOperator) else operator.forms


def _possible(ways: Iterable[Way], pinned: frozenset[int], negligible_bytes: int) -> tuple[Way, ...]:
    """The frontier of the ways that overwrite nothing pinned, for that is kept."""
    return frontier((x for x in ways if not x.overwrites & pinned), negligible_bytes=negligible_bytes)


def _nodes(problem: Problem, operator: int, pinned: frozenset[int]) -> list[MergedNode]:
    """One operator alone, a node for all its forms with the same reads and writes as far as there is a choice.

    What it reads of its own making (a dropout mask) it cannot make again.
    """
    groups: dict[tuple[frozenset[int], frozenset[int]], list[Way]] = {}
    for f, form in enumerate(problem.forward[operator].again):
        decided = {x for x in (*form.reads, *form.writes) if x not in pinned and not problem.activations[x].held}
        reads = frozenset(form.reads) & decided
        groups.setdefault((reads, (frozenset(form.writes) & decided) - reads), []).extend(form_ways(problem, form, f))
    return [MergedNode((operator,), operator, reads, writes, tuple(ways)) for (reads, writes), ways in groups.items()]


class _Folding:
    def __init__(self, problem: Problem, nodes: list[MergedNode], negligible_bytes: int, *, relaxed: bool) -> None:
        self.problem, self.relaxed, self.negligible_bytes = problem, relaxed, negligible_bytes
        self.needed = {x for op in problem.backward for form in op.forms for x in form.reads}
        self.by_place: dict[int, list[MergedNode]] = {}
        # How many nodes make an activation, and how many at each place read it: to look at all is too slow.
        self.makers: Counter[int] = Counter()
        self.readers: dict[int, Counter[int]] = {}
        for node in nodes:
            self.by_place.setdefault(node.place, []).append(node)
            self._count(node, 1)

    def _count(self, node: MergedNode, change: int) -> None:
        for x in node.writes:
            self.makers[x] += change
        for x in node.reads:
            self.readers.setdefault(x, Counter())[node.place] += change

    def fold(self) -> list[MergedNode]:
        for place in sorted(self.by_place, reverse=True):
            first = self._alone(place)
            then = None if first is None else self._only_user(first)
            if first is None or then is None:
                continue
            merged = self._joined(first, then)
            if merged is not None:
                for node, change in ((first, -1), (then, -1), (merged, 1)):
                    self._count(node, change)
                del self.by_place[first.place], self.by_place[then.place]
                self.by_place[merged.place] = [merged]
        return [node for nodes in self.by_place.values() for node in nodes]

    def _alone(self, place: int) -> MergedNode | None:
        """The node at a place, unless it has alternatives or an optional operator."""
        nodes = self.by_place[place]
        optional = any(self.problem.forward[i].optional for node in nodes for i in node.members)
        return None if len(nodes) > 1 or optional else nodes[0]

    def _only_user(self, node: MergedNode) -> MergedNode | None:
        if not node.writes or node.writes & self.needed:
            return None
        places = {place for x in node.writes for place, count in self.readers.get(x, {}).items() if count}
        users = [x for place in places for x in self.by_place[place] if x is not node and x.reads & node.writes]
        return self._alone(users[0].place) if len(users) == 1 else None

    def _joined(self, first: MergedNode, then: MergedNode) -> MergedNode | None:
        """The two as one node; None where that is not allowed."""
        size = {x: self.problem.activations[x].bytes for x in first.reads | first.writes | then.writes}
        passed = first.writes & then.reads
        passed_bytes = sum(size[x] for x in passed)
        if sum(size[x] for x in then.writes) > passed_bytes:
            return None
        early = not any(self.makers[x] for x in then.reads - passed)
        if not early:
            between = any(first.place < other < then.place for other in self.by_place)
            late = not between or sum(size[x] for x in first.reads) <= passed_bytes
            if self.relaxed or not late:
                return None
        if self.relaxed:
            quickest = min(x.time_ms for x in then.ways)
            ways = [replace(x, time_ms=x.time_ms + quickest, forms=x.forms + then.ways[0].forms) for x in first.ways]
        else:
            pairs = ((x, y) for x in first.ways for y in then.ways if not x.overwrites & then.reads)
            ways = [self._one_after_other(x, y, passed, passed_bytes) for x, y in pairs]
        if not ways:
            return None
        return MergedNode(
            members=first.members + then.members,
            place=first.place if early else then.place,
            reads=first.reads if self.relaxed else first.reads | (then.reads - passed),
            writes=then.writes,
            ways=frontier(ways, negligible_bytes=self.negligible_bytes, relaxed=self.relaxed),
            passed=first.passed | then.passed | first.writes,
        )

    def _one_after_other(self, first: Way, then: Way, passed: frozenset[int], passed_bytes: int) -> Way:
        over = then.overwrites - passed
        saved = sum(self.problem.activations[x].bytes for x in first.overwrites)
        return Way(
            first.time_ms + then.time_ms,
            max(first.bytes, passed_bytes - saved + then.bytes),
            first.overwrites | over,
            first.forms + then.forms,
        )
