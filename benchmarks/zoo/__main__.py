"""The command: every architecture in a process of its own, so that one crash or hang does not end the run."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cases import Tier, add_tier
from benchmarks.provenance import read_results, record, write_results

if TYPE_CHECKING:
    from benchmarks.zoo.specimen import Specimen

_RESULTS = Path(__file__).parents[1] / "results" / "zoo.json"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print a line for each architecture, write results and the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these architectures (default: all)")
    add_tier(parser)  # quick: one budget, two steps, no times
    parser.add_argument("--json", type=Path, help=f"write results here (default with all: {_RESULTS.name})")
    parser.add_argument("--page", type=Path, help="also make the tables of this page anew (docs/supported.md)")
    parser.add_argument("--from", dest="stored", type=Path, help="run nothing, take these results")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one architecture")
    parser.add_argument("--jobs", type=int, default=1, help="architectures at a time (times suffer from more than one)")
    options = parser.parse_args(arguments)
    from benchmarks.zoo import ZOO
    from benchmarks.zoo.table import line

    names = options.only or _by_turns(ZOO)
    if unknown := [name for name in names if name not in ZOO]:
        parser.error(f"{', '.join(unknown)} is not in the zoo; there are {', '.join(ZOO)}")
    if options.stored:
        _report(read_results(options.stored), options.page)
        return
    run = record(options, seeds=())  # of each architecture, as its name says
    quick = options.tier is Tier.QUICK
    path = options.json or (None if options.only or quick else _RESULTS)
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "SCHEDULE_EXPLORER_CACHE": "off"}
    results = []
    with ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(_run_apart, name, quick=quick, timeout=options.timeout) for name in names]
        for done in as_completed(running):
            result = done.result()
            results.append(result)
            print(line(result), flush=True)
            if path is not None:  # so far: a run that is interrupted is not lost
                write_results(path, results, run)
    _report(results, options.page)


def _report(results: list[dict[str, Any]], page_path: Path | None) -> None:
    from benchmarks.zoo.table import page, summary

    print(summary(results))
    if page_path is not None:
        page_path.write_text(page(page_path.read_text(encoding="utf-8"), results), encoding="utf-8")


def _by_turns(zoo: Mapping[str, Specimen]) -> list[str]:
    """One of each family in turn, so that a run that is interrupted has seen them all."""
    families: dict[str, list[str]] = {}
    for specimen in zoo.values():
        families.setdefault(specimen.family, []).append(specimen.name)
    return [name for names in zip_longest(*families.values()) for name in names if name is not None]


def _run_apart(name: str, *, quick: bool, timeout: float) -> dict[str, Any]:
    """In a process of its own, whose modules are loaded already."""
    from benchmarks.zoo.warm import run_here

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.zoo.warm"])
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=run_here, args=(name, its), kwargs={"quick": quick}, daemon=True)
    began = time.perf_counter()
    process.start()
    its.close()
    try:
        if mine.poll(timeout):
            return mine.recv()
        failed = f"no end within {timeout:.0f} s"
    except EOFError:
        process.join()
        failed = f"the process ended with {process.exitcode}"
    finally:
        process.kill()
    return {"name": name, "refusal": failed, "trials": [], "seconds": time.perf_counter() - began}


if __name__ == "__main__":
    main()
