"""A step in one buffer: its allocations, noted once, are placed, and those of later steps answered at their offsets."""

from __future__ import annotations

import shutil
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from explorer.device_profile import round_up
from explorer.measurement import BufferUse

_ALIGNMENT_BYTES = 64  # of PyTorch's CPU allocator
_NOTED = 2  # steps: libraries allocate with their first calls what they keep
_PLACING_S = 10.0


@cache
def _extension() -> Any:
    """The allocator, compiled at its first use.

    Raises:
        ValueError: there is nothing to compile it with.
    """
    from torch.utils.cpp_extension import get_cxx_compiler, is_ninja_available, load

    compiler = get_cxx_compiler()
    if shutil.which(compiler) is None:
        raise ValueError(
            f"buffer=True needs a C++ compiler, and there is no {compiler!r} here: install one (or name it in the "
            "environment variable CXX), or leave out buffer=True"
        )
    if not is_ninja_available():
        raise ValueError("buffer=True needs ninja to compile with: pip install ninja, or leave out buffer=True")
    source = Path(__file__).with_name("arena.cpp")
    return load("schedule_explorer_arena", [str(source)], extra_cflags=["-O2"])


class StepBuffer:
    """Sees to it that the steps of one module have their memory in one buffer."""

    def __init__(self) -> None:
        """Nothing is known of the step yet.

        Raises:
            ValueError: there is no compiler.
        """
        self._arena = _extension().Arena()
        self._noted = 0
        self._open = False
        self._told = False
        self.use: BufferUse | None = None
        """Of the last step that ran in the buffer; None before there was one."""

    def begin(self) -> None:
        """A step begins, in this thread."""
        self._open = True
        replaying = self._noted >= _NOTED
        if not replaying:
            self._arena = _extension().Arena()  # what the last one noted may be released only now
        self._arena.begin(replaying)

    def end(self) -> None:
        """Its backward pass is over; other threads may still be at work."""
        if not self._open or not self._arena.end():
            return  # another module's step began meanwhile
        self._open = False
        if self._noted < _NOTED:
            self._noted += 1
            if self._noted == _NOTED:
                self._place()
            return
        assert self.use is not None, "it was placed"
        self.use = BufferUse(self.use.buffer_bytes, self.use.load_bytes, self._arena.served, self._arena.misses)
        if self._arena.misses and not self._told:
            self._told = True
            warnings.warn(
                f"{self._arena.misses} allocations of a step were not as planned and came from the plain allocator: "
                "results are the same, with more memory",
                stacklevel=2,
            )

    def _place(self) -> None:
        from explorer.solvers.placing.packing import pack
        from explorer.solvers.placing.rectangles import Rectangles

        sizes, born, died = (np.array(x, np.int64) for x in (self._arena.bytes, self._arena.born, self._arena.died))
        within = died >= 0
        rounded = np.array([round_up(x, _ALIGNMENT_BYTES) for x in sizes.tolist()], np.int64)
        rectangles = Rectangles(born[within], died[within], rounded[within])
        packing = pack(rectangles, seconds=_PLACING_S)
        offsets = np.full(sizes.size, -1, np.int64)
        offsets[within] = packing.offset_bytes
        self._arena.plan(sizes.tolist(), offsets.tolist(), packing.buffer_bytes)
        self.use = BufferUse(packing.buffer_bytes, rectangles.load_bytes, 0, 0)
