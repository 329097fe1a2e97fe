"""Attention in estimates: the kernel that PyTorch takes on CUDA, its arguments, and what is refused."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

import explorer
from explorer.capture import capture
from explorer.capture.attention import Architecture, AttentionCall, Kernel, attend, attention_of, kernel_for
from explorer.capture.kernels_of_cpu import check_operators
from explorer.profiling.devices import DeviceSpec

HALF, BFLOAT, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
P100, V100, T4, A100, ADA, H100, B200, RTX50 = 6.0, 7.0, 7.5, 8.0, 8.9, 9.0, 10.0, 12.0
LENGTH = 12


def made(dtype: torch.dtype, width: int, *, mask: str = "", **options: Any) -> AttentionCall:
    """A call with four heads; of its keys and values where ``heads`` says so."""
    shape = options.pop("shape", (2, 4, LENGTH, width))
    heads = options.pop("heads", shape[1])
    keys = options.pop("keys", LENGTH)
    trains = options.pop("trains", True)

    def tensor(*size: int) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device="meta", requires_grad=trains)

    masks = {
        "": None,
        "boolean": torch.empty(LENGTH, keys, dtype=torch.bool, device="meta"),
        "float": torch.empty(LENGTH, keys, dtype=dtype, device="meta"),
        "learned": tensor(1, 4, LENGTH, keys),
        "three": torch.empty(4, LENGTH, keys, dtype=dtype, device="meta"),
        "turned": torch.empty(keys, LENGTH, dtype=dtype, device="meta").t(),
    }
    key = tensor(shape[0], heads, keys, width)
    value = tensor(shape[0], heads, keys, options.pop("width_of_values", width))
    return AttentionCall(tensor(*shape), key, value, masks[mask], enable_gqa=heads != shape[1], **options)


CALLS = [
    # Half precision: flash from Ampere on, cuDNN's first on Hopper and the large Blackwell.
    *((kernel, made(HALF, 64), x) for x, kernel in ((P100, "efficient"), (V100, "efficient"), (T4, "efficient"))),
    *((kernel, made(BFLOAT, 64), x) for x, kernel in ((P100, "math"), (V100, "math"), (T4, "math"))),
    *((kernel, made(BFLOAT, 64), x) for x, kernel in ((A100, "flash"), (ADA, "flash"), (RTX50, "flash"))),
    *((kernel, made(HALF, 128), x) for x, kernel in ((H100, "cudnn"), (10.3, "cudnn"), (B200, "cudnn"))),
    # Widths of heads.
    *(("flash", made(BFLOAT, x), A100) for x in (1, 18, 20, 80, 208, 256)),
    ("efficient", made(BFLOAT, 264), A100),
    ("math", made(BFLOAT, 268), A100),
    *(("flash", made(BFLOAT, x), H100) for x in (20, 136, 256)),
    ("cudnn", made(BFLOAT, 192, width_of_values=128), H100),
    ("efficient", made(BFLOAT, 64, width_of_values=128), A100),
    ("math", made(HALF, 20), V100),
    ("efficient", made(HALF, 20), P100),
    *(("efficient", made(SINGLE, x), A100) for x in (20, 64, 512)),
    ("math", made(SINGLE, 18), A100),
    *(("efficient", made(SINGLE, 18), x) for x in (P100, V100, T4)),
    ("math", made(DOUBLE, 64), A100),
    # Little shared memory.
    *((kernel, made(BFLOAT, x), ADA) for x, kernel in ((192, "flash"), (200, "efficient"), (232, "flash"))),
    ("efficient", made(BFLOAT, 232, dropout_p=0.1), ADA),
    ("efficient", made(BFLOAT, 224), RTX50),
    ("flash", made(BFLOAT, 200, trains=False), ADA),
    ("flash", made(BFLOAT, 200), A100),
    # Masks.
    *(
        ("efficient", made(x, 64, mask=y), A100)
        for x in (SINGLE, HALF)
        for y in ("boolean", "float", "learned", "three")
    ),
    ("math", made(SINGLE, 64, mask="turned"), A100),
    ("cudnn", made(BFLOAT, 64, mask="boolean"), H100),
    ("cudnn", made(BFLOAT, 64, mask="float"), H100),
    ("efficient", made(BFLOAT, 64, mask="learned"), H100),
    ("efficient", made(BFLOAT, 64, mask="three"), H100),
    # Causal, of sequences that differ.
    ("flash", made(HALF, 64, is_causal=True), A100),
    ("efficient", made(HALF, 64, is_causal=True, keys=20), A100),
    ("flash", made(HALF, 64, keys=20), A100),
    ("flash", made(HALF, 64, keys=1), H100),
    # Dropout.
    ("flash", made(HALF, 64, dropout_p=0.1), A100),
    ("efficient", made(SINGLE, 64, dropout_p=0.1), A100),
    ("cudnn", made(HALF, 64, dropout_p=0.125), H100),
    # Several queries for a key.
    ("math", made(SINGLE, 64, heads=2), A100),
    ("flash", made(HALF, 64, heads=2), A100),
    ("math", made(HALF, 64, heads=2), V100),
    ("cudnn", made(HALF, 64, heads=2), H100),
    ("math", made(HALF, 64, heads=2, mask="boolean"), A100),
    # Of other dimensions.
    ("math", AttentionCall(*(torch.empty(2, LENGTH, 64, device="meta") for _ in range(3))), A100),
]


@pytest.mark.parametrize(("kernel", "call", "capability"), CALLS)
def test_the_kernel_is_pytorchs_choice(kernel: str, call: AttentionCall, capability: float) -> None:
    assert kernel_for(call, Architecture(capability)) is Kernel(kernel)


def test_cudnn_drops_sixteenths_alone_from_2_12_on() -> None:
    since = tuple(int(x) for x in torch.__version__.split(".")[:2]) >= (2, 12)
    found = kernel_for(made(HALF, 64, dropout_p=0.1), Architecture(H100))
    assert found is (Kernel.FLASH if since else Kernel.CUDNN)


def test_a_device_may_say_otherwise() -> None:
    assert kernel_for(made(HALF, 64), Architecture(H100, cudnn_attention=False)) is Kernel.FLASH
    assert kernel_for(made(HALF, 64), Architecture(A100, cudnn_attention=True)) is Kernel.CUDNN
    assert kernel_for(made(HALF, 64), Architecture(V100, cudnn_attention=True)) is Kernel.EFFICIENT


def test_what_is_switched_off_is_not_taken() -> None:
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        assert kernel_for(made(HALF, 64), Architecture(H100)) is Kernel.EFFICIENT
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(ValueError, match=r"float32 .* 8\.0 .*\(flash\)"):
        kernel_for(made(SINGLE, 64), Architecture(A100))


def test_tensors_that_begin_between_are_left_to_others() -> None:
    memory = torch.empty(2, 4, LENGTH, 65, device="meta")
    call = AttentionCall(*(memory[..., 1:] for _ in range(3)))
    assert kernel_for(call, Architecture(A100)) is Kernel.MATH
    assert kernel_for(call, Architecture(V100)) is Kernel.EFFICIENT


class Called(TorchDispatchMode):
    """Notes the arguments of attention's kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "attention" in str(func):
            self.calls.append((str(func), args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def called(call: AttentionCall, capability: float) -> tuple[str, Any, Any]:
    with FakeTensorMode(allow_non_fake_inputs=True), Called() as noted:
        given = (None if x is None else torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) for x in tensors(call))
        rest = call.dropout_p, call.is_causal, call.scale, call.enable_gqa
        result = attend(AttentionCall(*given, *rest), Architecture(capability))  # type: ignore[arg-type]
    assert result.shape == (*call.query.shape[:-1], call.value.shape[-1])
    (found,) = noted.calls
    return found


def tensors(call: AttentionCall) -> tuple[torch.Tensor | None, ...]:
    return *call.inputs, call.attn_mask


def test_the_scale_of_flash_has_the_bits_of_pytorchs() -> None:
    for width in range(1, 257):
        _, args, kwargs = called(made(BFLOAT, width), A100)
        assert kwargs["scale"] == 1.0 / math.sqrt(width), width
        assert {x.shape[-1] for x in args[:3]} == {-(-width // 8) * 8}


@pytest.mark.parametrize("length", [7, 8, 12, 16, 20])
def test_rows_of_a_mask_begin_where_the_kernel_reads(length: int) -> None:
    call = made(SINGLE, 64, mask="boolean", keys=length)
    _, args, _ = called(call, A100)
    assert args[3].dtype == SINGLE
    assert args[3].shape == (2, 4, LENGTH, length)
    assert args[3].stride() == (0, 0, -(-length // 8) * 8, 1)


class Reduced(nn.Module):
    def __init__(self, layer: nn.Module, *, copies: int = 1) -> None:
        super().__init__()
        self.layer, self.copies = layer, copies

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        found = self.layer(*x * self.copies)
        return (found[0] if isinstance(found, tuple) else found).float().square().mean()


def targets(model: nn.Module, *batch: torch.Tensor, **options: Any) -> set[str]:
    graph = explorer.estimate(model, batch, **options).graph
    return {x.target.split(".")[1] for x in graph.forward if "attention" in x.target}


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(("precision", "kernel"), [("float32", "efficient"), ("bfloat16", "flash")])
def test_layers_of_pytorch_have_the_kernels_of_cuda(dropout: float, precision: str, kernel: str) -> None:
    options = {"device": "A100-80GB", "precision": precision}
    attention = nn.MultiheadAttention(32, 4, dropout=dropout, batch_first=True)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=dropout, batch_first=True)
    x = torch.randn(2, 8, 32)
    for model in (Reduced(layer), Quiet(attention)):
        assert targets(model, x, **options) == {f"_scaled_dot_product_{kernel}_attention"}


class Quiet(Reduced):
    """Attention that returns no weights."""

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        return self.layer(x[0], x[0], x[0], need_weights=False)[0].float().square().mean()


RECURRENT = (nn.LSTM(8, 8), nn.GRU(8, 8), nn.RNN(8, 8), nn.LSTMCell(8, 8), nn.GRUCell(8, 8))


@pytest.mark.parametrize("layer", RECURRENT, ids=lambda x: type(x).__name__)
def test_recurrent_layers_are_refused_in_estimates_alone(layer: nn.Module) -> None:
    batch = torch.randn(4, 8) if isinstance(layer, nn.RNNCellBase) else torch.randn(3, 4, 8)
    with pytest.raises(ValueError, match=r"recurrent layer|cell of .* profile it on the device"):
        explorer.estimate(Reduced(layer), (batch,), device="A100-80GB")
    Reduced(layer)(batch).backward()
    assert capture(Reduced(layer), (batch,)).graph.forward


def test_embedding_bags_are_refused() -> None:
    ids = torch.randint(9, (2, 3))
    with pytest.raises(ValueError, match="embedding bag"):
        explorer.estimate(Reduced(nn.EmbeddingBag(9, 4)), (ids,), device="A100-80GB")


def test_no_operator_of_the_cpu_is_left() -> None:
    check_operators(["aten.mm.default"])
    with pytest.raises(ValueError, match="_for_cpu"):
        check_operators(["aten._scaled_dot_product_flash_attention_for_cpu.default"])


def test_other_threads_keep_their_attention() -> None:
    x = torch.randn(1, 2, 8, 16, requires_grad=True)
    wanted = F.scaled_dot_product_attention(x, x, x)
    found: list[torch.Tensor] = []
    with attention_of(Architecture(A100)):
        thread = threading.Thread(target=lambda: found.append(F.scaled_dot_product_attention(x, x, x)))
        thread.start()
        thread.join()
    assert torch.equal(found[0], wanted)
    assert torch.equal(F.scaled_dot_product_attention(x, x, x), wanted)


@pytest.mark.parametrize(("capability", "mebibytes"), [(6.0, 8.125), (8.9, 8.125), (9.0, 32), (10.0, 32), (12.0, 32)])
def test_what_follows_from_the_compute_capability(capability: float, mebibytes: float) -> None:
    figures: dict[str, Any] = {"memory_gib": 80, "bandwidth_gb_s": 3350, "vector_tflops": 67, "source": "a sheet"}
    spec = DeviceSpec(**figures, compute_capability=capability)
    assert spec.handle_bytes == mebibytes * 2**20
    assert DeviceSpec(**figures, compute_capability=capability, cublas_workspace_bytes=5).handle_bytes == 5
    kernel = "cudnn" if capability in (9.0, 10.0) else "flash" if capability >= 8 else None
    if kernel is not None:
        found = targets(Quiet(nn.MultiheadAttention(16, 2)), torch.randn(4, 2, 16), device=spec, precision="bfloat16")
        assert found == {f"_scaled_dot_product_{kernel}_attention"}
