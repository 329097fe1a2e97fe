"""What each kind of implementation is worth to language models beside checkpointing, on the bundled profiles.

    python -m benchmarks.methods.transformers [PROFILE …] [--seconds 4] [--json benchmarks/results/transformers.json]

For every profile and kind, that kind alone may be chosen, or all but that: the overhead over plain PyTorch at shares of
its peak, and the smallest budget. ``all`` is MONeT's joint choice, ``none`` checkpointing alone; a set has what those
before it have, if they are of its parts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import explorer
from benchmarks.provenance import add_rows, record
from explorer.graph import FAITHFUL, Implementation, Operator, Optimization
from explorer.schedule import Schedule
from explorer.solution import Finder
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.options import Options

PROFILES = (
    *("gpt2-a100-80gb", "llama3_8b-a100-80gb", "llama3_70b_shard-a100-80gb", "qwen2_5_7b-a100-80gb"),
    *("bert_large-a100-80gb", "t5_base-a100-80gb", "whisper_small-a100-80gb", "vit_l16-a100-80gb"),
)
_SHARES = (0.5, 0.25)

NONE, ALL, _BUT = "none", "all", "all but "
Chosen = Callable[[Operator, Implementation], bool]
KINDS: dict[str, Chosen] = {
    NONE: lambda _, __: False,
    "loss": lambda operator, _: "cross_entropy" in operator.target,
    "feed-forward in parts": lambda operator, _: operator.target.startswith(
        ("explorer.feed_forward", "explorer.weight_gradient")
    ),
    "embedding": lambda operator, _: "embedding" in operator.target,
    "from output": lambda _, way: way.optimization is Optimization.OUTPUT,
    "bits": lambda _, way: way.optimization is Optimization.INTERMEDIATE,
    "attention": lambda operator, _: "attention" in operator.target or "softmax" in operator.target,
    "in place": lambda operator, way: (
        way.optimization is Optimization.INPLACE
        and "cross_entropy" not in operator.target
        and "embedding" not in operator.target
    ),
    ALL: lambda _, __: True,
}


@dataclass(frozen=True)
class Kind:
    """What may be chosen beside PyTorch's own implementations, and what that is worth.

    Attributes:
        kind: of ``KINDS``, or all but that.
        ways: how many implementations are of it.
        overheads: at shares of plain PyTorch's peak, 0.1 for 10 %; None: no schedule.
        smallest: smallest budget over the peak.
    """

    kind: str
    ways: int
    overheads: tuple[float | None, ...]
    smallest: float


def main() -> None:
    """Print a table for each profile; write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", default=PROFILES, help="bundled ones")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each solve")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    provenance = record(arguments, seeds=(0,))
    for name in arguments.profiles:
        kinds = of_profile(name, seconds=arguments.seconds)
        if arguments.json is not None:
            row = {"profile": name, "shares": _SHARES, "kinds": [asdict(x) for x in kinds]}
            add_rows(arguments.json, [row], provenance, by="profile")


def of_profile(name: str, *, seconds: float) -> list[Kind]:
    """Every kind that the profile has."""
    whole = explorer.load_profile(name)
    plain = explorer.simulate(whole, explorer.keep_all(whole.graph))
    print(f"\n{name}: {plain.time_ms:.0f} ms, {explorer.format_bytes(plain.peak_bytes)}")
    alone = {kind: chosen for kind, chosen in KINDS.items() if kind in (NONE, ALL) or _with(whole, chosen)[1]}
    whole_choice = alone.pop(ALL)
    others = {_BUT + kind: _but(chosen) for kind, chosen in alone.items() if kind != NONE}
    kinds: list[Kind] = []
    found: dict[str, list[Schedule]] = {}
    for kind, chosen in {**alone, **others, ALL: whole_choice}.items():
        profile, ways = _with(whole, chosen)
        options = Options(time_limit=seconds)
        knowledge = Knowledge(options.problem(profile))
        for known in _of_parts(kind, found):
            knowledge.add_schedule(replace(known, identity=profile.graph.identity), Finder.SMALLEST)
        solutions = [Pursuit(knowledge, int(x * plain.peak_bytes), options).run() for x in _SHARES]
        least = explorer.smallest_budget(profile, time_limit=seconds)
        assert least.schedule is not None, "there is a smallest budget"
        knowledge.add_schedule(least.schedule, Finder.SMALLEST)
        found[kind] = [x.schedule for x in (*solutions, least) if x.schedule is not None]
        overheads = tuple(None if x.time_ms is None else x.time_ms / plain.time_ms - 1 for x in solutions)
        kinds.append(Kind(kind, ways, overheads, knowledge.minimum().budget_bytes / plain.peak_bytes))
        shown = "  ".join(f"{'-' if x is None else f'{x:+.2%}':>8}" for x in overheads)
        print(f"{kind:>30} {ways:6} ways  {shown}  smallest {kinds[-1].smallest:.3f}", flush=True)
    return kinds


def _but(left_out: Chosen) -> Chosen:
    return lambda operator, way: not left_out(operator, way)


def _of_parts(kind: str, found: dict[str, list[Schedule]]) -> list[Schedule]:
    """Of sets that this one contains."""
    if kind == ALL:
        parts = list(found)
    elif kind.startswith(_BUT):
        parts = [x for x in found if not x.startswith(_BUT) and _BUT + x != kind]
    else:
        parts = [x for x in (NONE,) if x in found]
    return [x for part in parts for x in found[part]]


def _with(profile: explorer.Profile, chosen: Chosen) -> tuple[explorer.Profile, int]:
    """PyTorch's own implementations and those chosen; and how many these are."""
    operators, ways = [], 0
    for operator in profile.graph.operators:
        kept = []
        for way in operator.implementations:
            mine = way.optimization in FAITHFUL and chosen(operator, way)
            ways += mine
            # What is left out still belongs to the graph, as something that nobody asks for.
            kept.append(way if mine or way.optimization is None else replace(way, optimization=Optimization.SPARSE))
        operators.append(replace(operator, implementations=tuple(kept)))
    return replace(profile, graph=replace(profile.graph, operators=tuple(operators))), ways


if __name__ == "__main__":
    main()
