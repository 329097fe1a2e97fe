"""Random small profiles of everything that a graph can say, also what no captured model says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from explorer.device_profile import Cost, Device, Profile
from explorer.graph import (
    Implementation,
    Operator,
    Optimization,
    Phase,
    Role,
    Storage,
    TensorSpec,
    TrainingGraph,
    When,
)

_FAITHFUL = (Optimization.OUTPUT, Optimization.CONVOLUTION, Optimization.INPLACE, Optimization.INTERMEDIATE)
_SIZES = (0, 1, 2, 3, 5, 8, 12, 20)
_WORKSPACES = (0, 0, 0, 1, 4, 9)


def anything(seed: int) -> Profile:
    """The profile of a seed; seeds whose graph would be refused are skipped over, so that there always is one."""
    random = Random(seed)
    while True:
        try:
            return _Maker(random).profile()
        except ValueError:
            continue


@dataclass
class _Maker:
    """Adds operators one by one, and implementations to them at random."""

    random: Random
    storages: list[Storage] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)
    activations: list[int] = field(default_factory=list)
    extras: list[int] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)

    def profile(self) -> Profile:
        """What comes of the seed."""
        random = self.random
        for role in (Role.INPUT, Role.PARAMETER, Role.BUFFER)[: random.randint(1, 3)]:
            self._storage(random.choice(_SIZES), role)
        for _ in range(random.randint(1, 5)):
            self._forward()
        self._boundary()
        waiting: list[tuple[int, tuple[Implementation, ...]]] = []
        for _ in range(random.randint(1, 5)):
            waiting = self._serve(waiting)
            waiting += self._backward()
        while waiting:
            waiting = self._serve(waiting, at_once=True)
        graph = TrainingGraph(
            "Random", (TensorSpec("x", (1,), "uint8"),), (), tuple(self.storages), tuple(self.operators)
        )
        device = Device("synthetic", "cpu", "none", rounding_bytes=random.choice((1, 1, 1, 4)))
        return Profile(graph, self.costs, device, optimizer_state_bytes=random.choice((0, 7)))

    def _forward(self) -> None:
        random = self.random
        auxiliary = bool(self.activations) and self._one_in(5)
        reads = self._some(self.activations[-4:], 1, 2) if auxiliary else self._some(self.activations[-4:], 0, 2)
        reads = (0, *reads) if not auxiliary and self._one_in(2) else reads
        held = 0 if auxiliary else 8
        writes = self._made(Role.ACTIVATION, random.choice((1, 1, 1, 2, 3)), held=held)
        when = When.FIRST if self._one_in(6) else When.ALWAYS
        optimization = Optimization.INTERMEDIATE if auxiliary and not self._one_in(5) else None
        found = [self._implementation("default", reads, writes, when=when, optimization=optimization)]
        if self._one_in(4):  # by its own mask, or by other things
            source = self._some([*self.activations, *writes], 1, 3)
            made = self._some(writes, 1, len(writes))
            found.append(self._implementation("again", source, made, when=When.AGAIN))
        found += self._others(reads, writes, [*self.activations, *self.extras])
        if not auxiliary and self._one_in(3):  # also, or instead, what PyTorch's own way does not make
            extras = self._made(Role.ACTIVATION, random.choice((1, 1, 2)))
            held = [x for x in writes if self.storages[x].held]
            kept = writes if self._one_in(2) else held
            found.append(self._implementation("more", reads, (*kept, *extras), optimization=Optimization.CONVOLUTION))
            self.extras += extras
        self._operator(Phase.FORWARD, found, optional=auxiliary)
        self.activations += writes

    def _boundary(self) -> None:
        reads = self._some(self.activations, 0, 1)
        writes = self._made(Role.GRADIENT, self.random.choice((1, 1, 2)))
        self._operator(Phase.BACKWARD, [self._implementation("default", reads, writes)])
        self.gradients += writes

    def _backward(self) -> list[tuple[int, tuple[Implementation, ...]]]:
        """An operator; returns the pieces of its work that later ones can do, each with the place of the whole."""
        random = self.random
        reads = (*self._some(self.gradients[-3:], 1, 2), *self._some(self.activations, 0, 2))
        writes = self._made(Role.GRADIENT, random.choice((0, 1, 1, 1, 2)))
        writes += self._made(Role.PARAMETER_GRADIENT, random.choice((0, 0, 1, 2)) if writes else 1, held=1)
        found = [self._implementation("default", reads, writes)]
        found += self._others(reads, writes, [*self.gradients[-3:], *self.activations, *self.extras, *self.extras])
        pieces: list[tuple[int, tuple[Implementation, ...]]] = []
        if len(writes) > 1 and self._one_in(2):
            first = self._some(writes, 1, len(writes) - 1)
            rest = [x for x in writes if x not in first]
            parts = [rest] if len(rest) == 1 or self._one_in(2) else [rest[:1], rest[1:]]
            for _ in range(random.choice((1, 1, 2))):
                found.append(self._implementation("first piece", self._like(reads), first, optimization=self._part()))
            for part in parts:
                ways = [self._implementation("piece", self._like(reads), part, optimization=self._part())]
                ways += self._others(ways[0].reads, part, [*self.gradients[-3:], *self.activations, *self.extras])
                pieces.append((len(self.operators), tuple(ways)))
        self._operator(Phase.BACKWARD, found)
        self.gradients += [x for x in writes if not self.storages[x].held]
        return pieces

    def _serve(
        self, waiting: list[tuple[int, tuple[Implementation, ...]]], *, at_once: bool = False
    ) -> list[tuple[int, tuple[Implementation, ...]]]:
        """Add the pieces that wait, usually at once; returns those that wait on."""
        for n, (_, ways) in enumerate(waiting):
            if self._one_in(5) and not at_once:
                return waiting[n:]
            self._operator(Phase.BACKWARD, list(ways), optional=True)
        return []

    def _others(self, reads: tuple[int, ...], writes: Iterable[int], around: list[int]) -> list[Implementation]:
        """Quicker, smaller, in place, from other things, or leaving something out."""
        writes, found = tuple(writes), []
        if self._one_in(3):
            found.append(self._implementation("algorithm", reads, writes, optimization=Optimization.CONVOLUTION))
        if reads and self._one_in(3):
            over = self.random.choice(reads)
            found.append(
                self._implementation("in place", reads, writes, overwrites=over, optimization=Optimization.INPLACE)
            )
        if around and self._one_in(3):
            others = self._some(around, 1, 2)
            found.append(self._implementation("from others", others, writes, optimization=Optimization.OUTPUT))
        if len(writes) > 1 and self._one_in(6):
            found.append(self._implementation("less", reads, writes[:-1]))
        return found

    def _implementation(
        self,
        name: str,
        reads: Iterable[int],
        writes: Iterable[int],
        *,
        when: When | None = None,
        overwrites: int | None = None,
        optimization: Optimization | None = None,
    ) -> Implementation:
        random, key = self.random, f"c{len(self.costs)}"
        self.costs[key] = Cost(float(random.randint(0, 9)), random.choice(_WORKSPACES))
        if when is None:
            when = random.choice((When.ALWAYS,) * 8 + (When.FIRST, When.AGAIN))
        return Implementation(
            f"{name} {key}",
            tuple(reads),
            tuple(writes),
            key,
            when,
            exact=not self._one_in(6),
            overwrites=overwrites,
            optimization=optimization,
        )

    def _like(self, reads: tuple[int, ...]) -> tuple[int, ...]:
        """Mostly a part of the same."""
        return self._some(reads, 1, len(reads)) if self._one_in(1.3) else self._some([*reads, *self.activations], 1, 3)

    def _part(self) -> Optimization | None:
        return self.random.choice((Optimization.CONVOLUTION, None, *_FAITHFUL))

    def _made(self, role: Role, count: int, *, held: int = 0) -> list[int]:
        return [
            self._storage(self.random.choice(_SIZES), role, held=bool(held) and self._one_in(held))
            for _ in range(count)
        ]

    def _some(self, items: Iterable[int], least: int, most: int) -> tuple[int, ...]:
        found = list(dict.fromkeys(items))
        return tuple(self.random.sample(found, min(len(found), self.random.randint(least, max(least, most)))))

    def _one_in(self, count: float) -> bool:
        return self.random.random() * count < 1

    def _storage(self, size: int, role: Role, *, held: bool = False) -> int:
        position = len(self.storages)
        self.storages.append(Storage(position, f"t{position}", size, role, (size,), "uint8", held))
        return position

    def _operator(self, phase: Phase, implementations: list[Implementation], *, optional: bool = False) -> None:
        position = len(self.operators)
        names = tuple(implementations)
        self.operators.append(Operator(position, f"op{position}", "synthetic", phase, "", names, optional))
