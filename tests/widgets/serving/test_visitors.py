"""The explorer of a page that is served to visitors."""

from __future__ import annotations

from pathlib import Path

import pytest

import explorer
from explorer.schedule import SCHEMA
from explorer.storage import storage_format
from tests.widgets.trained import Trained
from widgets import Explorer
from widgets.serving.visitors import VARIABLE


@pytest.mark.parametrize("variable", [VARIABLE, "VOILA_PREHEAT"])
def test_a_visitor_gets_a_download_and_writes_nothing(
    variable: str, trained: Trained, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "")
    with explorer.explore(trained.profile, budget="100 %") as made:
        controls = made._view.controls
        assert controls.save is controls.file_name is None
        assert controls.download is not None
        made.wait(120)
        assert not controls.download.disabled
        sent: list[dict[str, str]] = []
        monkeypatch.setattr(controls.download, "send", sent.append)
        # As it comes from the page, whatever that says it wants.
        controls.download._pressed({"view": "1", "wanted": "/etc/passwd"})
        (message,) = sent
        assert message["name"] == f"{made.file_stem}.json"
        assert message["content"] == storage_format.text_of(made.schedule, schema=SCHEMA)
        with pytest.raises(ValueError, match="served to visitors"):
            made.save()
        assert not list(folder.iterdir())
        assert made.save("named.json") == folder / "named.json"  # by whoever wrote the page


def test_the_owner_of_the_files_names_one(opened: Explorer) -> None:
    assert opened._view.controls.download is None
    assert opened._view.controls.file_name is not None
