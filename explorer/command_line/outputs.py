"""Files to write: refused before any work where they cannot be written, or are what nobody meant to lose."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from explorer.harmless import is_saved


def check_profile(target: Path, *, model: str, device: str | None = None) -> None:
    """A profile of ``model`` may be written there, for a ``device`` that may be a file."""
    inputs = {} if device is None else {"the device's description": Path(device)}
    _check(target, what="saved profile", is_one=partial(is_saved, kind="Profile"), inputs=_source(model) | inputs)


def check_schedule(target: Path, *, profile: str) -> None:
    """A schedule for ``profile`` may be written there; in the place of one that it is made of, too."""
    inputs = {"the profile": Path(profile)}
    _check(target, what="saved schedule", is_one=partial(is_saved, kind="Schedule"), inputs=inputs)


def check_export(target: Path, *, form: str, model: str, schedule: str, profile: str | None) -> None:
    """A Python file of that form may be written there."""
    from explorer.exporting.files import is_exported

    inputs = {"the schedule": Path(schedule), **({} if profile is None else {"the profile": Path(profile)})}
    is_one = partial(is_exported, form=form)
    _check(target, what=f"exported file of form {form!r}", is_one=is_one, inputs=_source(model) | inputs)


def check_folder(folder: Path) -> None:
    """Answers of a sweep may be written into it, which need not be there."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"cannot write into {folder}: it is a file; give a folder as --output")


def _check(target: Path, *, what: str, is_one: Callable[[Path], bool], inputs: Mapping[str, Path]) -> None:
    """Raises ValueError unless ``target`` is new, empty, or another one of its kind than the command reads."""
    if not target.parent.is_dir():
        raise ValueError(f"cannot write {target}: there is no folder {target.parent}")
    if target.is_dir():
        raise ValueError(f"cannot write {target}: it is a folder")
    if target.exists() and not target.is_file():
        return  # a pipe, a terminal: what is there stays
    for name, path in inputs.items():
        if target.exists() and path.exists() and target.samefile(path):
            raise ValueError(f"cannot write {target}: it is {name}, which this command reads; give another --output")
    if target.exists() and target.stat().st_size and not is_one(target):
        raise ValueError(
            f"cannot write {target}: it is there already and is no {what}; give another --output, or remove it"
        )
    try:
        # Asking for permissions says nothing of file systems that take no files.
        with tempfile.TemporaryFile(dir=target.resolve().parent):
            pass
    except OSError as error:
        raise ValueError(f"cannot write {target}: its folder takes no files ({error.strerror})") from error


def _source(model: str) -> dict[str, Path]:
    """The file of ``package.module:factory``, as it is found, without running anything."""
    module, colon, _ = model.partition(":")
    if not module or not colon:
        return {}
    path = Path(*module.split("."))
    places = (Path(folder, x) for folder in ("", *sys.path) for x in (path.with_suffix(".py"), path / "__init__.py"))
    found = next((x for x in places if x.is_file()), None)
    return {} if found is None else {"the model's source": found}
