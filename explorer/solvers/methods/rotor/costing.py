"""What the stages of a graph cost: the parameters of rotor's model (RR-9302, section 5.1), from a profile."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from explorer.graph import Implementation, Role
from explorer.solvers.methods.rotor.chain import Chain
from explorer.solvers.methods.rotor.stages import Blocks, Stage


def chain_of(blocks: Blocks) -> Chain:
    """The chain of a graph's stages; each operation by itself takes what ``simulate`` finds, or a little less there."""
    costs = _Costs(blocks)
    stages = blocks.stages
    saved = [costs.needed(x) | costs.output(x) for x in stages]
    kept = np.cumsum([costs.keepsake_bytes(x) for x in stages])
    made = np.array([costs.held_gradient_bytes(x) for x in stages])
    made_behind = made.sum() - made.cumsum()
    base = costs.held_bytes + kept + made_behind
    late = np.array([0] * (len(stages) - 1) + [costs.bytes(blocks.late)])

    def array(values: Iterable[float]) -> np.ndarray:
        return np.array(list(values))

    return Chain(
        input_bytes=array(0 if x.input is None else costs.size[x.input] for x in stages),
        saved_bytes=array(costs.bytes(x) for x in saved),
        gradient_bytes=array(costs.gradient_bytes(x) for x in stages) - made_behind,
        forward_peak_bytes=array(costs.forward_peak_bytes(x, costs.output(x)) for x in stages),
        saving_peak_bytes=array(costs.forward_peak_bytes(x, y) for x, y in zip(stages, saved, strict=True)),
        backward_peak_bytes=array(costs.backward_peak_bytes(x) for x in stages) - made_behind,
        first_ms=array(costs.forward_ms(x, again=False) for x in stages),
        again_ms=array(costs.forward_ms(x, again=True) for x in stages),
        backward_ms=array(costs.backward_ms(x) for x in stages),
        forward_base_bytes=base + late,
        backward_base_bytes=base,
    )


class _Costs:
    """Bytes and milliseconds of single stages."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.profile = blocks.profile
        self.size = {x.id: blocks.profile.allocated_bytes(x) for x in blocks.graph.storages}

    def bytes(self, storages: Iterable[int]) -> int:
        """Of several storages."""
        return sum(self.size[x] for x in storages)

    @property
    def held_bytes(self) -> int:
        """Results for the caller, in memory to the end."""
        return self.bytes(x.id for x in self.blocks.graph.storages if x.held and x.role is Role.ACTIVATION)

    def output(self, stage: Stage) -> set[int]:
        """What it passes on: one storage, or none."""
        return set() if stage.output is None else {stage.output}

    def needed(self, stage: Stage) -> set[int]:
        """What its backward pass reads of what its forward pass makes."""
        read = {x for operator in self.blocks.operators(stage.backward) for x in operator.default().reads}
        return (read & self.blocks.activations) - {stage.input}

    def keepsake_bytes(self, stage: Stage) -> int:
        """What it draws once, for all its runs."""
        written = {x for operator in self.blocks.operators(stage.forward) for x in operator.default().writes}
        return self.bytes(written & self.blocks.keepsakes)

    def held_gradient_bytes(self, stage: Stage) -> int:
        """Gradients that its backward pass makes and that stay to the end."""
        written = {x for operator in self.blocks.operators(stage.backward) for x in operator.default().writes}
        return self.bytes(written & self.blocks.held)

    def gradient_bytes(self, stage: Stage) -> int:
        """All gradients in memory when its backward pass begins."""
        return self.blocks.gradient_bytes[stage.backward.start - self.blocks.graph.forward_count]

    def forward_ms(self, stage: Stage, *, again: bool) -> float:
        """Of one run."""
        return sum(self.profile.cost(x).time_ms for x in self._forward(stage, again=again))

    def backward_ms(self, stage: Stage) -> float:
        """Of its backward pass."""
        return sum(self.profile.cost(x.default()).time_ms for x in self.blocks.operators(stage.backward))

    def _forward(self, stage: Stage, *, again: bool) -> list[Implementation]:
        operators = self.blocks.operators(stage.forward)
        return [x.default(again=again) for x in operators if not (again and x.id in self.blocks.once)]

    def forward_peak_bytes(self, stage: Stage, kept: set[int]) -> int:
        """Most beside its input while it runs, the first time or again; ``kept`` is in memory in the end."""
        return max(self._forward_peak_bytes(stage, kept, again=again) for again in (False, True))

    def _forward_peak_bytes(self, stage: Stage, kept: set[int], *, again: bool) -> int:
        own = self.blocks.activations - {stage.input}
        alive, peak = set(kept), 0
        for implementation in reversed(self._forward(stage, again=again)):
            writes = set(implementation.writes)
            reads = set(implementation.reads) & own
            there = self.bytes(alive | reads | (writes & own))
            # What the first run made and another makes again is there twice for a moment.
            twice = self.bytes(writes & (self.blocks.keepsakes | self.blocks.held)) if again else 0
            peak = max(peak, there + twice + self.profile.workspace_bytes(implementation))
            alive = (alive - writes) | reads
        return peak

    def backward_peak_bytes(self, stage: Stage) -> int:
        """Most beside its input during its backward pass, all gradients included."""
        alive, peak = set[int](), 0
        for operator in reversed(self.blocks.operators(stage.backward)):
            implementation = operator.default()
            alive |= (set(implementation.reads) & self.blocks.activations) - {stage.input}
            gradients = self.blocks.gradient_bytes[operator.id - self.blocks.graph.forward_count]
            made = self.bytes(implementation.writes)
            peak = max(peak, gradients + made + self.bytes(alive) + self.profile.workspace_bytes(implementation))
        return peak
