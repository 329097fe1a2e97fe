"""A step in one buffer: its allocations, noted once, are placed, and those of later steps answered at their offsets."""

from __future__ import annotations

import shutil
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from explorer.device_profile import round_up
from explorer.execution.device import CUDA_ROUNDING_BYTES
from explorer.measurement import BufferUse
from explorer.torch_errors import is_out_of_memory
from explorer.units import format_bytes

_CPU_ALIGNMENT_BYTES = 64  # of PyTorch's CPU allocator
_SOURCES = {"cpu": "arena.cpp", "cuda": "arena_cuda.cpp"}
_NOTED = 2  # steps: libraries allocate with their first calls what they keep
_PLACING_S = 10.0
_CUDA_HEADER, _COMPILER_HEADER = "cuda_runtime_api.h", "crt/host_defines.h"


@cache
def _extension(kind: str) -> Any:
    """The allocator of a kind of device, compiled at its first use.

    Raises:
        ValueError: there is nothing to compile it with.
    """
    from torch.utils import cpp_extension

    compiler = cpp_extension.get_cxx_compiler()
    if shutil.which(compiler) is None:
        raise ValueError(
            f"buffer=True needs a C++ compiler, and there is no {compiler!r} here: install one (or name it in the "
            "environment variable CXX), or leave out buffer=True"
        )
    if not cpp_extension.is_ninja_available():
        raise ValueError("buffer=True needs ninja to compile with: pip install ninja, or leave out buffer=True")
    more: dict[str, Any] = {}
    if kind == "cuda":
        more["extra_include_paths"] = [str(x) for x in cuda_headers()]
        libraries = Path(torch.__file__).with_name("lib")
        more["extra_ldflags"] = ["-lc10_cuda"] if (libraries / "libc10_cuda.so").exists() else []
    source = Path(__file__).with_name(_SOURCES[kind])
    try:
        return cpp_extension.load(f"schedule_explorer_arena_{kind}", [str(source)], extra_cflags=["-O2"], **more)
    except RuntimeError as error:
        raise ValueError(
            f"buffer=True: the allocator cannot be compiled for torch {torch.__version__} on {kind!r}; leave out "
            f"buffer=True ({error})"
        ) from error


def cuda_headers() -> list[Path]:
    """Folders that CUDA's headers are in: a toolkit's, else those that packages bring, Triton's for one.

    Raises:
        ValueError: there are none.
    """
    from torch.utils.cpp_extension import CUDA_HOME

    roots = [] if CUDA_HOME is None else [Path(CUDA_HOME)]
    for package, inside in (("triton", "backends/nvidia"), ("nvidia", "*")):
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            roots += sorted(Path(place).glob(inside))
    folders = [x / "include" for x in roots]
    complete = [x for x in folders if all((x / y).exists() for y in (_CUDA_HEADER, _COMPILER_HEADER))]
    parts = [next((x for x in folders if (x / y).exists()), None) for y in (_CUDA_HEADER, _COMPILER_HEADER)]
    found = complete[:1] or [x for x in parts if x is not None]
    if not complete and None in parts:
        raise ValueError(
            "buffer=True on CUDA needs CUDA's headers to compile with: pip install nvidia-cuda-runtime "
            "nvidia-cuda-crt, or a toolkit (the environment variable CUDA_HOME), or leave out buffer=True"
        )
    return found


class StepBuffer:
    """Sees to it that the steps of one module have their memory in one buffer."""

    def __init__(self, device: torch.device) -> None:
        """Nothing is known of the step yet.

        Args:
            device: that the module is on.

        Raises:
            ValueError: there is no compiler, or no allocator for such a device.
        """
        if device.type not in _SOURCES or torch.version.hip is not None:
            raise ValueError(f"buffer=True is for models on the CPU or on CUDA, not on {device.type!r}: leave it out")
        self._device = device
        self._arena = _extension(device.type).Arena()
        self._noted = 0
        self._open = False
        self._told = False
        self._surprised = False
        self.given_up = False
        """There was no memory for the buffer: steps run without."""
        self.use: BufferUse | None = None
        """Of the last step that ran in the buffer; None before there was one."""

    def begin(self) -> None:
        """A step begins, in this thread and on its stream."""
        if self.given_up:
            return
        self._open = True
        replaying = self._noted >= _NOTED
        if not replaying:
            # What the last one noted may be released only now.
            self._arena = _extension(self._device.type).Arena()
        self._arena.begin(replaying, self._device.index or 0)

    def go_on(self) -> None:
        """The step goes on in this thread, whichever it began in."""
        if self._open:
            self._arena.go_on()

    def expect_more(self) -> None:
        """The next step allocates what libraries keep, once more: it is not a surprise."""
        self._surprised = False

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
        if self._arena.misses and not self._told and self._surprised:
            self._told = True
            warnings.warn(
                f"{self._arena.misses} allocations of a step were not as planned and came from the plain allocator: "
                "results are the same, with more memory",
                stacklevel=2,
            )
        self._surprised = True

    def _place(self) -> None:
        from explorer.solvers.placing.packing import pack
        from explorer.solvers.placing.rectangles import Rectangles

        on_cuda = self._device.type == "cuda"
        alignment_bytes = CUDA_ROUNDING_BYTES if on_cuda else _CPU_ALIGNMENT_BYTES
        sizes, born, died = (np.array(x, np.int64) for x in (self._arena.bytes, self._arena.born, self._arena.died))
        within = died >= 0
        rounded = np.array([round_up(x, alignment_bytes) for x in sizes.tolist()], np.int64)
        rectangles = Rectangles(born[within], died[within], rounded[within])
        packing = pack(rectangles, seconds=_PLACING_S)
        offsets = np.full(sizes.size, -1, np.int64)
        offsets[within] = packing.offset_bytes
        if on_cuda:
            torch.cuda.empty_cache()  # what the noted steps had is free, and the buffer takes its place
        try:
            self._arena.plan(sizes.tolist(), offsets.tolist(), packing.buffer_bytes)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self.given_up = True
            warnings.warn(
                f"there is no memory for a buffer of {format_bytes(packing.buffer_bytes)} beside what outlives the "
                "step: steps run without it",
                stacklevel=2,
            )
            return
        self.use = BufferUse(packing.buffer_bytes, rectangles.load_bytes, 0, 0)
