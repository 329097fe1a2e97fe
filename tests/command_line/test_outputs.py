"""What a command may write over, and what it refuses before any work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import explorer
from explorer.command_line import outputs
from explorer.command_line.outputs import check_export
from explorer.exporting import files
from tests.command_line.test_commands import FACTORY, call

BUDGET = ("--budget", "100 %", "--time-limit", "1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a profile, a schedule, and a module that nobody must run."""
    profile = explorer.load_profile("resnet50-small-cpu")
    profile.save(tmp_path / "p.json")
    explorer.keep_all(profile.graph).save(tmp_path / "s.json")
    (tmp_path / "mymodels.py").write_text(f"assert False, 'before any work'\n{FACTORY}")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "models.py").write_text(FACTORY)
    (tmp_path / "t4.yaml").write_text("name: T4\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("solve", "p.json", *BUDGET, "-o", "p.json"), "it is the profile, which this command reads"),
        (("solve", "p.json", *BUDGET, "-o", "linked.json"), "it is the profile, which this command reads"),
        (("solve", "p.json", *BUDGET, "-o", "mymodels.py"), "is no saved schedule"),
        (("place", "p.json", "s.json", "-o", "p.json"), "it is the profile, which this command reads"),
        (("export", "mymodels:make", "s.json", "-o", "s.json"), "it is the schedule, which this command reads"),
        (("export", "mymodels:make", "s.json", "-o", "p.json", "-p", "p.json"), "it is the profile, which"),
        (("export", "mymodels:make", "s.json", "-o", "p.json"), "is no exported file of form 'python'"),
        (("export", "package.models:make", "s.json", "-o", "package/models.py"), "it is the model's source, which"),
        (("profile", "mymodels:make", "-o", "mymodels.py"), "it is the model's source, which this command reads"),
        (("profile", "mymodels:make", "-o", "s.json"), "is no saved profile"),
        (("profile-compiled", "mymodels:make", "-o", "s.json"), "is no saved profile"),
        (("estimate", "mymodels:make", "-d", "t4", "-o", "s.json"), "is no saved profile"),
        (("profile", "mymodels:make", "-o", "/proc/x.json"), "cannot write /proc/x.json: its folder takes no files"),
    ],
)
def test_nothing_is_lost_without_a_word(here: Path, arguments: tuple[str, ...], told: str) -> None:
    (here / "linked.json").symlink_to(here / "p.json")
    before = {x: x.read_bytes() for x in here.rglob("*") if x.is_file()}
    said = call(*arguments, code=2)
    assert told in said
    assert "Traceback" not in said
    assert said.strip().count("\n") == 0
    assert {x: x.read_bytes() for x in here.rglob("*") if x.is_file()} == before


def test_the_description_of_a_device_is_read_too(here: Path) -> None:
    with pytest.raises(ValueError, match="it is the device's description, which this command reads"):
        outputs.check_profile(here / "t4.yaml", model="resnet50", device="t4.yaml")


def test_a_file_of_its_own_kind_is_replaced(here: Path) -> None:
    """A schedule by itself with its addresses, too; and a file in which there is nothing."""
    (here / "empty.json").touch()
    for target in ("s.json", "empty.json"):
        call("place", "p.json", "s.json", "-o", target)
        assert explorer.load_schedule(target).placement is not None
    call("solve", "p.json", *BUDGET, "-o", "s.json")
    assert explorer.load_schedule("s.json").placement is None


@pytest.mark.parametrize("form", files.FORMS)
def test_an_export_is_replaced_by_one_of_the_same_form(here: Path, form: str) -> None:
    target = here / "step.py"
    for other in files.FORMS:
        target.write_text(f'"""{files.FORMS[other]} Sequential within 1.30 MiB.\n"""\n')
        if other == form:
            check_export(target, form=form, model="resnet50", schedule="s.json", profile=None)
            continue
        with pytest.raises(ValueError, match=f"is no exported file of form '{form}'; give another --output"):
            check_export(target, form=form, model="resnet50", schedule="s.json", profile=None)


def test_a_sweep_wants_a_folder_before_anything_is_drawn(here: Path) -> None:
    (here / "plan.yaml").write_text("models: resnet50\ndevices: T4\n")
    said = call("sweep", "plan.yaml", "-o", "mymodels.py", code=2)
    assert said.strip() == "error: cannot write into mymodels.py: it is a file; give a folder as --output"


def test_a_write_that_fails_names_the_file_that_was_asked_for() -> None:
    schedule = explorer.keep_all(explorer.load_profile("resnet50-small-cpu").graph)
    with pytest.raises(OSError, match=r"'/proc/x\.json'$"):
        schedule.save("/proc/x.json")
