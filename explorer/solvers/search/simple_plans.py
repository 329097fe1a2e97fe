"""Plans to start a search from: simple rules that every kind of network has a use for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from explorer.solvers.search.arrays import GENE, PlanArrays

_SHARES, _WORTHS = 17, 3
SEGMENTS = range(2, 40)
FIRST_SEGMENTS = _WORTHS * _SHARES
"""The place among ``starting_plans`` of the first that keeps what lies between segments; see ``SEGMENTS``."""


def starting_plans(arrays: PlanArrays) -> Iterator[np.ndarray]:
    """Plans from all to nothing kept: by cost per byte, by size, by segments and by stretches of the forward pass.

    Each for every rule that chooses forms.
    """
    for forms, kept in product(_form_rules(arrays), _keep_rules(arrays)):
        genes = kept.copy()
        genes[arrays.gene_start[-1] : arrays.gene_start[-1] + forms.size] = forms
        yield genes


def _form_rules(arrays: PlanArrays) -> list[np.ndarray]:
    """Forms of all switches: each site's first; what reads least beside what must be there anyway; each one's last."""
    counts = (arrays.form_start[arrays.switches + 1] - arrays.form_start[arrays.switches]).astype(GENE)
    rules = [np.zeros(counts.size, GENE), _frugal_forms(arrays), counts - GENE(1)]
    return list({rule.tobytes(): rule for rule in rules}.values())


def _frugal_forms(arrays: PlanArrays) -> np.ndarray:
    """For each switch the form that reads the fewest bytes that no operator without a choice reads."""
    forward = arrays.forward_count
    needed = np.zeros(arrays.bytes.size, bool)
    for site in range(2 * forward, arrays.form_start.size - 1):
        if arrays.form_start[site + 1] - arrays.form_start[site] == 1:
            needed[_reads(arrays, arrays.form_start[site])] = True
    chosen = np.zeros(arrays.switches.size, GENE)
    for number, site in enumerate(arrays.switches):
        forms = range(arrays.form_start[site], arrays.form_start[site + 1])
        costs = [arrays.bytes[[x for x in _reads(arrays, form) if not needed[x]]].sum() for form in forms]
        chosen[number] = int(np.argmin(costs))
    return chosen


def _reads(arrays: PlanArrays, form: int) -> np.ndarray:
    return arrays.reads[arrays.read_start[form] : arrays.read_start[form + 1]]


def _keep_rules(arrays: PlanArrays) -> Iterator[np.ndarray]:
    choices, starts = arrays.choices, arrays.gene_start[arrays.choices]

    def plan(kept: np.ndarray, *, later: int) -> np.ndarray:
        genes = np.zeros(arrays.gene_count, GENE)
        genes[: arrays.gene_start[-1]] = later
        genes[starts] = kept
        return genes

    sizes = arrays.bytes[choices]
    per_byte = _again_ms(arrays)[arrays.producer[choices]] / np.maximum(sizes, 1)
    worths = per_byte, -sizes, sizes
    assert len(worths) == _WORTHS
    last = _last_reads(arrays)
    cuts = [np.isin(choices, _cuts(arrays, last, segments)) for segments in SEGMENTS]
    for later in (1, 0):
        for worth in worths:
            rank = np.argsort(np.argsort(worth, kind="stable"), kind="stable")
            for share in np.linspace(0, 1, _SHARES):
                yield plan(rank >= share * choices.size, later=later)
        for kept in cuts:
            yield plan(kept, later=later)
    yield from _stretches(arrays, last)


def _again_ms(arrays: PlanArrays) -> np.ndarray:
    """The quickest recomputation of each forward operator; 0 where there is none."""
    n = arrays.forward_count
    found = np.zeros(n)
    for operator in range(n):
        form = arrays.form_start[n + operator]
        if form < arrays.form_start[n + operator + 1]:
            found[operator] = arrays.option_ms[arrays.option_start[form]]
    return found


def _stretches(arrays: PlanArrays, last_reads: np.ndarray) -> Iterator[np.ndarray]:
    """Plans in three stretches: dropped after each use, recomputed once and kept, kept from the start.

    They suit tight budgets: when the backward pass reaches the first operators, all gradients are in memory. What is
    alive where the first two stretches meet may stay, so that the second need not begin at the input.
    """
    choices, starts = arrays.choices, arrays.gene_start[arrays.choices]
    counts = (arrays.gene_start[choices + 1] - starts).astype(np.int64)
    own = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)  # places of their genes
    made, last = arrays.producer[choices], last_reads[choices]
    places = np.linspace(0, arrays.forward_count, 17, dtype=np.int64)
    for kept_from in places:
        for dropped_to in places[places <= kept_from]:
            for bridge in (False, True):
                genes = np.zeros(arrays.gene_count, GENE)
                across = bridge & (made < dropped_to) & (last >= dropped_to)
                genes[own] = np.repeat((made >= dropped_to) | across, counts)
                genes[starts] = (made >= kept_from) | across
                yield genes


def _last_reads(arrays: PlanArrays) -> np.ndarray:
    """For each activation, the last forward operator that reads it; 0 without one."""
    last = np.zeros(arrays.bytes.size, np.int32)
    for operator in range(arrays.forward_count):
        for form in range(arrays.form_start[operator], arrays.form_start[operator + 1]):
            last[_reads(arrays, form)] = operator
    return last


def _cuts(arrays: PlanArrays, last: np.ndarray, segments: int) -> np.ndarray:
    """What is alive at the narrowest places near the ends of ``segments`` equal parts of the forward pass."""
    forward = arrays.forward_count
    made = arrays.producer[arrays.choices]
    sizes = arrays.bytes[arrays.choices]
    alive = np.zeros(forward + 1)
    np.add.at(alive, made, sizes)
    np.add.at(alive, np.maximum(last[arrays.choices], made), -sizes)
    width = np.cumsum(alive)[:forward]
    total = np.cumsum(np.bincount(made, weights=sizes, minlength=forward)[:forward])
    kept = np.zeros(arrays.choices.size, bool)
    reach = max(1, forward // (4 * segments))
    for part in range(1, segments):
        centre = int(np.searchsorted(total, total[-1] * part / segments))
        low, high = max(0, centre - reach), min(forward, centre + reach + 1)
        cut = low + int(width[low:high].argmin())
        kept |= (made <= cut) & (last[arrays.choices] > cut)
    return arrays.choices[kept]
