"""The text of a file that checkpoints the blocks of a model, on torch alone."""

from __future__ import annotations

import inspect
import textwrap

import torch

from explorer.device_profile import Profile
from explorer.exporting import checkpointing
from explorer.exporting.layout import WIDTH, section
from explorer.exporting.selective import Policy, Selective
from explorer.harmless import in_docstring
from explorer.schedule import Schedule, keep_all
from explorer.simulation import peak_without_workspace, simulate
from explorer.timeline import Timeline
from explorer.units import format_bytes

FIRST_WORDS = "Selective activation checkpointing of"
_MEASURED_ABOVE = 1.15
"""Most that a measured step took over what is simulated: a network of windowed attention; others less than 1.055."""
_WORTHLESS = 0.97
"""Of plain PyTorch's peak."""


def text_of(found: Selective, schedule: Schedule, *, profile: Profile | None) -> str:
    """All of the file.

    Args:
        found: what is said.
        schedule: what was to be said.
        profile: for the figures in the file's first lines; None: bytes of tensors alone.
    """
    source = inspect.getsource(checkpointing)
    imports = source[source.index("from collections") : source.index("\n\nKEPT")]
    functions = source[source.index("def scheduled") :]
    parts = [
        f'"""{_words(found, schedule, profile=profile)}"""',
        imports,
        section("what is kept"),
        "# Of each block: operators, each with the positions of its calls whose results are kept, counted from 0.",
        _table("KEPT", found.policies),
        "# How often each of these is called in a block, which is checked at every step.",
        "CALLS = {" + "".join(f"\n    {x.block!r}: {x.calls!r}," for x in found.policies) + "\n}",
        "# Modules below each block that were in evaluation mode, where any was; checked likewise.",
        _evaluating(found.policies),
        section("how it is kept"),
        functions.rstrip(),
    ]
    return "\n".join(f"{x}\n" if x.startswith(('"""', "from")) else x for x in parts) + "\n"


def _table(name: str, policies: tuple[Policy, ...]) -> str:
    lines = [f"{name} = {{"]
    for policy in policies:
        lines.append(f"    {policy.block!r}: {{")
        lines += [f"        {operator!r}: {positions!r}," for operator, positions in policy.kept.items()]
        lines.append("    },")
    return "\n".join([*lines, "}"])


def _evaluating(policies: tuple[Policy, ...]) -> str:
    lines = [f"    {x.block!r}: {x.evaluating!r}," for x in policies if x.evaluating]
    return "\n".join(["EVALUATING = {", *lines, "}\n"]) if lines else "EVALUATING = {}\n"


def _words(found: Selective, schedule: Schedule, *, profile: Profile | None) -> str:
    what = f"{FIRST_WORDS} {found.graph.model}, block by block, after a schedule"
    said = [
        _wrapped(f"{what}: {schedule.method}."),
        "    model = scheduled(model)  # the same object; train it in any loop",
        _wrapped(figures(found, schedule, profile=profile)),
    ]
    if found.unsaid:
        points = "\n".join(_wrapped(f"* {x}.") for x in found.unsaid)
        said.append(f"What the schedule has and this form cannot say:\n{points}")
    said.append(f"Made with torch {torch.__version__}; needs nothing but what the model needs.")
    return "\n\n".join(said) + "\n"


def _wrapped(text: str) -> str:
    return "\n".join(map(in_docstring, textwrap.wrap(text, WIDTH, break_long_words=True, break_on_hyphens=False)))


def figures(found: Selective, schedule: Schedule, *, profile: Profile | None) -> str:
    """How far this form is from the schedule, by the simulator, in a sentence or two."""
    if profile is None:
        asked = peak_without_workspace(found.graph, schedule)
        gets = peak_without_workspace(found.graph, found.schedule)
        return (
            f"Simulated, by the sizes of tensors alone: a peak of {format_bytes(gets)}; the schedule's is "
            f"{format_bytes(asked)} ({_more(gets, asked)})." + _budget_unknown(schedule)
        )
    planned, here = simulate(profile, schedule), simulate(profile, found.schedule)
    more = _more(here.peak_bytes, planned.peak_bytes)
    said = f"Simulated: {_both(here)}; the schedule: {_both(planned)} ({more})." + _budget(schedule, here.peak_bytes)
    plain_bytes = profile.eager_peak_bytes or simulate(profile, keep_all(found.graph)).peak_bytes
    if here.peak_bytes > _WORTHLESS * plain_bytes:
        said += f" It saves nothing: plain PyTorch takes {format_bytes(plain_bytes)}; form='python' says the schedule."
    return said


def _budget_unknown(schedule: Schedule) -> str:
    if schedule.budget_bytes is None:
        return ""
    budget = format_bytes(schedule.budget_bytes)
    return f" Whether this form keeps the schedule's budget of {budget} is known only with a profile (profile=…)."


def _budget(schedule: Schedule, peak_bytes: int) -> str:
    if schedule.budget_bytes is None:
        return ""
    budget = f"the schedule's budget of {format_bytes(schedule.budget_bytes)}"
    if peak_bytes > schedule.budget_bytes:
        return f" This form does not keep {budget}."
    if peak_bytes * _MEASURED_ABOVE <= schedule.budget_bytes:
        return f" This form keeps {budget}."
    return (
        f" This form may keep {budget}: measured steps were up to {_MEASURED_ABOVE - 1:.0%} above what is simulated. "
        "Measure one (explorer.measure) before you rely on it."
    )


def _both(line: Timeline) -> str:
    return f"a peak of {format_bytes(line.peak_bytes)} and a step of {line.time_ms:.1f} ms"


def _more(here: int, there: int) -> str:
    return f"{100 * (here / there - 1):+.1f} % of memory"
