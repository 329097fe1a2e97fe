"""Files are whole, whoever writes them at once; what is no regular file is written to, not replaced."""

from __future__ import annotations

import multiprocessing
import os
import stat
import threading
from pathlib import Path

import pytest

from explorer import load_profile, load_schedule
from explorer.schedule import read_schedule
from explorer.storage.cache_folder import VARIABLE, cache_folder
from explorer.storage.replacing import replacing

ZOO = "resnet50-small-cpu@smallest"


def write_again_and_again(path: Path, times: int) -> None:
    schedule = load_schedule(ZOO)
    for _ in range(times):
        schedule.save(path)


def test_two_processes_may_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    spawned = multiprocessing.get_context("spawn")
    writers = [spawned.Process(target=write_again_and_again, args=(path, 40)) for _ in range(2)]
    for writer in writers:
        writer.start()
    while any(x.is_alive() for x in writers):
        if path.exists():
            assert read_schedule(path).method
    assert [x.exitcode for x in writers] == [0, 0]
    assert [x.name for x in tmp_path.iterdir()] == [path.name]


def test_what_a_failed_write_leaves_is_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def fail() -> None:
        with replacing(path) as fresh:
            fresh.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (path.read_text(), [x.name for x in tmp_path.iterdir()]) == ("before", ["file"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are for Unix")
def test_pipes_are_written_to_and_links_stay(tmp_path: Path) -> None:
    schedule = load_schedule(ZOO)
    pipe, link, target = (tmp_path / x for x in ("pipe", "link", "target.json"))
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    schedule.save(pipe)
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    target.write_text("old")
    link.symlink_to(target)
    schedule.save(link)
    assert link.is_symlink()
    assert target.read_text() == heard[0]


def test_a_folder_called_like_what_is_bundled_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("resnet50", ZOO):
        (tmp_path / name).mkdir()
    assert load_profile("resnet50").graph.operators
    assert load_schedule(ZOO).method


def test_the_cache_folder_may_be_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "~/kept")
    assert cache_folder() == Path.home() / "kept"
