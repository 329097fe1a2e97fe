"""What is built holds everything, and a machine with torch alone trains, and says what else would need what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib

import pytest

from explorer.extras import EXTRA_OF, MissingExtraError, check_installed, needing
from tests.package.building import PACKAGES, ROOT, build, names_in, sources

IMPORTED_AS = {"pyyaml": "yaml"}
OF_JUPYTERLAB = {"IPython", "jupyter_server", "tornado"}


def extras() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_wheel_and_archive_hold_every_file(tmp_path):
    wheel, archive = build(tmp_path, "--no-isolation")
    assert sources() <= names_in(wheel)
    assert sources() | {"pyproject.toml", "README.md", "LICENSE"} <= names_in(archive)
    tops = {x.partition("/")[0] for x in names_in(wheel)}
    assert tops == {*PACKAGES, next(x for x in tops if x.endswith(".dist-info"))}


def test_torch_alone_trains_and_the_rest_is_named():
    command = [sys.executable, "-W", "error", "-m", "tests.package.alone", "--hide"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    said = answer.stdout.splitlines()
    assert any(x.startswith("solve needs") and "[solve]" in x for x in said)
    assert any(x.startswith("explore needs") and "[explorer]" in x for x in said)
    assert any(x.startswith("schedule-explorer as a command needs") and "[command]" in x for x in said)
    assert any(x.startswith("the table of devices needs yaml") and "[solve]" in x for x in said)


def test_extras_are_those_of_the_project():
    told: dict[str, set[str]] = {}
    for package, extra in EXTRA_OF.items():
        told.setdefault(extra, set()).add(package)
    for extra, packages in told.items():
        names = {re.split(r"[\[<>=]", x, maxsplit=1)[0] for x in extras()[extra]} - {"schedule-explorer"}
        assert {IMPORTED_AS.get(x, x) for x in names} == packages


def test_whatever_is_imported_comes_with_torch_or_with_an_extra():
    found = set()
    for name in sources():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            names = [x.name for x in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            found |= {x.partition(".")[0] for x in names}
    others = found - sys.stdlib_module_names - {*PACKAGES, "torch", "numpy"}
    assert others - OF_JUPYTERLAB <= set(EXTRA_OF)


def test_only_packages_of_ours_are_explained():
    said = "^solving needs numba, which is not installed: pip install 'schedule-explorer\\[solve]'$"
    with pytest.raises(MissingExtraError, match=said), needing("solving"):
        raise ModuleNotFoundError("No module named 'numba.core'", name="numba.core")
    with pytest.raises(ModuleNotFoundError, match="of_the_user"), needing("solving"):
        import of_the_user  # noqa: F401 # pyright: ignore[reportMissingImports]
    check_installed("yaml", feature="this test")
