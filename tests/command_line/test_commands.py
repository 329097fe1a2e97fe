"""The command line: what it prints, writes and returns."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import explorer
from explorer.command_line import commands, tables
from explorer.command_line.lab import open_lab
from explorer.exporting.files import is_exported
from explorer.solvers.options import Options
from explorer.solvers.search.annealing import anneal
from explorer.solvers.search.plan_search import PlanSearch

FACTORY = """
import torch
from torch import nn
from torch.nn import functional as F


def make():
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers), (torch.randn(256, 64), torch.randn(256, 64)), F.mse_loss


def wrong():
    return 3
"""

FAILING = """

def fails():
    return {}['no such thing']


def unfit():
    return nn.Sequential(nn.Linear(2, 2)), torch.ones(3, 3)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a user's module in it."""
    (tmp_path / "mymodels.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("mymodels", None)
    return tmp_path


def call(*arguments: str, code: int = 0) -> str:
    """Run a command; its output and error together."""
    result = CliRunner().invoke(commands.app, arguments)
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result.output


@pytest.mark.usefixtures("here")
def test_profile_solve_simulate_run() -> None:
    said = call("profile", "mymodels:make", "--output", "mlp.json")
    assert "Sequential" in said
    peak = explorer.simulate(p := explorer.load_profile("mlp.json"), explorer.keep_all(p.graph)).peak_bytes
    said = call("solve", "mlp.json", "--budget", f"{int(0.9 * peak)} B", "-o", "s.json", "--time-limit", "5")
    assert "no recomputation" in said
    schedule = explorer.load_schedule("s.json")
    assert explorer.simulate(p, schedule).peak_bytes <= 0.9 * peak
    said = call("simulate", "mlp.json", "s.json")
    assert "saved activations" in said
    assert "Peak at run" in said
    said = call("run", "mymodels:make", "s.json", "--profile", "mlp.json")
    assert re.search(r"predicted.*measured.*difference", said, re.DOTALL)
    assert "predicted" not in call("run", "mymodels:make", "s.json", "--steps", "1")
    assert "scheduled(model)" in call("export", "mymodels:make", "s.json", "--output", "step.py")
    assert "def scheduled(model" in Path("step.py").read_text(encoding="utf-8")
    assert is_exported(Path("step.py"), form="python")
    assert "no folder" in call("export", "mymodels:make", "s.json", "--output", "no/step.py", code=2)


@pytest.mark.usefixtures("here")
def test_a_compiled_step_is_profiled_solved_and_written() -> None:
    said = call("profile-compiled", "mymodels:make")
    assert "Wrote make-compiled.json" in said
    plain = explorer.simulate(p := explorer.load_profile("make-compiled.json"), explorer.keep_all(p.graph))
    budget = f"{int(0.9 * plain.peak_bytes)} B"
    call("solve", "make-compiled.json", "-b", budget, "-o", "s.json", "--time-limit", "1", "--method", "monet-compiled")
    call("export", "mymodels:make", "s.json", "-o", "step.py", "--form", "compile", "-p", "make-compiled.json")
    assert "torch.compile" in Path("step.py").read_text(encoding="utf-8")
    assert is_exported(Path("step.py"), form="compile")
    assert "runs by explorer.compiled" in call("run", "mymodels:make", "s.json", code=2)


@pytest.mark.usefixtures("here")
def test_a_schedule_knows_its_optimizer() -> None:
    call("profile", "mymodels:make", "--optimizer", "adamw-foreach", "-o", "p.json")
    call("solve", "p.json", "--budget", "100 %", "-o", "s.json", "--time-limit", "1")
    peak_bytes = explorer.simulate(explorer.load_profile("p.json"), explorer.load_schedule("s.json")).peak_bytes
    assert explorer.format_bytes(peak_bytes) in call("run", "mymodels:make", "s.json", "--steps", "1")
    label = r"AdamW\(foreach=True\)"
    text = Path("s.json").read_text(encoding="utf-8")
    assert re.search(label, text)


@pytest.mark.usefixtures("here")
def test_order_addresses_and_what_a_device_needs() -> None:
    """As in Python: an order, the moment of updates, reserved memory, one buffer."""
    call("profile", "mymodels:make", "--optimizer", "sgd", "-o", "p.json")
    loaded = explorer.load_profile("p.json")
    asked = ("-b", "100 %", "-o", "s.json", "--time-limit", "2")
    call("solve", "p.json", *asked, "--order", "--update", "within")
    assert explorer.load_schedule("s.json").identity.iteration.within
    call("solve", "p.json", *asked, "-b", "4 MiB", "--of", "reserved", "--allocator", "expandable")
    said = call("simulate", "p.json", "s.json", "--allocator", "expandable")
    reservation = explorer.simulate(loaded, explorer.load_schedule("s.json"), allocator="expandable").reservation
    assert reservation is not None
    assert explorer.format_bytes(reservation.peak_bytes) in said
    assert "no smaller buffer" in call("place", "p.json", "s.json", "-o", "placed.json")
    placed = explorer.load_schedule("placed.json").placement
    assert placed is not None
    assert placed.buffer_bytes == placed.load_bytes
    assert "no placement is that small" in call("place", "p.json", "s.json", "--buffer", "1 KiB", code=2)
    assert "of is 'everything'" in call("solve", "p.json", *asked, "--of", "everything", code=2)
    rows = dict(
        [y.strip() for y in x.split("│")[1:3]]
        for x in call("run", "mymodels:make", "s.json", "-p", "p.json", "--buffer", "--steps", "1").splitlines()
        if x.startswith("│")
    )
    assert rows["allocations beside it"] == "0"
    assert rows["its buffer"] == rows["buffer"] != "0 B"
    assert rows["fragmentation of it"].endswith(" %")
    assert rows["unexplained"] == "0 B"
    assert "gradients and results beside it" in rows
    assert "buffer" not in call("run", "mymodels:make", "s.json", "-p", "p.json", "--steps", "1")


@pytest.mark.usefixtures("here")
def test_pins_are_honoured_and_wrong_ones_refused() -> None:
    call("profile", "mymodels:make", "-o", "mlp.json")
    loaded = explorer.load_profile("mlp.json")
    name = next(x.name for x in loaded.graph.storages if loaded.graph.producer.get(x.id) == 1)
    call("solve", "mlp.json", "-b", "1 GiB", "-o", "s.json", "--time-limit", "1", "--pin", f"{name}=recompute")
    assert 1 in explorer.load_schedule("s.json").recomputed(loaded.graph)
    assert "no tensor 'nothing'" in call("solve", "mlp.json", "-b", "1 GiB", "--pin", "nothing=keep", code=2)
    assert "must be TENSOR=keep" in call("solve", "mlp.json", "-b", "1 GiB", "--pin", name, code=2)


@pytest.mark.usefixtures("here")
def test_a_bundled_model_in_the_size_wanted() -> None:
    call("profile", "unet", "--batch-size", "1", "--image-size", "32x48", "-o", "small.json")
    assert explorer.load_profile("small.json").graph.batch[0].shape == (1, 3, 32, 48)


def test_an_infeasible_budget_is_exit_code_1(here: Path) -> None:
    call("profile", "mymodels:make", "-o", "mlp.json")
    said = call("solve", "mlp.json", "--budget", "1 KiB", code=1)
    assert "smallest feasible budget" in said
    assert not (here / "schedule.json").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("profile", "no-such-model"), "no bundled model 'no-such-model'"),
        (("profile", "mymodels:missing"), "cannot find 'mymodels:missing'"),
        (("profile", "nowhere:make"), "cannot find 'nowhere:make'"),
        (("profile", "mymodels:wrong"), "returned int"),
        (("profile", "mymodels:make", "--batch-size", "2"), "batch_size is for bundled models; mymodels:make makes"),
        (("profile", "gpt2", "--image-size", "32"), "does not take all of image_size"),
        (("profile", "resnet50", "--image-size", "3y2"), "size '3y2'"),
        (("profile", "mymodels:make", "--encoding", "fp4"), "encoding is 'fp4'"),
        (("profile", "mymodels:make", "--device", "toaster"), "device 'toaster' cannot be used"),
        (("solve", "missing.json", "--budget", "1 GiB"), "cannot read missing.json"),
        (("solve", "mymodels.py", "--budget", "1 GiB"), "not complete JSON"),
        (("simulate", "missing.json", "missing.json"), "cannot read missing.json"),
        (("run", "mymodels:make", "missing.json"), "cannot read missing.json"),
        (("explore", "no-such-profile"), "no bundled profile 'no-such-profile'"),
    ],
)
@pytest.mark.usefixtures("here")
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, ...], told: str) -> None:
    said = call(*arguments, code=2)
    assert told in said
    assert said.strip().count("\n") == 0


@pytest.mark.usefixtures("here")
def test_bad_budgets_are_named() -> None:
    call("profile", "mymodels:make", "-o", "mlp.json")
    assert "unknown unit 'XB'" in call("solve", "mlp.json", "--budget", "8 XB", code=2)
    assert "must be positive" in call("solve", "mlp.json", "--budget=-8 GiB", code=2)
    assert "formulation" in call("solve", "mlp.json", "-b", "8 GiB", "--formulation", "magic", code=2)


@pytest.mark.usefixtures("here")
def test_a_schedule_for_another_model_says_what_differs() -> None:
    call("profile", "mymodels:make", "-o", "mlp.json")
    call("solve", "mlp.json", "-b", "1 GiB", "-o", "s.json", "--time-limit", "1")
    assert "does not belong" in call("simulate", "resnet50-small-cpu", "s.json", code=2)


@pytest.mark.parametrize("command", ["profile", "solve", "simulate", "run", "explore"])
def test_help(command: str) -> None:
    assert command in call(command, "--help")


def test_as_a_process_without_torch_or_a_display(here: Path) -> None:
    """Solving and simulating need no torch: the whole command runs where importing it fails."""
    call("profile", "mymodels:make", "-o", "mlp.json")
    (here / "torch").mkdir()
    (here / "torch" / "__init__.py").write_text("raise ImportError('no torch on this machine')")
    path = os.pathsep.join([str(here), str(Path(explorer.__file__).parents[1])])
    for arguments in (["solve", "mlp.json", "-b", "1 GiB", "-o", "s.json"], ["simulate", "mlp.json", "s.json"]):
        done = subprocess.run(
            [sys.executable, "-c", "from explorer.command_line.commands import main; main()", *arguments],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "saved activations" in done.stdout


def test_explore_opens_a_notebook_of_what_was_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(os, "execv", lambda _, command: opened.append(next(x for x in command if "/lab/tree" in x)))
    (here / "b").mkdir()
    for name in ("resnet50", "resnet50.json", "b/resnet50.json", "resnet50", "b/resnet50.json"):
        open_lab(name, browser=False, port=8888)
    files = [x.rpartition("/")[2] for x in opened]
    assert files == [f"explore-resnet50{x}.ipynb" for x in ("", "-2", "-3", "", "-3")]
    assert "explorer.explore('b/resnet50.json')" in Path(files[2]).read_text(encoding="utf-8")


def test_explore_prints_a_url_where_there_is_no_browser(here: Path) -> None:
    private = {
        name: str(here / name)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    }
    call("profile", "mymodels:make", "-o", "mlp.json")
    started = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from explorer.command_line.commands import main; main()",
            "explore",
            "mlp.json",
            "--no-browser",
        ],
        env={**os.environ, **private, "PYTHONPATH": str(Path(explorer.__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert started.stdout is not None
    try:
        url = next((line for line in started.stdout if "/lab/tree/explore-mlp.ipynb" in line), None)
    finally:
        # Jupyter forgets a signal that comes before its loop runs, a moment after it printed the URL.
        while started.poll() is None:
            started.terminate()
            time.sleep(0.2)
        started.stdout.close()
    assert url is not None
    cells = json.loads((here / "explore-mlp.ipynb").read_text())["cells"]
    assert "explorer.explore('mlp.json')" in cells[0]["source"]


@pytest.mark.usefixtures("here")
def test_an_estimate_for_a_device_that_is_not_here() -> None:
    said = call("estimate", "resnet50", "--device", "t4", "--batch-size", "2", "--image-size", "64", "-o", "t4.json")
    assert "on T4 (estimated)" in said
    assert explorer.load_profile("t4.json").device.estimated
    assert "no device 'toaster'" in call("estimate", "resnet50", "--device", "toaster", code=2)


@pytest.mark.usefixtures("here")
def test_autocast() -> None:
    """Known to every later command by the files."""
    said = call("profile", "mymodels:make", "--autocast", "bfloat16", "--output", "mlp.json")
    assert "under autocast to bfloat16: " in said
    loaded = explorer.load_profile("mlp.json")
    explorer.keep_all(loaded.graph).save("s.json")
    assert "difference" in call("run", "mymodels:make", "s.json", "--profile", "mlp.json", "--steps", "1")
    said = call("estimate", "mymodels:make", "--device", "t4", "--autocast", "float16", "-o", "t4.json")
    assert "on T4 (estimated) under autocast to float16: " in said
    for command in ("profile", "estimate"):
        more = ("--device", "t4") if command == "estimate" else ()
        assert "autocast is 'fp8'; allowed:" in call(command, "mymodels:make", *more, "--autocast", "fp8", code=2)


def test_a_step_of_microseconds_is_not_said_to_take_no_time() -> None:
    profile = explorer.load_profile("resnet50-small-cpu")
    costs = {key: replace(x, time_ms=1e-4 * x.time_ms) for key, x in profile.costs.items()}
    took = re.search(r"without recomputation ([\d.]+) ms a step", tables.summary(replace(profile, costs=costs)))
    assert took is not None
    assert float(took[1]) > 0


def test_bundled_profiles_are_listed() -> None:
    said = call("profiles")
    assert "resnet50-p100-16gb" in said
    assert "resnet50-small-cpu" in said
    assert "A100-80GB (estimated)" in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("solve",), "Missing argument"),
        (("solve", "resnet50-small-cpu"), "Missing option"),
        (("solve", "resnet50-small-cpu", "--budget"), "requires an argument"),
        (("solve", "resnet50-small-cpu", "--wrong"), "No such option"),
        (("solve", "resnet50-small-cpu", "-b", "1 GiB", "--time-limit", "soon"), "'--time-limit'"),
        (("solve", "resnet50-small-cpu", "-b", "1 GiB", "--time-limit", "-5"), "'--time-limit'"),
        (("solve", "resnet50-small-cpu", "-b", "1 GiB", "--time-limit", "nan"), "'--time-limit'"),
        (("solve", "resnet50-small-cpu", "-b", "1 GiB", "--time-limit", "inf"), "time_limit is inf"),
        (("solve", "resnet50-small-cpu", "-b", "1 GiB", "--method", "magic"), "method is 'magic'"),
        (("solve", "resnet50-small-cpu", "-b", "1 GiB", "-o", "nowhere/s.json"), "there is no folder nowhere"),
        (("solve", "resnet50-small-cpu", "-b", "1 GiB", "-o", "."), "it is a folder"),
        (("solve", "resnet50-small-cpu", "-b", "1000000"), "not a number with a unit"),
        (("solve", "resnet50-small-cpu", "-b", "1e400 B"), "too large"),
        (("solve", "", "-b", "1 GiB"), "path is ''"),
        (("simulate", "resnet50-small-cpu", "resnet50-small-cpu"), "no file; a bundled schedule has a name such as"),
        (("simulate", "resnet50-small-cpu", "me@here/s.json"), "cannot read"),
        (("run", "mymodels:make", "missing.json", "--steps", "0"), "'--steps'"),
        (("profile", ":"), "must be a bundled name, or package.module:function"),
        (("profile", "mymodels:fails"), "mymodels:fails failed: KeyError: 'no such thing' at mymodels.py:"),
        (("profile", "broken:make"), "cannot import 'broken': SyntaxError"),
        (("profile", "mymodels:unfit"), "Sequential cannot be trained on this batch"),
        (("estimate", "resnet50", "--device", ""), "no device ''"),
        (("cache", "all"), "unexpected extra argument"),
        (
            ("zoo", "gpt2", "--fits", "1 MiB"),
            "no such schedule fits 1 MiB: the smallest, gpt2-h200@smallest, takes",
        ),
        (
            ("profile", "folder:make"),
            "there is a folder 'folder', but no module of that name",
        ),
        (("zoo", "resnet50", "--fits", "bar"), "error: --fits 'bar' is not a number with a unit, such as '8 GiB'\n"),
    ],
)
def test_wrong_use_is_one_line_too(here: Path, arguments: tuple[str, ...], told: str) -> None:
    (here / "mymodels.py").write_text(FACTORY + FAILING)
    (here / "broken.py").write_text("def make(:\n")
    (here / "folder").mkdir()
    said = call(*arguments, code=2)
    assert told in said
    lines = [line for line in said.strip().splitlines() if not line.startswith("capture")]  # the progress so far
    assert len(lines) == 1


def test_a_budget_in_per_cent_of_what_keeping_everything_takes(here: Path) -> None:
    call("solve", "resnet50-small-cpu", "--budget", "90 %", "--time-limit", "2", "-o", "s.json")
    profile = explorer.load_profile("resnet50-small-cpu")
    plain = explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    assert explorer.load_schedule(here / "s.json").budget_bytes == int(0.9 * plain)


def test_what_is_compiled_beforehand_serves_every_profile() -> None:
    """Machine code is for the types of what it is given: with others for another model it would be made anew."""
    assert str(Path(anneal.stats.cache_path)) in call("compile")
    profile = explorer.load_profile("gpt2")
    known = len(anneal.signatures)
    assert PlanSearch(Options().problem(profile)).ready(timeout=300)
    assert len(anneal.signatures) == known
