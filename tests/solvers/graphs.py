"""Small training graphs with costs, written down or random, for tests of the solvers."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from explorer.device_profile import Cost, Device, Profile
from explorer.graph import Implementation, Operator, Phase, Role, Storage, TensorSpec, TrainingGraph, When

INPUT = 0
DEVICE = Device("synthetic", "cpu", "none")


@dataclass
class GraphBuilder:
    """Add forward operators, then ``start_backward``, then backward operators; ``profile`` gives the result.

    Storage 0 is the input of the batch, storage 1 a parameter.
    """

    rounding_bytes: int = 1
    storages: list[Storage] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the persistent storages."""
        self._storage(40, Role.INPUT, held=False)
        self._storage(60, Role.PARAMETER, held=False)

    def forward(
        self,
        reads: tuple[int, ...],
        sizes: tuple[int, ...],
        *,
        time_ms: float = 1.0,
        workspace_bytes: int = 0,
        again: str = "always",
        held: bool = False,
    ) -> tuple[int, ...]:
        """A forward operator; returns the storages that it writes.

        Args:
            reads: storages.
            sizes: bytes of what it writes.
            time_ms: of one run.
            workspace_bytes: of one run.
            again: ``"always"`` runs again as the first time, ``"other"`` by a cheaper second implementation,
                ``"mask"`` by one that reads its own last output and writes the others, ``"never"`` not at all.
            held: its first output is returned to the caller.
        """
        writes = tuple(self._storage(x, Role.ACTIVATION, held=held and not n) for n, x in enumerate(sizes))
        key = f"f{len(self.operators)}"
        self.costs[key] = Cost(time_ms, workspace_bytes)
        first = When.ALWAYS if again == "always" else When.FIRST
        implementations = [Implementation("default", reads, writes, key, when=first)]
        if again in ("other", "mask"):
            self.costs[f"{key}-again"] = Cost(time_ms / 2, workspace_bytes // 2)
            made = writes[:-1] if again == "mask" else writes
            source = (*reads, writes[-1]) if again == "mask" else reads
            implementations.append(Implementation("again", source, made, f"{key}-again", when=When.AGAIN))
        self._operator(Phase.FORWARD, tuple(implementations))
        return writes

    def start_backward(self, size: int = 4) -> int:
        """The boundary; returns the gradient of the outputs."""
        gradient = self._storage(size, Role.GRADIENT, held=False)
        self.costs["tangents"] = Cost(0.0, 0)
        implementation = Implementation("default", (), (gradient,), "tangents")
        self._operator(Phase.BACKWARD, (implementation,), "explorer.tangents")
        return gradient

    def backward(
        self,
        reads: tuple[int, ...],
        size: int,
        *,
        parameter_size: int = 0,
        time_ms: float = 2.0,
        workspace_bytes: int = 0,
    ) -> int:
        """A backward operator; returns the gradient that it writes beside a parameter's, if that has a size."""
        writes = (self._storage(size, Role.GRADIENT, held=False),)
        if parameter_size:
            writes += (self._storage(parameter_size, Role.PARAMETER_GRADIENT, held=True),)
        key = f"b{len(self.operators)}"
        self.costs[key] = Cost(time_ms, workspace_bytes)
        self._operator(Phase.BACKWARD, (Implementation("default", reads, writes, key),))
        return writes[0]

    def profile(self) -> Profile:
        """What was built."""
        batch = (TensorSpec("x", (10,), "float32"),)
        graph = TrainingGraph("Synthetic", batch, (), tuple(self.storages), tuple(self.operators))
        device = Device(DEVICE.name, DEVICE.kind, DEVICE.torch_version, rounding_bytes=self.rounding_bytes)
        return Profile(graph, dict(self.costs), device)

    def _storage(self, size: int, role: Role, *, held: bool) -> int:
        position = len(self.storages)
        self.storages.append(Storage(position, f"t{position}", size, role, (size,), "uint8", held))
        return position

    def _operator(self, phase: Phase, implementations: tuple[Implementation, ...], target: str = "synthetic") -> None:
        position = len(self.operators)
        self.operators.append(Operator(position, f"op{position}", target, phase, "", implementations))


def chain(length: int, *, size: int = 100, time_ms: float = 1.0) -> Profile:
    """Operators one after the other, each backward operator needing its operator's output."""
    builder = GraphBuilder()
    made = []
    previous = INPUT
    for _ in range(length):
        (previous,) = builder.forward((previous,), (size,), time_ms=time_ms)
        made.append(previous)
    (loss,) = builder.forward((previous,), (4,), held=True)
    gradient = builder.start_backward()
    for x in reversed(made):
        gradient = builder.backward((gradient, x), size, parameter_size=10)
    assert loss
    return builder.profile()


@st.composite
def profiles(draw: st.DrawFn, *, most_forward: int = 5) -> Profile:
    """Random graphs: branches, skips, several outputs, operators that cannot run again or do so by another way.

    Activations are large beside gradients and workspace, so that keeping them is what costs memory.
    """
    builder = GraphBuilder()
    activations: list[int] = []
    near: list[list[int]] = []
    for _ in range(draw(st.integers(2, most_forward))):
        recent = [*activations[:1], *activations[-3:]]
        reads = draw(st.lists(st.sampled_from(recent), min_size=1, max_size=2, unique=True)) if recent else []
        again = draw(st.sampled_from(("always",) * 5 + ("other", "mask", "never")))
        sizes = [draw(st.integers(1, 12))]
        if again == "mask" or draw(st.integers(0, 4)) == 0:
            sizes.append(draw(st.integers(0, 6)))
        made = builder.forward(
            (INPUT, *reads),
            tuple(sizes),
            time_ms=draw(st.integers(1, 9)),
            workspace_bytes=draw(st.sampled_from((0, 0, 0, 4))),
            again=again,
            held=draw(st.integers(0, 7)) == 0,
        )
        activations += made
        near.append([*reads, *made])
    gradient = builder.start_backward(draw(st.integers(0, 2)))
    for close in [*reversed(near), *near[: draw(st.integers(0, 1))]]:
        needs = draw(st.lists(st.sampled_from(close), max_size=2, unique=True))
        gradient = builder.backward(
            (gradient, *needs),
            draw(st.integers(0, 2)),
            parameter_size=draw(st.sampled_from((0, 0, 2))),
            workspace_bytes=draw(st.sampled_from((0, 0, 3))),
        )
    return builder.profile()
