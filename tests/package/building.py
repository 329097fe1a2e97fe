"""The wheel and the source archive, built from a copy so that nothing is left among the sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = "explorer", "widgets"


def build(folder: Path, *options: str) -> tuple[Path, Path]:
    """A wheel, built from the source archive, and the archive.

    Args:
        folder: to put them into.
        options: of ``python -m build``.
    """
    copy = folder / "sources"
    for name in (*PACKAGES, *(x.name for x in ROOT.iterdir() if x.is_file())):
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        else:
            shutil.copy(source, target)
    command = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), *options, str(copy)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,), (archive,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, archive


def sources() -> set[str]:
    """Every file of the packages, by its path from the project's folder."""
    files = (x for name in PACKAGES for x in (ROOT / name).rglob("*") if x.is_file())
    kept = (x for x in files if not {"__pycache__", ".ipynb_checkpoints"}.intersection(x.parts))
    return {x.relative_to(ROOT).as_posix() for x in kept}


def names_in(path: Path) -> set[str]:
    """What a wheel or a source archive holds, without its own folder."""
    if path.suffix == ".whl":
        return set(zipfile.ZipFile(path).namelist())
    with tarfile.open(path) as archive:
        return {x.partition("/")[2] for x in archive.getnames()}
