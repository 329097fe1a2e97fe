"""A problem as flat arrays, for the compiled search over plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from explorer.solvers.problem.problem import Form, Problem
from explorer.solvers.problem.repetition import repetitions
from explorer.solvers.search.twins import twin_genes

FIRST, OPTIONAL, ASKED, AGAIN, BACKWARD = range(5)
GENE = np.uint16


class PlanArrays(NamedTuple):
    """n forward and t backward operators, m activations; lists of lists are CSR (``start`` has one entry more).

    What only serves as an index is unsigned: code compiled for it need not look for negative ones, a third of its time.

    A *site* is a place where something runs: ``i`` the first run of forward operator i, ``n + i`` its recomputation,
    ``2 n + k`` backward operator k. Each has forms, each form options.

    Attributes:
        forward_count: n.
        form_start: uint32 (sites + 1,), forms of each site.
        form_site: uint32 (forms,), the site of each form.
        form_kind: int32, ``FIRST``, ``OPTIONAL`` (a first run that is left out unless what it makes is kept), ``ASKED``
            (likewise, unless another first run reads it), ``AGAIN`` or ``BACKWARD``.
        form_idle: int64, gradients alive just before a backward form, bytes.
        form_level: int64, what a form writes and the gradients that it makes, bytes.
        form_ms: float64, time of each form at its quickest.
        read_start, reads: uint32, activations that each form reads.
        write_start, writes: uint32, activations that each form writes.
        option_start: uint32 (forms + 1,), options of each form, quickest first.
        option_ms: float64.
        option_extra: int64, workspace less what is overwritten, bytes.
        option_over: int32, the activation that must be of no more use, −1: none.
        reader_start, readers: uint32, droppable activations that some form of each backward operator reads.
        use_start, uses: uint32, the other way round: backward operators for each activation.
        bytes: int64 (m,).
        held: bool (m,), never freed.
        droppable: bool (m,), can be made again, and is not held.
        simple: bool (m,), droppable, and every first run of its producer, which has one form, makes it.
        producer: uint32 (m,), the forward operator that makes it.
        gene_start: uint32 (m + 1,), see ``search.kernel``.
        gene_owner: uint32 (genes of activations,), the activation that each is for.
        form_gene: int32 (sites,), which gene says the form; −1 where there is one form only.
        switches: uint32, sites with several forms.
        place_start, at_place: uint32, indices in ``switches`` of those of each forward operator.
        made_start, made: uint32, droppable activations of each forward operator.
        kind: int32 (n,), equal for forward operators of one sort.
        choices: uint32, droppable activations of any size, in the order in which they are made.
        choice_bytes: float64, their sizes, cumulated.
        twins: int32 (roles, blocks), genes about the same place of each block (see ``twins``); −1: it has none.
        role: int32 (genes,), the row of ``twins`` in which a gene stands, −1: in none.
        fixed_bytes: allocated throughout.
        backward_ms: of all backward operators, each in its first form.
    """

    forward_count: int
    form_start: np.ndarray
    form_site: np.ndarray
    form_kind: np.ndarray
    form_idle: np.ndarray
    form_level: np.ndarray
    form_ms: np.ndarray
    read_start: np.ndarray
    reads: np.ndarray
    write_start: np.ndarray
    writes: np.ndarray
    option_start: np.ndarray
    option_ms: np.ndarray
    option_extra: np.ndarray
    option_over: np.ndarray
    reader_start: np.ndarray
    readers: np.ndarray
    use_start: np.ndarray
    uses: np.ndarray
    bytes: np.ndarray
    held: np.ndarray
    droppable: np.ndarray
    simple: np.ndarray
    producer: np.ndarray
    gene_start: np.ndarray
    gene_owner: np.ndarray
    form_gene: np.ndarray
    switches: np.ndarray
    place_start: np.ndarray
    at_place: np.ndarray
    made_start: np.ndarray
    made: np.ndarray
    kind: np.ndarray
    choices: np.ndarray
    choice_bytes: np.ndarray
    twins: np.ndarray
    role: np.ndarray
    fixed_bytes: int
    backward_ms: float

    @property
    def gene_count(self) -> int:
        """Genes of activations, one for each switch, and two marks for each activation."""
        return int(self.gene_start[-1]) + self.switches.size + 2 * self.bytes.size

    @property
    def backward_count(self) -> int:
        """How many backward operators there are."""
        return self.reader_start.size - 1


def plan_arrays(problem: Problem) -> PlanArrays:
    """The arrays of ``problem``."""
    n = len(problem.forward)
    sites = [op.first for op in problem.forward]
    sites += [op.again for op in problem.forward]
    sites += [op.forms for op in problem.backward]
    forms = [form for site in sites for form in site]
    form_site = np.array([site for site, found in enumerate(sites) for _ in found], np.uint32)
    options = [option for form in forms for option in form.options]
    size = np.array([x.bytes for x in problem.activations], np.int64)
    held = np.array([x.held for x in problem.activations], bool)
    droppable = np.zeros(size.size, bool)
    for operator in problem.forward:
        for form in operator.again:
            droppable[list(form.writes)] = True
    droppable &= ~held
    simple = np.zeros(size.size, bool)
    for operator in problem.forward:
        if len(operator.first) == 1 and not operator.optional:
            simple[list(operator.first[0].writes)] = True
    readers = [_droppable_reads(op.forms, droppable) for op in problem.backward]
    uses: list[list[int]] = [[] for _ in problem.activations]
    for number, found in enumerate(readers):
        for x in found:
            uses[x].append(number)
    counts = np.array([len(x) for x in uses], np.int64)
    gene_start = np.concatenate([[0], np.cumsum(np.where(droppable, 2 + counts, 0))]).astype(np.uint32)
    switches = np.array([site for site, found in enumerate(sites) if len(found) > 1], np.uint32)
    form_gene = np.full(len(sites), -1, np.int32)
    form_gene[switches] = gene_start[-1] + np.arange(switches.size)
    producer = np.array([x.producer for x in problem.activations], np.uint32)
    choices = np.flatnonzero(droppable & (size > 0)).astype(np.uint32)
    choices = choices[np.argsort(producer[choices], kind="stable")]
    over = [-1 if x.overwrites is None else x.overwrites for x in options]
    made: list[list[int]] = [[] for _ in range(n)]
    for x in np.flatnonzero(droppable).tolist():
        made[producer[x]].append(x)
    places = _places(problem, sites, switches)
    form_counts = [len(sites[site]) for site in switches.tolist()]
    twins, role = twin_genes(repetitions(problem), made, gene_start, places, form_counts, marks=2 * size.size)
    return PlanArrays(
        n,
        _starts(sites),
        form_site,
        _kinds(problem, form_site),
        *_gradients(problem, forms, form_site),
        np.array([form.time_ms for form in forms]),
        *_listed([form.reads for form in forms]),
        *_listed([form.writes for form in forms]),
        _starts([form.options for form in forms]),
        np.array([x.time_ms for x in options]),
        np.array([x.extra_bytes(problem.activations) for x in options], np.int64),
        np.array(over, np.int32),
        *_listed(readers),
        *_listed(uses),
        size,
        held,
        droppable,
        simple & droppable,
        producer,
        gene_start,
        np.repeat(np.arange(size.size, dtype=np.uint32), np.diff(gene_start)),
        form_gene,
        switches,
        *_listed(places),
        *_listed(made),
        _sorts(problem),
        choices,
        np.cumsum(size[choices], dtype=np.float64),
        twins,
        role,
        problem.fixed_bytes,
        sum(op.forms[0].time_ms for op in problem.backward if op.forms),
    )


def _kinds(problem: Problem, form_site: np.ndarray) -> np.ndarray:
    n = len(problem.forward)
    optional = np.array([op.optional for op in problem.forward], bool)
    kinds = np.where(form_site < 2 * n, AGAIN, BACKWARD)
    first = form_site < n
    kinds[first] = np.where(optional[form_site[first]], OPTIONAL, FIRST)
    read = {x for op in problem.forward for form in op.first for x in form.reads}
    asked = np.array([any(read.intersection(form.writes) for form in op.first) for op in problem.forward], bool)
    kinds[first] = np.where(optional[form_site[first]] & asked[form_site[first]], ASKED, kinds[first])
    return kinds.astype(np.int32)


def _gradients(problem: Problem, forms: Sequence[Form], form_site: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``form_idle`` and ``form_level``."""
    idle = np.zeros(len(forms), np.int64)
    level = np.array([sum(problem.activations[x].bytes for x in form.writes) for form in forms], np.int64)
    for form, site in enumerate(form_site.tolist()):
        if site >= 2 * len(problem.forward):
            backward = problem.backward[site - 2 * len(problem.forward)]
            idle[form] = backward.idle_bytes
            level[form] = backward.made_bytes
    return idle, level


def _places(problem: Problem, sites: Sequence[Sequence[Form]], switches: np.ndarray) -> list[list[int]]:
    """For each forward operator, the switches that belong to it: its own, and those that first read what it makes."""
    n = len(problem.forward)
    places: list[list[int]] = [[] for _ in range(n)]
    for number, site in enumerate(switches.tolist()):
        read = [problem.activations[x].producer for form in sites[site] for x in form.reads]
        place = site % n if site < 2 * n else (read[0] if read else 0)
        places[place].append(number)
    return places


def _sorts(problem: Problem) -> np.ndarray:
    """Forward operators of one sort call the same, read and write as many activations, and are both optional or not."""
    numbers: dict[object, int] = {}
    found = []
    for graphed, operator in zip(problem.graph.forward, problem.forward, strict=True):
        shape = tuple((len(form.reads), len(form.writes)) for form in operator.first)
        found.append(numbers.setdefault((graphed.target, operator.optional, shape), len(numbers)))
    return np.array(found, np.int32)


def _droppable_reads(forms: Iterable[Form], droppable: np.ndarray) -> list[int]:
    return list(dict.fromkeys(x for form in forms for x in form.reads if droppable[x]))


def _starts(lists: Sequence[Sequence[object]]) -> np.ndarray:
    return np.cumsum([0, *map(len, lists)]).astype(np.uint32)


def _listed(lists: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    return _starts(lists), np.array([x for found in lists for x in found], np.uint32)
