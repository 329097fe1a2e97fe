"""The systems that a budget can be put to: MONeT, those of its comparisons, and PyTorch's own.

Each is declared here by name and loads on first use. All answer with a ``Solution`` whose schedule the simulator has
judged, so that they can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING

from explorer.device_profile import Profile
from explorer.solution import Solution
from explorer.units import shown

if TYPE_CHECKING:
    from explorer.solvers.options import Options


class Answers(StrEnum):
    """What a method is asked for at a time."""

    BUDGET = "one budget"
    """Called as ``solve(profile, budget_bytes, options=…)``; returns a ``Solution``."""
    CURVE = "many budgets"
    """Called as ``solve(profile, budgets_bytes, options=…)``; returns a tuple of ``Solution``, one for each budget."""


@dataclass(frozen=True, slots=True)
class Method:
    """A system that makes schedules.

    Attributes:
        name: what ``solve(method=…)`` takes.
        title: for tables and plots.
        home: ``"module:function"`` within ``explorer.solvers.methods``, imported on first use.
        answers: how the function is called; it finds its own name in ``options.method``.
    """

    name: str
    title: str
    home: str
    answers: Answers = Answers.BUDGET

    def solve(self, profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> tuple[Solution, ...]:
        """Answer every budget, in the order given.

        Args:
            profile: graph and costs.
            budgets_bytes: peak allowed, each.
            options: with this method's name; the time limit is for each budget.
        """
        if options.order and self.name != "model":  # which has an order of its own
            from explorer.solvers.ordering.joint import solve_in_order

            def in_share(planned: Profile, share: float) -> Sequence[Solution]:
                alone = replace(options, order=False, time_limit=share * options.time_limit)
                return self.solve(planned, budgets_bytes, options=alone)

            return solve_in_order(profile, in_share, seed=options.seed)
        module, _, name = self.home.partition(":")
        function = getattr(import_module(f"explorer.solvers.methods.{module}"), name)
        if self.answers is Answers.CURVE:
            return function(profile, budgets_bytes, options=options)
        return tuple(function(profile, budget_bytes, options=options) for budget_bytes in budgets_bytes)


METHODS = {
    method.name: method
    for method in (
        Method("monet", "MONeT", "monet:monet"),
        Method("monet-checkpointing", "MONeT, checkpointing alone", "monet:monet_checkpointing"),
        Method("monet-compiled", "MONeT for torch.compile", "compiled:monet_compiled", Answers.CURVE),
        Method("checkmate", "Checkmate", "checkmate.solver:checkmate"),
        Method("checkmate-d", "Checkmate-D, aware of workspace", "checkmate.solver:checkmate_d"),
        Method("checkmate-o", "Checkmate-O, quickest convolutions", "checkmate.solver:checkmate_o"),
        Method("checkmate-rounding", "Checkmate, relaxation rounded", "checkmate.rounding:checkmate_rounding"),
        Method("checkpoint-all", "Checkpoint all", "baselines.heuristics:checkpoint_all", Answers.CURVE),
        Method(
            "griewank-walther",
            "Griewank–Walther revolve",
            "baselines.heuristics:griewank_walther",
            Answers.CURVE,
        ),
        Method("chen-root", "Chen √n", "baselines.heuristics:chen_root", Answers.CURVE),
        Method("chen-greedy", "Chen greedy", "baselines.heuristics:chen_greedy", Answers.CURVE),
        Method("ap-root", "AP √n", "baselines.heuristics:articulation_root", Answers.CURVE),
        Method("ap-greedy", "AP greedy", "baselines.heuristics:articulation_greedy", Answers.CURVE),
        Method("linearized-root", "Linearized √n", "baselines.heuristics:linearized_root", Answers.CURVE),
        Method("linearized-greedy", "Linearized greedy", "baselines.heuristics:linearized_greedy", Answers.CURVE),
        Method("rotor", "rotor", "rotor:rotor", Answers.CURVE),
        Method("rotor-revolve", "revolve on rotor's chain", "rotor:revolve", Answers.CURVE),
        Method("model", "MODeL, order alone", "model:model", Answers.CURVE),
        Method("gist", "Gist", "gist:gist", Answers.CURVE),
        Method("eager", "plain PyTorch", "pytorch:eager", Answers.CURVE),
        Method("checkpoint-blocks", "torch.utils.checkpoint, per block", "pytorch:checkpoint_blocks", Answers.CURVE),
        Method("checkpoint-sequential", "checkpoint_sequential", "rotor:checkpoint_sequential", Answers.CURVE),
    )
}
"""By name, in the order in which tables and plots show them."""


def method_named(name: object) -> Method:
    """The method of a name.

    Raises:
        ValueError: there is none; says which there are.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(f"method is {shown(name)}; allowed: {', '.join(map(repr, METHODS))}")
    return METHODS[name]
