"""How schedule and bound come together over a solve.

    python -m benchmarks.solver.incumbents PROFILE --budget "5 GiB" [--seconds 60] [--json FILE] [--plot FILE.html]

PROFILE is a path (also a published instance of MONeT) or a bundled name. Every event of a ``SolveSession`` is a row.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.provenance import record, write_results
from benchmarks.session_events import Heard
from explorer import load_profile, parse_bytes
from explorer.solution import BoundScope
from explorer.solvers import SolveSession


@dataclass(frozen=True)
class Moment:
    """What was known at a time.

    Attributes:
        seconds: since the budget was asked for.
        time_ms: of the best schedule; None without one.
        bound_ms: proven for all schedules; None without one.
        grouping_bound_ms: proven for schedules of the integer program's grouping; None without one.
    """

    seconds: float
    time_ms: float | None
    bound_ms: float | None
    grouping_bound_ms: float | None


def main() -> None:
    """Print the events; write them and the plot if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", help="path or bundled name")
    parser.add_argument("--budget", required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    run = record(arguments, seeds=())
    moments = follow(arguments.profile, arguments.budget, arguments.seconds)
    for x in moments:
        shown = (x.time_ms, x.bound_ms, x.grouping_bound_ms)
        print(f"{x.seconds:7.2f} s" + "".join("         -" if y is None else f"{y:10.2f}" for y in shown))
    if arguments.json:
        write_results(arguments.json, [asdict(x) for x in moments], run)
    if arguments.plot:
        arguments.plot.write_text(plot(moments), encoding="utf-8")


def follow(path: str, budget: str, seconds: float) -> list[Moment]:
    """Solve, and note every event."""
    heard = Heard()
    moments: list[Moment] = []
    with SolveSession(load_profile(path), on_event=heard.note, time_limit=seconds, gap=0.0, remember=False) as session:
        began = time.perf_counter()
        request = session.request(parse_bytes(budget))
        for at, event in heard.until_final(request):
            bounds = (event.solution.bound_ms(BoundScope.PROBLEM), event.solution.bound_ms(BoundScope.GROUPING))
            moments.append(Moment(at - began, event.solution.time_ms, *bounds))
    return moments


def plot(moments: list[Moment]) -> str:
    """Steps over seconds, as HTML."""
    import plotly.graph_objects as go

    from widgets import style

    figure = go.Figure()
    for name, field, colour, dash in (
        ("best schedule", "time_ms", style.BLUE, "solid"),
        ("bound for all schedules", "bound_ms", style.ORANGE, "dash"),
        ("bound for the grouping", "grouping_bound_ms", style.GREEN, "dot"),
    ):
        known = [x for x in moments if getattr(x, field) is not None]
        figure.add_scatter(
            x=[x.seconds for x in known],
            y=[getattr(x, field) for x in known],
            name=name,
            mode="lines",
            line={"shape": "hv", "color": colour, "dash": dash, "width": 3},
        )
    figure.update_xaxes(title_text="seconds", type="log")
    figure.update_yaxes(title_text="time of a step, ms")
    figure.update_layout(template="plotly_white", width=900, height=420, margin={"t": 20})
    return figure.to_html(include_plotlyjs=True, config={"showSendToCloud": False})


if __name__ == "__main__":
    main()
