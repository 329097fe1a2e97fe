"""The code that makes a user's model: its file, and what that imports of files that are nobody's package."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from explorer.capture.mentions import is_installed


def source_digest(model: str) -> str:
    """Another one after a change of the code that makes ``package.module:function``, or of what that code imports.

    Nothing is run but ``__init__`` files of packages. What the code reads besides Python files is not looked at.

    Args:
        model: as for ``factory``; that of a bundled model goes by this package's version.
    """
    module, colon, _ = model.partition(":")
    if not colon:
        return ""
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
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


def _file_of(name: str) -> Path | None:
    """The file of a module that belongs to no installed package; None: it is another, or there is none."""
    if is_installed(name) or name.partition(".")[0] == "explorer":
        return None
    try:
        spec = importlib.util.find_spec(name)
    except Exception:  # noqa: BLE001 - whatever a package of the user's raises when it is looked into
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    file = Path(spec.origin)
    return None if is_installed(name, spec.origin) or not file.is_file() else file


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
