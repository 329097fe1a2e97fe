"""Installs what is built into clean environments and uses it there: ``python -m tests.package``, or ``make package``.

Minutes, most of them for pip. The tests of this folder do the same within their own environment, with packages hidden.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.package.building import ROOT, build

PAGE = "import explorer; shown = explorer.explore('resnet50'); print(shown.status, 'in the widget'); shown.close()"


def main() -> None:
    """Build, install, use; ends with what failed, if anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="leave wheel, archive and environments in this folder")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as scratch:
        check(Path(scratch) if keep is None else keep)


def check(folder: Path) -> None:
    """All of it, in ``folder``."""
    wheel, archive = build(folder)
    for made in (wheel, archive):
        print(f"{made.name}: {made.stat().st_size / 2**20:.1f} MiB")

    alone = environment(folder / "alone", str(wheel))
    print("\nTorch alone. What it says of the rest:")
    run(folder, alone / "python", ROOT / "tests" / "package" / "alone.py")

    whole = environment(folder / "whole", f"{wheel}[explorer]", "--constraint", str(ROOT / "constraints.txt"))
    print("\nThe whole explorer:")
    run(folder, whole / "schedule-explorer", "compile")
    run(folder, whole / "schedule-explorer", "profiles")
    run(folder, whole / "schedule-explorer", "solve", "resnet50", "--budget", "50 %")
    run(folder, whole / "python", "-W", "error", "-c", example_of_the_readme())
    run(folder, whole / "python", "-c", PAGE)

    run(folder, whole / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", archive)
    print("\nFrom the source archive:")
    run(folder, whole / "schedule-explorer", "solve", "unet", "--budget", "50 %")


def environment(folder: Path, *installed: str) -> Path:
    """A new virtual environment with what pip makes of ``installed``; its folder of commands."""
    venv.create(folder, with_pip=True)
    commands = folder / "bin"
    run(folder, commands / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *installed)
    return commands


def run(folder: Path, *command: str | Path) -> None:
    """In ``folder``, where none of the sources are; what it prints is shown."""
    ended = subprocess.run(list(map(str, command)), cwd=folder, check=False)
    if ended.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))[:200]}")


def example_of_the_readme() -> str:
    """The first Python example that it has."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


if __name__ == "__main__":
    main()
