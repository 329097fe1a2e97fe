"""What estimates take for the workspace of CUDA's kernels, beside what an H200 measured and cuDNN plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from benchmarks.gpu.estimates import estimated
from explorer.library_workspace import library_workspaces, uses_cublas
from explorer.operators.convolution_algorithms import Geometry
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.profiles.loading import bundled_profiles, load_profile
from explorer.profiling.convolution_costs import Part
from explorer.profiling.convolutions import Convolutions, Precisions
from explorer.profiling.devices import device_spec
from explorer.profiling.kernel_workspace import kernel_workspace_bytes
from explorer.schedule import keep_all
from explorer.simulation import simulate

MIB = 2**20
H200 = device_spec("H200")
IMAGES = (256, 64, 56, 56)


def layer(dtype: torch.dtype = torch.float32) -> Geometry:
    """Of MONeT's figure 7."""
    return Geometry(IMAGES, (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, dtype, "cuda")


def convolutions(precision: str) -> Convolutions:
    return Convolutions(H200, Precisions(matmul="float32", convolution=precision))


@pytest.mark.parametrize(
    ("precision", "part", "measured_mib"),
    [
        ("tf32", Part.FORWARD, 392.14),
        ("tf32", Part.INPUT_GRADIENT, 392.14),
        ("tf32", Part.WEIGHT_GRADIENT, 394.11),
        ("float32", Part.INPUT_GRADIENT, 289.0),
        ("float32", Part.WEIGHT_GRADIENT, 882.56),
    ],
)
def test_pytorchs_own_convolution_takes_what_was_measured_and_little_more(
    precision: str, part: Part, measured_mib: float
) -> None:
    found = convolutions(precision).part(part, layer(), IMAGES).workspace_bytes
    assert measured_mib - 0.01 <= found / MIB <= 1.06 * measured_mib


def test_with_channels_side_by_side_nothing_is_copied() -> None:
    found = convolutions("tf32").part(Part.FORWARD, layer(), IMAGES, channels_last=True)
    assert found.workspace_bytes < MIB


def test_what_is_not_laid_out_as_a_convolution_runs_is_copied() -> None:
    source, weight = torch.empty(4, 8, 16, 16, device="meta"), torch.empty(8, 8, 1, 1, device="meta")
    settings = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    made = convolutions("float32")
    plain = made.own(source, weight, source, settings, [True, False, False]).workspace_bytes
    narrow = torch.empty(4, 16, 16, 16, device="meta")[:, :8]
    copied = made.own(source, weight, narrow, settings, [True, False, False]).workspace_bytes
    assert copied - plain == narrow.numel() * 4


@pytest.mark.parametrize("family", list(Algorithms))
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_a_family_that_may_have_no_plan_takes_no_less_than_what_stands_in(family: Algorithms, precision: str) -> None:
    known = {Algorithms.IMPLICIT, Algorithms.PRECOMPUTED}
    for part in Part:
        made = convolutions(precision)
        found = made.family(family, part, layer(), IMAGES).workspace_bytes
        if family in known:
            assert found <= 16 * MIB
        else:
            assert found >= made.part(part, layer(), IMAGES).workspace_bytes


def test_plans_that_are_known_take_the_models_place() -> None:
    class Known:
        def workspace_bytes(self, family: str, *_: object, **__: object) -> int | None:
            return {"": 3 * MIB, "Winograd": 7}.get(family)

    made = Convolutions(H200, Precisions(matmul="float32", convolution="tf32"), Known())
    assert made.part(Part.FORWARD, layer(), IMAGES).workspace_bytes == 3 * MIB
    assert made.family(Algorithms.WINOGRAD, Part.FORWARD, layer(), IMAGES).workspace_bytes == 7
    assert made.family(Algorithms.FFT, Part.FORWARD, layer(), IMAGES) == made.part(Part.FORWARD, layer(), IMAGES)


def half(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


@pytest.mark.parametrize(
    ("rows", "columns", "measured_bytes"),
    [(8192, 768, 50_332_160), (12608, 768, 77_464_064), (8192, 2304, 139_198_976), (12608, 2304, 139_198_976)],
)
def test_sums_over_rows_leave_partial_sums(rows: int, columns: int, measured_bytes: int) -> None:
    tensor = half(rows, columns)
    assert kernel_workspace_bytes("sum", [tensor], (tensor, [0]), H200) == pytest.approx(measured_bytes, rel=0.01)
    assert kernel_workspace_bytes("sum", [tensor], (tensor, [1]), H200) == 0


@pytest.mark.parametrize(
    ("shape", "measured_bytes"), [((8, 12, 1024, 64), 25_559_552), ((64, 12, 197, 64), 39_337_472)]
)
def test_attention_adds_up_the_querys_gradient_in_float32(shape: tuple[int, ...], measured_bytes: int) -> None:
    query = half(*shape)
    name = "_scaled_dot_product_cudnn_attention_backward"
    assert kernel_workspace_bytes(name, [query, query], (), H200) == pytest.approx(measured_bytes, abs=512)


def test_cublas_has_two_handles_and_a_library_for_biases() -> None:
    """65 MiB measured on an H200."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    batch = torch.randn(4, 8), torch.randn(4, 1)
    profile = explorer.estimate(model, batch, loss=F.mse_loss, device="H200")
    assert profile.device.persistent_workspace_bytes == 65 * MIB
    older = explorer.estimate(model, batch, loss=F.mse_loss, device="A100-80GB")
    assert older.device.persistent_workspace_bytes == 2 * 8_519_680 + MIB


class Product(nn.Module):
    """One of PyTorch's ways to multiply."""

    def __init__(self, product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], *shape: int) -> None:
        super().__init__()
        self.product = product
        self.weight = nn.Parameter(torch.randn(*shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(self.weight, x).square().mean()


@pytest.mark.parametrize(
    ("product", "shape"),
    [
        (lambda weight, x: x @ weight, (8,)),
        (lambda weight, x: torch.addmv(x[:, 0], x, weight), (8,)),
        (lambda weight, x: torch.dot(weight, x[0]), (8,)),
        (lambda weight, x: torch.addbmm(weight, x.unsqueeze(0), x.t().unsqueeze(0)), (4, 4)),
        (torch.mul, (8,)),
    ],
    ids=["mv", "addmv", "dot", "addbmm", "mul"],
)
def test_cublas_has_its_handles_for_vectors_too(product: Any, shape: tuple[int, ...]) -> None:
    profile = explorer.estimate(Product(product, *shape), (torch.randn(4, 8),), device="H200")
    assert profile.device.persistent_workspace_bytes == (0 if product is torch.mul else 64 * MIB)


@pytest.mark.parametrize("name", bundled_profiles())
def test_of_bundled_profiles_nothing_is_missing(name: str) -> None:
    """They were made before vectors counted: each has cuBLAS's workspace, and its blocks are all of it."""
    profile = load_profile(name)
    if profile.device.kind != "cuda":
        return
    assert uses_cublas(profile.graph) == (profile.device.persistent_workspace_bytes > 0)
    line = explorer.simulate(profile, explorer.keep_all(profile.graph))
    assert sum(x for _, x in library_workspaces(profile, line)) == profile.device.persistent_workspace_bytes


@pytest.mark.thorough("resnet50-h200-tf32", "vit_b16-h200")
@pytest.mark.parametrize("name", ["unet-h200", "resnet50-h200-tf32", "vit_b16-h200"])
def test_an_estimate_has_the_peak_that_was_measured(name: str) -> None:
    measured, like = load_profile(name), estimated(name)
    assert like.graph.identity.difference(measured.graph.identity) is None
    plain = keep_all(measured.graph)
    there, here = simulate(measured, plain), simulate(like, plain)
    assert 0.999 <= here.peak_bytes / there.peak_bytes <= 1.002
    assert 0.8 <= here.time_ms / there.time_ms <= 1.2
