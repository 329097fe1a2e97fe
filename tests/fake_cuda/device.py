"""Building and loading ``device.cpp``: built by one process, loaded by others before they import torch."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("device.cpp")
TORCH = "2.13"
"""For whose interfaces it is written."""


def why_not() -> str | None:
    """Why there can be no fake device here; None if there can."""
    import torch

    if torch.version.cuda is not None or not torch.__version__.startswith(TORCH):
        return f"written for a CPU build of torch {TORCH}, and this is {torch.__version__}"
    if shutil.which("c++") is None:
        return "there is no C++ compiler"
    return None


def built(folder: Path) -> Path:
    """The library, compiled into a folder."""
    from torch.utils.cpp_extension import include_paths

    library = folder / "libfakecuda.so"
    includes = [f"-I{x}" for x in include_paths()]
    command = ["c++", "-O1", "-std=c++20", "-shared", "-fPIC", *includes, str(SOURCE), "-o", str(library)]
    subprocess.run([*command, f"-L{_torch_libraries()}", "-lc10", "-ltorch_cpu"], check=True)
    return library


def load(library: str) -> None:
    """Make this process believe in it; torch must not have been imported."""
    assert "torch" not in sys.modules, "torch has its hooks already"
    for name in (_torch_libraries() / "libc10.so", _torch_libraries() / "libtorch_cpu.so", library):
        ctypes.CDLL(str(name), mode=ctypes.RTLD_GLOBAL)
    import torch

    torch.cuda.is_bf16_supported = lambda *_args, **_kwargs: True
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False


def _torch_libraries() -> Path:
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "lib"
