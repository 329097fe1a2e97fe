"""A chain of operators as a profile, by hand: for figures that are about nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.device_profile import Cost, Device, Profile
from explorer.graph import Implementation, Operator, Phase, Role, Storage, TensorSpec, TrainingGraph


@dataclass(frozen=True)
class Taught:
    """A chain; operator i reads what operator i − 1 made, its backward operator reads what i made.

    Attributes:
        times_ms: of each operator; its backward one takes as long.
        sizes: of what it makes.
        gradients: does the gradient of a tensor take as much as the tensor? If not, nothing.
    """

    times_ms: tuple[float, ...]
    sizes: tuple[int, ...]
    gradients: bool = False


def taught_chain(chain: Taught) -> Profile:
    """Its training step: forward operators ``f0`` …, the loss's gradient ``start``, backward operators … ``b0``."""
    storages = [Storage(0, "batch", 0, Role.INPUT, (1,), "float32")]
    operators: list[Operator] = []
    costs = {"start": Cost(0.0, 0)}

    def add(name: str, phase: Phase, reads: list[int], size: int, cost: str) -> int:
        role = Role.ACTIVATION if phase is Phase.FORWARD else Role.GRADIENT
        storages.append(Storage(len(storages), f"x_{name}", size, role, (size,), "uint8"))
        way = Implementation("only", tuple(reads), (storages[-1].id,), cost)
        operators.append(Operator(len(operators), name, "taught", phase, name, (way,)))
        return storages[-1].id

    made, before = [], 0
    for i, (time_ms, size) in enumerate(zip(chain.times_ms, chain.sizes, strict=True)):
        costs[f"f{i}"] = Cost(float(time_ms), 0)
        before = add(f"f{i}", Phase.FORWARD, [before], size, f"f{i}")
        made.append(before)

    def gradient_size(i: int) -> int:
        return chain.sizes[i] if chain.gradients and i >= 0 else 0

    gradient = add("start", Phase.BACKWARD, [], gradient_size(len(made) - 1), "start")
    for i in reversed(range(len(made))):
        gradient = add(f"b{i}", Phase.BACKWARD, [gradient, made[i]], gradient_size(i - 1), f"f{i}")
    graph = TrainingGraph("Chain", (TensorSpec("x", (1,), "float32"),), (), tuple(storages), tuple(operators))
    return Profile(graph, costs, Device("by hand", "cpu", "none"))
