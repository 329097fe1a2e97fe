"""``python -m benchmarks.gpu [FOLDER]``, or ``make gpu``: all there is to do on the first GPU, by one command.

Runs the checks of ``tests.gpu``, then the agenda (``benchmarks.gpu.agenda``) piece by piece, and writes FOLDER.tar.gz
with everything and FOLDER/page.md, which says in words what agreed, what did not, and why. Stopped and started again,
it goes on where it was. Needs torch and NumPy; what other packages would add is said at the start.

``--simulated`` tries all of it out without a GPU, with small batches on a device that is not there
(``tests/fake_cuda``), into a folder of its own; the page says so, and shows no times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu.asking import ITEMS, add_options, as_arguments
from benchmarks.gpu.page import write_page

ROOT = Path(__file__).parents[2]
OPTIONAL = {
    "pyscipopt": "schedules are not solved here, so none is run: pip install 'schedule-explorer[solve]'",
    "numba": "schedules are searched for slowly: pip install 'schedule-explorer[solve]'",
    "cudnn": "cuDNN's plans are not looked at: pip install 'schedule-explorer[cuda]'",
}
"""By the name that is imported: what is missing without it."""


def main() -> int:
    """Do what is left to do, then write page and archive, also of what there is when it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="gpu-results unless said, or gpu-results-simulated")
    parser.add_argument("--minutes", type=float, default=60.0, help="no piece begins after these")
    parser.add_argument("--simulated", action="store_true", help="without a GPU, to see what it does")
    add_options(parser)
    asked = parser.parse_args()
    asked.folder = asked.folder or Path("gpu-results-simulated" if asked.simulated else "gpu-results")
    if (refused := why_not(simulated=asked.simulated)) is not None:
        print(refused)
        return 1
    for package, missing in OPTIONAL.items():
        if find_spec(package) is None:
            print(f"Without {package} {missing}")
    asked.folder.mkdir(parents=True, exist_ok=True)
    try:
        failed = subprocess.call(_command(asked), cwd=ROOT)
    except KeyboardInterrupt:
        failed = 1
    page = write_page(asked.folder)
    print(
        f"{page} says what was found; {packed(asked.folder)} has all of it. The same command goes on where this ended."
    )
    return failed


def why_not(*, simulated: bool) -> str | None:
    """In one sentence, why nothing can be done here; None if it can."""
    missing = [x for x in ("torch", "numpy") if find_spec(x) is None]
    if missing:
        return f"This needs {' and '.join(missing)}, which is not installed here."
    if simulated:
        from tests.fake_cuda.device import why_not as why_no_simulation

        reason = why_no_simulation()
        return None if reason is None else f"The simulated device is not for here: {reason}."
    import torch

    if torch.cuda.is_available():
        return None
    return (
        f"There is no GPU here that PyTorch {torch.__version__} sees, so nothing was checked or measured "
        "(--simulated, or make gpu SIMULATED=1, tries it out without one)."
    )


def _command(asked: argparse.Namespace) -> list[str]:
    if asked.items is None and find_spec("pyscipopt") is None:
        asked.items = [x for x in ITEMS if x != "schedules"]
    asked.small = asked.small or asked.simulated
    agenda = ["benchmarks.gpu.agenda", str(asked.folder.resolve()), "--minutes", str(asked.minutes)]
    agenda += as_arguments(asked)
    if asked.simulated:
        return [sys.executable, "-W", "ignore", "-m", "tests.fake_cuda", *agenda]
    return [sys.executable, "-m", *agenda]


def packed(folder: Path) -> Path:
    """Everything in the folder as one file beside it."""
    archive = folder.with_name(f"{folder.name}.tar.gz")
    partial = archive.with_name(f"{archive.name}.partial")
    with tarfile.open(partial, "w:gz") as into:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix not in (".lock", ".partial"):
                into.add(path, Path(folder.name, path.relative_to(folder)), filter=_anonymous)
    partial.replace(archive)
    return archive


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.exit(main())
