"""Commands that ask for a schedule, and say what it takes: ``solve``, ``methods``, ``simulate``, ``place``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from explorer.budgets import a_budget
from explorer.command_line.endings import complain
from explorer.command_line.options import PROFILE, SCHEDULE, pin_of
from explorer.command_line.outputs import check_schedule
from explorer.command_line.tables import PlainConsole, solution_table
from explorer.profiles.loading import load_profile
from explorer.simulation import profile_for, simulate
from explorer.timeline import CATEGORIES
from explorer.units import format_bytes
from explorer.zoo.loading import load_schedule

_ALLOCATORS = "caching, or expandable (expandable_segments:True)"


def solve(  # noqa: PLR0913 - an option for each thing that users may want to say
    profile: Annotated[str, PROFILE],
    budget: Annotated[str, typer.Option("--budget", "-b", help="Peak memory allowed: '8 GiB', '80 %' of PyTorch's.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Schedule to write.")] = Path("schedule.json"),
    method: Annotated[str, typer.Option(help="monet, checkmate, … (all of them: 'methods').")] = "monet",
    formulation: Annotated[str, typer.Option(help="Of the integer program: grouped or paper.")] = "grouped",
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds.")] = 10.0,
    gap: Annotated[float, typer.Option(min=0.0, max=1.0, help="Stop when proven this close to the best: 0.01.")] = 0.01,
    optimizations: Annotated[
        str, typer.Option(help="all, none, or some of output,intermediate,convolution,inplace,fused.")
    ] = "all",
    pin: Annotated[
        list[str] | None,
        typer.Option(
            help="Decide something yourself, may be repeated: TENSOR=keep, TENSOR=recompute, OPERATOR=IMPLEMENTATION."
        ),
    ] = None,
    *,
    order: Annotated[
        bool, typer.Option("--order", help="Also put operators in the order with the least memory.")
    ] = False,
    update: Annotated[
        str | None,
        typer.Option(help="Of a profile with an optimizer: end, within or best; as in the profile."),
    ] = None,
    of: Annotated[
        str, typer.Option(help="What the budget is of: allocated, reserved, or what a CUDA device needs.")
    ] = "allocated",
    allocator: Annotated[str, typer.Option(help=f"For --of: {_ALLOCATORS}.")] = "caching",
    exact: Annotated[bool, typer.Option("--exact", help="Only implementations with PyTorch's own bits.")] = False,
    remember: Annotated[
        bool, typer.Option("--remember/--afresh", help="Use and extend the memory of past solves (see 'cache').")
    ] = True,
) -> None:
    """Find a schedule that fits a budget."""
    import explorer

    check_schedule(output, profile=profile)
    loaded = load_profile(profile)
    budget_bytes = a_budget(budget, loaded)
    with PlainConsole(stderr=True).status(f"solving for {format_bytes(budget_bytes)}, at most {time_limit:g} s"):
        found = explorer.solve(
            loaded,
            budget=budget_bytes,
            method=method,
            formulation=formulation,
            time_limit=time_limit,
            gap=gap,
            optimizations=optimizations,
            exact=exact,
            pins=[pin_of(x) for x in pin or ()],
            remember=remember,
            order=order,
            update=update,
            of=of,
            allocator=allocator,
        )
    if found.schedule is None:
        complain(found.status.value, found.message or f"no schedule for {format_bytes(budget_bytes)}")
        if found.minimum is not None and str(found.minimum) not in found.message:
            complain(found.status.value, str(found.minimum))
        raise typer.Exit(1)
    found.schedule.save(output)
    PlainConsole().print(solution_table(loaded, found))
    PlainConsole().print(f"Wrote {output}")


def methods() -> None:
    """List the methods that 'solve' knows."""
    from explorer.solvers.methods.table import METHODS

    table = Table("name", "what it is")
    for method in METHODS.values():
        table.add_row(method.name, method.title)
    PlainConsole().print(table)


def simulate_command(
    profile: Annotated[str, PROFILE],
    schedule: Annotated[str, SCHEDULE],
    allocator: Annotated[str | None, typer.Option(help=f"Also what is reserved by it: {_ALLOCATORS}.")] = None,
) -> None:
    """Predict memory and time of a schedule."""
    planned = load_schedule(schedule)
    loaded = profile_for(planned, profile=load_profile(profile))
    timeline = simulate(loaded, planned, allocator=allocator)
    table = Table("at the peak", "bytes", "share", title=f"{loaded.graph.model} on {loaded.device.label}")
    at_peak = timeline.bytes[timeline.peak_run].tolist()
    for category, amount in zip(CATEGORIES, at_peak, strict=True):
        if amount:
            table.add_row(category.value, format_bytes(amount), f"{100 * amount / timeline.peak_bytes:.1f} %")
    table.add_section()
    table.add_row("all", format_bytes(timeline.peak_bytes), "100 %")
    operator = loaded.graph.operators[timeline.operators[timeline.peak_run]]
    PlainConsole().print(table)
    PlainConsole().print(
        f"Peak at run {timeline.peak_run} of {len(timeline.operators)}: {operator.name}, "
        f"{operator.layer or 'no module'}, {timeline.stages[timeline.peak_run].value}.\n"
        f"Step {timeline.time_ms:.1f} ms, of which recomputation {timeline.recompute_time_ms:.1f} ms."
    )
    if timeline.reservation is not None:
        PlainConsole().print(str(timeline.reservation))


def place(
    profile: Annotated[str, PROFILE],
    schedule: Annotated[str, SCHEDULE],
    output: Annotated[Path, typer.Option("--output", "-o", help="Schedule to write, with its addresses.")] = Path(
        "placed.json"
    ),
    buffer: Annotated[
        str | None, typer.Option(help="Any of this size will do: '8 GiB'; as small as is found if not given.")
    ] = None,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds.")] = 10.0,
) -> None:
    """Give every tensor of a schedule an address in one buffer (MODeL)."""
    import explorer

    check_schedule(output, profile=profile)
    planned = load_schedule(schedule)
    found = explorer.place(load_profile(profile), planned, buffer=buffer, time_limit=time_limit)
    planned.with_placement(found).save(output)
    PlainConsole().print(f"{found}\nWrote {output}")
