"""Bundled profiles whose order matters."""

from __future__ import annotations

from dataclasses import replace

from explorer import Profile, load_profile
from explorer.device_profile import Cost
from explorer.iteration import Iteration
from explorer.rearranging import UPDATE, update_cost_key


def updated(name: str, *, within: bool = True, workspace: bool = True) -> Profile:
    """A bundled profile with an optimizer whose updates take no time and no memory.

    Without ``workspace`` no call takes any: where convolutions' workspace makes the peak, the order is worth little.
    """
    profile = load_profile(name)
    if not workspace:
        without = {key: Cost(x.time_ms, 0) for key, x in profile.costs.items()}
        profile = replace(profile, costs=without)
    keys = {update_cost_key(profile.graph, x) for x, _ in profile.graph.gradients} | {UPDATE}
    profile = replace(profile, costs=profile.costs | dict.fromkeys(keys, Cost(0.0, 0)), optimizer="sgd")
    return profile.in_iteration(Iteration(optimizer="sgd", within=within))
