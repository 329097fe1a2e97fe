"""``python -m tests.gpu``: every check that needs a GPU, with PyTorch, NumPy and this checkout alone.

``--device cpu`` runs what a CPU can, with small batches. Ends with status 1 where a check failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from dataclasses import dataclass
from importlib.util import find_spec

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Blocks of the default allocator, which splits large ones only above 1 MiB, are counted whole.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ended: ``"passed"``, ``"skipped"`` or ``"failed"``, and why."""

    name: str
    status: str
    said: str
    took_s: float

    def __str__(self) -> str:
        """As one line."""
        return f"{self.status:8}{self.took_s:7.1f} s  {self.name}" + (f": {self.said}" if self.said else "")


def main() -> int:
    """Run the checks that were asked for, and say how each ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default="", help="checks whose name contains this")
    parser.add_argument("--list", action="store_true", help="name the checks and do nothing")
    options = parser.parse_args()
    for package in ("torch", "numpy"):
        if find_spec(package) is None:
            parser.error(f"needs {package}, which is not installed here")
    import torch

    from tests.gpu.checks import CHECKS

    chosen = [x for x in CHECKS if options.only in x.name]
    if not chosen:
        parser.error(f"no check's name contains {options.only!r}; there are: {'; '.join(x.name for x in CHECKS)}")
    if options.list:
        print("\n".join(x.name for x in chosen))
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(f"PyTorch {torch.__version__} sees no CUDA device here; --device cpu runs what needs none")
    outcomes = run_checks(chosen, options.device)
    counts = {x: sum(y.status == x for y in outcomes) for x in ("passed", "skipped", "failed")}
    print(", ".join(f"{count} {status}" for status, count in counts.items()))
    return int(counts["failed"] > 0)


def run_checks(chosen: list, device: str) -> list[Outcome]:
    """Every check, each for itself; prints how it ended."""
    from tests.gpu.checks import Skipped

    outcomes = []
    for check in chosen:
        began = time.monotonic()
        status, said = "passed", ""
        try:
            check.run(device)
        except Skipped as reason:
            status, said = "skipped", str(reason)
        except Exception as error:  # noqa: BLE001 - the others run all the same
            status, said = "failed", f"{type(error).__name__}: {error}"
            if not isinstance(error, AssertionError):
                traceback.print_exc()
        outcomes.append(Outcome(check.name, status, said, time.monotonic() - began))
        print(outcomes[-1], flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
