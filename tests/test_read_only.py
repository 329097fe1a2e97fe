"""An installation that cannot be written, by a user without rights or a home: solving works all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import explorer

SOLVE = """
import explorer
from explorer.solvers.search.annealing import anneal

profile = explorer.load_profile("resnet50-small-cpu")
solution = explorer.solve(profile, budget="80 %", time_limit=1.0)
print(anneal.stats.cache_path, solution.schedule is not None)
"""


@pytest.mark.thorough
@pytest.mark.skipif(
    shutil.which("setpriv") is None or not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can become a user without rights",
)
def test_a_read_only_installation_and_home_solve():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        solve_in(Path(folder))


def solve_in(folder: Path) -> None:
    home, package = folder / "home", folder / "site" / "explorer"
    home.mkdir()
    shutil.copytree(Path(explorer.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder, home, folder / "site", *(folder / "site").rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    surroundings = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(package.parent)}
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", SOLVE]
    ended = subprocess.run(command, env=surroundings, cwd="/", capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["None", "True"]
    assert "Traceback" not in ended.stderr
