"""The rooms of the package: each imports only what stands below it, and none looks into another's private things."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import widgets

_FOLDER = Path(widgets.__file__).parent
_FLOORS = [
    re.findall(r"``(\w+)``", line.partition(":")[0]) for line in (widgets.__doc__ or "").splitlines() if "* " in line
]
_FILES = sorted(path for path in _FOLDER.rglob("*.py") if path.parent != _FOLDER or path.name != "__init__.py")


def room(path: Path) -> str:
    return path.relative_to(_FOLDER).parts[0].removesuffix(".py")


def floor(name: str) -> int:
    return next(number for number, rooms in enumerate(_FLOORS) if name in rooms)


def imported(path: Path) -> set[str]:
    """Dotted names below ``widgets``, of imports within functions as well."""
    found = [x for x in ast.walk(ast.parse(path.read_text())) if isinstance(x, ast.ImportFrom) and x.module is not None]
    names = {f"{x.module}.{alias.name}" for x in found for alias in x.names}
    return {name.removeprefix("widgets.") for name in names if name.startswith("widgets.")}


def test_every_room_has_its_floor() -> None:
    assert sorted(name for rooms in _FLOORS for name in rooms) == sorted({room(path) for path in _FILES})


def test_files_import_from_their_room_and_those_below() -> None:
    arrows = {(room(path), name.partition(".")[0]) for path in _FILES for name in imported(path)}
    assert len(arrows) > len(_FLOORS)
    assert [(a, b) for a, b in sorted(arrows) if a != b and floor(a) >= floor(b)] == []


def test_the_files_of_a_folder_import_one_another_in_one_direction() -> None:
    for folder in {path.parent for path in _FILES} - {_FOLDER}:
        within = {path.stem: imported(path) for path in folder.glob("*.py")}
        left = {a: {x.split(".")[1] for x in names if x.startswith(f"{folder.name}.")} for a, names in within.items()}
        while free := [stem for stem, names in left.items() if not names & left.keys()]:
            for stem in free:
                del left[stem]
        assert left == {}, "these import one another in a circle"


def test_private_attributes_are_an_objects_own() -> None:
    taken = [
        (path, x) for path in _FILES for x in ast.walk(ast.parse(path.read_text())) if isinstance(x, ast.Attribute)
    ]
    private = [(path, x) for path, x in taken if x.attr.startswith("_") and not x.attr.endswith("_")]
    assert [
        f"{path.name}: {ast.unparse(x)}"
        for path, x in private
        if not (isinstance(x.value, ast.Name) and x.value.id in {"self", "cls"})
    ] == []
