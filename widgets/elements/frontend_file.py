"""What runs in the page, as text."""

from __future__ import annotations

from pathlib import Path

_FRONTEND = Path(__file__).with_name("frontend")


# Read as text: given a path, anywidget keeps a watcher per class that outlives the widgets.
def frontend_file(name: str) -> str:
    """A file that runs in the page."""
    return (_FRONTEND / name).read_text(encoding="utf-8")


def together(*names: str) -> str:
    """Files as one script: a page loads that of each widget by itself."""
    return "\n".join(map(frontend_file, names))


def widget_script(*names: str) -> str:
    """The script of a widget, which hears the kernel however late the page loads it."""
    return together("listening.js", *names)
