"""A newcomer's first minute: from Python's start to the widget's first plot and first schedule, in a fresh process.

    python -m benchmarks.widgets.first_minute [PROFILE]

With nothing compiled or remembered, after ``schedule-explorer compile``, and with the zoo's schedules besides; caches
in folders of its own. No page: a browser draws within a second of what is timed here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.provenance import record

_ROOT = Path(__file__).parents[2]
_POLL_S = 0.01
_MOST_S = 300.0


def main() -> None:
    """Print a line for each state of the caches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", nargs="?", default="resnet50-small-cpu", help="a bundled name, or a path")
    parser.add_argument("--inside", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        watch(arguments.profile, began=arguments.inside)
        return
    record(arguments, seeds=())
    with tempfile.TemporaryDirectory() as folder:
        here = {
            "NUMBA_CACHE_DIR": folder,
            "SCHEDULE_EXPLORER_CACHE": "off",
            "PYTHONPATH": str(_ROOT),
        }
        state = {**os.environ, **here}
        explored = [sys.executable, "-m", "benchmarks.widgets.first_minute", arguments.profile, "--inside"]
        print("nothing compiled:", end=" ", flush=True)
        subprocess.run([*explored, str(time.time())], env=state, check=True)
    with tempfile.TemporaryDirectory() as folder:
        state["NUMBA_CACHE_DIR"] = folder
        command = [sys.executable, "-c", "from explorer.command_line.commands import main; main()", "compile"]
        began = time.monotonic()
        subprocess.run(command, env=state, check=True, stdout=subprocess.DEVNULL)
        print(f"schedule-explorer compile: {time.monotonic() - began:.1f} s")
        print("compiled:", end=" ", flush=True)
        subprocess.run([*explored, str(time.time())], env=state, check=True)
        state["SCHEDULE_EXPLORER_CACHE"] = folder  # an empty one: nothing is known but what comes with the package
        print("compiled, with the schedules that come with the package:", end=" ", flush=True)
        subprocess.run([*explored, str(time.time())], env=state, check=True)


def watch(profile: str, *, began: float) -> None:
    """Open an explorer and say when what was there."""
    import explorer

    with explorer.explore(profile) as opened:
        seen: dict[str, float] = {"the call returns": time.time() - began}
        while "first schedule" not in seen and time.time() - began < _MOST_S:
            scene = opened._display.scene  # noqa: SLF001 - what is drawn has no other name
            if scene is not None:
                seen.setdefault("first plot", time.time() - began)
                if scene.known.instant:
                    seen.setdefault("ends of the curve", time.time() - began)
            if opened.schedule is not None:
                seen["first schedule"] = time.time() - began
            time.sleep(_POLL_S)
        print(", ".join(f"{what} {seconds:.1f} s" for what, seconds in seen.items()))


if __name__ == "__main__":
    main()
