"""What numba compiles at its first use, compiled beforehand; numba keeps the machine code on disk.

It lies in ``__pycache__`` beside the code, or where that cannot be written in numba's folder of the user's;
``NUMBA_CACHE_DIR`` names another.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from explorer.budgets import plain_peak_bytes
from explorer.profiles.loading import load_profile
from explorer.solvers.methods.table import METHODS
from explorer.solvers.options import Options
from explorer.solvers.placing.packing import pack
from explorer.solvers.placing.rectangles import Rectangles
from explorer.solvers.search.annealing import anneal
from explorer.solvers.search.plan_search import PlanSearch

_SMALL = "resnet50-small-cpu"
_COMPILED_S = 3600.0
_AWKWARD = ((3, 4, 0, 2, 0), (4, 6, 2, 5, 3), (1, 4, 4, 1, 1))
"""Starts, ends and sizes that every greedy order stacks too high, so that the exact search has its turn."""


def compile_all() -> Path:
    """Compile the searches for plans, orders and addresses and rotor's table, or load them; where numba keeps them.

    Whatever profile they are called with, the types of what they are given are the same: so is the machine code.

    Raises:
        ValueError: there is no folder to keep it in.
    """
    folder = anneal.stats.cache_path
    if folder is None:
        raise ValueError(
            "neither the package's folder nor the user's cache folder can be written, so that nothing compiled can be "
            "kept; the environment variable NUMBA_CACHE_DIR may name another"
        )
    profile = load_profile(_SMALL)
    PlanSearch(Options().problem(profile)).ready(timeout=_COMPILED_S)
    for name in ("rotor", "model"):
        METHODS[name].solve(profile, [plain_peak_bytes(profile)], options=Options(name))
    pack(Rectangles(*map(np.array, _AWKWARD)), seconds=_COMPILED_S)
    return Path(folder)
