"""Sweeps: every cell is answered, whatever dies, and nothing is answered twice."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from distributed import KilledWorker, LocalCluster
from typer.testing import CliRunner

import explorer
from explorer.command_line.commands import app
from explorer.graph import TensorSpec
from explorer.solution import Status
from explorer.solvers.methods.batch_size import samples_of
from explorer.sweeping import folder as folder_of_a_sweep
from explorer.sweeping import sweeping
from explorer.sweeping.answers import fastest, largest
from explorer.sweeping.cells import CONTEXT_BYTES, Cell, cells_of
from explorer.sweeping.folder import Folder
from explorer.sweeping.reading import read_plan
from explorer.sweeping.table import Row, Sweep
from tests.sweeping.models import small

SMALL, DEADLY, EVEN = (f"tests.sweeping.models:{x}" for x in ("small", "deadly", "even"))
AXES: dict[str, Any] = {
    "devices": ["T4"],
    "batches": [2048, 4096],
    "budgets": ["device", "90 %"],
    "methods": ["eager", "monet"],
    "time_limit": 60.0,  # each ends as soon as it is proven
}


@pytest.fixture(scope="module")
def answered(tmp_path_factory) -> tuple[Path, Sweep, int]:
    """A sweep of eight cells with a worker killed in the middle: its folder, what came of it, how often it said so."""
    folder = tmp_path_factory.mktemp("sweep")
    said: list[tuple[int, int, str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEADLY", str(folder / "killed"))
        found = explorer.sweep([DEADLY], folder=folder / "found", workers=2, progress=lambda *x: said.append(x), **AXES)
    assert (folder / "killed").exists()
    assert [x[:2] for x in said] == [(n, 8) for n in range(1, 9)]
    return folder / "found", found, len(said)


def test_a_killed_worker_loses_nothing(answered):
    _, found, _ = answered
    assert len(found.rows) == 8
    assert {x.status for x in found.rows if x.method == "monet"} <= {Status.OPTIMAL, Status.FEASIBLE}
    for row in found.rows:
        if row.status is Status.INFEASIBLE:
            assert (row.method, row.budget) == ("eager", "90 %")
            continue
        assert row.peak_bytes is not None and row.budget_bytes is not None
        assert row.peak_bytes <= row.budget_bytes
        assert row.samples == row.batch_size
        assert row.samples_per_s == pytest.approx(1000 * row.samples / row.time_ms)
    assert repr(found).startswith("<Sweep: cells 8")


def test_schedules_are_those_of_the_rows(answered):
    folder, found, _ = answered
    row = next(x for x in found.rows if x.method == "monet" and x.budget == "90 %")
    model, batch, loss = small(row.batch_size)
    profile = explorer.estimate(model, batch, loss=loss, device=row.device)
    line = explorer.simulate(profile, explorer.load_schedule(folder / "schedules" / f"{row.key}.json.gz"))
    assert (line.peak_bytes, line.time_ms) == (row.peak_bytes, pytest.approx(row.time_ms))


def test_what_is_answered_is_not_asked_again(answered):
    folder, found, _ = answered

    def never(*_: object) -> None:
        raise AssertionError("nothing is left to do")

    assert explorer.sweep([DEADLY], folder=folder, progress=never, **AXES) == found


def test_what_is_damaged_or_gone_is_asked_again(answered, tmp_path):
    """A line that is no text, one that is nested without end, and a schedule that somebody removed."""
    folder = shutil.copytree(answered[0], tmp_path / "found")
    with_schedule = {x.key for x in answered[1].rows if x.peak_bytes is not None}
    assert len(with_schedule) < len(answered[1].rows)  # one without has nothing that could be gone
    known = Folder(folder).known()
    first, *others = (folder / "answers.jsonl").read_bytes().splitlines()
    (folder / "answers.jsonl").write_bytes(b"\n".join([b"\xff\xfe{" + first, b"[" * 100_000, *others, b""]))
    assert known.keys() - Folder(folder).known().keys() == {json.loads(first)["key"]}
    for file in (folder / "schedules").iterdir():
        file.unlink()
    assert not Folder(folder).known().keys() & with_schedule


def test_a_schedule_that_is_gone_or_damaged_is_made_again(tmp_path):
    axes = {**AXES, "batches": [2048], "budgets": ["100 %"], "methods": ["eager"], "folder": tmp_path}
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", processes=False) as cluster:
        axes["scheduler"] = cluster.scheduler_address
        (row,) = explorer.sweep([SMALL], **axes).rows
        schedule = tmp_path / "schedules" / f"{row.key}.json.gz"
        whole = schedule.read_bytes()
        schedule.unlink()
        assert explorer.sweep([SMALL], **axes).rows[0].key == row.key
        assert schedule.read_bytes() == whole
        for damaged in (b"zz", whole[:-20], b""):
            schedule.write_bytes(damaged)
            explorer.sweep([SMALL], **axes)
            assert schedule.read_bytes() == whole


def test_the_table_has_what_other_calls_found(answered, tmp_path, monkeypatch):
    """Of fewer axes, or of others; and not of code that is not there any more."""
    folder = shutil.copytree(answered[0], tmp_path / "found")
    rows = answered[1].rows
    few = {**AXES, "batches": [4096], "methods": ["eager"]}
    found = explorer.sweep([DEADLY], folder=folder, **few)
    assert found.rows == tuple(x for x in rows if (x.batch_size, x.method) == (4096, "eager"))
    table = explorer.load_sweep(folder / "table.parquet").rows
    assert table[: len(found.rows)] == found.rows
    assert {x.key for x in table} == {x.key for x in rows}
    assert len(table) == len(rows)
    row_of_batch = {x.key: x.batch_size for x in rows}
    monkeypatch.setattr(folder_of_a_sweep, "cells_of", lambda **axes: _changed(axes, batch_size=2048))
    explorer.sweep([DEADLY], folder=folder, **few)
    table = explorer.load_sweep(folder / "table.parquet").rows
    assert {row_of_batch[x.key] for x in table} == {4096}


def _changed(axes: dict[str, Any], *, batch_size: int) -> tuple[Cell, ...]:
    """As if the code that makes this batch was another one now."""
    cells = cells_of(**axes)
    return tuple(replace(x, step=replace(x.step, state="new")) if x.step.batch_size == batch_size else x for x in cells)


def test_what_is_told_in_rows_is_not_printed_as_well(tmp_path, capfd):
    axes = {**AXES, "batches": [7], "budgets": ["100 %"], "methods": ["eager"], "folder": tmp_path}
    (odd, unable) = explorer.sweep([EVEN, "tests.sweeping.models:fixed"], workers=1, **axes).rows
    assert odd.message.startswith("ValueError: tests.sweeping.models:even failed: RuntimeError: an odd batch")
    assert "models:fixed takes no batch_size, which it is asked for: let it take batch_size, or" in unable.message
    assert capfd.readouterr().err == ""


def test_a_stopped_sweep_goes_on(tmp_path):
    """On a cluster of somebody else's; with a line of the table cut off, a cell more, and one that fails."""
    said = []

    def stop(*progress: Any) -> None:
        said.append(progress[2])
        if progress[0] == 2:
            raise KeyboardInterrupt

    axes = {**{x: AXES[x] for x in ("devices", "budgets", "time_limit")}, "methods": ["monet"], "folder": tmp_path}
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", processes=False) as cluster:
        axes["scheduler"] = cluster.scheduler_address
        with pytest.raises(KeyboardInterrupt):
            explorer.sweep([EVEN], batches=[2048, 4096], progress=stop, **axes)
        answers = tmp_path / "answers.jsonl"
        assert len(answers.read_text().splitlines()) == 2
        answers.write_text(answers.read_text()[:-20])  # killed while it was writing
        found = explorer.sweep([EVEN], batches=[2048, 4096, 7], progress=lambda *x: said.append(x[2]), **axes)
        assert len(said) == 2 + 5
        assert [x.status is Status.FAILED for x in found.rows] == [False] * 4 + [True] * 2
        assert found.rows[4].message.startswith(
            "ValueError: tests.sweeping.models:even failed: RuntimeError: an odd batch at models.py"
        )
        again = explorer.sweep([EVEN], batches=[2048, 4096, 7], progress=lambda *x: said.append(x[2]), **axes)
        assert again == found
        assert len(said) == 2 + 5 + 2  # a failure may end otherwise the next time
    assert len(Folder(tmp_path).known()) == 4


def test_table_is_parquet(answered, tmp_path):
    folder, found, _ = answered
    assert explorer.load_sweep(folder / "table.parquet") == found
    columns = pq.read_table(folder / "table.parquet")
    assert str(columns.schema.field("peak_bytes").type) == "int64"
    assert columns["optimizer"].null_count == 8
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes((folder / "table.parquet").read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"cannot read .*damaged\.parquet"):
        explorer.load_sweep(damaged)
    pq.write_table(columns.drop_columns(["model"]), damaged)
    with pytest.raises(ValueError, match="is not the table of a sweep: model: it is missing"):
        explorer.load_sweep(damaged)


def row(**known: Any) -> Row:
    few = {"key": "", "batch_size": None, "precision": None, "optimizer": None, "budget": "1 GiB", "method": "monet"}
    return Row(**{**few, "time_limit": 1.0, "status": Status.FEASIBLE, "device_bytes": 100, **known})


def test_answers():
    """A schedule that takes more than the device has is none for the device, whatever its budget was."""
    slow = row(model="a", device="T4", samples=8, samples_per_s=10.0, peak_bytes=90)
    large = row(model="a", device="T4", samples=9, samples_per_s=9.0, peak_bytes=100)
    unfit = row(model="a", device="T4", samples=64, samples_per_s=99.0, peak_bytes=101)
    none = row(model="a", device="P4", samples=1, status=Status.INFEASIBLE)
    found = Sweep((none, slow, large, unfit))
    assert fastest(found) == {("a", "T4"): slow}
    assert largest(found) == {("a", "T4"): large}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"models": []}, "models is empty"),
        ({"models": ["resnet51"]}, "resnet51"),
        ({"devices": ["T5"]}, "no device 'T5' in the table"),
        ({"batches": [0]}, "a batch is 0; it must be a whole number, 1 or more"),
        ({"budgets": ["much"]}, "budget 'much' is not a number with a unit"),
        ({"budgets": [math.nan]}, "budget nan must be an int"),
        ({"methods": ["magic"]}, "method is 'magic'; allowed"),
        ({"methods": ["monet-compiled"]}, "methods has 'monet-compiled', which plans a step that was compiled"),
        ({"precision": "float8"}, "precision is 'float8'; allowed: float32"),
        ({"scheduler": "tcp://127.0.0.1:1", "workers": 1}, "it must be an address, and then workers are its own"),
    ],
)
def test_refused_before_any_work(tmp_path, changes, said):
    with pytest.raises(ValueError, match=said):
        explorer.sweep(**{"models": [SMALL], **AXES, "folder": tmp_path, **changes})
    assert not any(tmp_path.iterdir())


def test_a_budget_of_a_device_is_what_its_context_leaves(answered):
    _, found, _ = answered
    for x in found.rows:
        size = 16 * 2**30 - CONTEXT_BYTES
        assert x.device_bytes == size
        assert (x.budget_bytes == size) == (x.budget == "device")


def test_plans(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("models: gpt2\ndevices: [T4, H100]\nbudgets: [50 %]\ntime_limit: 3\n")
    assert read_plan(plan) == {"models": ["gpt2"], "devices": ["T4", "H100"], "budgets": ["50 %"], "time_limit": 3}
    for text, said in {
        "[": "cannot read",
        "5": "must have an entry for each axis",
        "models: [gpt2]": "says no devices",
        "models: a\ndevices: b\ndevics: c": "unknown entry 'devics'; allowed: models, devices",
        "models: a\ndevices: b\nmodels: c": "the entry 'models' twice; put all of them into one list",
    }.items():
        plan.write_text(text)
        with pytest.raises(ValueError, match=said):
            read_plan(plan)
    with pytest.raises(ValueError, match="cannot read"):
        read_plan(tmp_path / "none.yaml")


def test_command(answered, tmp_path, monkeypatch):
    """Of a sweep that is answered already."""
    folder, _, _ = answered
    plan = tmp_path / "plan.yaml"
    plan.write_text("\n".join(f"{k}: {v}" for k, v in {"models": DEADLY, **AXES}.items()).replace("'", '"'))
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["sweep", str(plan), "--output", str(folder)])
    assert said.exit_code == 0, said.output
    assert "8 cells in" in said.stdout
    assert "4096" in said.stdout
    plan.write_text("models: [gpt2]")
    assert CliRunner().invoke(app, ["sweep", str(plan)]).exit_code == 2


def test_a_function_that_pays_no_heed_to_the_batch_size_fails(tmp_path: Path) -> None:
    """What is said per sample would be wrong."""
    heedless = "tests.sweeping.models:heedless"
    axes: dict[str, Any] = {"devices": ["T4"], "batches": [2048, 3000], "budgets": ["90 %"], "methods": ["eager"]}
    found = explorer.sweep([heedless], folder=tmp_path, workers=1, **axes)
    assert [x.status is Status.FAILED for x in found.rows] == [False, True]
    said = f"{heedless} was called with batch_size=3000, and the batch that it made has nothing of that size"
    assert said in found.rows[1].message


def test_a_cell_that_workers_die_of_says_so() -> None:
    axes: dict[str, Any] = {"devices": ["T4"], "batches": [None], "budgets": ["90 %"], "methods": ["eager"]}
    (cell,) = cells_of(models=[SMALL], precision=None, optimizer=None, time_limit=1.0, **axes)
    said = sweeping._reason(KilledWorker("estimated-1", SimpleNamespace(address="tcp://1"), 3), cell)
    assert f"each worker that was given {SMALL} died of it" in said


def test_command_says_what_failed(tmp_path, monkeypatch):
    """As failed, not as too large."""
    ended = {"a": "failed failed", "b": "infeasible failed", "c": "infeasible feasible", "d": "unsuited failed"}
    rows = [
        row(model=model, device="T4", samples=8, status=Status(x), peak_bytes=101 if x == "feasible" else None)
        for model, statuses in ended.items()
        for x in statuses.split()
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(explorer, "sweep", lambda *_, **__: Sweep(tuple(rows)))
    Path("plan.yaml").write_text("models: [gpt2]\ndevices: [T4]\n")
    said = CliRunner().invoke(app, ["sweep", "plan.yaml"])
    assert said.exit_code == 1
    lines = [[y.strip() for y in x.split("│")[1:4]] for x in said.stdout.splitlines() if "T4" in x]
    assert lines == [
        ["a", "T4", "failed"],
        ["b", "T4", "nothing fits, 1 of 2 failed"],
        ["c", "T4", "nothing fits"],
        ["d", "T4", "1 of 2 unsuited, 1 of 2 failed"],
    ]
    assert "4 cells, the first: a on T4" in said.stderr
    assert "the others: column message of plan" in said.stderr


@pytest.mark.parametrize(("name", "folder"), [("plan.yaml", "plan"), ("plan", "plan-sweep"), ("of/plan", "plan")])
def test_folder_of_a_plan(tmp_path, monkeypatch, name, folder):
    """Its name, unless that is the plan itself."""
    monkeypatch.chdir(tmp_path)
    asked = {}
    monkeypatch.setattr(explorer, "sweep", lambda *_, **given: asked.update(given) or Sweep(()))
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("models: [gpt2]\ndevices: [T4]\n")
    assert CliRunner().invoke(app, ["sweep", name]).exit_code == 0
    assert asked["folder"] == Path(folder)


def test_what_has_changed_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of a model, wherever it is written, and a device's figures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "nets_of_mine"
    package.mkdir()
    files = {
        "__init__.py": "",
        "widths.py": "WIDTH = 64\n",
        "net.py": "import torch\nfrom .widths import WIDTH\n\n\ndef make(batch_size=8): ...\n",
        "other.py": "",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    device = tmp_path / "mine.yaml"
    figures = "memory_gib: {}\nbandwidth_gb_s: 448\nvector_tflops: 12.7\nsource: x\n"
    device.write_text(figures.format(12))

    def keys() -> set[str]:
        axes: dict[str, Any] = {"models": ["nets_of_mine.net:make"], "devices": ["mine.yaml"], "batches": [8]}
        axes |= {"budgets": ["device"], "methods": ["monet"], "precision": None, "optimizer": None}
        return {x.key for x in cells_of(time_limit=1.0, **axes)}

    first = keys()
    (package / "other.py").write_text("NOTHING = 1\n")
    assert keys() == first
    (package / "widths.py").write_text("WIDTH = 128\n")
    second = keys()
    device.write_text(figures.format(16))
    assert len(first | second | keys()) == 3


def test_samples_are_what_was_asked_or_what_most_tensors_share() -> None:
    ids, positions, target = (TensorSpec(x, y, "int64") for x, y in (("a", (4, 128)), ("b", (128,)), ("c", (512,))))
    assert samples_of([ids, positions, target]) == 4
    assert samples_of([positions, ids, TensorSpec("mask", (4, 1), "bool")]) == 4
    assert samples_of([TensorSpec("scale", (), "float32")]) is None
