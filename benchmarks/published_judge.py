"""The judge that the published instances come with."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def judge_in(folder: Path) -> ModuleType:
    """The module ``verify.py`` of a folder of instances; ends the program where there is none."""
    spec = importlib.util.spec_from_file_location("verify", folder / "verify.py")
    if spec is None or spec.loader is None or not (folder / "verify.py").exists():
        raise SystemExit(f"{folder} has no verify.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
