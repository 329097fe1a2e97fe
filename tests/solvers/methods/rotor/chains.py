"""Random chains for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from explorer.solvers.methods.rotor.chain import Chain
from tests.solvers.methods.rotor.exhaustive import chain


@st.composite
def chains(draw: st.DrawFn, *, most: int = 6) -> Chain:
    """Random chains of up to ``most`` stages."""
    n = draw(st.integers(1, most))

    def several(least: int, greatest: int) -> list[int]:
        return draw(st.lists(st.integers(least, greatest), min_size=n, max_size=n))

    outputs = several(1, 6)
    return chain(
        outputs=outputs,
        saved=[x + y for x, y in zip(outputs, several(0, 5), strict=True)],
        gradients=several(0, 4),
        forward_ms=[float(x) for x in several(0, 9)],
        backward_ms=[float(x) for x in several(0, 3)],
        forward_overheads=several(0, 3),
        backward_overheads=several(0, 3),
    )
