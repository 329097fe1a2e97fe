"""From a profile to the problem that solvers see: which implementations take part, and what differs between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator, Storage
from explorer.solvers.pins import NO_PINS, Pins, check_served, resolve, restricted, without_unserved
from explorer.solvers.problem import Activation, BackwardOperator, Form, ForwardOperator, Option, Problem

Allowed = Callable[[Implementation], bool]


def build(profile: Profile, allowed: Allowed, pins: Pins = NO_PINS) -> Problem:
    """The problem of ``profile`` with PyTorch's own implementations and those that are ``allowed``, as pins leave it.

    Raises:
        ValueError: pins that cannot be honoured.
    """
    return _Builder(profile, allowed, pins).build()


class _Builder:
    """Chooses implementations for every operator, then numbers activations and states the forms by them."""

    def __init__(self, profile: Profile, allowed: Allowed, pins: Pins) -> None:
        self.profile = profile
        self.graph = profile.graph
        self.pins, self.pinned = pins, resolve(pins, profile.graph)
        self.chosen = {x.id: self._implementations(x, allowed) for x in profile.graph.operators}
        self.slack_ms = 0.0
        self._leave_out_unserved()
        self._use_halves()
        if pins:
            check_served(self.graph, self.pinned, self.chosen)
            self.chosen = without_unserved(self.graph, self.pinned, self.chosen)
        self._leave_out_useless()
        made = {x: op.id for op in self.graph.forward for impl in self.chosen[op.id] for x in impl.writes}
        self.index = {storage: position for position, storage in enumerate(made)}
        for x in self.pinned.kept - made.keys():
            raise ValueError(f"{self.graph.storages[x].name!r} cannot be kept: it is of no use to what may be chosen")
        dropped = [x for x in made if x in self.pinned.dropped]
        self.stand_ins = {storage: len(made) + position for position, storage in enumerate(dropped)}
        self.activations = tuple(self._activation(self.graph.storages[x], made[x]) for x in (*made, *dropped))

    def build(self) -> Problem:
        return Problem(
            profile=self.profile,
            activations=self.activations,
            forward=tuple(self._forward(op) for op in self.graph.forward),
            backward=self._backward(),
            fixed_bytes=self.profile.fixed_bytes,
            slack_ms=self.slack_ms,
            pins=self.pins,
            kept=self._kept,
            dropped={self.index[x]: stand_in for x, stand_in in self.stand_ins.items()},
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
        return restricted(self.pinned, operator, found)

    def _use_halves(self) -> None:
        """Where an optional backward operator makes what an earlier one need not make, run both, always.

        Memory is never worse for it: what the first half alone reads is free to go before the second. A half that needs
        more than the whole, by its workspace or because the whole runs in place, is the exception: then the whole runs,
        always. Either way the other may be quicker, which ``slack_ms`` tells. That halves may do with less memory where
        the whole is forced (by making again between them what the second alone reads) nothing tells yet.
        """
        for half in (x for x in self.graph.backward if x.optional):
            written = set(half.default().writes)
            whole = next(op.id for op in self.graph.backward if written & set(op.default().writes))
            pieces = [x for x in self.chosen[whole] if not written & set(x.writes)]
            rest = [x for x in self.chosen[whole] if x not in pieces]
            if not pieces or not self.chosen[half.id]:
                self.chosen[half.id], self.chosen[whole] = (), tuple(rest)
            elif rest:
                halves_ms = sum(min(self._ms(x) for x in found) for found in (pieces, self.chosen[half.id]))
                whole_ms = min(self._ms(x) for x in rest)
                in_halves = not self._needs_more(pieces, self.chosen[half.id], than=rest)
                self.slack_ms += max(0.0, halves_ms - whole_ms if in_halves else whole_ms - halves_ms)
                self.chosen[whole] = tuple(pieces if in_halves else rest)
                self.chosen[half.id] = self.chosen[half.id] if in_halves else ()

    def _needs_more(self, *halves: Sequence[Implementation], than: Sequence[Implementation]) -> bool:
        least_bytes = [min(self.profile.workspace_bytes(x) for x in half) for half in halves]
        return max(least_bytes) > min(self.profile.workspace_bytes(x) - self._overwritten_bytes(x) for x in than)

    def _overwritten_bytes(self, implementation: Implementation) -> int:
        over = implementation.overwrites
        return 0 if over is None else self.profile.allocated_bytes(self.graph.storages[over])

    def _leave_out_unserved(self) -> None:
        """What reads the result of an optional operator that is not among the optimizations takes no part."""
        missing = {
            x for op in self.graph.forward if op.optional and not self.chosen[op.id] for x in op.default().writes
        }
        for operator, found in self.chosen.items():
            self.chosen[operator] = tuple(x for x in found if not missing & set(x.reads))

    def _leave_out_useless(self) -> None:
        """Optional operators whose results nothing reads take no part."""
        for operator in reversed(self.graph.forward):
            if operator.optional:
                read = {x for op, found in self.chosen.items() if op != operator.id for i in found for x in i.reads}
                if not read & set(operator.default().writes):
                    self.chosen[operator.id] = ()

    def _ms(self, implementation: Implementation) -> float:
        return self.profile.cost(implementation).time_ms

    def _forward(self, operator: Operator) -> ForwardOperator:
        chosen = self.chosen[operator.id]
        return ForwardOperator(
            self._forms([x for x in chosen if x.first], {}, self.index | self.stand_ins),
            self._forms([x for x in chosen if x.again], {}, self.index),
            operator.optional,
        )

    def _forms(
        self, implementations: Sequence[Implementation], dying: Mapping[int, int], index: Mapping[int, int]
    ) -> tuple[Form, ...]:
        """Group by reads and writes; ``dying``: gradients that may be overwritten here, with their bytes."""
        groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Option]] = {}
        for implementation in implementations:
            over = implementation.overwrites
            if over is not None and over not in index and over not in dying:
                continue
            if over is not None and over in index and self.graph.storages[over].held:
                continue
            reads = tuple(sorted({index[x] for x in implementation.reads if x in index}))
            writes = tuple(sorted(index[x] for x in implementation.writes if x in index))
            saved = 0 if over is None else dying.get(over, 0)
            option = Option(
                implementation.name,
                self._ms(implementation),
                self.profile.workspace_bytes(implementation) - saved,
                None if over is None else index.get(over),
            )
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

    def _backward(self) -> tuple[BackwardOperator, ...]:
        graph, size = self.graph, self.profile.allocated_bytes
        # All forms of an operator read and write the same gradients, so that every gradient's life is the same.
        chosen = {op.id: self.chosen[op.id] for op in graph.backward}
        last_use = {x: op for op, found in chosen.items() for impl in found[:1] for x in (*impl.reads, *impl.writes)}
        alive: dict[int, int] = {}
        keeps = not self._kept
        result = []
        for operator in graph.backward:
            idle = sum(alive.values())
            dying = {x: alive[x] for x in alive if last_use[x] == operator.id and not graph.storages[x].held}
            forms = self._forms(chosen[operator.id], dying, self.index)
            if forms and not keeps and operator.id > graph.forward_count:
                keeps = True
                forms = tuple(replace(form, reads=tuple(sorted({*form.reads, *self._kept}))) for form in forms)
            if forms:
                alive |= {x: size(graph.storages[x]) for x in chosen[operator.id][0].writes}
            result.append(BackwardOperator(forms, idle, sum(alive.values()) - idle))
            for x in [x for x in alive if last_use[x] == operator.id and not graph.storages[x].held]:
                del alive[x]
        return tuple(result)
