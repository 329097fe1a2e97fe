"""From a profile to the problem that solvers see: which implementations take part, and what differs between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from explorer.device_profile import Profile
from explorer.graph import FAITHFUL, Implementation, Operator, Optimization, Phase, Storage
from explorer.solvers.problem.backward_ways import BackwardWays, Piece
from explorer.solvers.problem.pins import NO_PINS, Pins, check_served, resolve, restricted, serving, without_unserved
from explorer.solvers.problem.problem import Activation, BackwardOperator, Form, ForwardOperator, Option, Problem
from explorer.solvers.problem.sets import in_all

Allowed = Callable[[Implementation], bool]


def problem_of(
    profile: Profile,
    *,
    optimizations: Iterable[Optimization] = FAITHFUL,
    exact: bool = False,
    pins: Pins = NO_PINS,
) -> Problem:
    """MONeT's joint problem of a profile.

    Args:
        profile: graph and costs.
        optimizations: which implementations may be chosen, beside those that are always to be had.
        exact: only bit-exact ones.
        pins: decisions that are taken already.

    Raises:
        ValueError: a pin names nothing that can be pinned, or pins contradict each other or the other arguments.
    """
    chosen = frozenset(optimizations)

    def allowed(implementation: Implementation) -> bool:
        wanted = implementation.optimization is None or implementation.optimization in chosen
        return wanted and (implementation.exact or not exact)

    return _Builder(profile, allowed, pins).build()


class _Builder:
    """Chooses implementations for every operator, then numbers activations and states the forms by them."""

    def __init__(self, profile: Profile, allowed: Allowed, pins: Pins) -> None:
        self.profile = profile
        self.graph = profile.graph
        self.pins, self.pinned = pins, resolve(pins, profile.graph)
        allowed_here = {x.id: self._implementations(x, allowed) for x in profile.graph.operators}
        check_served(self.graph, self.pinned, allowed_here)
        able = without_unserved(self.graph, self.pinned, allowed_here)
        ways = BackwardWays(profile, able, wanted=self.pinned.implementations)
        best = ways.best()
        check_served(self.graph, self.pinned, able | best)
        self.first = {op.id: able[op.id] for op in self.graph.forward}
        self.best = best
        self.able = {op.id: able[op.id] for op in self.graph.backward}
        self.all_pieces = ways.all()
        self._leave_out_useless()
        made = {x: op.id for op in self.graph.forward for impl in self.first[op.id] for x in impl.writes}
        self.index = {storage: position for position, storage in enumerate(made)}
        for x in self.pinned.kept - made.keys():
            raise ValueError(f"{self.graph.storages[x].name!r} cannot be kept: it is of no use to what may be chosen")
        dropped = [x for x in made if x in self.pinned.dropped]
        self.stand_ins = {storage: len(made) + position for position, storage in enumerate(dropped)}
        self.activations = tuple(self._activation(self.graph.storages[x], made[x]) for x in (*made, *dropped))

    def build(self) -> Problem:
        pieces = {at: [Piece.of(self.profile, x) for x in found] for at, found in self.best.items()}
        problem = Problem(
            profile=self.profile,
            activations=self.activations,
            forward=tuple(self._forward(op) for op in self.graph.forward),
            backward=self._backward(pieces, self.best),
            fixed_bytes=self.profile.fixed_bytes,
            pins=self.pins,
            kept=self._kept,
            dropped={self.index[x]: stand_in for x, stand_in in self.stand_ins.items()},
        )
        if self.all_pieces == pieces and self.able == self.best:
            return problem
        all_ways = self._backward(self.all_pieces, self.able)
        return (
            problem if all_ways == problem.backward else replace(problem, every_way=replace(problem, backward=all_ways))
        )

    @property
    def _kept(self) -> frozenset[int]:
        return frozenset(self.index[x] for x in self.pinned.kept if x in self.index)

    def _activation(self, storage: Storage, producer: int) -> Activation:
        return Activation(storage.id, self.profile.allocated_bytes(storage), producer, storage.held)

    def _implementations(self, operator: Operator, allowed: Allowed) -> tuple[Implementation, ...]:
        # PyTorch's own is always to be had, unless the operator exists for an optimization's sake only.
        first = () if operator.optional else operator.implementations[:1]
        found = tuple(x for x in operator.implementations if allowed(x) or x in first)
        held = {x for x in operator.default().writes if self.graph.storages[x].held}
        able = []
        for x in restricted(self.pinned, operator, found):
            # Backward operators run once; and what the caller receives is made by the first run.
            whole = operator.phase is Phase.BACKWARD or held <= set(x.writes)
            again = operator.phase is Phase.FORWARD
            able.append(serving(x, first=x.first and whole, again=x.again and again))
        return tuple(x for x in able if x is not None)

    def _leave_out_useless(self) -> None:
        """Optional operators whose results nothing reads take no part."""
        read_later = {x for found in self.all_pieces.values() for piece in found for x in piece.reads}
        readers = Counter(x for op in self.first for x in self._read_by(op))
        for operator in reversed(self.graph.forward):
            if operator.optional:
                own = self._read_by(operator.id)
                if not any(x in read_later or readers[x] > (x in own) for x in operator.default().writes):
                    self.first[operator.id] = ()
                    readers.subtract(own)

    def _read_by(self, operator: int) -> set[int]:
        return {x for implementation in self.first[operator] for x in implementation.reads}

    def _forward(self, operator: Operator) -> ForwardOperator:
        chosen = self.first[operator.id]
        return ForwardOperator(
            self._forward_forms([x for x in chosen if x.first], self.index | self.stand_ins),
            self._forward_forms([x for x in chosen if x.again], self.index),
            operator.optional,
        )

    def _forward_forms(self, implementations: Sequence[Implementation], index: Mapping[int, int]) -> tuple[Form, ...]:
        found = []
        for x in implementations:
            piece, over = Piece.of(self.profile, x), x.overwrites
            if over is None or (over in index and not self.graph.storages[over].held):
                found.append((piece, piece.workspace_bytes or 0))
        return self._forms(found, index)

    def _forms(self, pieces: Sequence[tuple[Piece, int]], index: Mapping[int, int]) -> tuple[Form, ...]:
        """Group pieces, each with its workspace, by activations that they read and write."""
        groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Option]] = {}
        for piece, workspace_bytes in pieces:
            reads = tuple(sorted({index[x] for x in piece.reads if x in index}))
            writes = tuple(sorted(index[x] for x in piece.writes if x in index))
            over = None if piece.overwrites is None else index.get(piece.overwrites)
            option = Option(piece.implementation, piece.time_ms, workspace_bytes, over)
            if piece.real or not any(
                set(other) <= set(reads) and not_beaten.workspace_bytes <= workspace_bytes
                for (other, _), options in groups.items()
                for not_beaten in options
                if not_beaten.overwrites is None and not_beaten.time_ms <= piece.time_ms
            ):
                groups.setdefault((reads, writes), []).append(option)
        return tuple(Form(reads, writes, self._pareto(options)) for (reads, writes), options in groups.items())

    def _pareto(self, options: Sequence[Option]) -> tuple[Option, ...]:
        """Without those that another one beats: no slower, no more memory, and overwriting nothing else."""

        def extra_bytes(option: Option) -> int:
            return option.extra_bytes(self.activations)

        kept: list[Option] = []
        for option in sorted(options, key=lambda x: (x.time_ms, extra_bytes(x))):
            rivals = [x for x in kept if x.overwrites in (None, option.overwrites)]
            if all(extra_bytes(x) > extra_bytes(option) for x in rivals):
                kept.append(option)
        return tuple(kept)

    def _backward(
        self, pieces: Mapping[int, Sequence[Piece]], chosen: Mapping[int, Sequence[Implementation]]
    ) -> tuple[BackwardOperator, ...]:
        """Every backward operator with the gradients that are in memory whatever runs at each place.

        Between the last operator that may make a gradient and the last one that reads it in any case, it is there.
        """
        graph, size = self.graph, self.profile.allocated_bytes
        born = {x: at for at, found in chosen.items() for implementation in found for x in implementation.writes}
        made_at: dict[int, list[int]] = {at: [] for at in pieces}
        for x, at in born.items():
            made_at[at].append(x)
        last = {x: at for at, found in pieces.items() for x in in_all(piece.reads for piece in found)}
        last |= {x: len(graph.operators) for x in born if graph.storages[x].held}
        gone_after: dict[int, list[int]] = {}
        for x, at in born.items():
            gone_after.setdefault(max(at, last.get(x, -1)), []).append(x)
        alive: dict[int, int] = {}
        idle_bytes = 0
        keeps = not self._kept
        result = []
        for at, found in pieces.items():
            sure = in_all(piece.writes for piece in found)
            made = {x: size(graph.storages[x]) for x in made_at[at] if last.get(x, -1) > at or x in sure}
            made_bytes = sum(made.values())
            alive |= made
            forms = self._backward_forms(at, found, alive, idle_bytes + made_bytes, last)
            if forms and not keeps and at > graph.forward_count:
                keeps = True
                forms = tuple(replace(form, reads=tuple(sorted({*form.reads, *self._kept}))) for form in forms)
            result.append(BackwardOperator(forms, idle_bytes, made_bytes))
            idle_bytes += made_bytes - sum(alive.pop(x, 0) for x in gone_after.get(at, ()))
        return tuple(result)

    def _backward_forms(
        self,
        at: int,
        pieces: Sequence[Piece],
        alive: Mapping[int, int],
        alive_bytes: int,
        last: Mapping[int, int],
    ) -> tuple[Form, ...]:
        """Forms beside gradients that are alive in any case; what a piece makes besides is added to its workspace."""
        graph, found = self.graph, []
        for piece in sorted(pieces, key=lambda x: not x.real):
            over = piece.overwrites
            if over is not None:
                stays = over in graph.persistent or graph.storages[over].held
                if stays or (over in alive and last.get(over, -1) > max(at, piece.until)):
                    continue
            if piece.workspace_bytes is None:
                found.append((piece, -alive_bytes - sum(x.bytes for x in self.activations)))
                continue
            more = sum(self.profile.allocated_bytes(graph.storages[x]) for x in piece.writes if x not in alive)
            saved = 0 if over is None else alive.get(over, 0)
            found.append((piece, piece.workspace_bytes + more - saved))
        return self._forms(found, self.index)
