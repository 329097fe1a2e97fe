"""What every process of the run needs, loaded once in the server that forks them."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import asdict
from multiprocessing.connection import Connection

import torch

import explorer.solvers.programs.scip
import explorer.solvers.solving  # noqa: F401 - loaded for what is forked from here
from benchmarks.zoo import ZOO
from benchmarks.zoo.running import Options, run

with contextlib.suppress(ModuleNotFoundError):
    import transformers.models.auto  # noqa: F401 - as above


def run_here(name: str, result: Connection, *, quick: bool) -> None:
    """One architecture, with one thread: sums in the same order, and times that other processes disturb less."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    result.send(asdict(run(ZOO[name], Options.quick() if quick else Options())))
    result.close()
