"""Programs by their seeds: run, reduced where they fail, counted."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch

from tests.fuzz.checking import Effort, Outcome, Verdict, check
from tests.fuzz.drawing import draw, trains
from tests.fuzz.program import Program
from tests.fuzz.reducing import reduce


def run(seeds: list[int], output: Path, *, peaks: int, small: bool) -> list[tuple[int, str]]:
    """Outcomes of some programs; those that fail are written to ``output``."""
    torch.set_num_threads(1)
    logging.disable(logging.ERROR)  # torch tells of each trace that it refuses
    with contextlib.redirect_stdout(io.StringIO()):  # here too
        return [(seed, _one(seed, output, peaks=peaks, small=small)) for seed in seeds]


def effort_for(seed: int, *, peaks: int) -> Effort:
    """What is tried of the program with this seed."""
    return Effort(
        export=seed % 2 == 0,
        twice=seed % 4 == 0,
        peak=bool(peaks) and seed % peaks == 0,
        solve=bool(peaks) and seed % (20 * peaks) == 0,
    )


def _one(seed: int, output: Path, *, peaks: int, small: bool) -> str:
    effort = effort_for(seed, peaks=peaks)
    program, verdict = judged(seed, effort, small=small)
    if not verdict.outcome.fine:
        (output / f"{verdict.outcome.replace(' ', '-')}-{seed}.py").write_text(text(program, verdict))
    return f"{verdict.outcome}: {verdict.text}" if verdict.text else str(verdict.outcome)


def judged(seed: int, effort: Effort, *, small: bool) -> tuple[Program, Verdict]:
    """The program with this seed and what became of it; if it fails, as small as it gets."""
    program = draw(random.Random(seed), seed=seed)
    verdict = check(program.load(), effort)
    if small and not verdict.outcome.fine:
        program = reduce(program, lambda x: trains(x) and kind(check(x.load(), effort)) == kind(verdict))
        verdict = check(program.load(), effort)
    return program, verdict


def text(program: Program, verdict: Verdict) -> str:
    """A program with what became of it; ``python -m tests.fuzz --file`` runs it again."""
    return f"{program.source}\n# {verdict.outcome}: {verdict.text}\n"


def kind(verdict: Verdict) -> str:
    """Equal for verdicts that are most likely of one cause."""
    said = re.sub(r"<program \d+>", "", verdict.text)
    said = re.sub(r"^.*?step \d+: ", "", said) if verdict.outcome is Outcome.DIFFERENT else said
    words = re.sub(r"\W*\d+\W*", " ", said).split()
    return " ".join([verdict.outcome, *words[: 3 if verdict.outcome is Outcome.DIFFERENT else 7]])


def told(outcomes: Iterable[str]) -> str:
    counts = Counter(x.split(":")[0] for x in outcomes)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def report(outcomes: dict[int, str], output: Path) -> str:
    """Counts by outcome, and by kind for all but programs that went well."""
    lines = [f"{len(outcomes)} programs: {told(outcomes.values())}"]
    kinds = Counter[str]()
    examples: dict[str, int] = {}
    for seed, said in outcomes.items():
        name, _, words = said.partition(": ")
        if name != Outcome.SAME:
            key = kind(Verdict(Outcome(name), words))
            kinds[key] += 1
            examples.setdefault(key, seed)
    lines += [f"{count:6} {key} (seed {examples[key]})" for key, count in kinds.most_common()]
    lines.append(f"programs that fail are in {output}")
    return "\n".join(lines)
