"""Plans as genes, compiled: the order of runs that a plan means, and the peak and time of that order.

A plan is one array of genes:

- Activation ``a`` has ``gene_start[a + 1] - gene_start[a]`` of them, 0 or 1: the first says whether it stays after the
  forward pass; number ``1 + u`` whether it stays once it was read or recomputed when ``u`` of the backward operators
  that may read it have passed.
- Every site with several forms has a gene for its form.
- Every activation has two marks, 0 or 1 + the number of a backward operator after the boundary: recompute it before
  that operator, and drop it after that one. They let one checkpoint turn into another midway.

``decode`` recomputes what is missing just before a backward operator needs it, so every plan is a valid order;
``judge`` then frees greedily and chooses the quickest option of every run that fits the budget, exactly as
``Problem.schedule_of`` does, and yields the peak and the time that ``simulate`` finds for that.
"""

# One flat loop is what compiles to quick code. And ``PlanSearch.sketch`` runs these functions by the interpreter while
# they are not compiled yet: a call from one to another would wait for the compiler. So a few lines repeat themselves.
# ruff: noqa: C901, PLR0912, PLR0915

from __future__ import annotations

import numpy as np

from explorer.solvers.search.arrays import AGAIN, ASKED, BACKWARD, FIRST, OPTIONAL, PlanArrays
from explorer.solvers.search.trace import Change, PlanMemory, inner

_NEVER = np.iinfo(np.int64).max
_SORTED = 24  # up to this many recomputations are put in order by insertion


@inner
def decode(arrays: PlanArrays, genes: np.ndarray, work: PlanMemory, change: Change, limit: float) -> tuple[int, float]:
    """Write the forms that ``genes`` run into ``work.trial``; returns their number and their quickest time, ms.

    Only where there may be a ``change``; the rest is copied from ``work.known``. The number is −1 if there is no room
    for them, if a form was chosen that leaves out what another one reads, or once the time is above ``limit``.
    """
    n, m = arrays.forward_count, arrays.bytes.size
    t = arrays.reader_start.size - 1
    known, trial = work.known, work.trial
    order, available, touched, touched_now = trial.order, work.available, work.touched, work.touched_now
    passed, wanted, stack, makers = work.passed, work.wanted, work.stack, work.makers
    length, places = order.size, trial.position.size - 1
    switched = np.int64(arrays.gene_start[m])
    before = switched + arrays.switches.size
    after = before + m
    forward_ms = 0.0
    trial.position[places] = -1
    if n > length:
        return -1, forward_ms
    begin, until = change.begin, change.until
    whole = begin < 0
    count, altered, stale = 0, 0, 0
    if change.forward:
        valid = True
        for a in range(m):
            available[a] = 0
        for operator in range(n):
            form = arrays.form_start[operator]
            if form == arrays.form_start[operator + 1]:
                continue
            if arrays.form_gene[operator] >= 0:
                form += genes[arrays.form_gene[operator]]
            kept = arrays.form_kind[form] != OPTIONAL
            for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
                valid &= touched_now[arrays.reads[at]] == 1
            for at in range(arrays.write_start[form], arrays.write_start[form + 1]):
                a = arrays.writes[at]
                touched_now[a] = 1
                available[a] = genes[arrays.gene_start[a]] if arrays.droppable[a] else 1
                kept |= available[a] == 1
            if kept:
                order[count] = form
                count += 1
                forward_ms += float(arrays.form_ms[form])
        for a in range(m):
            touched_now[a] = 0
        if not valid:
            return -1, forward_ms
        if not whole:
            for a in range(m):
                if available[a] != known.available[0, a]:
                    work.altered[altered] = a
                    altered += 1
                    begin = min(begin, work.first_event[a])
    else:
        count = np.int64(known.position[0])
        order[:count] = known.order[:count]
        altered = np.int64(work.counts[0])
        forward_ms = known.other_ms[0]
    trial.position[0] = count
    if whole:
        backward_ms = arrays.backward_ms
        for number in range(arrays.switches.size):
            if arrays.switches[number] >= 2 * n:
                form = arrays.form_start[arrays.switches[number]]
                backward_ms += float(arrays.form_ms[form + genes[switched + number]] - arrays.form_ms[form])
    else:
        backward_ms = known.other_ms[1] + change.backward_ms
    trial.other_ms[0], trial.other_ms[1] = forward_ms, backward_ms
    fixed_ms = forward_ms + backward_ms
    time_ms = fixed_ms
    first_place, joined = 0, places
    if whole:
        for a in range(m):
            passed[a] = 0
    else:
        if begin < t:
            first_place = begin // work.stride
        for a in range(m):
            available[a] = known.available[first_place, a]
            passed[a] = work.passed_at[first_place, a]
        for number in range(altered):
            available[work.altered[number]] ^= 1
        start, end = known.position[0], known.position[first_place]
        order[count : count + end - start] = known.order[start:end]
        for place in range(first_place):
            trial.position[place] = known.position[place] + count - start
            trial.again_ms[place] = known.again_ms[place]
        count += np.int64(end - start)
        time_ms += known.again_ms[first_place]
    if whole:
        marks = 0
        for gene in range(before, before + 2 * m):
            if genes[gene] and arrays.droppable[(gene - before) % m]:
                work.marked[marks] = gene
                marks += 1
        work.counts[2] = work.counts[3] = marks
    for at in range(work.counts[3]):
        gene = np.int64(work.marked[at])
        marked = np.int64(genes[gene]) - 1
        if marked >= 0 and gene < after:
            work.next_before[gene - before] = work.first_before[marked]
            work.first_before[marked] = gene - before
        elif marked >= 0:
            work.next_after[gene - after] = work.first_after[marked]
            work.first_after[marked] = gene - after
    fits = True
    for number in range(first_place * work.stride, t):
        if number % work.stride == 0:
            place = number // work.stride
            trial.position[place] = count
            trial.again_ms[place] = time_ms - fixed_ms
            if number > until and not whole:
                # As before, but for what nobody asks for again?
                unequal = False
                for a in range(m):
                    unequal |= (available[a] != known.available[place, a]) & (work.last_event[a] >= number)
                if not unequal:
                    joined = place
                    for a in range(m):
                        if available[a] != known.available[place, a]:
                            work.stale[stale] = a
                            stale += 1
                if joined < places:
                    break
            for a in range(m):
                trial.available[place, a] = available[a]
        site = 2 * n + number
        form = arrays.form_start[site]
        if form == arrays.form_start[site + 1]:
            continue
        if arrays.form_gene[site] >= 0:
            form += genes[arrays.form_gene[site]]
        for at in range(arrays.reader_start[number], arrays.reader_start[number + 1]):
            passed[arrays.readers[at]] += 1
        touches, depth, found = 0, 0, 0
        lowest, highest = n, -1
        valid = True
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            a = arrays.reads[at]
            if arrays.droppable[a]:
                touched_now[a] = 1
                touched[touches] = a
                touches += 1
            maker = arrays.producer[a]
            if not available[a] and not wanted[maker]:
                wanted[maker] = 1
                stack[depth] = maker
                depth += 1
        a = work.first_before[number]
        while a >= 0:
            if not touched_now[a]:
                touched_now[a] = 1
                touched[touches] = a
                touches += 1
            maker = arrays.producer[a]
            if not available[a] and not wanted[maker]:
                wanted[maker] = 1
                stack[depth] = maker
                depth += 1
            a = work.next_before[a]
        valid &= number > 0 or depth == 0  # nothing runs again before the boundary
        while depth:
            depth -= 1
            maker = stack[depth]
            makers[found] = maker
            found += 1
            lowest, highest = min(lowest, maker), max(highest, maker)
            again = arrays.form_start[n + maker]
            if again == arrays.form_start[n + maker + 1]:
                valid = False
                continue
            if arrays.form_gene[n + maker] >= 0:
                again += genes[arrays.form_gene[n + maker]]
            for at in range(arrays.read_start[again], arrays.read_start[again + 1]):
                a = arrays.reads[at]
                earlier = arrays.producer[a]
                if not available[a] and not wanted[earlier]:
                    wanted[earlier] = 1
                    stack[depth] = earlier
                    depth += 1
        if not valid or count + found >= length or time_ms > limit:
            for at in range(found):
                wanted[makers[at]] = 0
            for at in range(touches):
                touched_now[touched[at]] = 0
            fits = False
            break
        if found <= _SORTED:
            for at in range(1, found):
                maker = makers[at]
                place = at - 1
                while place >= 0 and makers[place] > maker:
                    makers[place + 1] = makers[place]
                    place -= 1
                makers[place + 1] = maker
        else:
            found = 0
            for maker in range(lowest, highest + 1):
                if wanted[maker]:
                    makers[found] = maker
                    found += 1
        for place in range(found):
            maker = makers[place]
            wanted[maker] = 0
            again = arrays.form_start[n + maker]
            if arrays.form_gene[n + maker] >= 0:
                again += genes[arrays.form_gene[n + maker]]
            order[count] = again
            count += 1
            time_ms += float(arrays.form_ms[again])
            for at in range(arrays.read_start[again], arrays.read_start[again + 1]):
                valid &= available[arrays.reads[at]] == 1
            for at in range(arrays.write_start[again], arrays.write_start[again + 1]):
                a = arrays.writes[at]
                available[a] = 1
                if arrays.droppable[a] and not touched_now[a]:
                    touched_now[a] = 1
                    touched[touches] = a
                    touches += 1
        order[count] = form
        count += 1
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            valid &= available[arrays.reads[at]] == 1
        a = work.first_before[number]
        while a >= 0:
            touched_now[a] = 0
            a = work.next_before[a]
        for at in range(touches):
            a = touched[at]
            if touched_now[a] and available[a]:
                available[a] = genes[arrays.gene_start[a] + 1 + passed[a]]
            touched_now[a] = 0
        if not valid:
            fits = False
            break
        a = work.first_after[number]
        while a >= 0:
            available[a] = 0
            a = work.next_after[a]
    for at in range(work.counts[3]):
        gene = np.int64(work.marked[at])
        if genes[gene] and gene < after:
            work.first_before[genes[gene] - 1] = -1
        elif genes[gene]:
            work.first_after[genes[gene] - 1] = -1
    if joined < places:
        start, end = known.position[joined], known.position[places]
        shift = count - start
        fits &= count + end - start < length
        if fits:
            order[count : count + end - start] = known.order[start:end]
            time_ms += known.again_ms[places] - known.again_ms[joined]
            for place in range(joined + 1, places):
                trial.position[place] = known.position[place] + shift
                trial.again_ms[place] = known.again_ms[place] + time_ms - fixed_ms - known.again_ms[places]
            count += np.int64(end - start)
    if not fits:
        return -1, time_ms
    trial.position[places] = count
    trial.again_ms[places] = time_ms - fixed_ms
    work.places[0], work.places[1] = first_place, joined
    work.counts[0], work.counts[1] = altered, stale
    return count, time_ms  # pyright: ignore[reportReturnType] - numba's scalars


@inner
def judge(
    arrays: PlanArrays, work: PlanMemory, quickest_ms: float, budget: float, penalty: float, limit: float
) -> tuple[int, float, float]:
    """The forms in ``work.trial``, freed greedily: peak (bytes), time (ms), what exceeds the budget.

    That is every run's excess: the sum tells apart plans that lower one of several peaks. All infinite (the peak as
    large as can be) where a run that is only possible in place would overwrite what is needed; and as soon as the time,
    with ``penalty`` times the excess and what all earlier runs take at their quickest, is above ``limit``.
    ``quickest_ms`` is what all runs take so. From where the order is as known, so is what this finds.
    """
    known, trial = work.known, work.trial
    order, alive, held, size = trial.order, work.alive, arrays.held, arrays.bytes
    places = trial.position.size - 1
    joined = work.places[1]
    now, peak = arrays.fixed_bytes, arrays.fixed_bytes
    time_ms = excess = dead_ms = spent_ms = 0.0
    peak_at = 0
    idle = 0
    backward = 0
    if joined < places:
        for a in range(size.size):
            alive[a] = known.alive[joined, a]
        now, peak, peak_at = known.levels[joined, 0], known.levels[joined, 1], known.levels[joined, 2]
        time_ms, excess = known.sums[joined, 0], known.sums[joined, 1]
        dead_ms, spent_ms = known.sums[joined, 2], known.sums[joined, 3]
    else:
        for a in range(size.size):
            alive[a] = held[a]
            if held[a]:
                now += size[a]
        peak = now
    place = joined - 1
    for position in range(trial.position[joined], -1, -1):
        while place >= 0 and trial.position[place] == position:
            for a in range(size.size):
                trial.alive[place, a] = alive[a]
            trial.levels[place, 0], trial.levels[place, 1], trial.levels[place, 2] = now, peak, peak_at
            trial.sums[place, 0], trial.sums[place, 1] = time_ms, excess
            trial.sums[place, 2], trial.sums[place, 3] = dead_ms, spent_ms
            place -= 1
        if position == 0:
            break
        form = order[position - 1]
        kind = arrays.form_kind[form]
        spent_ms += float(arrays.form_ms[form])
        first_write, last_write = arrays.write_start[form], arrays.write_start[form + 1]
        if kind in (AGAIN, OPTIONAL, ASKED):
            useful = False
            for at in range(first_write, last_write):
                a = arrays.writes[at]
                useful |= alive[a] > 0 and not (kind == AGAIN and held[a])
            if not useful:
                dead_ms += float(arrays.form_ms[form])
                continue
        if kind == BACKWARD:
            idle = arrays.form_idle[form]
            backward = arrays.form_site[form] - 2 * arrays.forward_count
        elif kind in (FIRST, OPTIONAL, ASKED):
            idle = 0
        for at in range(first_write, last_write):
            a = arrays.writes[at]
            # A held activation stays though it is made a second time: that copy goes as soon as the call returns.
            if alive[a] and not (kind == AGAIN and held[a]):
                alive[a] = 0
                now -= size[a]
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            a = arrays.reads[at]
            if not alive[a]:
                alive[a] = 2  # dies here: may be overwritten
                now += size[a]
        level = now + idle + arrays.form_level[form]
        # The quickest option that fits, else the smallest.
        chosen, smallest = -1, -1
        for option in range(arrays.option_start[form], arrays.option_start[form + 1]):
            over = arrays.option_over[option]
            if over >= 0 and alive[over] != 2:
                continue
            if level + arrays.option_extra[option] <= budget:
                chosen = np.int64(option)
                break
            if smallest < 0 or arrays.option_extra[option] < arrays.option_extra[smallest]:
                smallest = np.int64(option)
        if chosen < 0:
            chosen = smallest
        if chosen < 0:
            return _NEVER, np.inf, np.inf
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            alive[arrays.reads[at]] = 1
        level += arrays.option_extra[chosen]
        time_ms += arrays.option_ms[chosen]
        if level > peak:
            peak = level
            peak_at = np.int64(backward) if kind in (AGAIN, BACKWARD) else -1 - np.int64(arrays.form_site[form])
        excess += max(0.0, level - budget)
        if time_ms + (quickest_ms - spent_ms) + penalty * excess > limit:
            return _NEVER, np.inf, np.inf
    work.dead_ms[0], work.peak_at[0] = dead_ms, peak_at
    return peak, time_ms, excess  # pyright: ignore[reportReturnType] - numba's scalars
