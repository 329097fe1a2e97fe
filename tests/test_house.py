"""How the modules hang together: nothing in a circle, the core without what a notebook shows.

Read from their text, imports inside functions included, those for type checkers alone left out. What a package loads by
a name in a string (``explorer``, ``explorer.solvers``) is not seen: these are façades, and load nothing themselves.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHOWN = {"widgets", "ipywidgets", "anywidget", "plotly"}


@dataclass(frozen=True)
class Import:
    """A name that a module imports.

    Attributes:
        name: with its package.
        loads: at once, when the module is imported; not only when one of its functions is called.
    """

    name: str
    loads: bool


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its name; a package stands for its ``__init__``."""
    found = {}
    for top in ("explorer", "widgets"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(source: str) -> Iterator[Import]:
    """What a module's text imports."""
    pending: list[tuple[ast.AST, bool]] = [(ast.parse(source), True)]
    while pending:
        node, loads = pending.pop()
        if isinstance(node, ast.Import):
            yield from (Import(x.name, loads) for x in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (Import(f"{node.module}.{x.name}", loads) for x in node.names)
        inside = loads and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for_checkers = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        below = node.orelse if for_checkers else ast.iter_child_nodes(node)
        pending += ((child, inside) for child in below)


def module_of(name: str) -> str | None:
    """The module that holds an imported name, or is it; None where it is not ours."""
    return name if name in modules() else parent if (parent := name.rpartition(".")[0]) in modules() else None


@cache
def uses() -> dict[str, set[str]]:
    """Each module to the modules that it imports, with the packages around them, which are loaded first."""
    found: dict[str, set[str]] = {}
    for module, path in modules().items():
        found[module] = set()
        for name in (module_of(x.name) for x in imports(path.read_text(encoding="utf-8"))):
            if name is not None and name != module:
                around = (name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1))
                found[module] |= {name, *(x for x in around if not f"{module}.".startswith(f"{x}."))}
    return found


def circles(graph: Mapping[str, Collection[str]]) -> set[frozenset[str]]:
    """Whatever uses each other, directly or not."""
    reached = {start: _reached(graph, start) for start in graph}
    rings = (frozenset(x for x in reached[start] if start in reached[x]) for start in graph)
    return {ring for ring in rings if len(ring) > 1}


def _reached(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        new = set(graph[pending.pop()]) - found
        found |= new
        pending += new
    return found


def test_no_modules_import_each_other():
    assert circles(uses()) == set()


def room_of(module: str, *, solvers: bool) -> str:
    """A folder or module directly below ``explorer``, or below its solvers; the widgets have rooms of their own."""
    if module.startswith("widgets"):
        return "widgets"
    depth = 3 if solvers and module.startswith("explorer.solvers.") else 2
    return ".".join(module.split(".")[:depth])


def rooms(*, solvers: bool) -> dict[str, set[str]]:
    """Each room to those that it uses."""
    graph: dict[str, set[str]] = {}
    for module, used in uses().items():
        room = room_of(module, solvers=solvers)
        graph.setdefault(room, set()).update({room_of(x, solvers=solvers) for x in used} - {room})
    return graph


def test_no_rooms_import_each_other():
    assert circles(rooms(solvers=False)) == set()
    assert circles(rooms(solvers=True)) == set()


def test_the_page_on_architecture_says_what_imports_what():
    """Of rooms alone: what lies at the top of ``explorer`` is everybody's."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    told = {
        room: {x for x in used.split(", ") if x}
        for room, used in re.findall(r"^\| ([\w.]+) \| ?(.*?) ?\|$", page, re.MULTILINE)
    }
    del told["room"]
    graph = {room.removeprefix("explorer."): used for room, used in rooms(solvers=True).items()}
    folders = {x.name for x in (ROOT / "explorer").iterdir() if (x / "__init__.py").exists()}
    free = {"command_line", "solvers"}
    mine = {x for x in graph if x.partition(".")[0] in folders and x not in free}
    found = {x: {used.removeprefix("explorer.") for used in graph[x]} & (mine | free) for x in mine}
    assert told == found
    solvers = ROOT / "explorer" / "solvers"
    assert all((solvers / name).exists() for name in re.findall(r"`((?!widgets)[a-z_]+/[a-z_]+\.py)`", page))


def test_the_core_loads_nothing_that_shows():
    core = {name: path.read_text(encoding="utf-8") for name, path in modules().items() if name.startswith("explorer")}
    found = {(name, x.name) for name, source in core.items() for x in imports(source) if x.loads}
    assert not {(name, loaded) for name, loaded in found if loaded.partition(".")[0] in SHOWN}


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}}) == {frozenset("bc")}


def test_imports_are_told_apart():
    source = """
import a
from b.c import d
if TYPE_CHECKING:
    import e
else:
    import f
def g():
    import h
class I:
    import j
    def k(self):
        if l:
            from m import n
"""
    found = {(x.name, x.loads) for x in imports(source)}
    assert found == {("a", True), ("b.c.d", True), ("f", True), ("h", False), ("j", True), ("m.n", False)}
