"""The judge that the published instances come with, and schedules in its form."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.profiles.published import ALGORITHM, ALTERNATIVE, IN_PLACE
from explorer.schedule import Free, Run, Schedule

_GRADIENT = "parameter_gradient_bytes"


def judge_in(folder: Path) -> ModuleType:
    """The module ``verify.py`` of a folder of instances; ends the program where there is none."""
    spec = importlib.util.spec_from_file_location("verify", folder / "verify.py")
    if spec is None or spec.loader is None or not (folder / "verify.py").exists():
        raise SystemExit(f"{folder} has no verify.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_checkmate_counts(document: dict[str, Any]) -> dict[str, Any]:
    """An instance as its published results for Checkmate count it.

    No workspace, and nothing in place. Room for all parameter gradients is taken throughout, not from when each is
    made (section 4.4, footnote 1: "we reserve space for gradients"). With that, VGG-16's optima are the published ones
    to 0.03 ms; without, better schedules exist than those published as optimal.

    Args:
        document: the instance, as parsed from JSON.

    Returns:
        The instance with every workspace 0 and parameter gradients among the fixed bytes, for ``profile_of`` and for
        the judge.
    """
    workspaces = ("workspace_bytes", "recompute_workspace_bytes")
    reserved = sum(op.get(_GRADIENT, 0) for op in document["ops"])

    def counted(op: dict[str, Any]) -> dict[str, Any]:
        changed = {key: value for key, value in op.items() if key != "inplace"}
        changed |= dict.fromkeys((key for key in (*workspaces, _GRADIENT) if key in op), 0)
        for several in ("algorithms", "alternatives"):
            if several in op:
                changed[several] = [way | {"workspace_bytes": 0} for way in op[several]]
        return changed

    fixed_bytes = document["fixed_bytes"] + reserved
    return document | {"ops": [counted(op) for op in document["ops"]], "fixed_bytes": fixed_bytes}


def plan_of(profile: Profile, schedule: Schedule) -> list[list[Any]]:
    """A schedule for an imported profile, in the form of the published judge: a list of steps.

    Args:
        profile: from ``profile_of``.
        schedule: valid for it.

    Returns:
        ``["run", id, how]``, ``["backward", id, how]`` and ``["free", id]``; the judge frees gradients by itself.
    """
    graph = profile.graph
    maker = {x: op.id for op in graph.forward for x in op.default().writes}
    steps: list[list[Any]] = []
    for step in schedule.steps:
        if isinstance(step, Free):
            if step.storage in maker:
                steps.append(["free", maker[step.storage]])
        elif step.operator != graph.forward_count:
            steps.append(_judged(graph, step))
    return steps


def _judged(graph: TrainingGraph, run: Run) -> list[Any]:
    # Ids of an instance count its operators; the boundary between the passes is ours.
    forward = run.operator < graph.forward_count
    number = run.operator if forward else run.operator - 1
    how: dict[str, Any] = {}
    if run.implementation.startswith(ALGORITHM):
        how["algorithm"] = int(run.implementation.removeprefix(ALGORITHM))
    elif run.implementation.startswith(ALTERNATIVE):
        how["alternative"] = int(run.implementation.removeprefix(ALTERNATIVE))
    elif run.implementation == IN_PLACE:
        how["inplace"] = True
    return ["run" if forward else "backward", number, how]
