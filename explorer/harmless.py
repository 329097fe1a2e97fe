"""Text from files and users, made harmless before it becomes part of what is run, shown or named by it.

Profiles and schedules are exchanged, so the names in them may be anybody's: of models, layers, tensors, devices. Every
way out has its function here: a program, a page, a plot, a terminal, a file's name. SQL has parameters, and needs none.
"""

from __future__ import annotations

import gzip
import html
import re
import zlib
from pathlib import Path

from explorer.arguments import a_path

_LONGEST = 200
_LONGEST_STEM = 50  # characters of up to four bytes; a file's name may have 255 bytes, suffixes included


def one_line(text: str) -> str:
    """Printable and on one line, as in a comment; what is neither becomes a question mark, what is too long is cut."""
    shown = printable(text)
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def printable(text: str) -> str:
    """With a question mark for what steers a terminal or the direction of writing, and for half characters."""
    return text if text.isprintable() else "".join(x if x.isprintable() else "?" for x in text)


def in_docstring(text: str) -> str:
    """Fit for a string between three double quotes."""
    return one_line(text).replace("\\", "/").replace('"', "'")


def in_terminal(text: str) -> str:
    """Fit for a terminal or a log: lines stay, nothing steers it."""
    return "\n".join(map(printable, text.split("\n")))


def in_html(text: str) -> str:
    """Fit for the text of an element, or a value between quotes."""
    return html.escape(in_terminal(text))


def in_figure(text: str) -> str:
    """Fit for a text of plotly's, which takes some HTML, links among it, and %{…} in templates."""
    return html.escape(one_line(text), quote=False).replace("%{", "%&#123;")  # it would show &quot; as it is


def in_script(json_text: str) -> str:
    """JSON fit for a script element: what would end it, or begin a comment in it, can only be in JSON's strings."""
    return json_text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def file_stem(text: str) -> str:
    """The name of a file without its suffix: letters, digits, dots and dashes, no folder, not hidden, not too long."""
    stem = re.sub(r"[^\w.-]+", "-", text).strip("-.")
    return stem[:_LONGEST_STEM].rstrip("-.") or "unnamed"


def below_working_folder(name: str) -> Path:
    """The absolute path of a file that someone named, which may be in a folder below the working folder.

    Raises:
        ValueError: it would lie elsewhere, also by a link, or is no name of a file.
    """
    if not name.isprintable():
        raise ValueError(f"the file name {one_line(name)!r} has characters that cannot be printed: give another")
    here = Path.cwd().resolve()
    path = (here / a_path(name)).resolve()
    if name.startswith("~") or Path(name).is_absolute() or not path.is_relative_to(here) or path == here:
        raise ValueError(
            f"the file name {one_line(name)!r} leads out of the working folder: give one below it, or call "
            "save(path) from Python"
        )
    return path


def check_replaceable(path: Path, *, kind: str) -> None:
    """A click may replace what a click has written, and no other file.

    Args:
        path: of a file to be written; nothing need be there.
        kind: of saved value, as ``"Schedule"``.

    Raises:
        ValueError: there is something else.
    """
    if path.exists() and not is_saved(path, kind=kind):
        raise ValueError(
            f"{one_line(path.name)!r} is there already and is no saved {kind.lower()}: give another file name, or call "
            "save(path) from Python"
        )


def is_saved(path: Path, *, kind: str) -> bool:
    """Does a file begin as a saved value of that kind, as ``"Schedule"``?"""
    head = f'{{"kind":"{kind}"'.encode()
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return path.is_file() and file.read(len(head)) == head
    except (OSError, EOFError, zlib.error):
        return False
