"""The fastest evaluation of a small step with recomputation of anything, by searching all of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from explorer.solvers.methods.checkmate.cells import Cells
from explorer.solvers.methods.checkmate.nodes import Evaluation

State = tuple[int, int, frozenset[int]]
"""Stage, the first node that may still be evaluated in it, what is in memory."""


def fastest_ms(cells: Cells, budget_bytes: int, *, workspace: bool) -> float | None:
    """Dijkstra over what is in memory; None where nothing fits.

    Args:
        cells: which nodes may be evaluated again; in each stage once and in order.
        budget_bytes: of the whole step.
        workspace: count it.
    """
    nodes = cells.nodes
    room = budget_bytes - nodes.profile.fixed_bytes
    start: State = (0, 0, frozenset())
    queue: list[tuple[float, int, State]] = [(0.0, 0, start)]
    done: set[State] = set()
    count = 0
    while queue:
        time_ms, _, state = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        stage, following, alive = state
        if stage == len(nodes):
            return time_ms
        for x in alive - nodes.held:
            count += 1
            heapq.heappush(queue, (time_ms, count, (stage, following, alive - {x})))
        for i, way in _evaluations(cells, stage, following):
            if set(way.reads) <= alive and _bytes(cells, alive, way, workspace=workspace) <= room:
                count += 1
                left = (alive | set(way.writes)) - {way.overwrites}
                after: State = (stage + 1, 0, left) if i == stage else (stage, i + 1, left)
                heapq.heappush(queue, (time_ms + way.time_ms, count, after))
    return None


def _evaluations(cells: Cells, stage: int, following: int) -> Iterator[tuple[int, Evaluation]]:
    nodes = cells.nodes
    for i in cells.stages[stage]:
        way = cells.again(i)
        if i >= following and way is not None:
            yield i, way
    yield stage, nodes.nodes[stage].first


def _bytes(cells: Cells, alive: frozenset[int], way: Evaluation, *, workspace: bool) -> int:
    """What is there, what is made (beside a copy that is there), and the workspace."""
    sizes = cells.nodes.bytes
    made = sum(sizes[x] for x in way.writes)
    return sum(sizes[x] for x in alive) + made + (way.workspace_bytes if workspace else 0)
