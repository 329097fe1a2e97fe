"""The scriptable object, without a page: every trait, every button, every way to fail."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from torch import nn

import explorer
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solution import Solution, Status
from explorer.solvers import SolveEvent
from tests.widgets.checking import SOLVED, middle
from tests.widgets.trained import Trained
from widgets import Explorer


def workers() -> set[psutil.Process]:
    """Solver processes of this one."""
    found = set()
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it ends just now, as those of the tests before may
            if "explorer.solvers.service.worker" in process.cmdline():
                found.add(process)
    return found


def threads() -> set[threading.Thread]:
    """Those of explorers."""
    return {x for x in threading.enumerate() if x.name.startswith("schedule-explorer")}


def test_opens_solved_in_the_middle_of_its_range(trained: Trained) -> None:
    plain = simulate(trained.profile, keep_all(trained.profile.graph))
    with explorer.explore(trained.profile) as made:
        made.wait(120)
        slider = made._view.controls.slider
        assert slider.minimum_bytes < plain.peak_bytes <= slider.maximum_bytes
        assert not slider.disabled
        assert made.status in SOLVED
        # While the curve is still searched, its lower end may move a little.
        assert made.budget_bytes == pytest.approx((slider.minimum_bytes + plain.peak_bytes) // 2, rel=0.01)
        assert made.schedule is not None
        assert made.predicted_peak == simulate(trained.profile, made.schedule).peak_bytes <= made.budget_bytes


def test_a_new_budget_brings_a_schedule_that_fits(opened: Explorer) -> None:
    seen: list[str] = []

    def see(change: Any) -> None:
        seen.append(change["new"])

    opened.observe(see, "status")
    opened.budget = f"{middle(opened) / 2**20:.6f} MiB"
    assert opened.status == "solving"
    opened.wait(60)
    opened.unobserve(see, "status")
    assert opened.status in SOLVED
    assert seen[0] == "solving"
    assert seen[-1] == opened.status
    assert opened.predicted_peak is not None
    assert opened.predicted_peak <= opened.budget_bytes == opened._view.controls.slider.budget_bytes
    assert "Optimal" in opened.message or "Solved" in opened.message


def test_slider_typed_budget_and_bytes_follow_one_another(opened: Explorer) -> None:
    slider = opened._view.controls.slider
    slider.budget_bytes = middle(opened)
    assert opened.budget_bytes == middle(opened)
    assert str(opened.budget).endswith("MiB")
    opened.budget = "1 GiB"
    assert (opened.budget, opened.budget_bytes, slider.budget_bytes) == ("1 GiB", 2**30, 2**30)
    opened.budget_bytes = 2**29
    assert opened.budget == "512.0 MiB"
    opened.wait(60)


def test_the_latest_budget_wins(opened: Explorer) -> None:
    slider = opened._view.controls.slider
    budgets = range(slider.minimum_bytes, slider.maximum_bytes, slider.step_bytes * 8)
    for budget in budgets:
        slider.budget_bytes = budget
    opened.wait(60)
    assert opened.solution is not None
    assert opened.solution.budget_bytes == budgets[-1]


def test_the_last_answer_to_one_budget_does_not_end_the_solve_for_the_next(
    opened: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened.solution is not None
    last = SolveEvent(opened._work.answers.solver._request, opened.solution, final=True)
    asked = opened._work.answers.solver.request

    def late(budget_bytes: int, *, known: Solution | None = None) -> None:
        thread = threading.Thread(target=opened._work.answers._draw, args=(last,))
        thread.start()
        thread.join(0.2)
        asked(budget_bytes, known=known)

    monkeypatch.setattr(opened._work.answers.solver, "request", late)
    opened._work.answers.ask()  # as another choice does, in a thread of its own
    assert "solving" in opened._work.activity
    opened.wait(60)


def test_a_point_of_the_curve_leads_to_a_schedule_as_quick_as_that(opened: Explorer) -> None:
    assert opened._display.scene is not None
    for point in opened._display.scene.known.instant[::8]:
        opened.budget_bytes = point.budget_bytes
        opened.wait(60)
        assert opened.solution is not None
        assert opened.solution.time_ms is not None
        assert point.time_ms is not None
        assert opened.solution.time_ms <= point.time_ms * (1 + 1e-9)


def test_what_was_typed_wrong_is_said_until_the_answer_is_there(opened: Explorer) -> None:
    assert opened.solution is not None
    opened.choose_budget("a lot")
    for final in (False, True):
        opened._work.answers._draw(SolveEvent(opened._work.answers.solver._request, opened.solution, final=final))
        assert ("'a lot' is not a number" in opened.message) is not final


def test_a_status_is_not_outrun_by_an_older_one(opened: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened.solution is not None
    last = SolveEvent(opened._work.answers.solver._request, opened.solution, final=True)
    ending = threading.Thread(target=opened._work.answers._draw, args=(last,))
    enable = opened._view.controls.enable

    def slow(**said: bool) -> None:
        if not ending.ident:
            ending.start()
            ending.join(0.2)
        enable(**said)

    opened._work.activity.begin("solving")
    monkeypatch.setattr(opened._view.controls, "enable", slow)
    opened._display.offer()
    ending.join(10)
    assert opened.status == opened.solution.status.value


def test_more_memory_never_takes_longer(opened: Explorer) -> None:
    slider = opened._view.controls.slider
    times = []
    for budget in (slider.minimum_bytes, middle(opened), slider.maximum_bytes):
        opened.budget_bytes = budget
        opened.wait(60)
        assert opened.solution is not None
        times.append(opened.solution.time_ms)
    assert times == sorted(times, reverse=True)


def test_a_budget_too_small_says_what_would_do(opened: Explorer) -> None:
    opened.budget = "1 KiB"
    opened.wait(60)
    assert opened.status == Status.INFEASIBLE
    assert opened.schedule is None
    assert opened.predicted_peak is None
    assert "smallest feasible budget" in opened.message
    assert opened._view.controls.save.disabled
    assert opened._view.controls.run.disabled
    opened.budget_bytes = middle(opened)
    opened.wait(60)
    assert opened.schedule is not None


@pytest.mark.parametrize(
    ("budget", "told"), [("8 XB", "unknown unit 'XB'"), ("-1 GiB", "must be positive"), (0, "must be positive")]
)
def test_a_budget_that_is_none_is_refused(opened: Explorer, budget: str | int, told: str) -> None:
    before = opened.budget
    with pytest.raises(ValueError, match=told):
        opened.budget = budget
    assert opened.budget == before


def test_saves_what_load_schedule_reads(opened: Explorer, folder: Path) -> None:
    written = opened.save("mine.json")
    assert written == folder / "mine.json"
    assert explorer.load_schedule(written) == opened.schedule
    assert str(written) in opened.message
    opened._view.controls.save.click()
    (default,) = folder.glob("convnet-*MiB.json")
    assert str(default) in opened.message


@pytest.mark.usefixtures("folder")
def test_a_file_that_cannot_be_written_is_told(opened: Explorer) -> None:
    opened._view.controls.file_name.value = "no/such/folder/x.json"
    opened._view.controls.save.click()
    assert "Could not save" in opened.message
    assert "Choose another file name" in opened.message
    with pytest.raises(FileNotFoundError):
        opened.save("no/such/folder/x.json")


@pytest.mark.parametrize("name", ["../x.json", "/x.json", "~/x.json", "a/../../x.json", ".", "~root/x.json"])
def test_a_typed_name_stays_below_the_working_folder(name: str, opened: Explorer, folder: Path) -> None:
    opened._view.controls.file_name.value = name
    opened._view.controls.save.click()
    assert "leads out of the working folder" in opened.message
    assert not list(folder.rglob("*.json"))
    opened._view.controls.file_name.value = ""


def test_a_click_replaces_saved_schedules_alone(opened: Explorer, folder: Path) -> None:
    (folder / "train.py").write_text("precious")
    (folder / "saved.json").write_text("{}")
    (folder / "beside").symlink_to(folder.parent)
    for name, told in {
        "train.py": "is there already and is no saved schedule",
        "saved.json": "is there already and is no saved schedule",
        "beside/x.json": "leads out of the working folder",
        "a\x1b[31m.json": "characters that cannot be printed",
    }.items():
        opened._view.controls.file_name.value = name
        opened._view.controls.save.click()
        assert told in opened.message
    assert (folder / "train.py").read_text() == "precious"
    for name in ("new.json", "new.json", "packed.json.gz", "packed.json.gz"):
        opened._view.controls.file_name.value = name
        opened._view.controls.save.click()
        assert "Saved the schedule to" in opened.message
        assert explorer.load_schedule(folder / name) == opened.schedule


def test_a_file_is_named_after_the_budget_of_its_schedule(opened: Explorer, folder: Path) -> None:
    named = opened.file_stem
    assert opened._view.controls.file_name.placeholder == f"{named}.json"
    with opened._display.lock:  # no answer is drawn
        opened.budget_bytes = middle(opened)
        assert opened.save() == folder / f"{named}.json"
    opened.wait(60)
    assert opened.file_stem != named
    assert opened._view.controls.file_name.placeholder == f"{opened.file_stem}.json"


def test_runs_the_schedule_and_measures_it(trained: Trained) -> None:
    before = [x.clone() for x in trained.model.state_dict().values()]
    with explorer.explore(trained.model, trained.batch, loss=trained.loss, budget="1 GiB") as made:
        made.wait(120)
        made.budget_bytes = middle(made)
        made._view.controls.run.click()
        made.wait(120)
        assert made.measurement is not None
        assert made.measured_peak == made.measurement.peak_bytes
        assert made.predicted_peak == pytest.approx(made.measured_peak, rel=0.01)
        assert "Measured: peak" in made.message
        assert "measured" in made._view.controls.figures.value
        assert shown(made)["measured"]["bytes"]
        assert "is the machine" in made._view.controls.figures.value
        made.run()
        made.cancel()
        made.wait(120)
        assert made.message == "Cancelled running."
        assert made.schedule is not None
        made.budget = "1 GiB"
        made.wait(60)
        assert made.measured_peak is None
        assert shown(made)["measured"] is None
    after = trained.model.state_dict().values()
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))


def test_a_run_does_not_wait_for_the_curve(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.solvers.curves._CURVE_EFFORTS", (0.15, 3.0))
    there = threading.Event()
    with explorer.explore(trained.model, trained.batch, loss=trained.loss, budget="1 GiB") as made:
        made.observe(lambda _: there.set(), "schedule")
        assert there.wait(120)
        made.run()
        made._work.activity.wait_for("running")
        assert made.measurement is not None
        assert "charting" in made._work.activity
    made._work.activity.wait_for("charting")


def shown(made: Explorer) -> dict[str, Any]:
    """What the page has of the step."""
    panel: Any = made._view.panels["timeline"]
    return json.loads(panel.plot.step)


def test_running_a_bare_profile_says_what_to_do(opened: Explorer) -> None:
    opened._view.controls.run.click()
    with pytest.raises(ValueError, match="no model to run"):
        opened.wait(60)
    assert "explore(model, batch)" in opened.message
    assert opened.message.endswith("The schedule is still there.")
    assert opened.status in SOLVED


def test_what_failed_is_not_raised_by_a_wait_for_something_else(opened: Explorer) -> None:
    opened._view.controls.run.click()
    opened._work.activity.wait_for("running")
    assert "no model to run" in opened.message
    opened.budget_bytes = middle(opened)
    opened.wait(60)


def test_a_schedule_that_is_gone_is_not_said_to_be_there(opened: Explorer) -> None:
    opened.budget = "1 KiB"
    opened.wait(60)

    def fail() -> None:
        raise ValueError("the schedule is gone")

    opened._work.jobs.ask("running", fail)
    opened._work.activity.wait_for("running")
    assert opened.message == "Running failed: the schedule is gone."
    with pytest.raises(ValueError, match="gone"):
        opened.wait(60)


def test_cancel_keeps_what_was_found(opened: Explorer) -> None:
    opened.budget_bytes = middle(opened)
    opened.cancel()
    opened.wait(60)
    assert opened.status in {*SOLVED, Status.CANCELLED}
    assert opened._view.controls.cancel.disabled


def test_cancelled_profiling_leaves_a_message(trained: Trained) -> None:
    with explorer.explore(trained.model, trained.batch, loss=trained.loss) as made:
        made.cancel()
        made.wait(120)
        assert made.status == "failed" or made.schedule is not None
        assert "Cancelled" in made.message or made.schedule is not None


def test_a_model_that_cannot_be_captured_is_told() -> None:
    class Choosy(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x).sum()
            return y if y > 0 else 2 * y

    with explorer.explore(Choosy(3, 1), torch.ones(3)) as made:
        with pytest.raises(ValueError, match=r"test_explorer\.py"):
            made.wait(120)
        assert made.status == "failed"
        assert made.message.startswith("Opening failed")
        assert made._view.controls.slider.disabled


def test_progress_of_profiling_is_shown(trained: Trained) -> None:
    shown: list[float | None] = []
    with explorer.explore(trained.model, trained.batch, loss=trained.loss, budget="1 GiB") as made:
        made._view.controls.status.observe(lambda change: shown.append(change["new"]), "progress")
        made.wait(120)
        assert any(x is not None and 0 < x <= 1 for x in shown)
        assert made._view.controls.status.progress is None


def test_close_frees_processes_threads_and_widgets(trained: Trained) -> None:
    others, other_workers = threads(), workers()
    made = explorer.explore(trained.profile, budget="1 GiB")
    made.wait(120)
    made.budget_bytes = middle(made)
    assert threads() - others
    assert len(workers() - other_workers) == 1
    made.close()
    made.close()
    assert made.status == "closed"
    assert threads() <= others
    assert workers() <= other_workers  # of which some may have ended since
    assert made._view.panels["timeline"].plot.comm is None
    assert "closed" in repr(made)


def test_what_a_cuda_device_needs_is_told_once_a_solve_ended() -> None:
    others = threads()
    with explorer.explore("googlenet-a100-80gb") as made:
        made.wait(120)
        until = time.monotonic() + 60
        while "caching allocator needs a device of" not in made.message:
            assert time.monotonic() < until, made.message
            time.sleep(0.01)
        needed = made._display.present.reservation
        assert needed is not None
        assert made.predicted_peak is not None
        assert needed.smallest_limit_bytes >= made.predicted_peak
        assert "; a device needs" in made._view.controls.figures.value
    assert threads() <= others


def test_wait_gives_up_in_time(opened: Explorer) -> None:
    opened.budget_bytes = middle(opened)
    with pytest.raises(TimeoutError, match="solving"):
        opened.wait(0)
    opened.wait(60)
    opened._work.activity.begin("charting")
    with pytest.raises(TimeoutError, match="still searching for the trade-off curve after 0 s"):
        opened.wait(0)
    opened._work.activity.end("charting")


def test_displays_a_widget_and_a_picture_that_is_kept_up_to_date(
    opened: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a notebook's kernel is told of outputs."""
    told: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def publish(bundle: dict[str, Any], **how: Any) -> None:
        told.append((bundle, how))

    monkeypatch.setattr("widgets.notebook.picture.display", publish)
    monkeypatch.setattr("widgets.notebook.picture.get_ipython", lambda: SimpleNamespace(kernel=None))
    opened._ipython_display_()
    (picture, how), (widget, _) = told
    assert widget["application/vnd.jupyter.widget-view+json"]["model_id"] == opened._view.box.model_id
    assert "text/html" not in widget
    assert "<svg" in picture["text/html"]
    assert "this schedule, predicted" in picture["text/html"]
    assert "<script" not in picture["text/html"]
    assert "ConvNet" in picture["text/plain"]
    opened.budget_bytes = middle(opened)
    opened.wait(60)
    later, again = told[-1]
    opened._picture._shown = False
    assert again["update"]
    assert again["display_id"] == how["display_id"]
    assert later["text/html"] != picture["text/html"]
    # The widget hides it for as long as it is there itself.
    assert f'class="{how["display_id"]}"' in later["text/html"]
    assert f".{how['display_id']}, " in opened._view.box.children[0].value


def test_an_answer_takes_in_what_the_curve_knows(opened: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown is never slower than a point of the curve beside it that fits."""
    opened.budget_bytes = middle(opened)
    opened.wait(60)
    scene = opened._display.scene
    assert scene is not None
    assert scene.solution is not None
    assert scene.solution.time_ms is not None
    asked: list[int] = []
    answers = opened._work.answers
    with monkeypatch.context() as patch:
        patch.setattr(answers, "ask", lambda: asked.append(1))
        answers.reconsider()
        assert asked == [], "nothing better is known"
        slow = replace(scene.solution, time_ms=1.5 * scene.solution.time_ms)
        known = replace(scene.known, instant=(*scene.known.instant, scene.solution), solved=())
        opened._display.scene = replace(scene, solution=slow, known=known)
        answers.reconsider()
        assert asked == [1]
    answers.reconsider()
    opened.wait(60)
    assert opened.solution is not None
    assert opened.solution.time_ms is not None
    assert opened.solution.time_ms <= 1.0005 * scene.solution.time_ms
