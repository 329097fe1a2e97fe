"""What stands in the place of a gradient that an update within the backward pass has used."""

from __future__ import annotations

from typing import Any, Self

import torch

from explorer.torch_private import without_memory

_ZEROED = ("detach_", "zero_", "_foreach_zero_")
"""What ``zero_grad(set_to_none=False)`` does to a gradient."""
_USED = (
    "{0} of a gradient that an update within the backward pass has used: it is gone. What needs gradients after "
    "backward(), such as clipping by their norm (a trainer's max_grad_norm; 0 turns that off), needs updates at the "
    "end: profile(…, update='end'), and no update_within"
)


class UsedGradient(torch.Tensor):
    """Of the shape of a gradient, without memory: whoever computes with it is told, where None would be passed over.

    ``clip_grad_norm_`` finds no gradients to have a norm of 0, and clips nothing.
    """

    def __new__(cls, parameter: torch.Tensor) -> Self:
        """For one parameter."""
        return without_memory(cls, like=parameter)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Raises RuntimeError, but for what only sets gradients to zero."""
        name = func.overloadpacket.__name__
        if name in _ZEROED:
            return args[0]
        raise RuntimeError(_USED.format(name))

    def __repr__(self, *, tensor_contents: object = None) -> str:
        """For debuggers and notebooks."""
        return f"UsedGradient({tuple(self.shape)})"


def gradient_of(leaf: torch.Tensor) -> torch.Tensor | None:
    """That takes memory, and to which others would be added."""
    return None if isinstance(leaf.grad, UsedGradient) else leaf.grad


def drop_used(parameter: torch.Tensor) -> None:
    """Take it away, if one is there."""
    if isinstance(parameter.grad, UsedGradient):
        parameter.grad = None
