"""How operators can be run: the registry of implementations, one file per operator family."""

from explorer.operators import (  # noqa: F401  (families register themselves)
    activations,
    attention,
    batch_norm_inplace,
    convolution,
    cross_entropy,
    linear_cross_entropy_rules,
    cudnn_algorithms,
    dropout,
    inplace,
    normalisation,
    pooling,
)
from explorer.operators.registry import Guard, Variant, rule, variants_of

__all__ = ["Guard", "Variant", "rule", "variants_of"]
