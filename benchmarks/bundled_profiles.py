"""Make the estimated profiles that come with the package: every bundled model at full size, for two devices each.

    python -m benchmarks.bundled_profiles [MODEL …]

writes explorer/profiles/MODEL-DEVICE.json.gz. Nothing is measured, so any machine gives the same files with the same
version of PyTorch. A100s compute float32 products in TF32, as ``torch.set_float32_matmul_precision("high")`` has it;
transformers are all in bfloat16.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

import explorer
from benchmarks.provenance import record
from explorer.models import MODELS, TRANSFORMERS, model_spec
from explorer.profiles.loading import PRECISIONS
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.units import format_bytes

DEVICES_OF_TRANSFORMERS = {"a100-80gb": "bfloat16", "h100": "bfloat16"}
FOLDER = Path(explorer.__file__).with_name("profiles")


def main() -> None:
    """Estimate, write, and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[*MODELS, *TRANSFORMERS], help=", ".join(MODELS | TRANSFORMERS))
    arguments = parser.parse_args()
    record(arguments, seeds=())
    for name in arguments.models:
        spec = model_spec(name)
        with torch.device("meta"):
            model, batch = spec.build(), spec.batch()
        for device, precision in (PRECISIONS if name in MODELS else DEVICES_OF_TRANSFORMERS).items():
            began = time.perf_counter()
            profile = explorer.estimate(model, batch, loss=spec.loss, device=device, precision=precision)
            path = FOLDER / f"{name}-{device}.json.gz"
            profile.save(path)
            plain = simulate(profile, keep_all(profile.graph))
            print(
                f"{path.name}: {path.stat().st_size / 1e3:.0f} kB, {len(profile.graph.operators)} operators, "
                f"{plain.time_ms:.0f} ms, {format_bytes(plain.peak_bytes)}, {time.perf_counter() - began:.1f} s"
            )


if __name__ == "__main__":
    main()
