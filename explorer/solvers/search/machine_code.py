"""Functions that numba compiles at their first use, and keeps on disk where there is a folder for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """A function, compiled without Python's lock.

    Where neither the package's folder nor the user's can be written (a read-only installation and home), numba refuses
    to keep anything; it is then compiled anew in every process.
    """
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


def kept_files(function: Any, suffix: str) -> list[Path]:
    """What numba keeps of a compiled function on disk, by the suffix of the files; none where it cannot keep any."""
    folder = function.stats.cache_path
    module = function.py_func.__module__.rpartition(".")[2]
    return [] if folder is None else list(Path(folder).glob(f"{module}.*.{suffix}"))
