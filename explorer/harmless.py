"""Text from files and users, made harmless before it becomes part of something that is run or read as a path.

Profiles and schedules are exchanged, so the names in them may be anybody's: of models, layers, tensors, devices.
"""

from __future__ import annotations

from pathlib import Path

_LONGEST = 200


def one_line(text: str) -> str:
    """Printable and on one line, as in a comment; what is neither becomes a question mark, what is too long is cut."""
    shown = "".join(x if x.isprintable() else "?" for x in text)
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def in_docstring(text: str) -> str:
    """Fit for a string between three double quotes."""
    return one_line(text).replace("\\", "/").replace('"', "'")


def below_working_folder(name: str) -> Path:
    """The absolute path of a file that someone named, which may be in a folder below the working folder.

    Raises:
        ValueError: it would lie elsewhere.
    """
    here = Path.cwd().resolve()
    path = (here / name).resolve()
    if name.startswith("~") or Path(name).is_absolute() or not path.is_relative_to(here) or path == here:
        raise ValueError(
            f"the file name {one_line(name)!r} leads out of the working folder: give one below it, or call "
            "save(path) from Python"
        )
    return path
