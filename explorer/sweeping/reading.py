"""A sweep as a YAML file: the axes by the names that ``sweep`` has for them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from explorer.arguments import a_path
from explorer.extras import needing
from explorer.sweeping.cells import cells_of
from explorer.units import shown

_AXES = "models", "devices", "batches", "budgets", "methods"
_ALLOWED = tuple(inspect.signature(cells_of).parameters)


def read_plan(path: str | Path) -> dict[str, Any]:
    """What ``sweep`` is to be called with.

    Raises:
        ValueError: the file is missing or no YAML, lacks models or devices, or has something else.
    """
    with needing("reading a plan"):
        import yaml
    source = a_path(path)
    try:
        text = source.read_text(encoding="utf-8")
        document = yaml.compose(text, yaml.SafeLoader)
        plan = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"cannot read {source}: {' '.join(str(error).split())}") from error
    if not isinstance(plan, dict):
        raise ValueError(f"{source} must have an entry for each axis: {', '.join(_ALLOWED)}")
    names = [key.value for key, _ in document.value]  # of which a dict has the later one of two
    if twice := [x for x in names if names.count(x) > 1]:
        raise ValueError(f"{source} has the entry {shown(twice[0])} twice; put all of them into one list")
    if unknown := [str(x) for x in plan if x not in _ALLOWED]:
        raise ValueError(f"{source} has the unknown entry {shown(unknown[0])}; allowed: {', '.join(_ALLOWED)}")
    if missing := [x for x in ("models", "devices") if x not in plan]:
        raise ValueError(f"{source} says no {missing[0]}; it needs models and devices")
    # One thing need not be written as a list of one.
    return {name: value if name not in _AXES or isinstance(value, list) else [value] for name, value in plan.items()}
