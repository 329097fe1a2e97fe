"""What every ingredient of the strategy is worth: each left out in turn, on the same cases with the same seeds.

Run: ``python benchmarks/solver/ablation.py FOLDER --json FILE [--tier quick|full] [--seconds 10] [--gap 0.01]
[--seeds 0,1,2] [--only INGREDIENT,…]``, where the folder holds the published instances; ``--table FILE …`` prints the
table of one or several such results and solves nothing.

All variants of a case and a seed are solved one after the other, in an order of its own for each, and the whole
strategy twice: how far its two runs are apart is the noise. Results are kept after every case; what a file has already
is not solved again. The time begins when a problem and the solver's modules are loaded and its search is compiled, as
in an open session.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

from explorer.budgets import plain_peak_bytes
from explorer.device_profile import Profile
from explorer.profiles.loading import load_profile
from explorer.solution import Solution
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.options import Options
from explorer.solvers.strategy import DEFAULT, INGREDIENTS

WHOLE, AGAIN = "nothing", "nothing, again"
_SOON_S, _PROOF = 1.0, 0.01
_WORTH_PERCENT, _WORTH_TIME = 0.02, 1.05  # less than both is worth nothing
_COMPILED_S = 120.0
_LOADED = ("formulation.bound", "formulation.grouped", "programs.scip", "monet.crossing")
_PUBLISHED = {
    "quick": ("resnet50-all:5", "resnet50-none:6", "unet-all:6", "unet-all:9", "vgg16-all:8"),
    "hard": ("resnet50-all:5", "resnet50-none:7"),
    "full": (),  # all of them
}
_BUNDLED = {
    "quick": ("gpt2-a100-80gb:0.6", "googlenet-p100-16gb:0.5", "unet-a100-80gb:0.4", "vit_b16-p100-16gb:0.5"),
    "hard": (),
    "full": ("*:0.75", "*:0.6", "*:0.5", "*:0.4"),
}


@dataclass(frozen=True)
class Case:
    """A profile and a budget."""

    name: str
    load: Callable[[], Profile]
    budget_bytes: Callable[[Profile], int]


@dataclass(frozen=True)
class Result:
    """One solve.

    Attributes:
        case, seed, without: what was solved, and what was left out.
        seconds, gap: for how long at most, and when it stopped.
        soon_ms: the objective after a second, None where there was none.
        objective_ms: in the end.
        bound_ms: in the end.
        proof_s: after which time it was proven within 1 %; None where it was not.
    """

    case: str
    seed: int
    without: str
    seconds: float
    gap: float
    soon_ms: float | None
    objective_ms: float | None
    bound_ms: float
    proof_s: float | None

    @property
    def key(self) -> tuple[str, int, str]:
        """What it is of."""
        return self.case, self.seed, self.without


def main() -> None:
    """Solve what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tier", choices=list(_PUBLISHED), default="quick")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", default="", help="ingredients, with commas between; all if not given")
    parser.add_argument("--table", type=Path, nargs="+", help="results to print, instead")
    asked = parser.parse_args()
    if asked.table:
        print(table([x for path in asked.table for x in _read(path)]))
        return
    for module in _LOADED:
        import_module(f"explorer.solvers.{module}")
    variants = [WHOLE, *(asked.only.split(",") if asked.only else INGREDIENTS), AGAIN]
    results = _read(asked.json) if asked.json.exists() else []
    for seed in (int(x) for x in asked.seeds.split(",")):
        for case in cases(asked.folder, asked.tier):
            order = np.random.default_rng(seed).permutation(len(variants)).tolist()
            done = {x.key for x in results}
            for variant in (variants[x] for x in order):
                if (case.name, seed, variant) not in done:
                    results.append(solved(case, seed, variant, seconds=asked.seconds, gap=asked.gap))
            asked.json.write_text(json.dumps([asdict(x) for x in results], indent=0), encoding="utf-8")
            print(f"seed {seed}, {case.name}", flush=True)
    print(table(results))


def cases(folder: Path, tier: str) -> Iterator[Case]:
    """Published instances, and bundled profiles at shares of what plain PyTorch takes."""
    for path in sorted(folder.glob("*-*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for reference in document["references"] if document["optimizations"] != "checkmate" else []:
            name, gib = f"{path.stem}:{reference['budget_gib']:g}", float(reference["budget_gib"])
            if name in _PUBLISHED[tier] or not _PUBLISHED[tier]:
                yield Case(name, lambda path=path: _as_published(path), lambda _, gib=gib: int(gib * 2**30))
    for pattern in _BUNDLED[tier]:
        stem, _, share = pattern.rpartition(":")
        for path in sorted(
            (Path(import_module("explorer").__file__ or "").parent / "profiles").glob(f"{stem}.json.gz")
        ):
            yield Case(
                f"{path.name.removesuffix('.json.gz')}:{share}",
                lambda path=path: load_profile(path),
                lambda profile, share=share: int(float(share) * plain_peak_bytes(profile)),
            )


def solved(case: Case, seed: int, without: str, *, seconds: float, gap: float) -> Result:
    """Solve a case once, with something left out."""
    profile = case.load()
    strategy = DEFAULT
    for ingredient in () if without in (WHOLE, AGAIN) else without.split("+"):
        strategy = strategy.without(ingredient)
    options = Options(time_limit=seconds, gap=gap, seed=seed, strategy=strategy)
    knowledge = Knowledge(options.problem(profile))
    knowledge.search.ready(timeout=_COMPILED_S)
    began = time.monotonic()
    history: list[tuple[float, Solution]] = []

    def note(solution: Solution) -> None:
        history.append((time.monotonic() - began, solution))

    pursuit = Pursuit(knowledge, case.budget_bytes(profile), options, began=began)
    note(pursuit.run(on_solution=note))
    knowledge.start_proof(lambda: None).result()  # what stops late does not disturb the next
    soon = [x.time_ms for at, x in history if at <= _SOON_S]
    proven = [at for at, x in history if (reached := x.gap()) is not None and reached <= _PROOF]
    last = history[-1][1]
    bound_ms = last.bound_ms() or 0.0
    soon_ms = soon[-1] if soon else None
    return Result(case.name, seed, without, seconds, gap, soon_ms, last.time_ms, bound_ms, min(proven, default=None))


def table(results: Iterable[Result]) -> str:
    """What each ingredient is worth, in Markdown: with it left out, how much worse objective and proof are."""
    found = {(x.seconds, x.gap, *x.key): x for x in results}
    lines: list[str] = []
    for seconds, gap in sorted({key[:2] for key in found}):
        chosen = [x for x in found.values() if (x.seconds, x.gap) == (seconds, gap)]
        names = dict.fromkeys(x.without for x in chosen if x.without != WHOLE)
        count = len({(x.case, x.seed) for x in chosen})
        lines += [
            f"\nGap {100 * gap:g} %, {seconds:g} s, {count} solves of each\n",
            f"| without | after 1 s | worst | after {seconds:g} s | worst | gap left | time to 1 % proof | proofs | worth it |",  # noqa: E501
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for name in sorted(names, key=lambda x: (x == AGAIN, x)):
            pairs = [(x, found[seconds, gap, x.case, x.seed, WHOLE]) for x in chosen if x.without == name]
            lines.append(_row(name, pairs))
    return "\n".join(lines)


def _row(name: str, pairs: list[tuple[Result, Result]]) -> str:
    soon = [100 * (x.soon_ms / y.soon_ms - 1) for x, y in pairs if x.soon_ms and y.soon_ms]
    last = [100 * (x.objective_ms / y.objective_ms - 1) for x, y in pairs if x.objective_ms and y.objective_ms]
    gaps = [100 * (_gap(x) - _gap(y)) for x, y in pairs]
    limits = [(x.proof_s or x.seconds, y.proof_s or y.seconds) for x, y in pairs]
    slower = math.exp(fmean(math.log(max(x, 0.02) / max(y, 0.02)) for x, y in limits))
    proofs = f"{sum(x.proof_s is not None for x, _ in pairs)} of {sum(y.proof_s is not None for _, y in pairs)}"
    worth = max(fmean(soon), fmean(last)) >= _WORTH_PERCENT or slower >= _WORTH_TIME
    return (
        f"| {name} | {fmean(soon):+.3f} % | {max(soon):+.2f} % | {fmean(last):+.3f} % | {max(last):+.2f} % | "
        f"{fmean(gaps):+.3f} % | × {slower:.3f} | {proofs} | {'yes' if worth else 'no'} |"
    )


def _gap(result: Result) -> float:
    return 1.0 if result.objective_ms is None else max(0.0, 1 - result.bound_ms / result.objective_ms)


def _as_published(path: Path) -> Profile:
    """With every operator's time rounded up to 0.01 ms."""
    profile = load_profile(path)
    rounded = {key: replace(x, time_ms=math.ceil(100 * x.time_ms - 1e-6) / 100) for key, x in profile.costs.items()}
    return replace(profile, costs=rounded)


def _read(path: Path) -> list[Result]:
    return [Result(**x) for x in json.loads(path.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    main()
