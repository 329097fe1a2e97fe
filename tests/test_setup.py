"""The set-up files agree with each other, and imports stay as light as promised."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "ipywidgets", "anywidget", "plotly", "cvxpy", "pyscipopt", "jupyterlab")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def normal(requirement: str) -> str:
    return re.split(r"[\[<>=! ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_environment_installs_the_project_with_its_test_extras_and_nothing_else():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["name"] == project()["name"]
    python, pip, installed = environment["dependencies"]
    assert python == f"python{project()['requires-python']}"
    assert pip == "pip"
    assert installed == {"pip": ["--constraint constraints.txt", "--editable .[test]"]}


def test_every_requirement_has_a_pinned_version():
    pinned = {normal(name) for name in constraints()}
    extras = project()["optional-dependencies"]
    wanted = {normal(x) for x in (*project()["dependencies"], *(y for x in extras.values() for y in x))}
    of_a_gpu = set(map(normal, extras["cuda"]))
    assert wanted - {project()["name"]} - of_a_gpu <= pinned


def test_the_tests_have_all_that_the_explorer_is():
    """Of one command: ``environment.yml`` and ``.ci/run`` install the extra of the tests alone."""
    extras = project()["optional-dependencies"]

    def within(extra: str) -> set[str]:
        named = {x for x in extras[extra] if normal(x) == project()["name"]}
        inner = {y.strip() for x in named for y in re.findall(r"\[(.*)\]", x)[0].split(",")}
        return {extra}.union(*map(within, inner))

    assert within("test") == set(extras) - {"cuda", "docs"}
    makefile = (ROOT / "Makefile").read_text()
    assert "--editable '.[explorer]'" in makefile
    assert "pip install '.[explorer]'" in (ROOT / "README.md").read_text()


def test_pinned_versions_fit_every_machine():
    for name, version in constraints().items():
        assert "+" not in version, f"{name} {version} is one machine's own build"


def test_commands_are_executable():
    for script in (".ci/run", ".ci/browser"):
        assert (ROOT / script).stat().st_mode & 0o111, script


def test_bundled_notebooks_exist():
    makefile = (ROOT / "Makefile").read_text()
    readme = (ROOT / "README.md").read_text()
    named = set(re.findall(r"notebooks/[\w-]+\.ipynb", makefile + readme))
    assert "notebooks/explore.ipynb" in named
    for notebook in named:
        assert (ROOT / notebook).is_file(), notebook


def test_files_that_the_readme_links_to_exist():
    readme = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", readme):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import explorer", HEAVY),
        ("from explorer import Profile, load_profile, load_schedule, simulate", HEAVY),
        ("import explorer; explorer.load_profile('resnet50')", HEAVY),
        ("from explorer import solve, SolveSession", ("torch", "ipywidgets", "plotly")),
        ("from explorer import explore", ("torch", "numba", "scipy", "cvxpy", "pyscipopt")),  # until a picture is there
        ("from explorer import profile, apply, measure", ("cvxpy", "pyscipopt", "ipywidgets", "plotly")),
    ],
)
def test_imports_stay_light(statement, absent):
    code = f"{statement}\nimport sys\nprint(*sorted(set({absent!r}) & sys.modules.keys()))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == []


def test_example_of_the_readme_runs():
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example is not None
    code = example[1]
    # Not for the quality of the schedule, and in a minute: of smaller images there is less to keep beside the weights.
    smaller = {"time_limit=10": "time_limit=1", "image_size=112": "image_size=64", "260 MiB": "228 MiB"}
    for written, run in smaller.items():
        assert written in code
        code = code.replace(written, run)
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    status, *_ = answer.stdout.split()
    assert status in {"optimal", "feasible"}
