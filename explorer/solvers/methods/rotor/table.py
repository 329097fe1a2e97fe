"""Algorithms 1 and 2: the best persistent sequence of a chain for every amount of memory at once (theorem 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from explorer.solvers.methods.rotor.chain import Chain, Kind, Operation, Sequence
from explorer.solvers.search.machine_code import compiled

SLOTS = 500
"""Memory is counted in so many equal slots (section 5.2)."""
_INFEASIBLE = -1
_SAVE = 0


@dataclass(frozen=True, eq=False)
class Table:
    """Best times C_BP(s, t, m) for all stages s ≤ t and all m from 0 to ``slots``.

    Attributes:
        chain: what it is for.
        slot_bytes: of one slot.
        times_ms: float64, (pairs, slots + 1); infinite where nothing fits.
        choices: int16, the same shape: the first checkpoint s' after s, or 0 for F_all of s, or −1.
    """

    chain: Chain
    slot_bytes: int
    times_ms: np.ndarray
    choices: np.ndarray

    @property
    def curve_ms(self) -> np.ndarray:
        """float64 (slots + 1,): the best time of the whole chain for every amount of memory."""
        return self.times_ms[_pair(len(self.chain), 0, len(self.chain) - 1)]

    @property
    def levels(self) -> tuple[int, ...]:
        """Every amount of memory, in slots, at which there is a better sequence than below; increasing."""
        times = self.curve_ms
        return tuple(m for m in range(len(times)) if np.isfinite(times[m]) and (m == 0 or times[m] < times[m - 1]))

    def sequences(self) -> tuple[Sequence, ...]:
        """The best sequence for each of these."""
        return tuple(map(self.sequence, self.levels))

    def sequence(self, slots: int) -> Sequence:
        """The best for one of these amounts.

        Algorithm 2, with a stack of its own: chains may be longer than Python's recursion is deep.
        """
        result: list[Operation] = []
        pending: list[tuple[int, int, int] | Operation] = [(0, len(self.chain) - 1, slots)]
        while pending:
            item = pending.pop()
            if isinstance(item, Operation):
                result.append(item)
                continue
            s, t, m = item
            choice = int(self.choices[_pair(len(self.chain), s, t), m])
            assert choice != _INFEASIBLE
            if choice == _SAVE:
                result.append(Operation(Kind.ALL, s))
                pending.append(Operation(Kind.BACKWARD, s))
                if s < t:
                    pending.append((s + 1, t, m - _slots(self.chain.saved_bytes[s], self.slot_bytes)))
            else:
                result.append(Operation(Kind.CHECKPOINT, s))
                result += [Operation(Kind.EMPTY, stage) for stage in range(s + 1, choice)]
                pending.append((s, choice - 1, m))
                pending.append((choice, t, m - _slots(self.chain.input_bytes[choice], self.slot_bytes)))
        return tuple(result)


def solve(chain: Chain, *, memory_bytes: int, slots: int = SLOTS, save: bool = True) -> Table:
    """Algorithm 1.

    Args:
        chain: to run.
        memory_bytes: the largest amount of interest.
        slots: it is divided into; sizes are rounded up to whole slots.
        save: may a stage be run by F_all ahead of its turn? Without, the method is revolve for heterogeneous chains:
            only inputs are kept, and every stage runs by F_all just before its backward pass (section 5.3).

    Returns:
        The table. It takes n²/2 · (slots + 1) · 10 bytes.

    Raises:
        ValueError: ``memory_bytes`` or ``slots`` is not positive.
    """
    if memory_bytes < 1 or slots < 1:
        raise ValueError(f"memory_bytes is {memory_bytes} and slots is {slots}; both must be 1 or more")
    slot_bytes = -(-memory_bytes // slots)
    times, choices = _fill(
        slots,
        slot_bytes,
        chain.input_bytes,
        chain.saved_bytes,
        chain.gradient_bytes + chain.forward_base_bytes,
        chain.forward_peak_bytes,
        chain.saving_peak_bytes,
        chain.backward_peak_bytes + chain.backward_base_bytes,
        chain.first_ms,
        chain.again_ms,
        chain.backward_ms,
        save,
    )
    return Table(chain, slot_bytes, times, choices)


def _slots(size_bytes: Any, slot_bytes: int) -> int:
    return -(-int(size_bytes) // slot_bytes)


def _pair(n: int, s: int, t: int) -> int:
    """Row of the pair s ≤ t."""
    return s * n - s * (s - 1) // 2 + t - s


@compiled
def _fill(  # noqa: PLR0913, PLR0917 - one flat loop is what compiles to quick code
    slots: int,
    slot_bytes: int,
    input_bytes: np.ndarray,
    saved_bytes: np.ndarray,
    waiting_bytes: np.ndarray,
    forward_peak: np.ndarray,
    saving_peak: np.ndarray,
    backward_peak: np.ndarray,
    first_ms: np.ndarray,
    again_ms: np.ndarray,
    backward_ms: np.ndarray,
    save: bool,  # noqa: FBT001
) -> tuple[np.ndarray, np.ndarray]:
    """Equation 2 for chains of growing length; ``waiting_bytes``: what is in memory throughout beside the chain."""
    n = len(input_bytes)
    pairs = n * (n + 1) // 2
    times = np.full((pairs, slots + 1), np.inf)
    choices = np.full((pairs, slots + 1), np.int16(_INFEASIBLE), np.int16)
    smallest = np.full(pairs, slots + 1)  # slots that each pair needs
    # As wide as the times, so that the inner loop works on several entries at a time.
    chosen = np.empty(slots + 1, np.int64)
    for length in range(n):
        for s in range(n - length):
            t = s + length
            row = s * n - s * (s - 1) // 2 + length
            # The first run of every stage is that of a chain which reaches to the end.
            forward_ms = first_ms if t == n - 1 else again_ms
            best = times[row]
            chosen[:] = _INFEASIBLE
            # C_all: F_all of s, the rest, B of s (for s = t, equation 1).
            own_ms = forward_ms[s] + backward_ms[s]
            least = -(-max(waiting_bytes[t] + saving_peak[s], backward_peak[s], 0) // slot_bytes)
            if length == 0:
                best[least:] = own_ms
                chosen[least:] = _SAVE
            elif save:
                kept = -(-saved_bytes[s] // slot_bytes)
                rest = row + n - s - 1  # (s + 1, t)
                for m in range(max(least, kept + smallest[rest]), slots + 1):
                    best[m] = own_ms + times[rest, m - kept]
                    chosen[m] = _SAVE
            # C_ck: F_ck of s, F_∅ up to the next checkpoint c, the chain from c, then the chain from s to before c.
            peak, run_ms = forward_peak[s], 0.0
            for c in range(s + 1, t + 1):
                if c > s + 1:
                    peak = max(peak, input_bytes[c - 1] + forward_peak[c - 1])
                run_ms += forward_ms[c - 1]
                kept = -(-input_bytes[c] // slot_bytes)
                behind = c * n - c * (c - 1) // 2 + t - c  # (c, t)
                before = row - t + c - 1  # (s, c - 1)
                least = -(-max(waiting_bytes[t] + peak, 0) // slot_bytes)
                least = max(least, kept + smallest[behind], smallest[before])
                count = slots + 1 - least
                if count > 0:
                    _improve(
                        best[least:],
                        chosen[least:],
                        times[behind, least - kept : least - kept + count],
                        times[before, least:],
                        run_ms,
                        c,
                    )
            choices[row] = chosen
            feasible = np.flatnonzero(best < np.inf)
            if len(feasible):
                smallest[row] = feasible[0]
    return times, choices


@njit(nogil=True, inline="always")
def _improve(
    best: np.ndarray, chosen: np.ndarray, behind: np.ndarray, before: np.ndarray, run_ms: float, choice: int
) -> None:
    """Where running on to ``choice`` is quicker, that is the choice."""
    for m in range(len(best)):
        total_ms = run_ms + behind[m] + before[m]
        better = total_ms < best[m]
        best[m] = total_ms if better else best[m]
        chosen[m] = choice if better else chosen[m]
