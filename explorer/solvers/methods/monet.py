"""MONeT's joint problem as one of the systems, and with checkpointing alone."""

from __future__ import annotations

from dataclasses import replace

from explorer.device_profile import Profile
from explorer.solution import Solution
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.options import Options


def monet(profile: Profile, budget_bytes: int, *, options: Options) -> Solution:
    """MONeT's joint problem, from nothing but the profile: the entry of the table of methods."""
    knowledge = Knowledge(options.problem(profile))
    knowledge.search.ready()
    return Pursuit(knowledge, budget_bytes, options).run()


def monet_checkpointing(profile: Profile, budget_bytes: int, *, options: Options) -> Solution:
    """MONeT with checkpointing alone: PyTorch's own implementations (section 5, NoOp)."""
    return monet(profile, budget_bytes, options=replace(options, optimizations=frozenset()))
