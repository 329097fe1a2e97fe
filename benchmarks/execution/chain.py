"""What it costs that a backward pass is a chain of autograd nodes: steps against the same steps with one node.

    python -m benchmarks.execution.chain [MODEL …] [--tier quick] [--rounds 40]

Both keep everything, and take turns within one run. The ratio is the median over rounds of one time to its neighbour's,
beside its standard error; a second schedule with one node, in the same turns, says what the ratio of two equals is.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import explorer
from benchmarks.cases import Sample, Size, add_tier, model_cases, model_names
from benchmarks.provenance import record
from benchmarks.timing_in_turns import paired_ratio, times_in_turns_ms
from explorer.capture import capture
from explorer.execution import code
from explorer.execution.scheduled import ScheduledModule
from explorer.execution.steps import step_of, unchanged


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=model_names(Size.TINY))
    add_tier(parser)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    record(arguments)
    print(f"{'model':>14} {'nodes':>6} {'one node, ms':>13} {'chain / one node':>18} {'one / one node':>18}")
    for case in model_cases(arguments.tier, Size.TINY, arguments.models):
        show(case.name, case.sample(), rounds=arguments.rounds)


def show(name: str, sample: Sample, *, rounds: int) -> None:
    """Time both in turn."""
    chain = scheduled(sample)
    with with_one_node():
        single, another = scheduled(sample), scheduled(sample)
    modules = {"single": single, "chain": chain, "another": another}
    runs = {name: step_of(module, sample[1]) for name, module in modules.items()}
    with unchanged(chain):
        for run in runs.values():
            run()
        times_ms = times_in_turns_ms(runs, rounds=rounds)
    nodes = len(type(chain).plans[0].program.groups)
    pairs = (paired_ratio(times_ms[x], times_ms["single"]) for x in ("chain", "another"))
    chained, equal = (f"{ratio:.4f} ± {error:.4f}" for ratio, error in pairs)
    print(f"{name:>14} {nodes:>6} {statistics.median(times_ms['single']):>13.2f} {chained:>18} {equal:>18}", flush=True)


def scheduled(sample: Sample) -> ScheduledModule:
    """The model, keeping everything."""
    model, batch, loss = sample
    schedule = explorer.keep_all(capture(model, batch, loss=loss).graph)
    return explorer.apply(model, schedule, batch, loss=loss, check=False)


@contextmanager
def with_one_node() -> Iterator[None]:
    """While open, generated code gives all gradients away at its end."""
    groups_of = code.completed_after

    def at_the_end(*given: object) -> dict[int, tuple[int, ...]]:
        groups = groups_of(*given)  # type: ignore[arg-type]
        return {max(groups): tuple(x for group in groups.values() for x in group)}

    with mock.patch.object(code, "completed_after", at_the_end):
        yield


if __name__ == "__main__":
    main()
