"""Compiled random changes of plans (see ``search.kernel`` for what the genes mean)."""

# numba has its own generator behind np.random's old names, no generator expressions
# and no keyword-only arguments.
# ruff: noqa: C901, FBT001, NPY002, SIM110

from __future__ import annotations

import numpy as np

from explorer.solvers.search.arrays import PlanArrays
from explorer.solvers.search.trace import inner

_RELIEVE = (0.05, 0.3)  # how often something at the peak is let go: of plans that fit, and of those that do not
_TWICE = 0.3  # how often two changes are made at once
_STRETCH = 24  # longest stretch that is copied
_ECHOED = 128  # genes at most of which a change is echoed
_ATTEMPTS = 16  # at finding something that is kept across the peak


@inner
def some_activation(arrays: PlanArrays) -> int:
    """The place of a random activation in ``choices``; half of the time by size, for what is large decides the peak."""
    choices = arrays.choices.size
    if np.random.random() < 0.5:
        return np.random.randint(choices)
    drawn = np.random.random() * arrays.choice_bytes[choices - 1]
    return min(np.searchsorted(arrays.choice_bytes, drawn), choices - 1)


@inner
def reads_it(arrays: PlanArrays, form: int, activation: int) -> bool:
    """Does a form read an activation?"""
    for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
        if arrays.reads[at] == activation:
            return True
    return False


@inner
def switch(arrays: PlanArrays, genes: np.ndarray) -> None:
    """Give a site another form; what only the old one reads hands its keeps over to what only the new one reads."""
    site = arrays.switches[np.random.randint(arrays.switches.size)]
    gene, first = arrays.form_gene[site], arrays.form_start[site]
    forms = np.int64(arrays.form_start[site + 1] - first)
    old = first + genes[gene]
    genes[gene] = (genes[gene] + 1 + np.random.randint(forms - 1)) % forms
    new = first + genes[gene]
    if np.random.random() < 0.3:
        return
    drop = np.random.random() < 0.6
    for at in range(arrays.read_start[new], arrays.read_start[new + 1]):
        a = arrays.reads[at]
        if not arrays.droppable[a] or reads_it(arrays, old, a):
            continue
        length = np.int64(arrays.gene_start[a + 1] - arrays.gene_start[a])
        for before in range(arrays.read_start[old], arrays.read_start[old + 1]):
            b = arrays.reads[before]
            if not arrays.droppable[b] or reads_it(arrays, new, b):
                continue
            available = np.int64(arrays.gene_start[b + 1] - arrays.gene_start[b])
            for u in range(length):
                genes[arrays.gene_start[a] + u] = genes[arrays.gene_start[b] + min(u, available - 1)]
            if drop:
                for u in range(available):
                    genes[arrays.gene_start[b] + u] = 0


@inner
def mark(arrays: PlanArrays, genes: np.ndarray) -> None:
    """Set, move or remove a mark."""
    m = arrays.bytes.size
    t = arrays.reader_start.size - 1
    base = arrays.gene_start[m] + arrays.switches.size
    # The next mark from a random place on, if there is one: most plans have few.
    start = np.random.randint(2 * m)
    at = -1
    for step in range(2 * m):
        place = base + (start + step) % (2 * m)
        if genes[place] > 0:
            at = place
            break
    kind = np.random.random()
    if at >= 0 and kind < 0.35:
        genes[at] = 0
    elif at >= 0 and kind < 0.5:
        genes[at] = min(max(2, genes[at] - 4 + np.random.randint(9)), t)
    elif t > 1:
        a = arrays.choices[some_activation(arrays)]
        number = 2 + np.random.randint(t - 1)
        if kind >= 0.9:
            genes[base + m + a] = number
            return
        genes[base + a] = number
        # Recomputed from something: that can often go.
        form = arrays.form_start[arrays.forward_count + arrays.producer[a]]
        reads = arrays.read_start[form + 1] - arrays.read_start[form]
        if reads and np.random.random() < 0.6:
            b = arrays.reads[arrays.read_start[form] + np.random.randint(reads)]
            if arrays.droppable[b]:
                genes[base + m + b] = min(number + (0 if np.random.random() < 0.5 else np.random.randint(3)), t)


@inner
def copy_stretch(arrays: PlanArrays, genes: np.ndarray) -> None:
    """Treat a stretch of the forward pass like another of the same sort: networks repeat themselves."""
    n = arrays.forward_count
    target = np.random.randint(n)
    source = -1
    for _ in range(12):
        place = np.random.randint(n)
        if place != target and arrays.kind[place] == arrays.kind[target]:
            source = place
            break
    if source < 0:
        return
    for step in range(2 + np.random.randint(_STRETCH)):
        to, of = target + step, source + step
        if to >= n or of >= n or arrays.kind[to] != arrays.kind[of]:
            return
        made = min(arrays.made_start[to + 1] - arrays.made_start[to], arrays.made_start[of + 1] - arrays.made_start[of])
        for number in range(made):
            a, b = arrays.made[arrays.made_start[to] + number], arrays.made[arrays.made_start[of] + number]
            length = min(
                arrays.gene_start[a + 1] - arrays.gene_start[a], arrays.gene_start[b + 1] - arrays.gene_start[b]
            )
            for u in range(length):
                genes[arrays.gene_start[a] + u] = genes[arrays.gene_start[b] + u]
        switches = arrays.place_start[to + 1] - arrays.place_start[to]
        if switches != arrays.place_start[of + 1] - arrays.place_start[of]:
            continue
        for number in range(switches):
            x = arrays.switches[arrays.at_place[arrays.place_start[to] + number]]
            y = arrays.switches[arrays.at_place[arrays.place_start[of] + number]]
            if arrays.form_start[x + 1] - arrays.form_start[x] == arrays.form_start[y + 1] - arrays.form_start[y]:
                genes[arrays.form_gene[x]] = genes[arrays.form_gene[y]]


@inner
def block(arrays: PlanArrays, genes: np.ndarray) -> None:
    """A stretch of activations: keep them after the forward pass, or not, or as before; the same for later on."""
    choices = arrays.choices
    begin = np.random.randint(choices.size)
    length = 1 + np.random.randint(12 if np.random.random() < 0.8 else 30)
    first, later = np.random.randint(3), np.random.randint(3)
    for at in range(begin, min(begin + length, choices.size)):
        start, end = arrays.gene_start[choices[at]], arrays.gene_start[choices[at] + 1]
        if first < 2:
            genes[start] = first
        if later < 2:
            for gene in range(start + 1, end):
                genes[gene] = later


@inner
def relieve(arrays: PlanArrays, genes: np.ndarray, peak_at: int) -> None:
    """Let go of something that is kept across the peak (``Work.peak_at``)."""
    for _ in range(_ATTEMPTS):
        a = arrays.choices[some_activation(arrays)]
        start = arrays.gene_start[a]
        gene = start
        if peak_at < 0:
            if arrays.producer[a] >= -1 - peak_at:
                continue
        else:
            passed = 0
            for at in range(arrays.use_start[a], arrays.use_start[a + 1]):
                passed += arrays.uses[at] < peak_at
            if (
                arrays.use_start[a] + passed < arrays.use_start[a + 1]
                and arrays.uses[arrays.use_start[a] + passed] == peak_at
            ):
                continue
            if passed:
                gene = start + 1 + passed
        if genes[gene]:
            genes[gene] = 0
            return


@inner
def echo(arrays: PlanArrays, old: np.ndarray, genes: np.ndarray) -> None:
    """Do elsewhere in a repetition what was done to ``old``: everywhere, up to some block, from one on, or between two.

    Blocks are alike, so what is right for one is right for many. What memory leaves over serves some of them alone.
    """
    blocks = arrays.twins.shape[1]
    first, last = np.random.randint(blocks), np.random.randint(blocks)
    first, last = min(first, last), max(first, last)
    kind = np.random.random()
    if kind < 0.8:
        first = 0 if kind < 0.6 else first
        last = blocks - 1 if kind < 0.4 or kind >= 0.6 else last
    changed = np.empty(_ECHOED, np.int64)
    count = 0
    for gene in range(arrays.role.size):
        if old[gene] != genes[gene] and arrays.role[gene] >= 0 and count < _ECHOED:
            changed[count] = gene
            count += 1
    for number in range(count):
        gene = changed[number]
        for block_number in range(first, last + 1):
            twin = arrays.twins[arrays.role[gene], block_number]
            if twin >= 0:
                genes[twin] = genes[gene]


@inner
def move(arrays: PlanArrays, genes: np.ndarray) -> None:
    """Change ``genes`` a little, in one of several ways; marks and copies lead out of traps, and into them."""
    choices = arrays.choices
    if choices.size == 0 or (arrays.switches.size and np.random.random() < 0.12):
        switch(arrays, genes)
        return
    if np.random.random() < 0.2:
        if np.random.random() < 0.3:
            mark(arrays, genes)
        else:
            copy_stretch(arrays, genes)
        return
    kind = np.random.random()
    if kind < 0.15:
        block(arrays, genes)
        return
    at = some_activation(arrays)
    start, end = arrays.gene_start[choices[at]], arrays.gene_start[choices[at] + 1]
    if kind < 0.35:  # swap with a neighbour
        other = arrays.gene_start[choices[min(max(at + np.random.randint(-6, 7), 0), choices.size - 1)]]
        genes[start], genes[other] = genes[other], genes[start]
        genes[start + 1], genes[other + 1] = genes[other + 1], genes[start + 1]
    elif kind < 0.7:  # after the forward pass: keep or drop
        genes[start] ^= 1
    elif kind < 0.9:  # later: keep or drop
        genes[np.random.randint(start + 1, end)] ^= 1
    else:  # always keep or never
        value = np.random.randint(2)
        for gene in range(start, end):
            genes[gene] = value


@inner
def vary(arrays: PlanArrays, genes: np.ndarray, old: np.ndarray, exceeds: bool, peak_at: int, echoed: float) -> None:
    """One change or two; the first often lets go of something at the peak, above all where the plan does not fit.

    Args:
        arrays: the problem.
        genes: what is changed.
        old: the same before.
        exceeds: it does not fit.
        peak_at: as in ``PlanMemory``.
        echoed: how often what is changed is changed in other blocks of a repetition too.
    """
    if arrays.choices.size and np.random.random() < _RELIEVE[int(exceeds)]:
        relieve(arrays, genes, peak_at)
    else:
        move(arrays, genes)
    if np.random.random() < _TWICE:
        move(arrays, genes)
    if arrays.twins.size and np.random.random() < echoed:
        echo(arrays, old, genes)
