"""Steps of ``torch.compile`` with our choice of what to save."""

from explorer.compiling.profiling import profile_compiled
from explorer.compiling.running import Compiled, compiled, compiled_within

__all__ = ["Compiled", "compiled", "compiled_within", "profile_compiled"]
