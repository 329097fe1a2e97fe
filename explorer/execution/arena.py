"""The allocator that steps in one buffer have, compiled at its first use from ``arena.cpp`` or ``arena_cuda.cpp``."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch

DEVICES = {"cpu": "arena.cpp", "cuda": "arena_cuda.cpp"}
"""Kinds of devices that there is an allocator for, and its source."""
_CUDA_HEADER, _COMPILER_HEADER = "cuda_runtime_api.h", "crt/host_defines.h"


def arena_extension(kind: str) -> Any:
    """The module with the allocator of a kind of device.

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

    sources = [Path(__file__).with_name(x) for x in ("arena.h", DEVICES[kind])]
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
