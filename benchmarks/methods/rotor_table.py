"""How long rotor's table takes: 339 stages (ResNet-1001 in the paper, which took up to 20 s) and 500 slots.

    python -m benchmarks.methods.rotor_table [--stages 339] [--slots 500]

One table holds the best time for every number of slots. The ratio is to a chain of half as many stages, in the same
run: the work grows with the third power of the length.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.provenance import record
from explorer.solvers.methods.rotor.chain import Chain, keep_everything
from explorer.solvers.methods.rotor.table import SLOTS, solve


def main() -> None:
    """Print both durations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, default=339)
    parser.add_argument("--slots", type=int, default=SLOTS)
    arguments = parser.parse_args()
    record(arguments)
    solve(residual_network(5), memory_bytes=10**9)  # compiles, or loads what was compiled
    seconds = {}
    for stages in (arguments.stages // 2, arguments.stages):
        chain = residual_network(stages)
        memory_bytes = chain.peak_bytes(keep_everything(chain))
        began, used = time.perf_counter(), time.process_time()
        table = solve(chain, memory_bytes=memory_bytes, slots=arguments.slots)
        seconds[stages] = time.process_time() - used
        feasible = int(np.isfinite(table.curve_ms).sum())
        print(
            f"{stages} stages, {arguments.slots} slots: {time.perf_counter() - began:.1f} s "
            f"({seconds[stages]:.1f} s of processor time), {feasible} memory sizes with a sequence, "
            f"{len(table.sequences())} different ones"
        )
    print(f"ratio {seconds[arguments.stages] / seconds[arguments.stages // 2]:.1f}")


def residual_network(stages: int) -> Chain:
    """A chain like that of a residual network: activations halve from part to part, times vary."""
    rng = np.random.default_rng(0)
    size = 2**20 // 2 ** (3 * np.arange(stages) // stages) * rng.integers(8, 17, stages)
    saved, inputs = 4 * size, np.concatenate([[0], size[:-1]])
    forward_ms = rng.uniform(1, 5, stages)
    none = np.zeros(stages, np.int64)
    return Chain(
        input_bytes=inputs,
        saved_bytes=saved,
        gradient_bytes=size,
        forward_peak_bytes=2 * size,
        saving_peak_bytes=saved + size,
        backward_peak_bytes=size + saved + inputs,
        first_ms=forward_ms,
        again_ms=forward_ms,
        backward_ms=2 * forward_ms,
        forward_base_bytes=none,
        backward_base_bytes=none,
    )


if __name__ == "__main__":
    main()
