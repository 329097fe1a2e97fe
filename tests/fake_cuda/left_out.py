"""PyTorch's CUDA part, left out of a build that has one: without its kernels and hooks that is like a CPU build.

Python's part of PyTorch asks for a library of this name, and takes one that is loaded already, whatever is in it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

NAME = "libtorch_cuda.so"
_PARTS = (NAME, "libtorch_nvshmem.so")
_BEGIN = r"""
#include <stdio.h>
#include <stdlib.h>
extern void *_ZTVN10__cxxabiv117__class_type_infoE[];
static void never(const char *name) { fprintf(stderr, "left out on a simulated device: %s\n", name); abort(); }
"""


def build(library: Path, *, torch_libraries: Path) -> None:
    """A library with all that Python's part looks up when it is loaded, and nothing behind it."""
    wanted = _symbols(torch_libraries / "libtorch_python.so", "--undefined-only")
    there = set().union(*(_symbols(torch_libraries / x, "--defined-only") for x in _PARTS))
    source = _BEGIN + "\n".join(map(_definition, sorted(wanted & there)))
    options = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{NAME}", "-x", "c", "-", "-o", str(library)]
    subprocess.run(["c++", *options], check=True, input=source, text=True)


def _definition(symbol: str) -> str:
    if symbol.startswith("_ZTI"):  # the names of types are looked at
        name = symbol.removeprefix("_ZTI")
        return f'void *{symbol}[] = {{&_ZTVN10__cxxabiv117__class_type_infoE[2], "{name}"}};'
    if symbol.startswith("_ZTV"):
        return f"void *{symbol}[64];"
    if "get_gil_checker" in symbol:  # a reference, which is assigned to
        return f"void *{symbol}(void) {{ static void *place; return &place; }}"
    return f'void {symbol}(void) {{ never("{symbol}"); }}'


def _symbols(library: Path, which: str) -> set[str]:
    listed = subprocess.run(["nm", "-D", which, str(library)], check=True, stdout=subprocess.PIPE, text=True)
    return {x.split()[-1].partition("@")[0] for x in listed.stdout.splitlines()}
