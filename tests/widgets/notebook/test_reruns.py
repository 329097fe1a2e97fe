"""A cell that runs again closes what it showed before, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import explorer
from tests.widgets.trained import Trained
from widgets import Explorer
from widgets.notebook.reruns import note_shown, present_run


class Notebook:
    """Stands in for IPython: which cell runs, and the variables."""

    def __init__(self) -> None:
        self.user_ns: dict[str, object] = {}
        self.kernel = SimpleNamespace(get_parent=lambda: self.request)
        self.request: dict[str, Any] = {}
        self.requests = 0

    def run(self, cell: str) -> None:
        self.requests += 1
        self.request = {"header": {"msg_id": str(self.requests)}, "metadata": {"cellId": cell}}


class Shown:
    """Something that cells show, made in the one that runs."""

    def __init__(self) -> None:
        self.made_by = present_run()
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def show(self) -> Shown:
        note_shown(self, made_by=self.made_by)
        return self


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    stand_in = Notebook()
    monkeypatch.setattr("widgets.notebook.reruns.get_ipython", lambda: stand_in)
    monkeypatch.setattr("widgets.notebook.reruns._SHOWN", {})
    return stand_in


def test_another_run_of_a_cell_closes_all_that_the_one_before_showed(notebook: Notebook) -> None:
    notebook.run("a")
    first, second = Shown().show(), Shown().show()
    assert not first.closed
    notebook.run("b")
    other = Shown().show()
    notebook.run("a")
    third = Shown().show()
    assert (first.closed, second.closed, third.closed, other.closed) == (True, True, False, False)


def test_what_another_cell_shows_is_closed_when_that_shows_something_else(notebook: Notebook) -> None:
    notebook.run("a")
    first = Shown().show()
    notebook.run("b")
    first.show()
    notebook.run("a")
    second = Shown().show()
    assert not first.closed
    notebook.run("b")
    second.show()
    assert first.closed
    assert not second.closed


def test_what_was_made_elsewhere_is_shown_again_and_again(notebook: Notebook) -> None:
    notebook.run("a")
    made = [Shown(), Shown()]
    for _ in range(2):
        notebook.run("b")
        for shown in made:
            shown.show()
    assert not any(shown.closed for shown in made)


def test_what_has_a_name_stays_open(notebook: Notebook) -> None:
    notebook.run("a")
    first = Shown().show()
    notebook.user_ns |= {"mine": first, "_": first}
    notebook.run("a")
    Shown().show()
    assert not first.closed
    del notebook.user_ns["mine"]
    notebook.run("a")
    Shown().show()
    assert first.closed


def test_without_a_notebook_nothing_is_closed(notebook: Notebook) -> None:
    assert notebook.request == {}
    first, second = Shown().show(), Shown().show()
    assert not first.closed
    assert not second.closed


def test_an_explorer_is_closed_when_its_cell_shows_another(
    trained: Trained, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widgets.notebook.picture.display", lambda *_, **__: None)
    made: list[Explorer] = []
    for _ in range(2):
        notebook.run("a")
        made.append(explorer.explore(trained.profile, budget="1 GiB", panels=[]))
        made[-1]._ipython_display_()
    first, second = made
    assert first.status == "closed"
    assert second.status != "closed"
    second.close()
