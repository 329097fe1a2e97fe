"""What every ingredient of the strategy is worth: each left out in turn, on the same cases with the same seeds.

Run: ``python -m benchmarks.solver.ablation FOLDER --json FILE [--tier quick|full] [--seconds 10] [--gap 0.01] [--seeds
0 1 2] [--without INGREDIENT … | A+B …] [--published NAME:GIB …] [--profiles NAME:SHARE …] [--networks
NAME:BLOCKS:SHARE …]``, where the folder holds the published instances. ``--table FILE …`` prints the tables of such
results and solves nothing.

All variants of a case and a seed are solved one after the other, in an order of its own for each, and the whole
strategy twice: how far its two runs are apart is the noise. Results are kept after every case; what a file has already
is not solved again. The time begins when a problem and the solver's modules are loaded and its search is compiled, as
in an open session.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np

from benchmarks.cases import ABLATION, Tier, Whole, add_tier, profile_cases, published_cases
from benchmarks.deep_networks import deep_network
from benchmarks.provenance import read_results, record, write_results
from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solution import Solution
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.options import Options
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.peak_bound import peak_lower_bound
from explorer.solvers.strategy import DEFAULT, INGREDIENTS

WHOLE, AGAIN = "nothing", "nothing, again"
_SOON_S, _PROOF = 1.0, 0.01
_WORTH_PERCENT, _WORTH_TIME = 0.02, 1.05  # beyond the noise; less than both is worth nothing
_LEAST_S = 0.02  # of a proof, for ratios
_COMPILED_S = 120.0
_LOADED = ("formulation.bound", "formulation.grouped", "programs.scip", "monet.bounding")


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--json", type=Path)
    add_tier(parser)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--without", nargs="+", default=list(INGREDIENTS), help="ingredients, several with + between")
    parser.add_argument("--published", nargs="*", help="instead of the tier's: resnet50-all:5")
    parser.add_argument("--profiles", nargs="*", help="instead of the tier's: unet-a100-80gb:0.4")
    parser.add_argument(
        "--networks", nargs="*", default=[], help="too, at shares of what a choice can save: llama3-8b:32:0.2"
    )
    parser.add_argument("--table", type=Path, nargs="+", help="results to print, instead")
    asked = parser.parse_args()
    if asked.table:
        for path in asked.table:
            print(f"\n{path.stem}: {table(_read(path))}")
        return
    run = record(asked, seeds=asked.seeds)
    for module in _LOADED:
        import_module(f"explorer.solvers.{module}")
    variants = [WHOLE, *asked.without, AGAIN]
    results, made = _read(asked.json) if asked.json.exists() else [], list[str]()
    for seed in asked.seeds:
        named = cases(asked.folder, asked.tier, published=asked.published, profiles=asked.profiles)
        for case in (*named, *map(network_case, asked.networks)):
            order = np.random.default_rng(seed).permutation(len(variants)).tolist()
            done = {x.key for x in results}
            for variant in (variants[x] for x in order):
                if (case.name, seed, variant) not in done:
                    results.append(solved(case, seed, variant, seconds=asked.seconds, gap=asked.gap))
            made.append(f"{case.name}, seed {seed}")
            write_results(asked.json, [asdict(x) for x in results], run, parts=made)
            print(f"seed {seed}, {case.name}", flush=True)
    print(table(results))


def cases(
    folder: Path, tier: Tier, *, published: Sequence[str] | None = None, profiles: Sequence[str] | None = None
) -> Iterator[Case]:
    """Published instances, and bundled profiles at shares of what plain PyTorch takes: a tier's, or those named."""
    instances, shares = ABLATION[tier]
    instances = instances if published is None else tuple(published)
    for case in published_cases(folder, Tier.FULL, only=instances) if published != [] else ():
        name = f"{case.instance}:{case.budget_gib:g}"
        yield Case(name, case.load_rounded_up, lambda _, case=case: case.budget_bytes)
    for pattern in shares if profiles is None else profiles:
        stem, _, share = pattern.rpartition(":")
        named = () if stem == "*" else (stem,)
        for case in profile_cases(Tier.FULL, of=Whole.PEAK, profiles=named, shares=(float(share),)):
            yield Case(f"{case.name}:{share}", case.load, lambda profile, case=case: case.budgets(profile)[0])


def network_case(name: str) -> Case:
    """A network of ``benchmarks.deep_networks``, between what no schedule does without (0) and plain PyTorch (1)."""
    network, _, share = name.rpartition(":")

    def budget_bytes(profile: Profile) -> int:
        least_bytes = peak_lower_bound(problem_of(profile)).peak_bytes
        most_bytes = simulate(profile, keep_all(profile.graph)).peak_bytes
        return round(least_bytes + float(share) * (most_bytes - least_bytes))

    return Case(name, cache(lambda: deep_network(network)), budget_bytes)


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
        pairs = {
            name: [(x, found[seconds, gap, x.case, x.seed, WHOLE]) for x in chosen if x.without == name]
            for name in sorted(names, key=lambda x: (x == AGAIN, x))
        }
        losses = {name: Loss.of(x) for name, x in pairs.items()}
        lines += [_row(name, pairs[name], loss, losses.get(AGAIN)) for name, loss in losses.items()]
    return "\n".join(lines)


@dataclass(frozen=True)
class Loss:
    """By how much solves are worse without something: on average, and at worst.

    Attributes:
        soon_percent, soon_worst: of the objective after a second.
        last_percent, last_worst: in the end.
        slower: the time to a proof, as a ratio.
    """

    soon_percent: float
    soon_worst: float
    last_percent: float
    last_worst: float
    slower: float

    @classmethod
    def of(cls, pairs: list[tuple[Result, Result]]) -> Loss:
        """Of results without it, each beside the same with it."""
        soon = [100 * (x.soon_ms / y.soon_ms - 1) for x, y in pairs if x.soon_ms and y.soon_ms]
        last = [100 * (x.objective_ms / y.objective_ms - 1) for x, y in pairs if x.objective_ms and y.objective_ms]
        limits = [(x.proof_s or x.seconds, y.proof_s or y.seconds) for x, y in pairs]
        slower = math.exp(fmean(math.log(max(x, _LEAST_S) / max(y, _LEAST_S)) for x, y in limits))
        return cls(fmean(soon), max(soon), fmean(last), max(last), slower)

    def worth(self, noise: Loss) -> bool:
        """Is it more than nothing, and than two runs of the same strategy are apart?"""
        lost = max(self.soon_percent - abs(noise.soon_percent), self.last_percent - abs(noise.last_percent))
        return lost >= _WORTH_PERCENT or self.slower >= _WORTH_TIME * max(noise.slower, 1 / noise.slower)


def _row(name: str, pairs: list[tuple[Result, Result]], loss: Loss, noise: Loss | None) -> str:
    gap = fmean(100 * (_gap(x) - _gap(y)) for x, y in pairs)
    proofs = f"{sum(x.proof_s is not None for x, _ in pairs)} of {sum(y.proof_s is not None for _, y in pairs)}"
    worth = "" if noise is None or name == AGAIN else "yes" if loss.worth(noise) else "no"
    return (
        f"| {name} | {loss.soon_percent:+.3f} % | {loss.soon_worst:+.2f} % | {loss.last_percent:+.3f} % | "
        f"{loss.last_worst:+.2f} % | {gap:+.3f} % | × {loss.slower:.3f} | {proofs} | {worth} |"
    )


def _gap(result: Result) -> float:
    return 1.0 if result.objective_ms is None else max(0.0, 1 - result.bound_ms / result.objective_ms)


def _read(path: Path) -> list[Result]:
    return [Result(**x) for x in read_results(path)]


if __name__ == "__main__":
    main()
