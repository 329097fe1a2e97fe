"""What a capture takes, and what it is worth to know results of fake tensors: in turn, in one run, as processor time.

    python -m benchmarks.execution.capturing [MODEL …] [--tier quick] [--rounds 5]

With PyTorch's own cache a capture would take about as long, and be wrong of some views.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from typing import Any

from torch import nn

from benchmarks.cases import Size, add_tier, model_cases, model_names
from benchmarks.provenance import record
from explorer.capture import capture, tracing


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=model_names(Size.TINY))
    parser.add_argument("--rounds", type=int, default=5)
    add_tier(parser)
    arguments = parser.parse_args()
    record(arguments)
    print(f"{'model':>14} {'operators':>9} {'nothing known, s':>16} {'known, s':>9} {'ratio':>6}")
    for case in model_cases(arguments.tier, Size.TINY, arguments.models):
        show(case.name, *case.sample(), rounds=arguments.rounds)


def show(name: str, model: nn.Module, batch: Any, loss: Any, *, rounds: int) -> None:
    """Capture with and without, in turn; the first capture of each kind is not counted."""
    known = tracing.results_known
    kinds = {"nothing": lambda _: contextlib.nullcontext(), "known": known}
    seconds: dict[str, list[float]] = {x: [] for x in kinds}
    operators = 0
    try:
        for _ in range(rounds + 1):
            for kind, results_known in kinds.items():
                tracing.results_known = results_known
                began = time.process_time()
                operators = len(capture(model, batch, loss=loss).graph.operators)
                seconds[kind].append(time.process_time() - began)
    finally:
        tracing.results_known = known
    nothing, some = (statistics.median(x[1:]) for x in seconds.values())
    print(f"{name:>14} {operators:>9} {nothing:>16.2f} {some:>9.2f} {some / nothing:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
