"""rotor: the best persistent checkpointing of a chain of blocks, and what its authors compare it with.

Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: *Optimal checkpointing for heterogeneous chains: how to train deep
neural networks with limited memory*, Inria research report RR-9302, 2019.

What they share: the model is a chain of blocks, found here at the articulation points of the forward graph
(``stages``). All run PyTorch's own implementations, so results are the same bits. All ignore what lies inside a block
(it is saved or recomputed as a whole), schedules that drop a checkpoint before its use (persistency, section 4.1) and
other implementations. A graph that is no chain has one large block, which can only be saved or run again as a whole;
the answers say how large it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import isqrt

from explorer.device_profile import Profile
from explorer.solution import Solution
from explorer.solvers.methods.answers import answers_from, unsuited
from explorer.solvers.methods.rotor import table
from explorer.solvers.methods.rotor.chain import Chain, Operation, in_segments, keep_everything
from explorer.solvers.methods.rotor.costing import chain_of
from explorer.solvers.methods.rotor.stages import Blocks
from explorer.solvers.options import Options
from explorer.solvers.problem.frontier import Frontier, judged


def rotor(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> tuple[Solution, ...]:
    """Rotor's optimal persistent schedules (theorem 1, algorithms 1 and 2).

    Minimises the time of a step under a memory limit over all persistent sequences of F_all, F_ck, F_∅ and B (table 1),
    by a dynamic programme over (first stage, last stage, memory) with sizes in 500 slots (section 5.2). One table
    serves all budgets; what the simulator finds decides which of its schedules fit, and as the model counts a little
    more than the simulator, that may be one that the table has for a larger budget.

    Args:
        profile: graph and costs.
        budgets_bytes: peak allowed, each.
        options: the method's name, and the time after which no further schedule is judged.
    """
    return _answers(profile, budgets_bytes, options, _best_sequences)


def revolve(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> tuple[Solution, ...]:
    """Revolve for heterogeneous chains, rotor's comparison (section 5.3, after Gruslys et al., appendix C).

    Minimises the time over schedules that keep inputs of stages only and run each stage by F_all just before its
    backward pass, as in automatic differentiation: every forward stage but the last runs at least twice, whatever the
    memory. The dynamic programme is rotor's without C_all.
    """
    return _answers(profile, budgets_bytes, options, partial(_best_sequences, save=False))


def checkpoint_sequential(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> tuple[Solution, ...]:
    """PyTorch's ``torch.utils.checkpoint.checkpoint_sequential`` with s segments, for s from 2 to 2√L (section 5.3).

    Minimises nothing: the chain is cut into s segments of equally many stages, the input of each is kept, and all but
    the last run once more. The quickest s that fits a budget is its answer.
    """
    return _answers(profile, budgets_bytes, options, _segments)


_Made = Callable[[], tuple[Operation, ...]]
"""A sequence, made when it is wanted."""


def _segments(chain: Chain) -> list[_Made]:
    most = min(len(chain), isqrt(4 * len(chain)))
    return [partial(in_segments, chain, segments) for segments in range(most, 1, -1)]


def _best_sequences(chain: Chain, *, save: bool = True) -> list[_Made]:
    # With sizes rounded up to slots, saving everything takes a little more than its peak.
    rounding = 1 + len(chain) / table.SLOTS
    enough_bytes = round(chain.peak_bytes(keep_everything(chain)) * rounding) + 1
    found = table.solve(chain, memory_bytes=enough_bytes, save=save)
    return [partial(found.sequence, x) for x in found.levels]


def _answers(
    profile: Profile,
    budgets_bytes: Sequence[int],
    options: Options,
    sequences_of: Callable[[Chain], list[_Made]],
) -> tuple[Solution, ...]:
    until = time.monotonic() + options.time_limit * len(budgets_bytes)
    blocks = Blocks(profile)
    if not blocks.separate:
        return unsuited(budgets_bytes, blocks.description)
    made = sequences_of(chain_of(blocks))
    frontier, peaks = Frontier(), dict[int, int]()

    def peak_bytes(number: int) -> int:
        if number not in peaks:
            point = judged(profile, blocks.schedule(made[number](), method=options.method))
            frontier.add(point)
            peaks[number] = point.peak_bytes
        return peaks[number]

    for number in _nearest_first(len(made), budgets_bytes, peak_bytes):
        if peaks and time.monotonic() > until:
            break
        peak_bytes(number)
    every = len(peaks) == len(made)
    found = answers_from(profile, frontier, budgets_bytes, method=options.method, every=every)
    cut = "" if every else f"; {len(peaks)} of {len(made)} schedules were judged in time"
    return tuple(replace(x, message=f"{x.message}{cut}; {blocks.description}") for x in found)


def _nearest_first(count: int, budgets_bytes: Sequence[int], peak_bytes: Callable[[int], int]) -> Iterator[int]:
    """All schedules, by increasing memory in the model: those that are likely to answer come first.

    The simulator's peaks increase nearly as the model's do, so halving leads near to the one that just fits; as this is
    not quite so, its neighbours follow, and in the end all.
    """
    yield 0  # the smallest: does anything fit?
    near = {0}
    for budget_bytes in budgets_bytes:
        low, high = 0, count
        while high - low > 1:
            middle = (low + high) // 2
            yield middle
            low, high = (middle, high) if peak_bytes(middle) <= budget_bytes else (low, middle)
        near.add(low)
    yield from sorted(range(count), key=lambda x: min(abs(x - y) for y in near))
