"""What updating within the backward pass saves: a table of every bundled model, at its batch and at batch 1.

    python -m benchmarks.execution.update_within [MODEL …] [--optimizer adamw] [--time-limit 5] [--json FILE]

Estimated for an A100-80GB, as the bundled profiles are. Peaks of iterations that recompute nothing, as shares of plain
PyTorch's (which updates at the end), and the smallest budgets that a schedule fits either way.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import explorer
from benchmarks.provenance import record, write_results
from explorer.models import MODELS

_DEVICE = "a100-80gb"


@dataclass(frozen=True)
class Row:
    """One model at one batch size."""

    model: str
    batch_size: int
    plain_peak_bytes: int
    peak_in: str
    within_peak_bytes: int
    smallest_bytes: int
    smallest_within_bytes: int
    slower: float


def main() -> None:
    """Print a row for each, and write them if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds for each smallest budget")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    run = record(options)
    print("| model | batch | plain PyTorch | peak in | within | smallest budget | within | longer |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for name in options.models:
        for size in (None, 1):
            rows.append(row := measured(name, size, optimizer=options.optimizer, time_limit=options.time_limit))
            print(
                f"| {row.model} | {row.batch_size} | {row.plain_peak_bytes / 2**30:.2f} GiB | {row.peak_in} | "
                f"{row.within_peak_bytes / row.plain_peak_bytes - 1:+.1%} | "
                f"{row.smallest_bytes / row.plain_peak_bytes:.1%} | "
                f"{row.smallest_within_bytes / row.plain_peak_bytes:.1%} | {row.slower:+.2%} |",
                flush=True,
            )
    if options.json:
        write_results(options.json, [asdict(x) for x in rows], run)


def measured(name: str, batch_size: int | None, *, optimizer: str, time_limit: float) -> Row:
    """Estimate both iterations, and find the smallest budgets."""
    spec = MODELS[name]
    with torch.device("meta"):
        model = spec.build().train()
        batch = spec.batch() if batch_size is None else spec.batch(batch_size=batch_size)
    end, within = (
        explorer.estimate(model, batch, loss=spec.loss, device=_DEVICE, optimizer=optimizer, update=update)
        for update in ("end", "within")
    )
    plain, other = (explorer.simulate(x, explorer.keep_all(x.graph)) for x in (end, within))
    smallest = [explorer.smallest_budget(x, time_limit=time_limit).minimum for x in (end, within)]
    sizes = [x.budget_bytes for x in smallest if x is not None]
    return Row(
        model=name,
        batch_size=end.graph.batch[0].shape[0],
        plain_peak_bytes=plain.peak_bytes,
        peak_in=plain.stages[plain.peak_run].value,
        within_peak_bytes=other.peak_bytes,
        smallest_bytes=sizes[0],
        smallest_within_bytes=sizes[1],
        slower=other.time_ms / plain.time_ms - 1,
    )


if __name__ == "__main__":
    main()
