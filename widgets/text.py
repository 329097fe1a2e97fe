"""What the widget says: sentences for its status line, and its table of figures."""

from __future__ import annotations

from explorer.analysis.residuals import Residual
from explorer.device_profile import Profile
from explorer.harmless import in_html
from explorer.measurement import Measurement
from explorer.reserved import Reservation
from explorer.solution import BoundScope, Solution, Status
from explorer.timeline import Stage, Timeline
from explorer.units import format_bytes
from widgets import style
from widgets.scene.scene import News, Scene

_PHASES = {
    Stage.FORWARD: "forward pass",
    Stage.RECOMPUTE: "backward pass",
    Stage.BACKWARD: "backward pass",
    Stage.UPDATE: "update",
}
_PROVEN = 0.0005
"""Less than the last digit shown."""
_SCOPES = {
    BoundScope.PROBLEM: "all schedules",
    BoundScope.ORDER: "all schedules in its order",
    BoundScope.GROUPING: "the schedules of its grouping",
}
TONES = {
    Status.OPTIMAL: "good",
    Status.FEASIBLE: "good",
    Status.INFEASIBLE: "warning",
    Status.UNKNOWN: "warning",
    Status.UNSUITED: "warning",
    Status.CANCELLED: "warning",
    Status.FAILED: "bad",
}


def proven(solution: Solution) -> str:
    """What is proven about a schedule, or that nothing is yet."""
    for scope, of in _SCOPES.items():
        gap = solution.gap(scope)
        if gap is not None and gap < _PROVEN:
            return f"proven to be the best of {of}"
        if gap is not None:
            return f"proven within {100 * gap:.1f} % of the best of {of}"
    return "no bound proven yet"


def best_gap(solution: Solution) -> float | None:
    """The gap that ``proven`` speaks of."""
    gaps = (solution.gap(scope) for scope in _SCOPES)
    return next((gap for gap in gaps if gap is not None), None)


def progress(solution: Solution, plain: Timeline, *, timeline: Timeline | None = None, restart: str = "") -> str:
    """A solve that goes on; ``plain`` step, ``timeline`` of its schedule, ``restart`` as ``SolveEvent`` has it."""
    best = _schedule(solution, plain, timeline)
    budget = style.format_memory(solution.budget_bytes, of=plain.peak_bytes)
    told = f"{_sentence(restart)} " if restart else ""
    return f"{told}Solving for {budget}, {solution.elapsed_s:.1f} s: {best or 'no schedule yet'}"


def log_line(news: News, before: News | None, final: Solution | None, *, restart: str = "") -> str:
    """What changed since the news before, as a line of the log; how it ended, if it did; "" for nothing new."""
    told = [restart] if restart else []
    if news.time_ms is not None and (before is None or before.time_ms != news.time_ms):
        found = "" if news.finder is None else f", found by {news.finder.value}"
        told.append(f"schedule {style.format_ms(news.time_ms)}{found}")
    if news.bound_ms is not None and (before is None or before.bound_ms != news.bound_ms):
        told.append(f"no schedule takes less than {style.format_ms(news.bound_ms)}")
    if news.grouping_ms is not None and (before is None or before.grouping_ms != news.grouping_ms):
        told.append(f"the integer program's grouping allows no less than {style.format_ms(news.grouping_ms)}")
    if final is not None:
        told.append(f"ended: {final.status.value}" + (f", {final.message}" if final.message else ""))
    return f"{news.elapsed_s:6.2f} s  {'; '.join(told)}" if told else ""


def outcome(solution: Solution, plain: Timeline, *, timeline: Timeline | None = None) -> str:
    """How a solve ended, and what to do where it found nothing; ``timeline`` is that of its schedule."""
    budget = style.format_memory(solution.budget_bytes, of=plain.peak_bytes)
    best = _schedule(solution, plain, timeline)
    match solution.status:
        case Status.OPTIMAL | Status.FEASIBLE:
            head = "Optimal" if solution.status is Status.OPTIMAL else "Solved"
            return f"{head} for {budget} in {solution.elapsed_s:.1f} s: {best}."
        case Status.INFEASIBLE:
            reason = _sentence(str(solution.minimum) if solution.minimum else solution.message)
            return f"No schedule fits {budget}. {reason} Choose a larger budget."
        case Status.CANCELLED:
            return f"Cancelled for {budget}: " + (
                f"{best} stays." if best else "no schedule was found. Move the slider to solve."
            )
        case Status.UNKNOWN:
            return (
                _sentence(solution.message or f"no schedule for {budget} was found in time")
                + " Choose a larger budget."
            )
        case Status.UNSUITED:
            return _sentence(solution.message)
        case Status.FAILED:
            stays = f" Best so far: {best}." if best else ""
            reason = _sentence(solution.message or f"the solver failed for {budget}")
            return f"{reason}{stays} Move the slider to solve again."


def update_hint(profile: Profile, timeline: Timeline) -> str:
    """Where an update after the backward pass sets the peak, so that recomputation cannot help: what might."""
    if timeline.stages[timeline.peak_run] is not Stage.UPDATE or profile.graph.iteration.within:
        return ""
    if not profile.can_update_within:
        return " The update sets the peak, which no recomputation changes."
    return " The update sets the peak, which no recomputation changes: try updates within the backward pass (Solver)."


def device_needs(found: Reservation) -> str:
    """What a CUDA device must have for a schedule, beside the peak."""
    return f" PyTorch's caching allocator needs a device of {style.format_memory(found.smallest_limit_bytes)} for it."


def measured(timeline: Timeline, measurement: Measurement) -> str:
    """What a run showed, against the prediction."""
    peak, time = _differences(timeline, measurement)
    return (
        f"Measured: peak {style.format_memory(measurement.peak_bytes)} "
        f"({peak} against the predicted {style.format_memory(timeline.peak_bytes)}), "
        f"{style.format_ms(measurement.step_time_ms)} a step ({time} against {style.format_ms(timeline.time_ms)})."
    )


def residual(profile: Profile, timeline: Timeline, found: Residual) -> str:
    """Why a run differs from its prediction, in sentences."""
    told = [_peak_residual(profile, timeline, found)]
    if found.unsplit_bytes:
        told.append(
            f"Blocks that were not split have {format_bytes(found.unsplit_bytes)} more than was asked for, beside that."
        )
    if found.cache_bytes is not None:
        told.append(
            f"The allocator held {format_bytes(found.cache_bytes)} more from the device, in pieces it could not use."
        )
    share = found.unexplained_ms / timeline.time_ms if timeline.time_ms else 0.0
    if found.machine_ms is None or found.own_share is None:
        told.append(
            f"Time: {_percent(share)}; no plain step was run beside it, so what is the machine's and what is the "
            "schedule's own is not told apart."
        )
    else:
        machine = found.machine_ms / timeline.time_ms
        told.append(
            f"Time: {_percent(share)}, of which {_percent(machine)} is the machine (plain steps, timed in turns with "
            "the schedule's, differ as much from their profile). Beside those, the schedule: "
            f"{_percent(found.own_share)}."
        )
    return " ".join(told)


def _peak_residual(profile: Profile, timeline: Timeline, found: Residual) -> str:
    if found.unexplained_bytes == 0:
        return "Peak: as predicted, to the byte."
    difference = f"{'+' if found.unexplained_bytes > 0 else '−'}{format_bytes(abs(found.unexplained_bytes))}"
    seen = "" if found.peak_share is None else f", seen {100 * found.peak_share:.0f} % into the step"
    if found.unexplained_bytes < 0:
        return f"Peak: {difference}{seen}: calls took less scratch memory than when they were profiled."
    operator = profile.graph.operators[timeline.operators[timeline.peak_run]]
    where = operator.name + (f" of {operator.layer}" if operator.layer else "")
    return (
        f"Peak: {difference}{seen}: at least so much was taken beyond what profiled calls account for, such as scratch "
        f"memory; no more, if it was at the predicted peak, {where}."
    )


def headline(scene: Scene) -> tuple[str, str]:
    """The answer in a line, and what is to be said of it: how good it is proven to be, and of what."""
    plain, solution = scene.keep_all, scene.solution
    whole, step = plain.peak_bytes, style.format_ms(plain.time_ms)
    if solution is None or solution.peak_bytes is None or solution.time_ms is None:
        told = "no schedule for this budget" if solution is not None else "plain PyTorch"
        return told, f"plain PyTorch: {style.format_memory(whole)}, {step} a step"
    memory = _signed(100 * (solution.peak_bytes / whole - 1), 0)
    time = _signed(100 * (solution.time_ms / plain.time_ms - 1), 1) if plain.time_ms else "no"
    recomputed = solution.schedule is not None and solution.schedule.recomputed(scene.profile.graph)
    if (memory, time) == ("0", "0.0") and not recomputed:
        return _as_plain(scene), f"{_proven_shortly(solution)} · {style.format_memory(whole)}, {step} a step"
    of = f"{style.format_memory(solution.peak_bytes, of=whole)} of {style.format_memory(whole)}"
    times = f"{style.format_ms(solution.time_ms)} instead of {step}"
    return f"{memory} % memory for {time} % time", f"{_proven_shortly(solution)} · {of} · {times}"


def _as_plain(scene: Scene) -> str:
    """Of a schedule that neither saves nor costs anything: is there one that does?"""
    known = scene.known.best
    if known and (known[0].peak_bytes or 0) >= scene.keep_all.peak_bytes:
        return "as plain PyTorch: nothing to recompute is known to save memory here"
    return "as plain PyTorch: nothing has to be recomputed"


def _proven_shortly(solution: Solution) -> str:
    gap = best_gap(solution)
    if gap is None:
        return "nothing proven yet"
    return "proven to be the best" if gap < _PROVEN else f"proven within {100 * gap:.1f} %"


def _signed(percent: float, digits: int) -> str:
    """With a sign that is as wide as the other, and none where nothing is left."""
    left = style.rounded(percent, digits)
    return f"{'−' if left < 0 else '+' if left > 0 else ''}{abs(left):.{digits}f}"


def figures(scene: Scene) -> str:
    """The table of figures, as HTML: predicted and measured peak and time, next to a plain step's."""
    profile, keep_all, solution, timeline = scene.profile, scene.keep_all, scene.solution, scene.timeline
    whole = keep_all.peak_bytes
    # Beside every figure that comes from a data sheet, not from a measurement.
    how = "estimated" if profile.device.estimated else "predicted"
    rows = [
        (
            "no recomputation, estimated" if profile.device.estimated else "no recomputation",
            style.format_memory(keep_all.peak_bytes, of=whole),
            style.format_ms(keep_all.time_ms),
            "0 % extra time",
        )
    ]
    if timeline is not None and solution is not None and solution.schedule is not None:
        again = solution.schedule.recomputed(profile.graph)
        share = f"{len(again)} of {profile.graph.forward_count} operators recomputed"
        extra = f"{_overhead(timeline.time_ms, keep_all.time_ms)}, {share}"
        if scene.reservation is not None:
            needed = style.format_memory(scene.reservation.smallest_limit_bytes, of=whole)
            extra += f"; a device needs {needed}"
        rows.append(
            (
                f"this schedule, {how}",
                style.format_memory(timeline.peak_bytes, of=whole),
                style.format_ms(timeline.time_ms),
                extra,
            )
        )
        if scene.measurement is not None:
            if scene.plain_now_ms is not None:
                rows.append(_plain_row(keep_all, scene.plain_now_ms))
            rows.append(_measured_row(timeline, scene.measurement, plain=keep_all, plain_now_ms=scene.plain_now_ms))
    head = "".join(f"<th scope='col'>{x}</th>" for x in ("", "peak memory", "step time", ""))
    body = "".join(
        f"<tr><th scope='row'>{in_html(name)}</th><td><strong>{in_html(peak)}</strong></td>"
        f"<td><strong>{in_html(time)}</strong></td><td>{in_html(note)}</td></tr>"
        for name, peak, time, note in rows
    )
    return f"<table class='figures'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def solver_table(solution: Solution | None) -> str:
    """How a solve stands, and the size of its integer program, as HTML."""
    if solution is None:
        return ""
    rows = [("status", solution.status.value), ("after", f"{solution.elapsed_s:.1f} s")]
    if solution.time_ms is not None:
        rows.append(("best schedule", style.format_ms(solution.time_ms)))
        if solution.finder is not None:
            rows.append(("found by", solution.finder.value))
    for bound in solution.bounds:
        gap = solution.gap(bound.scope)
        proven_gap = "" if gap is None else f" (gap {100 * gap:.2f} %)"
        rows.append((f"bound for {bound.scope.value}", style.format_ms(bound.time_ms) + proven_gap))
    if solution.statistics is None:
        rows.append(("integer program", "none was needed so far"))
    else:
        sizes = solution.statistics
        rows += [
            ("rows", f"{sizes.rows:,}"),
            ("columns", f"{sizes.columns:,}"),
            ("nonzeros", f"{sizes.nonzeros:,}"),
            ("groups of stages", f"{sizes.groups:,}"),
        ]
    body = "".join(f"<tr><th scope='row'>{name}</th><td>{in_html(value)}</td></tr>" for name, value in rows)
    return f"<table class='figures'><tbody>{body}</tbody></table>"


def heading(profile: Profile) -> str:
    """What is explored and where its costs come from."""
    batch = ", ".join(str(tensor) for tensor in profile.graph.batch)
    origin = "estimated, not measured, for" if profile.device.estimated else "profiled on"
    return f"{profile.graph.model} · {batch} · {origin} {profile.device.name}, torch {profile.device.torch_version}"


def failure(error: BaseException) -> str:
    """An exception as a sentence: our own errors speak for themselves, others need their type."""
    told = str(error).strip().rstrip(".")
    return (
        told
        if isinstance(error, ValueError | MemoryError) and told
        else f"{type(error).__name__}: {told}"
        if told
        else type(error).__name__
    )


def failed(kind: str, error: Exception, *, advice: str = "") -> str:
    """That a kind of work failed, why, and what to do about it."""
    return " ".join([f"{kind.capitalize()} failed: {failure(error)}.", *([advice] if advice else [])])


def _plain_row(plain: Timeline, now_ms: float) -> tuple[str, str, str, str]:
    """Plain steps timed beside the schedule's: what of a difference is the machine's."""
    against = _percent(now_ms / plain.time_ms - 1) if plain.time_ms else "no comparison"
    return ("plain PyTorch, measured now", "–", style.format_ms(now_ms), f"{against} time against its profile")


def _measured_row(
    timeline: Timeline, measurement: Measurement, *, plain: Timeline, plain_now_ms: float | None
) -> tuple[str, str, str, str]:
    """Beside a plain step of the same minutes, where there is one; else against the prediction."""
    peak, time = _differences(timeline, measurement)
    reserved = ""
    if measurement.reserved_peak_bytes is not None:
        reserved = f", {style.format_memory(measurement.reserved_peak_bytes, of=plain.peak_bytes)} reserved"
    against = f"{peak} peak against the prediction"
    if plain_now_ms:
        against += f", {_percent(measurement.step_time_ms / plain_now_ms - 1)} time against plain PyTorch now"
    else:
        against += f", {time} time against the prediction"
    return (
        "this schedule, measured",
        style.format_memory(measurement.peak_bytes, of=plain.peak_bytes),
        style.format_ms(measurement.step_time_ms),
        f"{against}{reserved}; on {measurement.device}",
    )


def _differences(timeline: Timeline, measurement: Measurement) -> tuple[str, str]:
    """Peak and time, measured against predicted."""
    time = _percent(measurement.step_time_ms / timeline.time_ms - 1) if timeline.time_ms else "no comparison"
    return _percent(measurement.peak_bytes / timeline.peak_bytes - 1), time


def _schedule(solution: Solution, plain: Timeline, timeline: Timeline | None) -> str:
    if solution.time_ms is None or solution.peak_bytes is None:
        return ""
    time = f"{style.format_ms(solution.time_ms)} a step ({_overhead(solution.time_ms, plain.time_ms)})"
    where = "" if timeline is None else f" in the {_PHASES[timeline.stages[timeline.peak_run]]}"
    peak = style.format_memory(solution.peak_bytes, of=plain.peak_bytes)
    return f"{time}, peak {peak}{where}, {proven(solution)}"


def _overhead(time_ms: float, keep_all_ms: float) -> str:
    if not keep_all_ms:
        return "no time known"
    extra = time_ms / keep_all_ms - 1
    # Other implementations may be quicker than PyTorch's own.
    return (
        f"{100 * -extra:.1f} % less time" if extra < -0.0005 else f"{style.rounded(100 * extra, 1):+.1f} % extra time"
    )


def _percent(fraction: float) -> str:
    return f"{style.rounded(100 * fraction, 1):+.1f} %"


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:].rstrip(".") + "."
