"""JupyterLab on a notebook that explores a profile."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from itertools import count
from pathlib import Path

from explorer.command_line.tables import PlainConsole
from explorer.extras import WHOLE, check_installed
from explorer.harmless import file_stem


def open_lab(profile: str, *, browser: bool, port: int) -> None:
    """Become JupyterLab, with a notebook in the working folder that opens ``profile``; made if there is none yet.

    Args:
        profile: a path, or the name of a bundled one.
        browser: open one, if there is any.
        port: JupyterLab's; the next free one if taken.
    """
    check_installed("jupyterlab", feature="schedule-explorer explore", extra=WHOLE)
    notebook = _notebook_for(profile)
    if browser and not _has_browser():
        browser = False
        PlainConsole().print("There is no browser here: open one of the URLs that JupyterLab prints.")
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--LabApp.default_url=/lab/tree/{notebook}",  # unlike an argument, also in the URL that is printed
        f"--port={port}",
        *([] if browser else ["--no-browser"]),
        # JupyterLab refuses root otherwise; whoever is root here, in a container say, has no other account.
        *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
    ]
    # In place of this process, so that whoever ends it ends JupyterLab.
    os.execv(sys.executable, command)  # noqa: S606 - nothing in it needs a shell


def _notebook_for(profile: str) -> Path:
    """The first of a row of names whose notebook is about this very profile, or that is free."""
    stem = f"explore-{file_stem(Path(profile).stem)}"
    for number in count(1):
        notebook = Path(f"{stem}.ipynb" if number == 1 else f"{stem}-{number}.ipynb")
        if not notebook.exists():
            notebook.write_text(notebook_of(profile), encoding="utf-8")
        elif not _opens(notebook, profile):
            continue
        return notebook
    raise AssertionError("names do not end")


def _opens(notebook: Path, profile: str) -> bool:
    """Does one of its cells still name the profile as ours does?"""
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        return any(f"explorer.explore({profile!r}" in "".join(x["source"]) for x in cells)
    except (ValueError, KeyError, TypeError, OSError):
        return False


def notebook_of(profile: str) -> str:
    """A notebook with one cell that opens ``profile``, as JSON."""
    source = f"import explorer\n\nexplorer.explore({profile!r})"
    cell = {
        "cell_type": "code",
        "id": "explore",
        "source": source,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return json.dumps({"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})


def _has_browser() -> bool:
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
