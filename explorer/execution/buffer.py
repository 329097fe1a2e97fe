"""A step in one buffer: its allocations, noted once, are placed, and those of later steps answered at their offsets."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from explorer.device_profile import round_up
from explorer.execution.arena import DEVICES, arena_extension
from explorer.execution.device import CUDA_ROUNDING_BYTES
from explorer.measurement import BufferUse
from explorer.torch_errors import is_out_of_memory
from explorer.units import format_bytes

_CPU_ALIGNMENT_BYTES = 64  # of PyTorch's CPU allocator
NOTED = 2
"""Steps: libraries allocate with their first calls what they keep."""
_PLACING_S = 10.0
_AMISS = 4
"""Steps, one after the other, that are not as planned before one is noted anew; each later time twice as many."""


class RunningStep:
    """A step that has begun in a buffer: what it does, or leaves, is the buffer's to know only while it is the last."""

    def __init__(self, buffer: StepBuffer, arena: Any, number: int) -> None:
        """Begun already."""
        self._buffer, self._number = buffer, number
        self._arena: Any = arena

    def go_on(self) -> None:
        """In this thread, whichever it began in."""
        self._arena.go_on(self._number)

    def leave(self, tensors: Iterable[torch.Tensor | None]) -> None:
        """These are handed out, gradients: nobody knows for how long."""
        if not self._buffer.placed:
            for tensor in tensors:
                if tensor is not None:
                    self._arena.leave(tensor.untyped_storage().data_ptr())

    def end(self) -> None:
        """Its backward pass is over; other threads may still be at work."""
        arena, self._arena = self._arena, None  # results may be held for long, and would hold a buffer that is given up
        self._buffer.ended(arena, among_others=not arena.end(self._number, True))

    def abandon(self) -> None:
        """It ends without its backward pass, or within it; nothing, where it has ended."""
        if self._arena is not None:
            self._arena.end(self._number, False)


class StepBuffer:
    """Sees to it that the steps of one module have their memory in one buffer."""

    def __init__(self, device: torch.device) -> None:
        """Nothing is known of the step yet.

        Args:
            device: that the module is on.

        Raises:
            ValueError: there is no compiler, or no allocator for such a device.
        """
        if device.type not in DEVICES or (device.type == "cuda" and torch.version.hip is not None):
            raise ValueError(f"buffer=True is for models on the CPU or on CUDA, not on {device.type!r}: leave it out")
        self.device = device
        self._new_arena = arena_extension(device.type).Arena
        self._arena: Any = self._new_arena()
        self._noted = 0
        self._told = False
        self._surprised = False
        self._anew = False  # the next step is to be noted
        self._amiss, self._patience = 0, _AMISS  # steps not as planned: the last ones, and how many are too many
        self.steps = 0
        """How many ran in it."""
        self.given_up = False
        """There was no memory for the buffer: steps run without."""
        self.use: BufferUse | None = None
        """Of the last step that ran in the buffer; None before there was one."""

    def begin(self) -> RunningStep | None:
        """A step begins, in this thread and on its stream; None: without the buffer."""
        if self.given_up:
            return None
        if (self._anew or self._amiss >= self._patience) and self._arena.is_empty():
            # What was noted is no longer what steps do. (What lies in a buffer would keep it beside the next one.)
            self._patience *= 1 if self._anew else 2
            self._noted, self._amiss, self._anew = min(self._noted, NOTED - 1), 0, False
            self._arena = None
            if self.device.type == "cuda":
                torch.cuda.empty_cache()  # what outlives the noted step would keep the whole of the old buffer reserved
        if not self.placed:
            self._arena = self._new_arena()  # what the last one noted may be released only now
        return RunningStep(self, self._arena, self._arena.begin(self.placed, self.device.index or 0))

    @property
    def placed(self) -> bool:
        """Is what a step allocates known, and where it goes?"""
        return self._noted >= NOTED

    @property
    def keeps(self) -> bool:
        """Is that of use for the next step?"""
        return self.placed and not self._anew

    def expect_more(self) -> None:
        """The next step allocates what libraries keep, once more: it is not a surprise."""
        self._surprised = False
        self._amiss = 0

    def note_anew(self) -> None:
        """The next steps are of another kind than those that it was placed for."""
        self._anew = True
        self.expect_more()

    def ended(self, arena: Any, *, among_others: bool) -> None:
        """A step is over.

        Args:
            arena: that it ran in.
            among_others: another step began before it was over, and what lies where is that one's.
        """
        if among_others:
            self._tell(
                "another step began before this one's backward pass was over: a buffer is for steps one after the "
                "other, and those that overlap run in PyTorch's memory"
            )
            return
        if not self.placed:
            if self._noted + 1 == NOTED:
                self._place(arena)
            self._noted += 1
            return
        assert self.use is not None, "it was placed"
        self.steps += 1
        self.use = BufferUse(self.use.buffer_bytes, self.use.load_bytes, arena.served, arena.misses)
        self._amiss = self._amiss + 1 if arena.misses else 0
        if arena.misses and self._surprised:
            self._tell(
                f"{arena.misses} allocations of a step were not as planned and came from the plain allocator: "
                "results are the same, with more memory"
            )
        self._surprised = True

    def _tell(self, what: str) -> None:
        if not self._told:
            self._told = True
            warnings.warn(what, stacklevel=3)

    def _place(self, arena: Any) -> None:
        from explorer.solvers.placing.packing import pack
        from explorer.solvers.placing.rectangles import Rectangles

        on_cuda = self.device.type == "cuda"
        alignment_bytes = CUDA_ROUNDING_BYTES if on_cuda else _CPU_ALIGNMENT_BYTES
        sizes, born, died = (np.array(x, np.int64) for x in (arena.bytes, arena.born, arena.died))
        died[arena.leaving] = -1
        within = died >= 0
        rounded = np.array([round_up(x, alignment_bytes) for x in sizes.tolist()], np.int64)
        rectangles = Rectangles(born[within], died[within], rounded[within])
        packing = pack(rectangles, seconds=_PLACING_S)
        offsets = np.full(sizes.size, -1, np.int64)
        offsets[within] = packing.offset_bytes
        if on_cuda:
            torch.cuda.empty_cache()  # what the noted steps had is free, and the buffer takes its place
        try:
            arena.plan(sizes.tolist(), offsets.tolist(), packing.buffer_bytes)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self.given_up, self.use = True, None
            warnings.warn(
                f"there is no memory for a buffer of {format_bytes(packing.buffer_bytes)} beside what outlives the "
                "step: steps run without it",
                stacklevel=2,
            )
            return
        self.use = BufferUse(packing.buffer_bytes, rectangles.load_bytes, 0, 0)
