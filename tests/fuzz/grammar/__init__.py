"""What random programs are made of."""

from tests.fuzz.grammar.habits import WORLD
from tests.fuzz.grammar.layers import LAYERS
from tests.fuzz.grammar.rules import Family, Fits, Rule
from tests.fuzz.grammar.shapes import SHAPES
from tests.fuzz.grammar.state import CHANGES
from tests.fuzz.grammar.values import POINTWISE

__all__ = ["FAMILIES", "Family", "Fits", "Rule"]

FAMILIES = (*LAYERS, *WORLD, *POINTWISE, *SHAPES, *CHANGES)
