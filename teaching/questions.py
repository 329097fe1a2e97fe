"""The exercises of the course, a function for each notebook. Answers are computed, not written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

import explorer
from explorer.device_profile import Profile
from explorer.graph import Role
from explorer.solvers.placing.packing import pack
from explorer.solvers.placing.rectangles import Rectangles
from explorer.timeline import COLUMN, Category
from teaching.exercises import Exercises, NotAnAnswerError, Question, number, one_of, some_of
from teaching.game import Game


def memory(profile: Profile) -> Exercises:
    """Of a network without recomputation."""
    line = explorer.simulate(profile, explorer.keep_all(profile.graph))
    of_the_model = (Category.PARAMETERS, Category.BUFFERS, Category.PARAMETER_GRADIENTS)
    fixed_bytes = sum(int(line.bytes[line.peak_run, COLUMN[x]]) for x in of_the_model)

    def bytes_of(*roles: Role) -> int:
        return sum(x.bytes for x in profile.graph.storages if x.role in roles)

    return Exercises(
        (
            Question(
                "Which operator sets the peak? (Its name, as in the table.)",
                lambda: profile.graph.operators[line.operators[line.peak_run]].name,
                hint="The run with the largest total.",
            ),
            Question(
                "In which pass is it: 'forward' or 'backward'?",
                lambda: line.stages[line.peak_run].value,
                hint="Look at the colours of the picture.",
                why="All activations are still there when gradients begin to be made.",
            ),
            Question(
                "How many bytes do parameters and their gradients take together?",
                lambda: 2 * bytes_of(Role.PARAMETER),
                hint="A gradient is as large as its parameter.",
                why="That does not depend on the batch, and no checkpointing saves any of it.",
            ),
            Question(
                "Twice the batch: how many times the peak, all included? (Two digits.)",
                lambda: 2 - fixed_bytes / line.peak_bytes,
                hint="Of what is there at the peak, parameters and what there is of their gradients do not grow.",
                tolerance=4e-3,
                digits=2,
            ),
        )
    )


@cache
def _best_by_hand(game: Game) -> tuple[float, frozenset[str]]:
    names = list(game.tensors)
    moves = (game.play(x) for count in range(len(names) + 1) for x in combinations(names, count))
    best = min((x for x in moves if x.fits), key=lambda x: x.extra_ms, default=None)
    return (float("inf"), frozenset()) if best is None else (best.extra_ms, best.dropped)


def by_hand(first: Game, second: Game) -> Exercises:
    """Of two games: one that can be won by hand, one that cannot."""
    assert _best_by_hand(second)[0] == float("inf"), "the second game is one that buttons cannot win"
    sizes = {name: x.bytes for name, x in first.tensors.items()}
    return Exercises(
        (
            Question(
                "Drop the largest tensor alone. How many units is the peak lower than with everything kept?",
                lambda: (
                    first.play(()).timeline.peak_bytes
                    - first.play([max(sizes, key=sizes.__getitem__)]).timeline.peak_bytes
                ),
                hint="It is made again, and is then there beside its gradient.",
                why="Less than its size: what it is made from has to be kept, and the peak moves elsewhere.",
            ),
            Question(
                "Name tensors to drop so that the first game fits its budget. (A list of names.)",
                lambda answer: first.play(some_of(answer, first.tensors, kind="tensor")).fits,
                hint="Try large tensors that are quick to make again.",
                judges=True,
                example=lambda: sorted(_best_by_hand(first)[1]),
            ),
            Question(
                "What is the least time of recomputation in the first game, in ms?",
                lambda: _best_by_hand(first)[0],
                hint="The solver says it.",
            ),
            Question(
                "In the second game no choice of tensors fits, whatever you drop. The solver finds a schedule. What "
                "can it do that the buttons cannot: 'drop again', 'skip a layer' or 'use less precision'?",
                lambda: "drop again",
                hint="Look for a tensor that is kept by the forward pass and made again later all the same.",
                why="A tensor may be kept for a while, dropped early, and made again: rotor's Figure 2 is about that.",
            ),
        )
    )


def program(least: Callable[..., Any], nodes_of: Callable[[int], int], smallest: Callable[[], int]) -> Exercises:
    """Of the chain of five layers: ``least(budget, tau)`` solves its program, ``nodes_of`` counts nodes."""
    return Exercises(
        (
            Question(
                "With room for ten units, what is the least extra time, in ms?",
                lambda: float(least(10)),
                hint="The optimum of the program.",
            ),
            Question(
                "What is the smallest budget for which our program has a solution?",
                lambda: min(x for x in range(1, 15) if least(x) is not None),
                hint="Try smaller budgets until the solver says infeasible.",
                why="Ours counts all that a stage makes until the stage ends.",
            ),
            Question(
                "And the smallest of the explorer's, which counts what is alive at each run?",
                smallest,
                hint="explorer.smallest_budget(profile).",
                why="Exact counting has room for schedules that ours has none for.",
            ),
            Question(
                "All layers take 1 ms. What is the least extra time with room for ten units then?",
                lambda: float(least(10, np.ones(5))),
                hint="least(10, np.ones(5)).",
            ),
            Question(
                "How many nodes does our branch and bound look at with room for 12?",
                lambda: nodes_of(12),
                hint="branch_and_bound(12, tell=False).",
                why="With more room fewer fractions pay.",
            ),
        )
    )


def grouping(sizes: dict[str, tuple[int, int]], lengths: Sequence[int], rows: dict[int, tuple[int, int]]) -> Exercises:
    """Of VGG-16's programs by formulation (rows, columns), and of chains' rows by length."""
    a, b = lengths[-2:]
    return Exercises(
        (
            Question(
                "How many times fewer rows has the grouped program of VGG-16 than the paper's? (To the nearest whole.)",
                lambda: sizes["paper"][0] / sizes["grouped"][0],
                hint="Divide.",
                digits=0,
            ),
            Question(
                f"A chain of {b} instead of {a} layers: by which factor does the paper's program grow? (One digit.)",
                lambda: rows[b][0] / rows[a][0],
                hint="Its memory rows are stages × operators.",
                why="About the square of the ratio of lengths.",
                digits=1,
            ),
            Question(
                "And the grouped one?",
                lambda: rows[b][1] / rows[a][1],
                hint="Rows of the second column.",
                why="Much less than the square: a group shares one sweep.",
                digits=1,
            ),
        )
    )


def annealing(best: dict[str, float], bound_ms: float) -> Exercises:
    """Of the three ways: best time of each, and the best bound."""
    return Exercises(
        (
            Question(
                "Which way had the quickest schedule at the end? (Its name in the picture.)",
                lambda answer: best[one_of(answer, best, kind="way")] <= min(best.values()) * (1 + 1e-6),
                hint="Several may share it; compare to four digits.",
                judges=True,
                example=lambda: min(best, key=best.__getitem__),
            ),
            Question(
                "How far is it from what is proven, in per cent of the schedule's time? (Within 0.1.)",
                lambda answer: abs(number(answer) - 100 * (1 - bound_ms / min(best.values()))) <= 0.1 + 1e-9,
                hint="(schedule − bound) / schedule.",
                judges=True,
                example=lambda: 100 * (1 - bound_ms / min(best.values())),
            ),
            Question(
                "Annealing alone stops when you stop it. What does it lack: 'a schedule', 'a proof' or 'memory'?",
                lambda: "a proof",
                hint="What would tell you to stop?",
            ),
        )
    )


def implementations(times: dict[str, float | None], saved_bits: float) -> Exercises:
    """Of what may be chosen: times by set, and the factor by which a mask is smaller than the ReLU's input."""
    known = {name: x for name, x in times.items() if x is not None}
    return Exercises(
        (
            Question(
                "A ReLU's backward pass needs one bit for each float32. How many times less memory is that?",
                lambda: saved_bits,
                hint="Bits in a float32.",
            ),
            Question(
                "Which set of choices has the quickest schedule? (Its name in the table.)",
                lambda answer: (
                    known.get(one_of(answer, times, kind="set"), float("inf")) <= min(known.values()) * (1 + 1e-3)
                ),
                hint="More choices are never worse, but for the solver's time.",
                judges=True,
                example=lambda: min(known, key=known.__getitem__),
            ),
            Question(
                "Which of these changes gradients beyond rounding: 'output', 'inplace', 'intermediate', 'convolution' "
                "or 'none of them'?",
                lambda: "none of them",
                hint="What does exact=True leave out, and by how much does it differ?",
                why="Some change the last bits, as any other order of a sum does; encodings of Gist's kind "
                "are never chosen unasked.",
            ),
        )
    )


Block = tuple[str, int, int, int]
"""Name, first run, last run and size of a tensor."""


def addresses(blocks: Sequence[Block], fragmentation: float) -> Exercises:
    """Of tensors to be placed by hand, and of an allocator."""
    rectangles = Rectangles(
        np.array([x[1] for x in blocks]), np.array([x[2] + 1 for x in blocks]), np.array([x[3] for x in blocks])
    )
    load = rectangles.load_bytes

    def placed(answer: Any) -> bool:
        at = _addresses_of(answer, [x[0] for x in blocks])
        there = [(at[name], at[name] + size, first, last) for name, first, last, size in blocks]
        apart = all(a[1] <= b[0] or b[1] <= a[0] or a[3] < b[2] or b[3] < a[2] for a, b in combinations(there, 2))
        return apart and min(x[0] for x in there) >= 0 and max(x[1] for x in there) <= load

    return Exercises(
        (
            Question(
                "What is the load: the most that is alive at once?",
                lambda: load,
                hint="Add up each column of the picture.",
            ),
            Question(
                "Place all tensors in a buffer of that size: {'A': address, …}.",
                placed,
                hint="No two may overlap in both time and address. Start with the two that live longest.",
                why="The search finds such a placement for nearly every step.",
                judges=True,
                example=lambda: dict(
                    zip((x[0] for x in blocks), pack(rectangles, seconds=5.0).offset_bytes.tolist(), strict=True)
                ),
            ),
            Question(
                "Which share of what PyTorch's allocator reserves for UNet's step is not in use at its peak? (Two "
                "digits.)",
                lambda: fragmentation,
                hint="timeline.reservation.fragmentation.",
                digits=2,
            ),
        )
    )


def _addresses_of(answer: Any, names: Sequence[str]) -> dict[str, int]:
    if not isinstance(answer, dict):
        raise NotAnAnswerError("A dictionary of addresses is asked for.")
    found = {one_of(name, names, kind="tensor"): number(at) for name, at in answer.items()}
    if lacking := [x for x in names if x not in found]:
        raise NotAnAnswerError(f"There is no address for {', '.join(lacking)}.")
    if len(found) < len(answer) or not all(x.is_integer() for x in found.values()):
        raise NotAnAnswerError("Each tensor has one address, a whole number.")
    return {name: int(x) for name, x in found.items()}


def iterations(peaks: dict[str, int]) -> Exercises:
    """Of one model's iteration in several forms: peak by name."""
    adam = peaks["AdamW"] - peaks["nothing"]
    return Exercises(
        (
            Question(
                "How much more does an iteration with AdamW take than the step alone, in MiB? (To the nearest whole.)",
                lambda: adam / 2**20,
                hint="Subtract.",
                why="Two states as large as the parameters, and temporaries of the update where they come at the peak.",
                digits=0,
            ),
            Question(
                "Nothing recomputed, as in the first table: does an update within the backward pass raise the peak "
                "above that of one at the end, or lower it? ('raise', 'lower', 'the same')",
                lambda: (
                    "lower"
                    if peaks["AdamW, within"] < peaks["AdamW"]
                    else "raise"
                    if peaks["AdamW, within"] > peaks["AdamW"]
                    else "the same"
                ),
                hint="Compare the two rows; the smallest budgets are another matter.",
                why="Its peak comes before most gradients; what it lowers is the smallest budget.",
            ),
            Question(
                "Accumulation over microbatches: what stays in memory throughout that a single step frees? "
                "('gradients', 'activations', 'state')",
                lambda: "gradients",
                hint="What is added to?",
            ),
        )
    )
