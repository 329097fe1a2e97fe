"""The rules of ``torch.autocast`` on CUDA, for tensors of the CPU that stand for a GPU's: the CPU's own are others.

On CUDA softmax, normalisations, sums and losses run in float32; on the CPU most of them take what comes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from explorer.torch_dispatch import casting_rules

aten = torch.ops.aten
_LOWER = """_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm
chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
_scaled_dot_product_flash_attention scaled_dot_product_attention"""
_FLOAT32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm
nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
upsample_bicubic2d _upsample_bicubic2d_aa"""
_RESULT_IN_FLOAT32 = """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList"""
_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
_NORMS = {"norm.Scalar": aten.norm.ScalarOpt_dtype, "norm.ScalarOpt_dim": aten.norm.ScalarOpt_dim_dtype}
_HALF_TO_FLOAT32 = {aten.softmax.int: aten._softmax.default, aten.log_softmax.int: aten._log_softmax.default}  # noqa: SLF001
"""Kernels that read float16 and write float32; there is none for bfloat16."""


@contextlib.contextmanager
def cuda_casts() -> Iterator[None]:
    """While open, this thread's autocast for the CPU casts as that for CUDA does (ATen/autocast_mode.h)."""
    kinds = {_LOWER: _to_lower, _FLOAT32: _to_float32, _RESULT_IN_FLOAT32: _result_in_float32, _WIDEST: _to_widest}
    rules = {name: rule for names, rule in kinds.items() for name in names.split()}
    rules |= {name: _norm_in_float32(other) for name, other in _NORMS.items()}
    rules["binary_cross_entropy"] = _refused
    with casting_rules(rules):
        yield


def _lower() -> torch.dtype:
    return torch.get_autocast_dtype("cpu")


def _is_cast(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not torch.float64


def _cast(arguments: Any, dtype: torch.dtype) -> Any:
    """The last first, as compiled code goes through the arguments of a call: it is an order of operators."""
    leaves, structure = pytree.tree_flatten(arguments)
    cast = [x.to(dtype) if _is_cast(x) else x for x in reversed(leaves)]
    return pytree.tree_unflatten(cast[::-1], structure)


def _to_lower(operator: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    args, kwargs = _cast((args, kwargs), _lower())
    return operator(*args, **kwargs)


def _to_float32(operator: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    args, kwargs = _cast((args, kwargs), torch.float32)
    return operator(*args, **kwargs)


def _to_widest(operator: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    found = {x.dtype for x in pytree.tree_leaves((args, kwargs)) if _is_cast(x)}
    args, kwargs = _cast((args, kwargs), torch.float32 if torch.float32 in found else _lower())
    return operator(*args, **kwargs)


def _result_in_float32(operator: Any, args: Any, kwargs: Any) -> Any:
    """Unless the caller asked for another; the operator itself widens what it reads."""
    given = _by_name(operator, args) | kwargs
    source = given.pop("self")
    if given.get("dtype") is None and _is_cast(source):
        if operator in _HALF_TO_FLOAT32 and source.dtype is torch.float16:
            return _HALF_TO_FLOAT32[operator](source, given["dim"], True)
        given["dtype"] = torch.float32
    return operator(source, **given)


def _norm_in_float32(with_dtype: Callable[..., Any]) -> Callable[..., Any]:
    def norm(operator: Any, args: Any, kwargs: Any) -> Any:
        if not _is_cast(args[0]):
            return operator(*args, **kwargs)
        given = {"p": 2, **_by_name(operator, args), **kwargs}
        return with_dtype(given.pop("self"), **given, dtype=torch.float32)

    return norm


def _by_name(operator: Any, args: Any) -> dict[str, Any]:
    return dict(zip([x.name for x in operator._schema.arguments], args, strict=False))  # noqa: SLF001 - no other name


def _refused(_operator: object, _args: object, _kwargs: object) -> Any:
    raise ValueError(
        "PyTorch refuses binary_cross_entropy under autocast on CUDA: use binary_cross_entropy_with_logits, or leave "
        "autocast for it"
    )
