"""How operators can be run: the registry of implementations, one file per operator family."""

from explorer.operators import dropout, normalisation  # noqa: F401  (families register themselves)
from explorer.operators.registry import Variant, variants_of

__all__ = ["Variant", "variants_of"]
