"""What may be asked of the agenda on the command line, for it and for the command around it: needs no PyTorch."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

ITEMS = ("checks", "layer", "profiles", "schedules", "runs", "rivals", "timeline")
"""In the order in which they are done."""


def add_options(parser: argparse.ArgumentParser, *, models: Iterable[str] | None = None) -> None:
    """The options of ``benchmarks.gpu.agenda`` without a default, which is the agenda's.

    Args:
        parser: gets them.
        models: the names of those that there are; None: whoever is told them next knows.
    """
    parser.add_argument("--device", choices=("cuda", "cpu"), help="cuda unless said")
    parser.add_argument("--items", nargs="*", choices=ITEMS, help="some of the work; all of it unless said")
    known = None if models is None else list(models)
    parser.add_argument("--models", nargs="*", choices=known, help="some of them; all unless said")
    parser.add_argument("--small", action="store_true", help="small batches, as on a CPU")
    parser.add_argument("--tf32", action="store_true", help="products of float32 in TF32")
    parser.add_argument("--time-limit", type=float, help="seconds for each solve, 10 unless said")
    parser.add_argument("--steps", type=int, help="timed for each measurement, 5 unless said")


def as_arguments(asked: argparse.Namespace) -> Iterator[str]:
    """These options again, as what stands on a command line behind the folder."""
    for name in ("device", "items", "models", "small", "tf32", "time_limit", "steps"):
        value, option = getattr(asked, name), f"--{name.replace('_', '-')}"
        if isinstance(value, list):
            yield from (option, *value)
        elif value is True:
            yield option
        elif value is not None and value is not False:
            yield from (option, str(value))
