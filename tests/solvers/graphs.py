"""Small training graphs with costs, written down or random, for tests of the solvers."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

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
        algorithms: tuple[tuple[float, int], ...] = (),
        in_place: tuple[int, float] | None = None,
        without_last: bool = False,
    ) -> tuple[int, ...]:
        """A forward operator; returns the storages that it writes.

        Args:
            reads: storages.
            sizes: bytes of what it writes.
            time_ms: of one run.
            workspace_bytes: of one run.
            again: ``"always"`` runs again as the first time, ``"other"`` by a cheaper second implementation,
                ``"mask"`` by one that reads its own last output and writes the others, ``"either"`` by both,
                ``"never"`` not at all.
            held: its first output is returned to the caller.
            algorithms: milliseconds and workspace bytes of others that read and write the same, at any time.
            in_place: which storage it may overwrite, at any time, and the milliseconds that takes.
            without_last: another implementation does not make the last output, quicker.
        """
        writes = tuple(self._storage(x, Role.ACTIVATION, held=held and not n) for n, x in enumerate(sizes))
        key = f"f{len(self.operators)}"
        self.costs[key] = Cost(time_ms, workspace_bytes)
        first = When.ALWAYS if again in ("always", "either") else When.FIRST
        implementations = [Implementation("default", reads, writes, key, when=first)]
        if again in ("other", "mask", "either"):
            self.costs[f"{key}-again"] = Cost(time_ms / 2, workspace_bytes // 2)
            made = writes if again == "other" else writes[:-1]
            source = reads if again == "other" else (*reads, writes[-1])
            implementations.append(Implementation("again", source, made, f"{key}-again", when=When.AGAIN))
        when = When.FIRST if again == "never" else When.ALWAYS
        for n, cost in enumerate(algorithms):
            self.costs[f"{key}-{n}"] = Cost(*cost)
            wanted = Optimization.CONVOLUTION
            implementations.append(
                Implementation(f"algorithm {n}", reads, writes, f"{key}-{n}", when, optimization=wanted)
            )
        if in_place is not None:
            over, over_ms = in_place
            self.costs[f"{key}-in"] = Cost(over_ms, workspace_bytes)
            wanted = Optimization.INPLACE
            implementations.append(
                Implementation("in place", reads, writes, f"{key}-in", when, overwrites=over, optimization=wanted)
            )
        if without_last:
            self.costs[f"{key}-less"] = Cost(time_ms / 4, workspace_bytes)
            implementations.append(Implementation("less", reads, writes[:-1], f"{key}-less", when))
        self._operator(Phase.FORWARD, tuple(implementations))
        return writes

    def auxiliary(self, read: int, size: int, *, time_ms: float = 1.0, workspace_bytes: int = 0) -> int:
        """An optional forward operator that makes a compact tensor; returns the storage that it writes."""
        made = self._storage(size, Role.ACTIVATION, held=False)
        key = f"x{len(self.operators)}"
        self.costs[key] = Cost(time_ms, workspace_bytes)
        wanted = Optimization.INTERMEDIATE
        self._operator(
            Phase.FORWARD, (Implementation("compact", (read,), (made,), key, optimization=wanted),), optional=True
        )
        return made

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
        alternatives: tuple[tuple[tuple[int, ...], float, int], ...] = (),
        algorithms: tuple[tuple[float, int], ...] = (),
        overwrites: int | None = None,
    ) -> int:
        """A backward operator; returns the gradient that it writes beside a parameter's, if that has a size.

        Args:
            reads: storages.
            size: bytes of the gradient.
            parameter_size: bytes of the parameter's.
            time_ms: its duration.
            workspace_bytes: its workspace.
            alternatives: reads, milliseconds and workspace bytes of others.
            algorithms: milliseconds and workspace bytes of others that read the same.
            overwrites: what another implementation, as quick, overwrites.
        """
        writes = (self._storage(size, Role.GRADIENT, held=False),)
        if parameter_size:
            writes += (self._storage(parameter_size, Role.PARAMETER_GRADIENT, held=True),)
        key = f"b{len(self.operators)}"
        self.costs[key] = Cost(time_ms, workspace_bytes)
        implementations = [Implementation("default", reads, writes, key)]
        others = [*alternatives, *((reads, *cost) for cost in algorithms)]
        compact = {x for op in self.operators if op.optional for x in op.default().writes}
        for n, (read, other_ms, other_bytes) in enumerate(others):
            self.costs[f"{key}-{n}"] = Cost(other_ms, other_bytes)
            wanted = Optimization.OUTPUT if n < len(alternatives) else Optimization.CONVOLUTION
            if compact & set(read):
                wanted = Optimization.INTERMEDIATE
            implementations.append(Implementation(f"other {n}", read, writes, f"{key}-{n}", optimization=wanted))
        if overwrites is not None:
            wanted = Optimization.INPLACE
            implementations.append(
                Implementation("in place", reads, writes, key, overwrites=overwrites, optimization=wanted)
            )
        self._operator(Phase.BACKWARD, tuple(implementations))
        return writes[0]

    def halved(
        self,
        reads: tuple[int, ...],
        sizes: tuple[int, int],
        *,
        whole: tuple[float, int],
        halves: tuple[tuple[float, int], tuple[float, int]],
        overwrites: int | None = None,
    ) -> int:
        """A backward operator in one piece or in two; returns the gradient that its first half writes.

        Args:
            reads: storages, of the whole and of each half.
            sizes: bytes of the gradient, and of the parameter's.
            whole: milliseconds and workspace bytes.
            halves: the same of each.
            overwrites: what another implementation of the whole, as quick, overwrites.
        """
        made = self._storage(sizes[0], Role.GRADIENT, held=False)
        held = self._storage(sizes[1], Role.PARAMETER_GRADIENT, held=True)
        key = f"b{len(self.operators)}"
        for name, cost in zip(("whole", "first", "second"), (whole, *halves), strict=True):
            self.costs[f"{key} {name}"] = Cost(*cost)
        wholes = [Implementation("whole", reads, (made, held), f"{key} whole")]
        if overwrites is not None:
            part = Optimization.INPLACE
            over = Implementation(
                "in place", reads, (made, held), f"{key} whole", overwrites=overwrites, optimization=part
            )
            wholes.append(over)
        self._operator(Phase.BACKWARD, (*wholes, Implementation("first half", reads, (made,), f"{key} first")))
        second = Implementation("second half", reads, (held,), f"{key} second")
        self._operator(Phase.BACKWARD, (second,), optional=True)
        return made

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

    def _operator(
        self,
        phase: Phase,
        implementations: tuple[Implementation, ...],
        target: str = "synthetic",
        *,
        optional: bool = False,
    ) -> None:
        position = len(self.operators)
        self.operators.append(Operator(position, f"op{position}", target, phase, "", implementations, optional))


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
            time_ms=draw(st.integers(1, 9)),
            workspace_bytes=draw(st.sampled_from((0, 0, 3))),
        )
    return builder.profile()


@st.composite
def joint_profiles(draw: st.DrawFn, *, most_forward: int = 4, several_first: bool = False) -> Profile:
    """Random graphs as those of ``profiles``, with a choice of implementations: the joint problem's.

    Several algorithms, runs in place of what is read, compact tensors by optional operators, recomputation with or
    without the operator's own mask, backward operators that read one thing or another.

    Args:
        draw: by hypothesis.
        most_forward: operators of the forward pass, but for optional ones.
        several_first: first runs may also leave out an output.
    """
    builder = GraphBuilder()
    activations: list[int] = []
    near: list[list[int]] = []
    compact: dict[int, int] = {}
    for _ in range(draw(st.integers(2, most_forward))):
        recent = activations[-3:]
        reads = draw(st.lists(st.sampled_from(recent), min_size=1, max_size=2, unique=True)) if recent else []
        again = draw(st.sampled_from(("always",) * 4 + ("other", "mask", "either", "never")))
        sizes = [draw(st.integers(1, 12))]
        if again in ("mask", "either") or draw(st.integers(0, 5)) == 0:
            sizes.append(draw(st.integers(0, 6)))
        time_ms, workspace_bytes = draw(st.integers(2, 9)), draw(st.sampled_from((0, 0, 4, 8)))
        in_place = (draw(st.sampled_from(reads)), time_ms + draw(st.sampled_from((-1, 0, 2)))) if reads else None
        made = builder.forward(
            (INPUT, *reads),
            tuple(sizes),
            time_ms=time_ms,
            workspace_bytes=workspace_bytes,
            again=again,
            held=draw(st.integers(0, 9)) == 0,
            algorithms=draw(st.sampled_from(((), (), ((time_ms + 3, workspace_bytes // 2),), ((time_ms - 1, 12),)))),
            in_place=in_place if draw(st.booleans()) else None,
            without_last=several_first and len(sizes) > 1 and draw(st.booleans()),
        )
        activations += made
        near.append([*reads, *made])
        if draw(st.integers(0, 2)) == 0:
            size, cost_ms = draw(st.integers(0, 3)), draw(st.integers(0, 3))
            workspace_bytes = draw(st.sampled_from((0, 3)))
            compact[made[0]] = builder.auxiliary(made[0], size, time_ms=cost_ms, workspace_bytes=workspace_bytes)
    gradient = builder.start_backward(draw(st.integers(0, 2)))
    for close in [*reversed(near), *near[: draw(st.integers(0, 1))]]:
        reads = (gradient, *draw(st.lists(st.sampled_from(close), max_size=2, unique=True)))
        offered = [*close, *(compact[x] for x in close if x in compact)]
        needs = st.lists(st.sampled_from(offered), max_size=2, unique=True)
        others = [(gradient, *draw(needs)) for _ in range(draw(st.integers(0, 2)))]
        gradient = builder.backward(
            reads,
            draw(st.integers(0, 3)),
            parameter_size=draw(st.sampled_from((0, 0, 2))),
            workspace_bytes=draw(st.sampled_from((0, 0, 3))),
            alternatives=tuple((x, draw(st.integers(1, 4)), draw(st.sampled_from((0, 0, 3)))) for x in others),
            algorithms=draw(st.sampled_from(((), ((3.0, 0),), ((1.0, 9),)))),
            overwrites=draw(st.sampled_from((None, *reads))),
        )
    return builder.profile()


def blocks(
    count: int, *, sizes: tuple[int, ...] = (40, 90, 60, 20), time_ms: tuple[float, ...] = (2, 1, 3, 1)
) -> Profile:
    """Equal blocks in a row, each a chain whose end is added to its beginning, between another operator and a loss."""
    builder = GraphBuilder()
    (previous,) = builder.forward((INPUT,), (sizes[-1],), time_ms=5.0)
    made = []
    for _ in range(count):
        within = [previous]
        for n, (size, ms) in enumerate(zip(sizes, time_ms, strict=True)):
            reads = (within[-1], previous) if n == len(sizes) - 1 else (within[-1],)
            within += builder.forward(reads, (size,), time_ms=ms)
        made += within[1:]
        previous = within[-1]
    (loss,) = builder.forward((previous,), (4,), held=True)
    gradient = builder.start_backward()
    for x in reversed(made):
        gradient = builder.backward((gradient, x), 10, parameter_size=2)
    assert loss
    return builder.profile()


@st.composite
def repeated_profiles(
    draw: st.DrawFn, *, most_blocks: int = 4, least_operators: int = 4, most_operators: int = 5
) -> Profile:
    """Equal blocks of random sizes and times in a row."""
    operators = draw(st.integers(least_operators, most_operators))
    sizes = draw(st.lists(st.integers(1, 12), min_size=operators, max_size=operators))
    times = draw(st.lists(st.integers(1, 9), min_size=operators, max_size=operators))
    return blocks(draw(st.integers(1, most_blocks)), sizes=tuple(sizes), time_ms=tuple(map(float, times)))
