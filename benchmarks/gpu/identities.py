"""What a GPU would capture beside what an estimate captures, on a device that is not there (``tests/fake_cuda``).

    python -m benchmarks.gpu.identities

writes ``benchmarks/results/gpu/identities.json``: for eight models in three precisions, as on an A100 and on an H200,
whether the graphs are the same, and what whole steps take (of everything kept, and of two schedules at random) beside
what is predicted, on the first of two devices and on the second.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.gpu.tables import FOLDER
from benchmarks.provenance import add_rows, record
from tests.fake_cuda.cases import PRECISIONS, SMALL, case, found_out
from tests.fake_cuda.device import built, why_not

CAPABILITIES = {"8.0": "cuda:0", "9.0": "cuda:1"}
"""Of an A100 and an H200, and which of two devices the steps are on."""


def main() -> None:
    """Find out about all of them, a model at a time; what was found earlier of others stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=SMALL, default=list(SMALL))
    parser.add_argument("--capabilities", nargs="+", choices=CAPABILITIES, default=list(CAPABILITIES))
    parser.add_argument("--json", type=Path, default=FOLDER / "identities.json")
    asked = parser.parse_args()
    if (missing := why_not()) is not None:
        raise SystemExit(missing)
    provenance, library = record(asked), built(computing=False)
    for model in asked.models:
        for capability in asked.capabilities:
            cases = [case(model, x, schedules=True, device=CAPABILITIES[capability]) for x in PRECISIONS]
            rows: list[dict[str, Any]] = []
            for precision, found in zip(PRECISIONS, found_out(cases, library, capability=capability), strict=True):
                known = {"on": f"{model}, {capability}", "model": model, "precision": precision}
                rows.append({**known, "capability": capability, **found})
                same = "the same graph" if found["difference"] is None else found["difference"]
                print(f"{model}, {precision}, {capability}: {found['operators']} operators, {same}", flush=True)
            add_rows(asked.json, rows, provenance, by="on")


if __name__ == "__main__":
    main()
