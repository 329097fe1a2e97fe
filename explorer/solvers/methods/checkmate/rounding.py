"""Checkmate's approximation: the linear relaxation rounded (its section 5)."""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import replace

import numpy as np

from explorer.device_profile import Profile
from explorer.simulation import simulate
from explorer.solution import Solution, Status
from explorer.solvers.methods.answers import best_of
from explorer.solvers.methods.checkmate.cells import Cells, Freedom
from explorer.solvers.methods.checkmate.nodes import Nodes
from explorer.solvers.methods.checkmate.program import build
from explorer.solvers.methods.checkmate.recomputing import Keeps, recompute
from explorer.solvers.options import Options
from explorer.solvers.programs.linear import relax

_SLACK = 0.1  # of the memory, left free for what rounding adds: the first; each is so many times the one before, …
_MORE = 2.5
_MOST = 0.9  # … up to that, until what is rounded fits; then less and less again
_ROUNDS = 6
_THRESHOLD = 0.5
_MOST_CELLS = 1000  # entries of R; above that, the relaxation of MONeT's program takes a tenth of the time
_DEPTH = 4  # see ``formulation.nearby``; for ResNet-50 its relaxation is that of the whole program


def checkmate_rounding(profile: Profile, budget_bytes: int, *, options: Options) -> Solution:
    """Checkmate's approximation: S of the linear relaxation rounded at ½, then the optimal recomputation for that.

    The relaxation is of a budget somewhat smaller, for what rounding adds; how much smaller is searched for while there
    is time, and the best answers. Of small graphs the paper's own program is relaxed; of others MONeT's for the same
    problem, which has the same S (what is kept into each backward stage) in a fraction of the rows.
    """
    began = time.monotonic()
    nodes = Nodes.of(profile)
    checkpoints = _grouped if len(Cells(nodes, Freedom.LEAN).r_columns) > _MOST_CELLS else _lean
    schedules = []
    too_little, enough, slack = 0.0, None, _SLACK
    took_s = 0.0
    for _ in range(_ROUNDS):
        turn = time.monotonic()
        left_s = options.time_limit - (turn - began)
        if left_s <= took_s:
            break
        smaller = nodes.profile.fixed_bytes + int((1 - slack) * (budget_bytes - nodes.profile.fixed_bytes))
        keeps = checkpoints(nodes, smaller, time_limit=left_s)
        if keeps is not None:
            schedules.append(nodes.schedule(recompute(nodes, keeps), method=options.method, budget_bytes=budget_bytes))
        if keeps is None or simulate(profile, schedules[-1]).peak_bytes <= budget_bytes:
            enough = slack
        else:
            too_little = slack
        slack = min(_MOST, _MORE * slack) if enough is None else (too_little + enough) / 2
        took_s = time.monotonic() - turn
    elapsed_s = time.monotonic() - began
    if not schedules:
        message = f"the linear relaxation has no solution, or none could be found in {options.time_limit:g} s"
        return Solution(Status.UNKNOWN, budget_bytes, elapsed_s=elapsed_s, message=message)
    (solution,) = best_of(profile, schedules, [budget_bytes], method=options.method, every=False)
    return replace(solution, elapsed_s=elapsed_s)


def _lean(nodes: Nodes, budget_bytes: int, *, time_limit: float) -> Keeps | None:
    """Checkpoints that the relaxation of the paper's program keeps at least by half."""
    program = build(nodes, budget_bytes, freedom=Freedom.LEAN, workspace=True)
    relaxed = relax(program.milp, time_limit=time_limit).x
    if relaxed is None:
        return None
    return lambda stage, storage: program.kept(relaxed, stage, storage) >= _THRESHOLD


def _grouped(nodes: Nodes, budget_bytes: int, *, time_limit: float) -> Keeps | None:
    """Checkpoints that the relaxation of MONeT's program keeps at least by half."""
    from explorer.solvers.formulation import grouped
    from explorer.solvers.formulation.nearby import nearby

    began = time.monotonic()
    near = nearby(grouped.build(nodes.problem, budget_bytes, threshold=0.0), depth=_DEPTH)
    relaxed = relax(near.milp, time_limit=max(0.0, time_limit - (time.monotonic() - began))).x
    if relaxed is None:
        return None
    layout, merged = near.grouped.layout, near.grouped.layout.merged
    kept = near.whole(relaxed)[near.grouped.blocks["s"]] if "s" in near.grouped.blocks else np.zeros(0)
    activations, starts = nodes.problem.storage_index, [group.start for group in layout.groups]
    # Storage to the last forward stage that reads it.
    read_forward = {x: i for i, node in enumerate(nodes.nodes[: nodes.boundary]) for x in node.first.reads}

    def keeps(stage: int, storage: int) -> bool:
        x = activations.get(storage)
        if x is None or x in merged.pinned or stage <= read_forward.get(storage, -1):
            return True
        backward = nodes.nodes[stage].operator - len(nodes.problem.forward)
        # Into a group's first operator comes what was kept before the group, into the others what is kept after it.
        position = layout.kept.get((bisect_right(starts, backward - 1), x))
        return position is not None and kept[position] >= _THRESHOLD

    return keeps
