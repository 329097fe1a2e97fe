"""Estimates: no memory, tensors of exact bytes, figures that a data sheet allows, a mark that nothing was measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.autocast import Autocast
from explorer.capture.stand_in import capture_for_cuda
from explorer.command_line.tables import summary
from explorer.execution.device import CUDA_ROUNDING_BYTES
from explorer.graph import Optimization
from explorer.models import MODELS
from explorer.operators.convolution_algorithms import Geometry
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.profiles.loading import bundled_model, bundled_profiles, load_profile
from explorer.profiling.convolution_costs import Part, convolution_cost
from explorer.profiling.convolutions import Precisions
from explorer.profiling.counting import Counting
from explorer.profiling.devices import DeviceSpec, device_spec, device_table
from explorer.profiling.profiling import subjects_of
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solvers import solve
from explorer.solvers.options import Options
from explorer.solvers.service.cache import label_of

NEEDED = "P100-16GB V100-16GB V100-32GB T4 A10 A100-40GB A100-80GB L4 L40S RTX-3090 RTX-4090 RTX-5090 H100 H200 B200"


def small() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, 3, 32, 32), torch.zeros(size, dtype=torch.long)


def test_the_table_has_every_device_with_a_source() -> None:
    assert set(NEEDED.split()) <= device_table().keys()
    for spec in device_table().values():
        assert spec.source
        assert spec.matrix_rate_tflops("float32") == spec.vector_tflops


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("memory_gib", "80", "memory_gib is '80'; it must be a number"),
        ("bandwidth_gb_s", None, "bandwidth_gb_s is None; it must be a number"),
        ("launch_us", "3", "launch_us is '3'; it must be a number"),
        ("matrix_tflops", None, "matrix_tflops is None; it must be a dict of numbers by precision"),
        ("matrix_tflops", {"tf32": "156"}, "tf32 is '156'; it must be a number"),
        ("vector_tflops", 0, "vector_tflops is 0; it must be positive"),
    ],
)
def test_a_figure_that_is_none_is_named(field: str, value: Any, told: str) -> None:
    right: dict[str, Any] = {"memory_gib": 80, "bandwidth_gb_s": 2000, "vector_tflops": 20, "source": "a sheet"}
    assert DeviceSpec(**right).memory_bytes == 80 * 2**30
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        DeviceSpec(**{**right, field: value})


def test_a_batch_that_no_machine_holds_is_estimated() -> None:
    model = small()
    state = {name: x.clone() for name, x in model.state_dict().items()}
    with torch.device("meta"):
        huge = batch(2**24)
    profile = explorer.estimate(model, huge, loss=F.cross_entropy, device="b200")
    assert profile.device.estimated
    assert profile.device.label == "B200 (estimated)"
    assert profile.device.memory_bytes == 180 * 2**30
    assert simulate(profile, keep_all(profile.graph)).peak_bytes > 2**40
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())


def test_wherever_its_device_is_named_it_is_called_an_estimate() -> None:
    estimated, measured = load_profile("unet-a100-80gb"), load_profile("resnet50-small-cpu")
    for say in (summary, lambda x: label_of(x, Options())):
        assert "A100-80GB (estimated)" in say(estimated)
        assert "estimated" not in say(measured)


def test_bytes_are_those_of_a_real_capture() -> None:
    model, data = small(), batch(4)
    measured = explorer.profile(model, data, loss=F.cross_entropy)
    estimated = explorer.estimate(model, data, loss=F.cross_entropy, device="A100-80GB")

    def sizes(profile: explorer.Profile) -> list[int]:
        graph = profile.graph
        return [graph.storages[x.default().writes[0]].bytes for x in graph.forward if x.default().writes]

    assert sizes(estimated) == sizes(measured)


def test_an_estimate_can_be_solved_for_and_saved(tmp_path: Path) -> None:
    profile = explorer.estimate(small(), batch(64), loss=F.cross_entropy, device="T4", optimizer="adam")
    assert profile.optimizer_state_bytes > 0
    plain = simulate(profile, keep_all(profile.graph)).peak_bytes
    found = solve(profile, budget=int(0.9 * plain), steps=1)
    assert found.schedule is not None
    assert found.peak_bytes is not None and found.peak_bytes <= 0.9 * plain
    profile.save(tmp_path / "small.json.gz")
    assert load_profile(tmp_path / "small.json.gz").digest == profile.digest


def test_convolutions_are_offered_in_all_families() -> None:
    graph = explorer.estimate(small(), batch(4), loss=F.cross_entropy, device="A100-80GB").graph
    first = next(x for x in graph.forward if x.target == "aten.convolution.default")
    names = {x.name for x in first.implementations if x.optimization is Optimization.CONVOLUTION}
    assert names == {*(x.value for x in Algorithms), "in 4 parts"}  # of so many samples


def test_better_devices_and_lower_precision_take_less_time() -> None:
    def time_ms(device: str, precision: str | None = None) -> float:
        profile = explorer.estimate(small(), batch(256), loss=F.cross_entropy, device=device, precision=precision)
        return simulate(profile, keep_all(profile.graph)).time_ms

    assert time_ms("H100") < time_ms("A100-80GB") < time_ms("P100-16GB")
    assert time_ms("A100-80GB", "tf32") < time_ms("A100-80GB", "float32")
    assert time_ms("A100-80GB", "bfloat16") < time_ms("A100-80GB", "tf32")


def test_what_was_counted_before_changes_no_figure() -> None:
    """An operator that was seen is not run again: its cost, and the memory of its results, must be the same."""
    model = nn.Sequential(small()[:3], nn.MaxPool2d(3, 2, 1), *small()[3:])
    subjects = subjects_of(capture_for_cuda(model, batch(5), loss=F.cross_entropy), CUDA_ROUNDING_BYTES)
    spec, precisions = device_spec("T4"), Precisions(matmul="float32", convolution="float32")
    shared = Counting(spec, precisions)
    for _ in range(2):
        for subject in subjects.values():
            alone = Counting(spec, precisions).cost(subject.call, written_bytes=subject.written_bytes)
            assert shared.cost(subject.call, written_bytes=subject.written_bytes) == alone


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 3 * 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (y.unflatten(-1, (4, 16)).transpose(1, 2) for y in self.linear(x).chunk(3, -1))
        return F.scaled_dot_product_attention(query, key, value, is_causal=True).sum()


@pytest.mark.parametrize(("precision", "kernel"), [("float32", "efficient"), ("bfloat16", "flash")])
def test_attention_is_what_a_gpu_runs(precision: str, kernel: str) -> None:
    profile = explorer.estimate(Attention(), torch.randn(2, 64, 64), device="A100-80GB", precision=precision)
    targets = {x.target for x in profile.graph.operators}
    assert f"aten._scaled_dot_product_{kernel}_attention.default" in targets
    assert f"aten._scaled_dot_product_{kernel}_attention_backward.default" in targets


class Normed(nn.Module):
    """What CUDA's autocast runs in float32, and the CPU's in what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.linear(x)).softmax(-1)
        x = self.linear(x)
        return x.sum(1) + x.norm(dim=1) + x.cumsum(1)[:, 0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast_follows_the_rules_of_cuda(dtype: str) -> None:
    """As ATen/autocast_mode.h lists them; parameters stay in float32."""
    profile = explorer.estimate(Normed(), torch.randn(4, 8), device="A100-80GB", autocast=dtype)
    made = {
        x.name: profile.graph.storages[x.default().writes[0]].dtype for x in profile.graph.forward if not x.optional
    }
    assert made["addmm"] == made["addmm_1"] == dtype
    for name in ("layer_norm", "softmax", "sum", "linalg_vector_norm", "cumsum"):
        assert made[name] == "float32", name
    assert {x.dtype for x in profile.graph.parameters} == {"float32"}
    assert profile.graph.identity.autocast == Autocast(dtype)
    with torch.autocast("cpu", getattr(torch, dtype)):  # on a machine without a GPU there is no other region
        inside = explorer.estimate(Normed(), torch.randn(4, 8), device="A100-80GB")
    assert inside.graph == profile.graph
    here = torch.randn(2, 2).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert here.softmax(-1).dtype is torch.bfloat16, "the CPU's rules are as before"


def test_attention_under_autocast_is_what_a_gpu_runs() -> None:
    profile = explorer.estimate(Attention(), torch.randn(2, 64, 64), device="A100-80GB", autocast="bfloat16")
    assert "aten._scaled_dot_product_flash_attention.default" in {x.target for x in profile.graph.operators}


def test_what_autocast_refuses_on_cuda() -> None:
    def loss(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy(output.sigmoid(), torch.ones_like(output))

    with pytest.raises(ValueError, match="use binary_cross_entropy_with_logits, or leave autocast"):
        explorer.estimate(small(), batch(2), loss=loss, device="T4", autocast="float16")


def test_a_device_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("memory_gib: 4\nbandwidth_gb_s: 100\nvector_tflops: 1\nsource: guessed\n")
    spec = device_spec(path)
    assert (spec.name, spec.memory_bytes) == ("mine", 4 * 2**30)
    assert explorer.estimate(small(), batch(2), loss=F.cross_entropy, device=str(path)).device.name == "mine"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("memory_gib: 4", "bandwidth_gb_s"),
        ("[1]", "must hold the fields of one device"),
        ("memory_gib: 4\nbandwidth_gb_s: 100\nvector_tflops: -1\nsource: x", "must be positive"),
        ("memory_gib: 4\nbandwidth_gb_s: 1\nvector_tflops: 1\nsource: x\nspeed: 1", "unknown fields: speed"),
        ("memory_gib: 4\nbandwidth_gb_s: 1\nvector_tflops: 1\nsource: x\nmatrix_tflops: {fp4: 1}", "fp4"),
        ("a: [", "cannot read"),
    ],
)
def test_a_wrong_device_file_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        device_spec(path)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"device": "A1000"}, "no device 'A1000'"),
        ({"device": "T4", "precision": "fp8"}, "precision 'fp8' is unknown"),
        (
            {"device": "T4", "precision": "float16", "autocast": "bfloat16"},
            "precision is 'float16', .* give one",
        ),
        ({"device": "T4", "optimizer": "magic"}, "optimizer is 'magic'; give the name of one: 'sgd'"),
    ],
)
def test_wrong_arguments_are_refused(more: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        explorer.estimate(small(), batch(2), loss=F.cross_entropy, **more)


# MONeT measured these workspaces (VGG-16, batch 176): 512 channels in and out, 28×28, and 64 at 224×224.
@pytest.mark.parametrize(
    ("algorithm", "channels", "side", "measured_bytes"),
    [
        (Algorithms.WINOGRAD_NOT_FUSED, 64, 224, 10_173_874_176),
        (Algorithms.FFT_TILING, 64, 224, 213_958_656),
        (Algorithms.FFT, 64, 224, 8_118_075_392),
        (Algorithms.FFT, 512, 28, 3_077_046_272),
    ],
)
def test_workspaces_are_those_measured(algorithm: Algorithms, channels: int, side: int, measured_bytes: int) -> None:
    shape = (176, channels, side, side)
    geometry = Geometry(
        source=shape,
        weight=(channels, channels, 3, 3),
        stride=(1, 1),
        padding=(1, 1),
        dilation=(1, 1),
        transposed=False,
        output_padding=(0, 0),
        groups=1,
        dtype=torch.float32,
        device="cuda",
    )
    cost = convolution_cost(
        algorithm, Part.FORWARD, geometry, shape, spec=device_spec("P100-16GB"), precision="float32"
    )
    assert cost.workspace_bytes == pytest.approx(measured_bytes, rel=0.005)


def test_every_model_is_bundled_at_full_size_for_two_devices() -> None:
    known = bundled_profiles()
    for name, spec in MODELS.items():
        for device in ("p100-16gb", "a100-80gb"):
            assert f"{name}-{device}" in known
        profile = load_profile(name)
        assert profile.device.label == "A100-80GB (estimated)"
        assert profile.graph.batch[0].shape[0] == spec.batch_size
        assert bundled_model(f"{name}-p100-16gb") == name
    assert sum(x.stat().st_size for x in known.values()) < 4e6


def test_a_bundled_estimate_is_of_the_bundled_model() -> None:
    """Whoever adds an implementation must run benchmarks/bundled_profiles.py again."""
    spec = MODELS["vgg16"]
    with torch.device("meta"):
        model, data = spec.build(), spec.batch()
    fresh = explorer.estimate(model, data, loss=spec.loss, device="P100-16GB", precision="float32")
    known = load_profile("vgg16-p100-16gb")
    assert known.graph.identity.difference(fresh.graph.identity) is None
    assert simulate(known, keep_all(known.graph)).time_ms == pytest.approx(
        simulate(fresh, keep_all(fresh.graph)).time_ms
    )


def test_products_in_double_precision_are_refused() -> None:
    model, batch = nn.Sequential(nn.Linear(8, 8)).double(), torch.randn(4, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"products in float64, and how fast A100-80GB is at those is not known"):
        explorer.estimate(model, batch, device="A100-80GB")
    assert explorer.estimate(model, batch, device="A100-80GB", precision="float16").costs


class Experts(nn.Module):
    """Rows that are sorted by their expert, each expert's in one product of groups; or all in one product."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, 512, 2048, device="meta"))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        made = x @ self.weight[0] if len(self.weight) == 1 else F.grouped_mm(x, self.weight, offs=ends)
        return made.square().mean()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_products_of_groups_take_what_one_product_does(precision: Any) -> None:
    """In single precision too, which PyTorch's own kernel without memory refuses."""
    batch = torch.empty(8192, 512, device="meta"), torch.empty(4, dtype=torch.int32, device="meta")
    one, groups = (
        sum(profile.cost(x.default()).time_ms for x in profile.graph.operators)
        for profile in (explorer.estimate(Experts(x), batch, device="A100-80GB", precision=precision) for x in (1, 4))
    )
    assert groups == pytest.approx(one, rel=0.25)
