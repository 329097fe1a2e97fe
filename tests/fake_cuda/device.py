"""Building and loading the device that is not there: by one process, and by others before they import torch."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from tests.fake_cuda import left_out

FOLDER = Path(__file__).parent
PARTS = ("device", "ordering", "memory")
VERSIONS = ("2.11", "2.13")
"""Of PyTorch, whose interfaces it is written for."""


def why_not() -> str | None:
    """Why there can be no fake device here; None if there can."""
    import torch

    if torch.version.hip is not None or not torch.__version__.startswith(VERSIONS):
        return f"written for torch {' and '.join(VERSIONS)}, and this is {torch.__version__}"
    if shutil.which("c++") is None:
        return "there is no C++ compiler"
    return None


def built(folder: Path | None = None, *, computing: bool = True) -> Path:
    """The library, compiled unless it is there already.

    Args:
        folder: where; None: one that stays.
        computing: tensors there have values; without, which compiles in a third of the time, fake ones can be there.

    Returns:
        Its path, with the sources it was made of in its name.
    """
    from torch.utils.cpp_extension import include_paths

    sources = sorted(x for x in (*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")) if x.stem != "caching")
    folder = FOLDER.parents[1] / "build" / "fake_cuda" if folder is None else folder
    parts = (*PARTS, "kernels", "libraries") if computing else PARTS
    library = folder / f"libfakecuda-{_digest([*sources, Path(left_out.__file__)])}-{len(parts)}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as at:
        options = ["-O1", "-std=c++20", "-fPIC", *(f"-I{x}" for x in include_paths())]
        objects = [str(Path(at, f"{x}.o")) for x in parts]
        compiling = [
            subprocess.Popen(["c++", *options, "-c", str(FOLDER / f"{part}.cpp"), "-o", made])
            for part, made in zip(parts, objects, strict=True)
        ]
        failed = [part for part, process in zip(parts, compiling, strict=True) if process.wait() != 0]
        if failed:
            raise RuntimeError(f"{', '.join(failed)} could not be compiled")
        partial = Path(at, library.name)
        linked = ["c++", "-shared", *objects, "-o", str(partial), f"-L{_torch_libraries()}", "-lc10", "-ltorch_cpu"]
        subprocess.run(linked, check=True)
        if _has_cuda():
            left_out.build(Path(at, left_out.NAME), torch_libraries=_torch_libraries())
            Path(at, left_out.NAME).replace(_left_out(library))
        partial.replace(library)
    return library


def built_caching() -> Path:
    """The library of ``caching.cpp``, for after ``load``; where the product's own extensions are compiled as well.

    Raises:
        ValueError: there are none of CUDA's headers.
    """
    from torch.utils.cpp_extension import include_paths

    from explorer.execution.arena import cuda_headers

    source, headers = FOLDER / "caching.cpp", (*cuda_headers(), FOLDER / "headers")
    library = FOLDER.parents[1] / "build" / "fake_cuda" / f"libfakecaching-{_digest([source, FOLDER / 'device.h'])}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        partial = library.with_suffix(f".{os.getpid()}")
        folders = [f"-I{x}" for x in (*include_paths(), *headers)]
        options = ["-O1", "-std=c++20", "-fPIC", "-shared", *folders]
        subprocess.run(["c++", *options, str(source), "-o", str(partial)], check=True)
        partial.replace(library)
    return library


def _digest(sources: Iterable[Path]) -> str:
    import torch

    return hashlib.sha256(b"".join(x.read_bytes() for x in sources) + torch.__version__.encode()).hexdigest()[:16]


def load(library: str | os.PathLike[str]) -> ctypes.CDLL:
    """Make this process believe in it; torch must not have been imported."""
    assert "torch" not in sys.modules, "torch has its hooks already"
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(_torch_libraries() / name), mode=ctypes.RTLD_GLOBAL)
    if _has_cuda():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        ctypes.CDLL(str(_torch_libraries() / "libc10_cuda.so"))  # first: its allocator and guard give way to ours
        ctypes.CDLL(str(_left_out(Path(library))))
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    import torch

    torch.cuda.is_bf16_supported = lambda *_args, **_kwargs: True
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    return loaded


def _has_cuda() -> bool:
    return (_torch_libraries() / left_out.NAME).exists()


def _left_out(library: Path) -> Path:
    return library.with_stem(f"{library.stem}-left-out")


def _torch_libraries() -> Path:
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "lib"
