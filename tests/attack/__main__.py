"""Many attacks: ``python -m tests.attack --attacks 20000``; each kind is counted by what came of it."""

from __future__ import annotations

import argparse
import logging
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.attack import files, kills, names

_NAMES = 10  # one attack in so many is by names, …
_KILLS = 100  # … and one in so many kills processes
_MOST_BYTES = 2**30


def main() -> int:
    """Attack, and print the counts; 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", type=int, default=20_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", nargs="+", default=["files", "names", "kills"])
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    counts: Counter[tuple[str, str]] = Counter()
    began = time.monotonic()
    for number, seed in enumerate(range(options.first, options.first + options.attacks), start=1):
        kind = kind_of(seed)
        if kind not in options.kinds:
            continue
        said = attack(kind, seed)
        if said.startswith(files.FOUND):
            print(f"{kind} {seed}: {said}", flush=True)
        counts[kind, said.split()[0]] += 1
        if number % 1000 == 0:
            print(f"{number} attacks, {number / (time.monotonic() - began):.0f} a second", flush=True)
    for (kind, said), count in sorted(counts.items()):
        print(f"{kind:>8} {said:>10} {count:8}")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"{most / 2**20:.0f} MiB at most; allowed: {_MOST_BYTES / 2**20:.0f}")
    return int(most > _MOST_BYTES or any(said == files.FOUND for _, said in counts))


def kind_of(seed: int) -> str:
    """What an attack is by."""
    if seed % _KILLS == 0:
        return "kills"
    return "names" if seed % _NAMES == 1 else "files"


def attack(kind: str, seed: int) -> str:
    """One attack in a new folder, which is the working folder meanwhile."""
    if kind == "names":
        try:
            return names.attack(seed)
        except AssertionError as error:
            return f"{files.FOUND} {error}"
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer, "here")
        folder.mkdir()
        os.chdir(folder)
        try:
            return files.attack(seed, folder) if kind == "files" else kills.attack(seed, folder)
        finally:
            os.chdir(here)


if __name__ == "__main__":
    sys.exit(main())
