"""What a captured step cannot contain, said before it is traced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules import module as every_module
from torch.nn.modules.batchnorm import _NormBase

_LIBRARIES = ("torch", "transformers", "accelerate", "peft", "diffusers", "timm")
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""What a module has its hooks in."""
OF_ALL_MODULES = tuple(getattr(every_module, f"_global{kind}") for kind in HOOKS)
"""What ``torch.nn.modules.module.register_module_forward_hook`` and its like have registered."""


def check_modules(model: nn.Module, *, with_loss: bool) -> None:
    """Refuse what would be traced once and then happen never, or other than in eager mode.

    Args:
        model: to be captured.
        with_loss: the loss is part of the step, so that the model itself is not called with its own arguments.

    Raises:
        ValueError: names the module and the remedy.
    """
    if any(not is_traced(hook) for hooks in OF_ALL_MODULES for hook in hooks.values()):
        raise ValueError(
            "there are hooks of all modules (torch.nn.modules.module.register_module_…_hook), which a schedule cannot "
            "run: it runs operators, not submodules. Remove them before, and put what they compute into forward"
        )
    for path, module in model.named_modules():
        if isinstance(module, _NormBase) and module.momentum is None and module.track_running_stats and module.training:
            raise ValueError(
                f"{path or 'the model'} is a {type(module).__name__} with momentum=None, whose average depends on how "
                "many steps there were; a schedule is for steps that are all alike: give it a momentum (0.1 is usual)"
            )
        _check_quantization(path, module)
        for kind in HOOKS if path or with_loss else ():
            if any(not is_traced(x) for x in getattr(module, kind).values()):
                raise ValueError(
                    f"{path or 'the model'} has hooks, which a schedule cannot run: it runs operators, not submodules. "
                    "Remove them before, and put what they compute into forward; hooks of parameters run, and those of "
                    "the model itself where the loss is not part of the step"
                )


def _check_quantization(path: str, module: nn.Module) -> None:
    """What quantisation-aware training puts in asks tensors for values, some of it the first time only."""
    kind = type(module)
    if not kind.__module__.startswith("torch.ao.quantization"):
        return
    if kind.__name__ == "FakeQuantize":
        raise ValueError(
            f"{path or 'the model'} is a FakeQuantize, which asks a tensor in each step whether it is on; a schedule "
            "is for steps that are all alike. FusedMovingAvgObsFakeQuantize asks nothing: PyTorch's default for "
            "quantisation-aware training (get_default_qat_qconfig) has it"
        )
    observer = getattr(module, "activation_post_process", None)
    least = getattr(observer, "min_val", None)
    if least is not None and not least.numel():
        raise ValueError(
            f"{path or 'the model'} is a {kind.__name__} that has seen no tensor yet, and takes the shape of its scale "
            "from the first one: run the model once before (model(inputs)), then capture it"
        )


@contextmanager
def own_hooks_aside(model: nn.Module) -> Iterator[None]:
    """While open, the model's own hooks are not there: they run around every step, and are no part of it."""
    hooks: list[dict[int, Any]] = [getattr(model, kind) for kind in HOOKS]
    before = [dict(x) for x in hooks]
    for found in hooks:
        _fill(found, {key: hook for key, hook in found.items() if is_traced(hook)})
    try:
        yield
    finally:
        for found, content in zip(hooks, before, strict=True):
            _fill(found, content)


def _fill(hooks: dict[int, Any], content: Mapping[int, Any]) -> None:
    hooks.clear()
    hooks.update(content)


def is_traced(hook: Any) -> bool:
    """Does a hook come from a library whose hooks compute tensors (weight normalisation, pruning, collected outputs)?

    These are part of the captured step; what a user's hook does beside that, such as printing, would happen only once.
    """
    home = getattr(hook, "__module__", None) or type(hook).__module__
    return home.partition(".")[0] in _LIBRARIES
