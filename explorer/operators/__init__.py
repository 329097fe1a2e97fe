"""How operators can be run: the registry of implementations, one file per operator family."""

from explorer.operators import (  # noqa: F401  (families register themselves)
    activations,
    attention,
    batch_norm_inplace,
    convolution,
    cross_entropy,
    cudnn_algorithms,
    dropout,
    embedding,
    feed_forward,
    fusing,
    inplace,
    linear_cross_entropy,
    normalisation,
    pooling,
)
from explorer.operators.registry import Guard, Variant, rule, variants_of

__all__ = ["Guard", "Variant", "rule", "variants_of"]
