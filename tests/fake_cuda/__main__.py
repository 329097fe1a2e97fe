"""``python -m tests.fake_cuda MODULE [ARGUMENTS …]``: any module of this checkout, with a simulated CUDA device.

For one: ``python -m tests.fake_cuda tests.gpu``, every check for a GPU as it is, with the batches that it takes on a
CPU. Values are computed by the CPU's kernels, bytes by a model of the caching allocator; times are the host's, and mean
nothing.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import subprocess
import sys
from contextlib import suppress

from tests.fake_cuda.device import FOLDER, built_caching, load

LIBRARY = "FAKE_CUDA"
"""Environment: the library, where it has been built."""


def main() -> None:
    """Load the device, then run the module as ``python -m`` does."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    library = os.environ.get(LIBRARY)
    if library is None:
        making = [sys.executable, "-c", "from tests.fake_cuda.device import built; print(built())"]
        library = subprocess.run(making, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    loaded = load(library)
    from tests.fake_cuda.cuda import install

    install(loaded, capability=capability())
    with suppress(ValueError):  # without CUDA's headers there are no steps in one buffer
        ctypes.CDLL(str(built_caching()), mode=ctypes.RTLD_GLOBAL)
        os.environ["CPATH"] = str(FOLDER / "headers")
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(FOLDER.parents[1] / "build" / "fake_cuda" / "extensions"))
    if sys.argv[1] in ("tests.gpu", "benchmarks.gpu.agenda"):
        from tests.gpu.checks import SIZES

        for sizes in SIZES.values():
            sizes["cuda"] = sizes["cpu"]
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def capability() -> tuple[int, int]:
    """Of the device: as ``FAKE_CAPABILITY`` says, which ``device.cpp`` reads too."""
    major, minor = os.environ.get("FAKE_CAPABILITY", "8.0").split(".")
    return int(major), int(minor)


if __name__ == "__main__":
    main()
