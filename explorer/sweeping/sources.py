"""The code that makes a user's model: its file, and what that imports of files that are nobody's package."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from threading import Lock
from types import ModuleType

from explorer.capture.mentions import is_installed

_LOADED: dict[str, tuple[ModuleType, bytes]] = {}
"""The user's modules that ``import_as_asked`` imported in this process, with the text that they were made of."""
_IMPORTING = Lock()


def source_digest(model: str) -> str:
    """Another one after a change of the code that makes ``package.module:function``, or of what that code imports.

    Nothing is run but ``__init__`` files of packages. What the code reads besides Python files is not looked at.

    Args:
        model: as for ``factory``; that of a bundled model goes by this package's version.
    """
    module, colon, _ = model.partition(":")
    return _digest(_sources(module)) if colon else ""


def import_as_asked(model: str, code: str) -> None:
    """Import the module of ``package.module:function``, as its files are now, which must be as they were asked for.

    A worker may outlive many changes of them. Modules that are older than their files go out of ``sys.modules``, and
    with them all others of the user's: any of them may hold what it imported of an old one.

    Args:
        model: as for ``factory``.
        code: the ``source_digest`` where the sweep was asked for.

    Raises:
        ValueError: the files here are others.
    """
    module, colon, _ = model.partition(":")
    if not colon:
        return
    with _IMPORTING:  # a worker may have several threads
        importlib.invalidate_caches()
        sources = _sources(module)
        if _digest(sources) != code or any(_is_old(name, text) for name, text in sources.items()):
            for name in [x for x, loaded in sys.modules.items() if _is_of_user(x, loaded)]:
                del sys.modules[name]
            sources = _sources(module)
        if _digest(sources) != code:
            raise ValueError(
                f"the worker has other code of {module} than there is where the sweep was asked for, or none: copy "
                "its files and those that it imports to where the worker finds them"
            )
        with suppress(Exception):  # ``factory`` says what is wrong with it
            importlib.import_module(module)
        _LOADED.update({x: (sys.modules[x], text) for x, text in sources.items() if x in sys.modules})


def _sources(module: str) -> dict[str, bytes]:
    """The user's modules that are run for one of them, with their text; packages that they are in included."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as ``factory`` does
    found: dict[str, bytes] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        file = None if name in found else _file_of(name)
        if file is not None:
            found[name] = file.read_bytes()
            pending += _imported_by(name, found[name], is_package=file.name == "__init__.py")
            pending += filter(None, [name.rpartition(".")[0]])
    return found


def _digest(sources: dict[str, bytes]) -> str:
    return hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()


def _is_old(name: str, text: bytes) -> bool:
    """May a module have been made of another text than its file has now? One that is not imported is not old."""
    loaded = sys.modules.get(name)
    if loaded is None:
        return False
    known, made_of = _LOADED.get(name, (None, b""))
    return made_of != text if known is loaded else _changed_since_start(Path(getattr(loaded, "__file__", None) or ""))


def _changed_since_start(file: Path) -> bool:
    """Was a file changed after this process began? Whoever imported it before then has it as it is."""
    import psutil

    try:
        status = file.stat()
    except OSError:
        return True
    # A copy may keep the time of what it is copied from, but not that of its own making.
    return max(status.st_mtime, status.st_ctime) >= psutil.Process().create_time()


def _is_of_user(name: str, loaded: ModuleType) -> bool:
    origin = getattr(getattr(loaded, "__spec__", None), "origin", None)
    return isinstance(origin, str) and name not in ("__main__", "__mp_main__") and _is_users_file(name, origin)


def _is_users_file(name: str, origin: str | None) -> bool:
    """Is the file that a module is made of in no installed package, nor in this one?"""
    ours = name.partition(".")[0] == "explorer"
    return origin is not None and origin.endswith(".py") and not ours and not is_installed(name, origin)


def _file_of(name: str) -> Path | None:
    """The file of a module that belongs to no installed package; None: it is another, or there is none."""
    try:
        spec = _spec_of(name)
    except Exception:  # noqa: BLE001 - whatever a package of the user's raises when it is looked into
        return None
    if spec is None or spec.origin is None or not _is_users_file(name, spec.origin):
        return None
    file = Path(spec.origin)
    return file if file.is_file() else None


def _spec_of(name: str) -> ModuleSpec | None:
    """Of a module that may be the user's. Imports the packages that it is in, but no module that is no package."""
    package = name.rpartition(".")[0]
    if is_installed(name) or name.partition(".")[0] == "explorer":
        return None
    if package:
        above = _spec_of(package)
        if above is None or above.submodule_search_locations is None or is_installed(package, above.origin):
            return None
    return importlib.util.find_spec(name)


def _imported_by(name: str, source: bytes, *, is_package: bool) -> Iterator[str]:
    """Names that may be modules; of ``from a import b`` both ``a`` and ``a.b``."""
    package = name if is_package else name.rpartition(".")[0]
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (x.name for x in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(filter(None, (*parts, base)))
            yield base
            yield from (f"{base}.{x.name}" for x in node.names)
