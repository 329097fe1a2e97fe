"""Many random programs: ``python -m tests.fuzz --programs 10000``; what fails is written down as small as it gets."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SCHEDULE_EXPLORER_CACHE", "off")

import argparse
import json
import sys
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tests.fuzz.checking import Effort, Outcome, check
from tests.fuzz.program import load
from tests.fuzz.running import report, run, told

CHUNK = 25


def main() -> int:
    """Run the programs that have not been run yet; 1 if there are finds."""
    options = _options()
    if options.file is not None:
        verdict = check(load(options.file.read_text()), Effort(schedules=6, peak=bool(options.peaks)))
        print(f"{verdict.outcome}: {verdict.text}")
        return int(not verdict.outcome.fine)
    options.output.mkdir(parents=True, exist_ok=True)
    known = options.output / "outcomes.json"
    outcomes: dict[str, str] = json.loads(known.read_text()) if known.exists() and not options.afresh else {}
    seeds = range(options.first, options.first + options.programs)
    missing = [x for x in seeds if str(x) not in outcomes]
    print(f"{len(seeds)} programs, {len(seeds) - len(missing)} of them known from {known}", flush=True)
    chunks = [missing[i : i + CHUNK] for i in range(0, len(missing), CHUNK)]
    start = time.monotonic()
    work = partial(run, output=options.output, peaks=options.peaks, small=not options.raw)
    # A process lives for some hundred programs: what torch remembers of each trace adds up.
    with get_context("spawn").Pool(options.processes, maxtasksperchild=20) as pool:
        for number, found in enumerate(pool.imap_unordered(work, chunks), 1):
            outcomes |= {str(seed): said for seed, said in found}
            known.write_text(json.dumps(outcomes))
            rate = number * CHUNK / (time.monotonic() - start)
            print(f"{number * CHUNK} programs, {rate:.1f} a second: {told(outcomes.values())}", flush=True)
    chosen = {seed: outcomes[str(seed)] for seed in seeds}
    print(report(chosen, options.output))
    return int(any(not Outcome(x.split(":")[0]).fine for x in chosen.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2, help="that run them")
    parser.add_argument(
        "--peaks", type=int, default=10, help="memory is measured for one program in so many; 0: for none"
    )
    parser.add_argument("--output", type=Path, default=Path("test-output/fuzz"), help="folder for outcomes and finds")
    parser.add_argument("--afresh", action="store_true", help="run again what is known")
    parser.add_argument("--raw", action="store_true", help="write programs that fail as they are, which is quicker")
    parser.add_argument(
        "--file", type=Path, help="run this program, as it was written to the folder of finds, and no other"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
