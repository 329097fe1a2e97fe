"""Chains in the paper's terms, and the fastest sequence of a short one by searching all of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from explorer.solvers.methods.rotor.chain import Chain, Kind, Operation


def chain(
    *,
    outputs: list[int],
    saved: list[int] | None = None,
    gradients: list[int] | None = None,
    forward_ms: list[float],
    backward_ms: list[float] | None = None,
    forward_overheads: list[int] | None = None,
    backward_overheads: list[int] | None = None,
) -> Chain:
    """A chain in the paper's terms: ω_a, ω_ā, ω_δ, u_f, u_b, o_f, o_b, one entry for each stage, the loss included."""
    n = len(outputs)
    a = np.array(outputs)
    kept = a if saved is None else np.array(saved)
    delta = np.zeros(n, np.int64) if gradients is None else np.array(gradients)
    o_f = np.zeros(n, np.int64) if forward_overheads is None else np.array(forward_overheads)
    o_b = np.zeros(n, np.int64) if backward_overheads is None else np.array(backward_overheads)
    u_f = np.array(forward_ms, dtype=float)
    return Chain(
        input_bytes=np.concatenate([[0], a[:-1]]),
        saved_bytes=kept,
        gradient_bytes=delta,
        forward_peak_bytes=a + o_f,
        saving_peak_bytes=kept + o_f,
        backward_peak_bytes=delta + kept + o_b,
        first_ms=u_f,
        again_ms=u_f,
        backward_ms=np.zeros(n) if backward_ms is None else np.array(backward_ms, dtype=float),
        forward_base_bytes=np.zeros(n, np.int64),
        backward_base_bytes=np.zeros(n, np.int64),
    )


def time_ms(chain: Chain, sequence: Iterable[Operation]) -> float:
    """Duration of a sequence (section 3.1)."""
    seen: set[int] = set()
    total = 0.0
    for operation in sequence:
        stage = operation.stage
        if operation.kind is Kind.BACKWARD:
            total += chain.backward_ms[stage]
        else:
            total += (chain.again_ms if stage in seen else chain.first_ms)[stage]
            seen.add(stage)
    return float(total)


@dataclass(frozen=True, slots=True)
class State:
    """What is in memory: inputs of stages kept, the one that was computed last, histories, and the next backward."""

    inputs: frozenset[int]
    running: int | None
    saved: frozenset[int]
    at: int


def fastest_ms(chain: Chain, memory_bytes: int, *, persistent: bool) -> float | None:
    """The least time of a valid sequence (table 1), by Dijkstra; None if none fits.

    Args:
        chain: short.
        memory_bytes: the batch is not counted.
        persistent: nothing that was kept is dropped before the backward pass uses it (section 4.1).
    """
    start = State(frozenset(), 0, frozenset(), len(chain) - 1)
    queue: list[tuple[float, int, State]] = [(0.0, 0, start)]
    done: set[State] = set()
    count = 0
    while queue:
        time_ms, _, state = heapq.heappop(queue)
        if state.at < 0:
            return time_ms
        if state in done:
            continue
        done.add(state)
        for cost_ms, following in _moves(chain, state, memory_bytes, persistent=persistent):
            count += 1
            heapq.heappush(queue, (time_ms + cost_ms, count, following))
    return None


def _moves(chain: Chain, state: State, memory: int, *, persistent: bool) -> Iterator[tuple[float, State]]:
    there = state.inputs | ({state.running} - {None})
    level = sum(int(chain.input_bytes[x]) for x in there) + sum(int(chain.saved_bytes[x]) for x in state.saved)
    free = memory - level
    at = state.at
    if not persistent:
        for x in state.inputs:
            yield 0.0, State(state.inputs - {x}, state.running, state.saved, at)
        for x in state.saved:
            yield 0.0, State(state.inputs, state.running, state.saved - {x}, at)
    can_go_back = at in state.saved and (at in there or at - 1 in state.saved)
    if can_go_back and chain.backward_peak_bytes[at] - chain.saved_bytes[at] <= free:
        running = None if state.running == at else state.running
        yield float(chain.backward_ms[at]), State(state.inputs - {at}, running, state.saved - {at}, at - 1)
    for stage in range(at + 1):
        source = stage in there or stage - 1 in state.saved
        # A sequence that starts afresh while an activation waits has computed that one for nothing.
        if not source or (state.running is not None and state.running != stage):
            continue
        time_ms, waiting = float(chain.first_ms[stage]), int(chain.gradient_bytes[at])
        kept = state.inputs | ({stage} if stage in there else set())
        if stage not in state.saved and chain.saving_peak_bytes[stage] + waiting <= free:
            yield time_ms, State(kept, None, state.saved | {stage}, at)
        if stage < at and chain.forward_peak_bytes[stage] + waiting <= free:
            yield time_ms, State(kept, stage + 1, state.saved, at)
            if state.running == stage and stage not in state.inputs and stage > 0:
                yield time_ms, State(state.inputs, stage + 1, state.saved, at)
