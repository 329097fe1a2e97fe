"""Optimizers as users have them, and stand-ins for them: what they hold, and what a step of theirs takes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn, optim

from explorer.device_profile import round_up
from explorer.torch_private import optimizers_on_meta
from explorer.units import shown

OptimizerLike = str | Callable[[list[torch.Tensor]], optim.Optimizer] | optim.Optimizer
"""A name (``"adamw"``, ``"adamw-foreach"``), a function that makes one of parameters (``lambda x: AdamW(x)``), or the
very one that trains the model."""

_Make = Callable[..., optim.Optimizer]
_MAKES: dict[str, tuple[_Make, dict[str, Any]]] = {
    "sgd": (optim.SGD, {}),
    "momentum": (optim.SGD, {"momentum": 0.9}),
    "rmsprop": (optim.RMSprop, {}),
    "adagrad": (optim.Adagrad, {}),
    "adam": (optim.Adam, {}),
    "adamw": (optim.AdamW, {}),
}
_WAYS: dict[str, dict[str, bool]] = {
    "": {},
    "-plain": {"foreach": False, "fused": False},
    "-foreach": {"foreach": True},
    "-fused": {"fused": True},
}
NAMES = tuple(
    f"{name}{way}"
    for name, (make, _) in _MAKES.items()
    for way, options in _WAYS.items()
    if not options.get("fused") or "fused" in inspect.signature(make).parameters
)
"""What ``profile`` and ``measure`` take; ``-plain``, ``-foreach`` and ``-fused`` are PyTorch's ways to run one."""

_NUMBERS_ALONE = {
    "params",
    "lr",
    "betas",
    "eps",
    "alpha",
    "rho",
    "lambd",
    "t0",
    "momentum_decay",
    "initial_accumulator_value",
}


@dataclass(frozen=True, eq=False)
class Updater:
    """An optimizer for the parameters of one model.

    Attributes:
        label: its class, and the options that change how it works: ``"SGD(momentum=0.9)"``.
        trained: the parameters that it trains, in the model's order.
        over: makes another one like it, over tensors in the place of those.
        left_out: how many of them it leaves alone.
        started: those of them, by ``id``, for which the optimizer given has state.
    """

    label: str
    trained: tuple[nn.Parameter, ...]
    over: Callable[[Sequence[torch.Tensor]], optim.Optimizer]
    left_out: int = 0
    started: frozenset[int] = frozenset()

    @classmethod
    def of(cls, optimizer: OptimizerLike, model: nn.Module) -> Updater:
        """What is meant by ``optimizer`` for this model (and its loss, if that is a module: see ``with_loss``).

        Raises:
            ValueError: no such name, not an optimizer, or one of other parameters.
        """
        trained = tuple(x for x in model.parameters() if x.requires_grad)
        if isinstance(optimizer, optim.Optimizer):
            return _like(unwrapped(optimizer), model, trained)
        make = _named(optimizer) if isinstance(optimizer, str) else optimizer
        if not callable(make):
            raise ValueError(f"optimizer is {shown(optimizer)}; {_ALLOWED}")

        def over(tensors: Sequence[torch.Tensor]) -> optim.Optimizer:
            try:
                made = make(list(tensors))
            except TypeError as error:
                raise ValueError(f"optimizer is {shown(optimizer)}, which takes no parameters; {_ALLOWED}") from error
            if not isinstance(made, optim.Optimizer):
                raise ValueError(f"optimizer makes {shown(made)} of parameters; it must make a torch.optim.Optimizer")
            return made

        with optimizers_on_meta():
            made = over(trained or [torch.zeros(1, requires_grad=True)])
        _check_no_closure(made)
        return cls(label_of(made), trained, over, _left_out(made, trained))

    def stand_in(
        self, like: Callable[[torch.Tensor], torch.Tensor], *, reached: Container[int]
    ) -> tuple[optim.Optimizer, list[torch.Tensor]]:
        """One over tensors that ``like`` makes of the parameters, with zeros for gradients, after a step; and those.

        Its state is as large as that of the real one is from its first step on, which makes none for parameters that
        get no gradients.

        Args:
            like: makes a tensor like a parameter.
            reached: the parameters that get gradients, by ``id``.
        """
        tensors = [like(x).requires_grad_() for x in self.trained]
        for parameter, x in zip(self.trained, tensors, strict=True):
            x.grad = torch.zeros_like(x) if id(parameter) in reached or id(parameter) in self.started else None
        made = self.over(tensors)
        try:
            made.step()
        except AssertionError as error:  # by which PyTorch's own refuse a device
            raise ValueError(f"{self.label} cannot update these parameters: {error}") from error
        for parameter, x in zip(self.trained, tensors, strict=True):
            x.grad = x.grad if id(parameter) in reached else None
        return made, tensors


_ALLOWED = (
    f"give the name of one: {', '.join(map(repr, _MAKES))}, each also with -plain, -foreach or -fused; or an "
    "optimizer, a function that makes one of a list of parameters, or None"
)


def with_loss(model: nn.Module, loss: object) -> nn.Module:
    """Both as one module, where the loss is one."""
    return nn.ModuleList([model, loss]) if isinstance(loss, nn.Module) else model


def unwrapped(optimizer: optim.Optimizer) -> optim.Optimizer:
    """The optimizer that does the work, of one that a trainer has put around it."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), optim.Optimizer):
        optimizer = inner
    return optimizer


def state_tensors(optimizer: optim.Optimizer) -> list[torch.Tensor]:
    """The tensors that it holds."""
    return [x for held in optimizer.state.values() for x in held.values() if isinstance(x, torch.Tensor)]


def state_bytes(optimizer: optim.Optimizer, *, rounding_bytes: int = 1, device: str) -> int:
    """What these take on a device of a kind: on a GPU, most optimizers count their steps on the CPU."""
    return sum(round_up(x.nbytes, rounding_bytes) for x in state_tensors(optimizer) if x.device.type == device)


def label_of(optimizer: optim.Optimizer) -> str:
    """Its class, and the options that change how it works and are not the usual: ``"AdamW(foreach=True)"``.

    Of one that is not PyTorch's: ``"custom.AdamW"``, without its module: that of a class in a notebook is not the one
    that a program imports.
    """
    usual = {name: x.default for name, x in inspect.signature(type(optimizer)).parameters.items()}
    groups = optimizer.param_groups or [optimizer.defaults]
    options = [
        f"{name}={value!r}"
        for name in optimizer.defaults
        for value in _each(_option(x.get(name), optimizer.defaults[name]) for x in groups)
        if name in usual and name not in _NUMBERS_ALONE and value != usual[name] and (name, value) != ("fused", False)
    ]
    kind = type(optimizer)
    name = kind.__name__ if getattr(optim, kind.__name__, None) is kind else f"custom.{kind.__name__}"
    return f"{name}({', '.join(options)})" if options else name


def _option(value: Any, default: Any) -> Any:
    """What counts for a group: a number is its own affair, and not how the optimizer works."""
    return value if isinstance(value, bool | str) else default


def _each(values: Iterable[Any]) -> list[Any]:
    """Without what is there before."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def name_of(label: str) -> str | None:
    """The name that ``profile`` and ``measure`` take, of an optimizer whose ``label_of`` is this; None: it has none."""
    parameter = [torch.zeros(1, requires_grad=True)]
    return next((x for x in NAMES if label_of(_named(x)(parameter)) == label), None)


def _named(name: str) -> Callable[[list[torch.Tensor]], optim.Optimizer]:
    if name.lower() not in NAMES:
        raise ValueError(f"optimizer is {shown(name)}; {_ALLOWED}")
    stem, dash, way = name.lower().partition("-")
    make, options = _MAKES[stem]
    return lambda tensors: make(tensors, **options, **_possible(make, _WAYS[dash + way]))


def _possible(make: _Make, options: dict[str, bool]) -> dict[str, bool]:
    return {name: value for name, value in options.items() if name in inspect.signature(make).parameters}


def _like(optimizer: optim.Optimizer, model: nn.Module, trained: tuple[nn.Parameter, ...]) -> Updater:
    """Of an optimizer of the model's own parameters: with its groups and their options."""
    _check_no_closure(optimizer)
    position = {id(x): number for number, x in enumerate(trained)}
    groups = []
    for group in optimizer.param_groups:
        foreign = [x for x in group["params"] if id(x) not in position and x.requires_grad]
        if foreign:
            raise ValueError(
                f"the optimizer trains a tensor {tuple(foreign[0].shape)} that is no parameter of "
                f"{type(model).__name__}: give the optimizer of this model"
            )
        numbers = [position[id(x)] for x in group["params"] if id(x) in position]
        # Copies: an optimizer may change a learning rate in place, or count in a list of its group.
        groups.append((numbers, copy.deepcopy({name: x for name, x in group.items() if name != "params"})))
    kind: Any = type(optimizer)
    options = {name: x for name, x in optimizer.defaults.items() if name in inspect.signature(kind).parameters}

    def over(tensors: Sequence[torch.Tensor]) -> optim.Optimizer:
        there = [
            {"params": [tensors[x] for x in numbers], **copy.deepcopy(others)} for numbers, others in groups if numbers
        ]
        return kind(there, **options)

    started = frozenset(id(x) for x in trained if optimizer.state.get(x))
    return Updater(label_of(optimizer), trained, over, _left_out(optimizer, trained), started)


def _check_no_closure(optimizer: optim.Optimizer) -> None:
    """One whose step calls for further forward and backward passes is not what an iteration ends with."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(
            f"the step of {type(optimizer).__name__} runs the model again, by a closure, as often as it likes: plan "
            "without an optimizer, and leave room in the budget for its state"
        )


def _left_out(optimizer: optim.Optimizer, trained: Sequence[torch.Tensor]) -> int:
    held = {id(x) for group in optimizer.param_groups for x in group["params"]}
    return sum(id(x) not in held for x in trained)
