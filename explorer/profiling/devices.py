"""Devices to estimate for: published figures by name, or a YAML file of one's own. Neither needs torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from explorer.extras import needing
from explorer.graph import MOST_BYTES
from explorer.storage import storage_format
from explorer.units import shown

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
_GIB = 2**30
_HOPPER = 9.0
_HANDLE_BYTES = 8_519_680
_HANDLE_BYTES_OF_HOPPER = 32 * 2**20


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """What a data sheet says about a device.

    Attributes:
        memory_gib: nominal size of its memory.
        bandwidth_gb_s: of its memory, 10^9 bytes a second.
        vector_tflops: float32 on ordinary cores, 10^12 operations a second.
        matrix_tflops: of dense matrix products, by precision (one of ``PRECISIONS``).
        source: where the figures are published.
        launch_us: between two kernels, in microseconds, where the device need not wait for the host.
        cublas_workspace_bytes: what PyTorch keeps throughout for each of cuBLAS's two handles, one for the forward and
            one for the backward pass; None: by its compute capability, 32 MiB from 9.0 on and 8.1 before.
        compute_capability: by which libraries choose kernels.
        multiprocessors: by which they decide how to share sums.
        cudnn_attention: PyTorch takes cuDNN's attention in half precision there, before others; None: with compute
            capability 9.0 and 10.0, as it does.
        name: as the user names it.
    """

    memory_gib: float
    bandwidth_gb_s: float
    vector_tflops: float
    source: str
    matrix_tflops: dict[str, float] = field(default_factory=dict)
    launch_us: float = 3.0
    cublas_workspace_bytes: int | None = None
    cudnn_attention: bool | None = None
    compute_capability: float = 8.0
    multiprocessors: int = 108
    name: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a figure that is none or not positive, or a precision that is unknown."""
        if not isinstance(self.matrix_tflops, dict):
            raise ValueError(
                f"matrix_tflops is {shown(self.matrix_tflops)}; it must be a dict of numbers by precision, which may "
                "be empty"
            )
        figures = {
            "memory_gib": self.memory_gib,
            "bandwidth_gb_s": self.bandwidth_gb_s,
            "vector_tflops": self.vector_tflops,
            "compute_capability": self.compute_capability,
            "multiprocessors": self.multiprocessors,
            **self.matrix_tflops,
        }
        may_be_zero = {"launch_us": self.launch_us, "cublas_workspace_bytes": self.cublas_workspace_bytes or 0}
        for key, value in (figures | may_be_zero).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{key} is {shown(value)}; it must be a number")
        for key, value in figures.items():
            if not 0 < value < float("inf"):
                raise ValueError(f"{key} is {value}; it must be positive")
        for key, value in may_be_zero.items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{key} is {value}; it must be 0 or more")
        if self.memory_gib > MOST_BYTES / _GIB:
            raise ValueError(f"memory_gib is {self.memory_gib}; allowed: up to {MOST_BYTES / _GIB:.0f}")
        if unknown := set(self.matrix_tflops) - set(PRECISIONS):
            raise ValueError(f"matrix_tflops has {sorted(unknown)}; allowed: {', '.join(PRECISIONS)}")

    @property
    def memory_bytes(self) -> int:
        """Size of its memory."""
        return int(self.memory_gib * _GIB)

    @property
    def handle_bytes(self) -> int:
        """What PyTorch keeps for each handle of cuBLAS."""
        if self.cublas_workspace_bytes is not None:
            return self.cublas_workspace_bytes
        return _HANDLE_BYTES_OF_HOPPER if self.compute_capability >= _HOPPER else _HANDLE_BYTES

    def has_matrix_cores(self, precision: str) -> bool:
        """Are its products in ``precision`` much faster than what ordinary cores do?"""
        # Twice is what ordinary cores make of half precision (P100).
        return self.matrix_tflops.get(precision, 0.0) > 1.5 * self.vector_tflops * (2 if precision == "float16" else 1)

    def matrix_rate_tflops(self, precision: str) -> float:
        """Rate of dense matrix products; that of ordinary cores where no other is published."""
        return self.matrix_tflops.get(precision, self.vector_tflops)


def device_spec(name: str | Path) -> DeviceSpec:
    """A device of the table by its name, or the one that a YAML file describes.

    Args:
        name: ``"A100-80GB"`` (upper or lower case), or the path of a file that ends in ``.yaml`` or ``.yml`` and has
            the fields of ``DeviceSpec``.

    Raises:
        ValueError: there is no such device or file, or the file is not as described.
    """
    if not isinstance(name, str | Path):
        raise ValueError(f"device is {shown(name)}; allowed: {', '.join(device_table())}, or a YAML file of your own")
    path = Path(name)
    if path.suffix.lower() in (".yaml", ".yml"):
        return _spec(_parsed(path), origin=str(path), name=path.stem)
    table = device_table()
    for known, spec in table.items():
        if known.lower() == str(name).lower():
            return spec
    raise ValueError(
        f"no device {shown(str(name))} in the table; there: {', '.join(table)}; or give a YAML file of your own"
    )


@cache
def device_table() -> dict[str, DeviceSpec]:
    """All devices that come with the package, by name."""
    path = Path(__file__).with_name("devices.yaml")
    return {name: _spec(entry, origin=f"{path.name}, {name}", name=name) for name, entry in _parsed(path).items()}


def _parsed(path: Path) -> Any:
    with needing("the table of devices"):
        import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}") from error


def _spec(entry: Any, *, origin: str, name: str) -> DeviceSpec:
    if not isinstance(entry, dict):
        raise ValueError(f"{origin} must hold the fields of one device; it holds {type(entry).__name__}")
    if unknown := set(entry) - set(DeviceSpec.__dataclass_fields__):
        raise ValueError(f"{origin} has unknown fields: {', '.join(map(str, sorted(unknown, key=str)))}")
    return storage_format.from_content({"name": name, **entry}, DeviceSpec, origin=origin)
