"""Make the schedules that come with the package: every bundled profile at shares of PyTorch's peak, and the smallest.

    python -m benchmarks.schedule_zoo [PROFILE …] [--steps 4] [--time-limit 20] [--afresh]

writes explorer/zoo/. What is there already and of the profile as it is now stays, so that it goes on where it was
stopped; ``--afresh`` makes it anew. Schedules come from so many plan searches instead of a time, so that any machine,
busy or not, makes the same ones; only the search for the smallest peak has a time limit. The table of docs/zoo.md is
printed at the end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import explorer
from benchmarks.provenance import record
from explorer.device_profile import Profile
from explorer.profiles.loading import bundled_path, bundled_profiles
from explorer.solution import Solution
from explorer.solvers.options import Options
from explorer.solvers.service.cache import problem_key
from explorer.units import format_bytes
from explorer.zoo.entries import FOLDER, SHARES, SMALLEST, Entry, fingerprint, write_zoo, zoo

ALL = (*map(str, SHARES), SMALLEST)


def main() -> None:
    """Solve what is missing, profile by profile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", default=[*bundled_profiles()], help="those that come with the package")
    parser.add_argument("--steps", type=int, default=4, help="plan searches for each schedule")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds for each profile's smallest peak")
    parser.add_argument("--afresh", action="store_true", help="also what is there already")
    arguments = parser.parse_args()
    record(arguments, seeds=(0,))
    for name in arguments.profiles:
        profile = explorer.load_profile(name)
        problem = problem_key(profile, Options())
        of_it = [] if arguments.afresh else [x for x in known() if x.profile == name and x.problem == problem]
        there = {x.share for x in of_it if is_good(x)}
        missing = [x for x in ALL if x not in there]
        for entry, solution in solved(name, profile, missing, arguments) if missing else ():
            if solution.schedule is not None:
                solution.schedule.save(entry.path)
            write_zoo([*(x for x in known() if x.name != entry.name), entry])
        carry_over(name)
    forget_what_is_gone()
    files = [*FOLDER.glob("*.json.gz")]
    print(f"{len(files) - 1} schedules, {sum(x.stat().st_size for x in files) / 2**20:.2f} MiB\n")
    print("\n".join(table()))


def known() -> tuple[Entry, ...]:
    """What there is; nothing before the first was made."""
    return zoo() if (FOLDER / "zoo.json.gz").exists() else ()


def is_good(entry: Entry) -> bool:
    """Is it of the profile that there is now, and complete?"""
    return not entry.is_older_than_profile and (entry.peak_bytes is None or entry.path.exists())


def solved(
    name: str, profile: Profile, shares: Sequence[str], options: argparse.Namespace
) -> Iterator[tuple[Entry, Solution]]:
    """The entries of a profile for these shares, with their solutions."""
    plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
    least = explorer.smallest_budget(profile, time_limit=options.time_limit)
    assert least.peak_bytes is not None, "there is always a smallest schedule"
    for share in shares:
        began = time.monotonic()
        budget = least.peak_bytes if share == SMALLEST else int(float(share) * plain.peak_bytes)
        found = explorer.solve(profile, budget=budget, steps=options.steps)
        if found.schedule is None and budget >= least.peak_bytes:
            found = least
        entry = Entry(
            profile=name,
            profile_sha256=fingerprint(bundled_path(name)),
            problem=problem_key(profile, Options()),
            share=share,
            budget_bytes=budget,
            plain_peak_bytes=plain.peak_bytes,
            plain_time_ms=plain.time_ms,
            peak_bytes=found.peak_bytes,
            time_ms=found.time_ms,
            bound_ms=None if found.schedule is None else found.bound_ms(),
            smallest_bytes=least.peak_bytes,
        )
        check(profile, entry, found)
        gap = "nothing proven" if entry.gap is None else f"gap {entry.gap:.2%}"
        peak = "none fits" if entry.peak_bytes is None else f"{format_bytes(entry.peak_bytes)}, {entry.time_ms:.1f} ms"
        print(f"{entry.name}: {found.status}, {peak}, {gap}, {time.monotonic() - began:.1f} s", flush=True)
        yield entry, found


def carry_over(name: str) -> None:
    """Whatever was found for a smaller budget serves the larger ones that nothing as quick was found for."""
    entries = [x for x in known() if x.profile == name]
    having = [x for x in entries if x.time_ms is not None and x.peak_bytes is not None]
    for entry in entries:
        fitting = [x for x in having if (x.peak_bytes or 0) <= entry.budget_bytes]
        best = min(fitting, key=lambda x: x.time_ms or 0.0, default=entry)
        if best.time_ms != entry.time_ms and best is not entry:
            schedule = replace(explorer.load_schedule(best.name), budget_bytes=entry.budget_bytes)
            schedule.save(entry.path)
            carried = replace(entry, time_ms=best.time_ms, peak_bytes=best.peak_bytes)
            write_zoo([*(x for x in known() if x.name != entry.name), carried])
            print(f"{entry.name}: {best.name} is quicker")


def check(profile: Profile, entry: Entry, found: Solution) -> None:
    """The simulator agrees, and it fits."""
    if found.schedule is not None:
        line = explorer.simulate(profile, found.schedule)
        assert (line.peak_bytes, line.time_ms) == (entry.peak_bytes, entry.time_ms)
        assert line.peak_bytes <= entry.budget_bytes


def forget_what_is_gone() -> None:
    """Profiles that are no longer bundled have no schedules, and nothing lies here that the table does not name."""
    write_zoo([x for x in known() if x.profile in bundled_profiles()])
    named = {x.path for x in known() if x.peak_bytes is not None} | {FOLDER / "zoo.json.gz"}
    for path in set(FOLDER.glob("*.json.gz")) - named:
        path.unlink()


def table() -> Iterator[str]:
    """For docs/zoo.md: a row for each profile, time added and gap for each share."""
    yield f"| profile | plain PyTorch | {' | '.join(ALL)} |"
    yield f"|---|---|{'---|' * len(ALL)}"
    entries = {(x.profile, x.share): x for x in zoo()}
    for name in dict.fromkeys(x.profile for x in zoo()):
        plain = entries[name, SMALLEST]
        cells = (cell(entries[name, share]) for share in ALL)
        at = f"{format_bytes(plain.plain_peak_bytes)}, {plain.plain_time_ms:.0f} ms"
        yield f"| {name} | {at} | {' | '.join(cells)} |"


def cell(entry: Entry) -> str:
    """``+1.2 % (0.4)``; the smallest with its share of PyTorch's peak."""
    if entry.peak_bytes is None or entry.overhead is None:
        return "–"
    gap = "?" if entry.gap is None else f"{100 * entry.gap:.1f}"
    at = f"{entry.peak_bytes / entry.plain_peak_bytes:.2f}: " if entry.share == SMALLEST else ""
    return f"{at}{100 * entry.overhead:+.1f} % ({gap})"


if __name__ == "__main__":
    main()
