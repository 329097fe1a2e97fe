"""Steps of ``torch.compile`` with our choice of what to save."""

from explorer.compiling.fitting import compiled_within
from explorer.compiling.profiling import profile_compiled
from explorer.compiling.running import Compiled, compiled

__all__ = ["Compiled", "compiled", "compiled_within", "profile_compiled"]
