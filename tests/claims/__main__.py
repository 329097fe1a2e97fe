"""Many random graphs: ``python -m tests.claims --graphs 2000``; 1 if a claim of the solvers is false."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
from collections import Counter

from tests.claims.checking import findings


def main() -> int:
    """Print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--time-limit", type=float, default=0.1, help="seconds for each of three budgets")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for n, seed in enumerate(range(options.first, options.first + options.graphs), start=1):
        for found in findings(seed, time_limit=options.time_limit):
            counts["false" if found.false else found.outcome] += 1
            if found.false:
                print(f"seed {found.seed}, budget {found.budget_bytes}: {found.outcome}", flush=True)
        if n % 100 == 0:
            print(f"{n} graphs, {time.monotonic() - began:.0f} s: {dict(counts)}", flush=True)
    print(dict(counts))
    return int(counts["false"] > 0)


if __name__ == "__main__":
    sys.exit(main())
