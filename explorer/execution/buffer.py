"""A step in one buffer: its allocations, noted once, are placed, and those of later steps answered at their offsets."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
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
NOTED = 2
"""Steps: libraries allocate with their first calls what they keep."""
_PLACING_S = 10.0
_CUDA_HEADER, _COMPILER_HEADER = "cuda_runtime_api.h", "crt/host_defines.h"


def _extension(kind: str) -> Any:
    """The allocator of a kind of device, compiled at its first use.

    Raises:
        ValueError: there is nothing to compile it with, or it cannot be compiled.
    """
    from torch.utils import cpp_extension

    compiler = shlex.split(cpp_extension.get_cxx_compiler())[0]
    if shutil.which(compiler) is None:
        raise ValueError(
            f"buffer=True needs a C++ compiler, and there is no {compiler!r} here: install one (or name it in the "
            "environment variable CXX), or leave out buffer=True"
        )
    if not cpp_extension.is_ninja_available():
        raise ValueError("buffer=True needs ninja to compile with: pip install ninja, or leave out buffer=True")
    made = _compiled(kind, tuple(cuda_headers()) if kind == "cuda" else ())
    if isinstance(made, Exception):
        raise ValueError(
            f"buffer=True: the allocator cannot be compiled for torch {torch.__version__} on {kind!r}; leave out "
            f"buffer=True ({made})"
        ) from made
    return made


@cache
def _compiled(kind: str, headers: tuple[Path, ...]) -> Any:
    """The module, or what came in its way, which is not tried again.

    PyTorch's own cache of extensions knows nothing of its version, by which the allocators' interfaces differ, and
    waits for ever where a process was killed while it compiled.
    """
    from torch.utils import cpp_extension

    sources = [Path(__file__).with_name(x) for x in ("arena.h", _SOURCES[kind])]
    made_of = repr((torch.__version__, sys.implementation.cache_tag, headers, [x.read_bytes() for x in sources]))
    name = f"schedule_explorer_arena_{kind}_{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root())
    kept = folder / f"{name}.so"
    with suppress(ImportError, OSError):
        return _imported(name, kept)
    cuda = Path(torch.__file__).with_name("lib") / "libc10_cuda.so"
    try:
        with tempfile.TemporaryDirectory() as building:
            module: Any = cpp_extension.load(
                name,
                [str(sources[1])],
                extra_cflags=["-O2"],
                extra_include_paths=[str(x) for x in headers],
                extra_ldflags=["-lc10_cuda"] if kind == "cuda" and cuda.exists() else [],
                build_directory=building,
            )
            with suppress(OSError):  # then each process compiles its own
                folder.mkdir(parents=True, exist_ok=True)
                partial = kept.with_suffix(f".{os.getpid()}")
                shutil.copy(module.__file__, partial)
                partial.replace(kept)
    except (RuntimeError, ImportError, OSError, subprocess.SubprocessError) as error:
        return error
    return module


def _imported(name: str, path: Path) -> Any:
    spec = spec_from_file_location(name, path)
    assert spec is not None, "a library's name ends as a module's"
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


class RunningStep:
    """A step that has begun in a buffer: what it does, or leaves, is the buffer's to know only while it is the last."""

    def __init__(self, buffer: StepBuffer, arena: Any, number: int) -> None:
        """Begun already."""
        self._buffer, self._arena, self._number = buffer, arena, number

    def go_on(self) -> None:
        """In this thread, whichever it began in."""
        self._arena.go_on(self._number)

    def end(self) -> None:
        """Its backward pass is over; other threads may still be at work."""
        self._buffer.ended(self._arena, among_others=not self._arena.end(self._number))

    def abandon(self) -> None:
        """It ends without its backward pass, or within it."""
        self._arena.end(self._number)


class StepBuffer:
    """Sees to it that the steps of one module have their memory in one buffer."""

    def __init__(self, device: torch.device) -> None:
        """Nothing is known of the step yet.

        Args:
            device: that the module is on.

        Raises:
            ValueError: there is no compiler, or no allocator for such a device.
        """
        if device.type not in _SOURCES or (device.type == "cuda" and torch.version.hip is not None):
            raise ValueError(f"buffer=True is for models on the CPU or on CUDA, not on {device.type!r}: leave it out")
        self.device = device
        self._arena = _extension(device.type).Arena()
        self._noted = 0
        self._told = False
        self._surprised = False
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
        replaying = self._noted >= NOTED
        if not replaying:
            # What the last one noted may be released only now.
            self._arena = _extension(self.device.type).Arena()
        return RunningStep(self, self._arena, self._arena.begin(replaying, self.device.index or 0))

    def expect_more(self) -> None:
        """The next step allocates what libraries keep, once more: it is not a surprise."""
        self._surprised = False

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
        if self._noted < NOTED:
            if self._noted + 1 == NOTED:
                self._place(arena)
            self._noted += 1
            return
        assert self.use is not None, "it was placed"
        self.steps += 1
        self.use = BufferUse(self.use.buffer_bytes, self.use.load_bytes, arena.served, arena.misses)
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
            self.given_up = True
            warnings.warn(
                f"there is no memory for a buffer of {format_bytes(packing.buffer_bytes)} beside what outlives the "
                "step: steps run without it",
                stacklevel=2,
            )
            return
        self.use = BufferUse(packing.buffer_bytes, rectangles.load_bytes, 0, 0)
