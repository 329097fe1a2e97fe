"""From a schedule to values of the paper's variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from explorer.schedule import Schedule
from explorer.solvers.formulation.paper.stages import Alternative, PaperNode, Stages
from explorer.solvers.formulation.paper.variables import per_stage_form, sometimes_needed
from explorer.solvers.problem.schedules import Reading, RunChoice, reading_of


def values_of(stages: Stages, schedule: Schedule) -> dict[str, np.ndarray] | None:
    """The values of every block for ``schedule``, without regard to memory.

    What backward operator t needs is saved past it (S[t+1]) unless it is made in stage t.

    Returns:
        None where the schedule runs implementations unknown to the problem, or recomputes before the boundary.
    """
    reading = reading_of(stages.problem, schedule)
    if reading is None or reading.intervals[0].recomputations:
        return None
    again, made = _runs(stages, reading)
    saved = _saved(stages, reading, made)
    values = {"S": saved, "R": again}
    values |= _alternatives(stages, reading, again, made, saved)
    values |= _first_values(stages, reading, saved[0])
    values |= _backward_values(stages, reading, saved[1:])
    return values


def _backward(reading: Reading, stage: int) -> RunChoice:
    """What the schedule chose; the first form of what it left to another operator, but this model runs."""
    return reading.intervals[stage].backward or RunChoice(stage, 0, 0)


def _needs(stages: Stages, reading: Reading, position: int, stage: int) -> tuple[int, ...]:
    return stages.backward[position].forms[_backward(reading, stage).form].reads


def _runs(stages: Stages, reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    """R, shape (stages, nodes), and what that makes, shape (stages, activations); an operator once in each stage."""
    number = {(node.operator, node.number): k for k, node in enumerate(stages.nodes)}
    again = np.zeros((len(stages.stages), len(stages.nodes)))
    for n, t in enumerate(stages.stages):
        chosen = {x.operator: number.get((x.operator, x.form)) for x in reading.intervals[t].recomputations}
        again[n, [k for k in chosen.values() if k is not None]] = 1.0
    return again, np.minimum(again @ stages.makes, 1.0)


def _saved(stages: Stages, reading: Reading, made: np.ndarray) -> np.ndarray:
    """S, shape (stages + 1, activations)."""
    kept = [reading.intervals[t].kept for t in stages.stages]
    saved = stages.incidence([reading.intervals[0].kept, *kept])
    for n, t in enumerate(stages.stages):
        needs = stages.incidence([_needs(stages, reading, n, t)])[0]
        saved[n + 1] = np.maximum(saved[n + 1], needs * (1.0 - made[n]))
    return saved


def _alternatives(
    stages: Stages, reading: Reading, again: np.ndarray, made: np.ndarray, saved: np.ndarray
) -> dict[str, np.ndarray]:
    """Options of the recomputations, in place where this model has it so, and what is made and left."""
    options = np.zeros((len(stages.stages), len(stages.alternatives)))
    number = {(node.operator, node.number): k for k, node in enumerate(stages.nodes)}
    known = {(x.owner, x.option): k for k, x in enumerate(stages.alternatives)}
    left = made.copy()
    for n, t in enumerate(stages.stages):
        needs = set(_needs(stages, reading, n, t))
        chosen = {x.operator: x for x in reading.intervals[t].recomputations}
        runs = [stages.nodes[k] for k in np.flatnonzero(again[n])]
        for choice in chosen.values():
            k = known.get((number.get((choice.operator, choice.form), -1), choice.option))
            if k is None:
                continue
            over = stages.alternatives[k].overwrites
            if over is not None:
                column = stages.position[over]
                if saved[n + 1, column] or over in needs or _read_later(runs, choice, over):
                    continue
                left[n, column] = 0.0
            options[n, k] = 1.0
    return {"delta": options, "P": left[:, [stages.position[x] for x in stages.overwritable]]}


def _read_later(runs: Sequence[PaperNode], choice: RunChoice, activation: int) -> bool:
    return any(node.operator > choice.operator and activation in node.form.reads for node in runs)


def _first_values(stages: Stages, reading: Reading, saved: np.ndarray) -> dict[str, np.ndarray]:
    chosen = {(x.operator, x.form): x for x in reading.first}
    runs = [float((node.operator, node.number) in chosen) for node in stages.first]
    owners = {k: chosen.get((node.operator, node.number)) for k, node in enumerate(stages.first)}
    options = _options(stages.first_alternatives, owners)
    for k, x in enumerate(stages.first_alternatives):
        if x.overwrites in stages.position and saved[stages.position[x.overwrites]]:
            options[k] = 0.0
    return {"R0": np.array(runs)[list(stages.optional_first)], "delta0": options}


def _backward_values(stages: Stages, reading: Reading, saved: np.ndarray) -> dict[str, np.ndarray]:
    """Forms and options of the backward operators, and what they need that is saved past them."""
    choices = [_backward(reading, t) for t in stages.stages]
    owners = {k: choices[n] if choices[n].form == f else None for k, (n, f) in enumerate(stages.backward_forms)}
    forms = np.array([float(owner is not None) for owner in owners.values()])
    options = _options(stages.backward_alternatives, owners)
    for k, x in enumerate(stages.backward_alternatives):
        stage = stages.backward_forms[x.owner][0]
        if x.overwrites is not None and saved[stage, stages.position[x.overwrites]]:
            options[k] = 0.0
    needed = per_stage_form(stages) @ (forms[:, None] * stages.needs)
    sigma = (needed * saved).ravel()[sometimes_needed(stages)]
    return {"M": forms[list(stages.chosen_forms)], "delta_backward": options, "sigma": sigma}


def _options(alternatives: Sequence[Alternative], owners: Mapping[int, RunChoice | None]) -> np.ndarray:
    """1 for every alternative that its owner's choice names."""
    found = [owners[x.owner] for x in alternatives]
    return np.array([float(c is not None and c.option == x.option) for c, x in zip(found, alternatives, strict=True)])
