"""What an exported file knows of its step, and how it sees that model and batch are still those. Needs torch alone.

Its text is copied as it stands, as that of ``runtime`` is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Plan:
    """A step as it was captured.

    Attributes:
        torch_version: it was exported with.
        device: type of the device that it was made for.
        parameters: path, shape, strides, dtype and whether it needs a gradient, of every parameter and buffer that is
            read.
        parameter_count: of the model.
        state: names of all parameters and buffers of the model, those of one tensor together.
        modules: class of every module, settings that forward passes read, and the paths of those that are alike.
        batch: name, shape, dtype and strides of every tensor of the batch; the value of what is no tensor.
        inputs: of the forward pass: an index of ``parameters``, or behind them of ``batch``.
        backward_inputs: likewise.
        written: what the step changes in place, likewise.
        output_count: the first of what the forward pass returns; the rest is saved.
        groups: gradients that are complete together, by the input that they are of.
        tangents: which outputs have a gradient, and in which layout.
        structure: of a call's arguments and keyword arguments; 0 stands for a part.
        leaves: these parts, in the order of ``batch``.
        result: what a step returns, of its outputs.
        refused: outputs that have no gradient here, though eager mode gives them one: those beside a loss.
        autocast: the dtype that the call has to be under; None: no autocast.
        evaluating: paths of the modules that were in evaluation mode.
        conditions: what must hold of inputs before a step, of which inputs, and why.
    """

    torch_version: str
    device: str
    parameters: tuple[tuple[str, tuple[int, ...], tuple[int, ...], torch.dtype, bool], ...]
    parameter_count: int
    state: tuple[tuple[str, ...], ...]
    modules: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...]
    batch: tuple[Any, ...]
    inputs: tuple[int, ...]
    backward_inputs: tuple[int, ...]
    written: tuple[int, ...]
    output_count: int
    groups: tuple[tuple[int, ...], ...]
    tangents: tuple[tuple[int, tuple[int, ...]], ...]
    structure: tuple[tuple[Any, ...], dict[str, Any]]
    leaves: Callable[[tuple[Any, ...], dict[str, Any]], list[Any]]
    result: Callable[[Sequence[torch.Tensor]], Any]
    refused: tuple[int, ...]
    autocast: torch.dtype | None
    evaluating: tuple[str, ...]
    conditions: tuple[tuple[Callable[..., torch.Tensor], tuple[int | None, ...], str], ...]


@dataclass(frozen=True)
class Foreign:
    """A value of a class that a file does not import: a number of NumPy's, or a member of an enumeration.

    Attributes:
        kind: name of its class.
        value: the same number as Python's own; the member's name.
    """

    kind: str
    value: Any


def foreign(value: Any) -> Foreign:
    """A number of NumPy's, or a member of an enumeration, by what a file knows of it."""
    return Foreign(type(value).__qualname__, value.name if isinstance(value, Enum) else value.item())


def check_state(model: nn.Module, plan: Plan) -> None:
    """Raises ValueError where parameters or buffers are not those planned for, or tied otherwise."""
    for path, shape, strides, dtype, trained in plan.parameters:
        found = found_at(model, path)
        if found is None or tuple(found.shape) != shape or found.dtype != dtype:
            now = "missing" if found is None else f"{found.dtype} {tuple(found.shape)}"
            raise ValueError(f"{path} is {now}; the schedule was made for {dtype} {shape}")
        check_layout(path, found, strides)
        if found.device.type != plan.device:
            raise ValueError(f"{path} is on {found.device}; the schedule was made for {plan.device!r}")
        if found.requires_grad != trained:
            raise ValueError(f"{path} {'needs no' if trained else 'needs a'} gradient; the schedule was made otherwise")
    known = {name for names in plan.state for name in names}
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    if unknown := sorted(parameters - known):
        raise ValueError(f"the schedule was made for a model without {', '.join(unknown)}")
    now = {tuple(x for x in names if x in known) for names in state_of(model)} - {()}
    if now != set(plan.state):
        names = sorted({x for group in now ^ set(plan.state) for x in group})
        raise ValueError(f"missing, or tied otherwise than the schedule was made for: {', '.join(names)}")


def setting(value: Any) -> Any:
    """A setting as a file can say it: a plain value, a dict's keys, or the name of a function or an object's class."""
    if isinstance(value, tuple | list | set | frozenset):
        found = list(map(setting, value))
        in_order = tuple(found) if isinstance(value, tuple) else tuple(sorted(found, key=repr))
        return found if isinstance(value, list) else in_order
    if isinstance(value, dict):
        return tuple(sorted(map(str, value)))
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    plain = value is None or type(value) in (bool, int, float, complex, str, torch.dtype)
    return value if plain else getattr(value, "__name__", type(value).__name__)


def setting_at(module: nn.Module, name: str) -> Any:
    """What a module has under a name, in its objects, dicts and lists too; None where there is nothing."""
    found: Any = module
    for part in name.split("."):
        if isinstance(found, dict):
            found = found.get(part)
        elif isinstance(found, tuple | list):
            found = found[int(part)] if part.isdecimal() and int(part) < len(found) else None
        else:
            found = getattr(found, part, None)
    return setting(found)


def check_modules(model: nn.Module, plan: Plan) -> None:
    """Warn where a module is of another class, or has other settings, than when the step was captured.

    Parameters do not tell: an activation has none. It is no error, as another class may compute the same.
    """
    planned = {path: (kind, settings) for kind, settings, paths in plan.modules for path in paths}
    found = dict(model.named_modules())
    differing = []
    for path in dict.fromkeys([*planned, *found]):
        was, settings = planned.get(path, ("missing", {}))
        now = type(found[path]).__name__ if path in found else "missing"
        if now != was:
            differing.append(f"{path or 'the model'} was {was} when the step was captured, and is {now}")
            continue
        for name, value in settings.items():
            here = setting_at(found[path], name)
            if not is_same(here, value):
                full = f"{path}.{name}".lstrip(".")
                differing.append(f"{full} was {value!r} when the step was captured, and is {here!r}")
    if differing:
        more = f" (and {len(differing) - 3} more)" if differing[3:] else ""
        warnings.warn(f"{'; '.join(differing[:3])}{more}: this file computes what was captured", stacklevel=4)


def state_of(model: nn.Module) -> tuple[tuple[str, ...], ...]:
    """Names of parameters and buffers, those of one tensor together."""
    names: dict[int, list[str]] = {}
    for found in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in found:
            names.setdefault(id(tensor), []).append(name)
    return tuple(sorted(tuple(sorted(x)) for x in names.values()))


def parameters_of(model: nn.Module, plan: Plan) -> list[torch.Tensor]:
    """What the passes read of the model.

    Raises:
        ValueError: it was changed since; names what.
    """
    found = [found_at(model, path) for path, *_ in plan.parameters]
    for value, (path, shape, strides, dtype, trained) in zip(found, plan.parameters, strict=True):
        if value is None or value.shape != shape:
            raise ValueError(f"{path} is {None if value is None else tuple(value.shape)} now, and was {shape}")
        # A cast to the dtype that a tensor had is no operator of the step, and would be left out here.
        if value.dtype != dtype:
            raise ValueError(f"{path} is {value.dtype} now, and was {dtype}: export a step of the model as it is now")
        if value.device.type != plan.device:
            raise ValueError(f"{path} is on {value.device} now; the schedule was made for {plan.device!r}")
        check_layout(path, value, strides)
        if value.requires_grad and not trained:
            raise ValueError(f"{path} needs a gradient now; the schedule was made without: export one that has it")
    if (count := sum(1 for _ in model.parameters())) != plan.parameter_count:
        raise ValueError(f"the model has {count} parameters now; the schedule was made for {plan.parameter_count}")
    return found


def check_layout(path: str, tensor: torch.Tensor, strides: tuple[int, ...]) -> None:
    """Raises ValueError where a tensor lies otherwise in memory; strides of what is one long say nothing."""
    own = tensor.stride()
    if own != strides and any(
        size > 1 and here != there for size, here, there in zip(tensor.shape, own, strides, strict=True)
    ):
        raise ValueError(f"{path} lies in another memory format: its strides are {own}, and were {strides}")


def found_at(model: nn.Module, path: str) -> Any:
    """A parameter, buffer or plain tensor of a model, by its full name; None where there is none."""
    found: Any = model
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def is_like(given: Any, planned: Any) -> bool:
    """Is it made of the same containers, with as many parts in each?"""
    if isinstance(planned, dict):
        return (
            isinstance(given, dict)
            and given.keys() == planned.keys()
            and all(is_like(given[key], x) for key, x in planned.items())
        )
    if isinstance(planned, tuple | list):
        alike = type(given) is type(planned) and len(given) == len(planned)
        return alike and all(is_like(x, y) for x, y in zip(given, planned, strict=True))
    return not isinstance(given, tuple | list | dict)


def check_batch(plan: Plan, leaves: Sequence[Any]) -> None:
    """Raises ValueError where a batch is not as it was planned for."""
    for planned, leaf in zip(plan.batch, leaves, strict=True):
        is_tensor = isinstance(leaf, torch.Tensor)
        if not isinstance(planned, tuple):
            if is_tensor or not is_same(leaf, planned):
                now = "a tensor" if is_tensor else repr(leaf)
                raise ValueError(f"the batch has {now} where the schedule was made for {planned!r}")
            continue
        name, shape, dtype, strides, trained = planned
        if not is_tensor:
            raise ValueError(f"{name} is a {type(leaf).__name__}; the schedule was made for a tensor")
        if tuple(leaf.shape[1:]) == shape[1:] and leaf.shape != shape:
            raise ValueError(
                f"{name} has {tuple(leaf.shape)}, and the schedule was made for {shape} alone: for a smaller last "
                "batch give the loader drop_last=True"
            )
        given = (tuple(leaf.shape), leaf.dtype, leaf.stride(), leaf.requires_grad)
        if given != (shape, dtype, strides, trained):
            raise ValueError(f"{name} is {given}; the schedule was made for {(shape, dtype, strides, trained)}")


def check_memory(plan: Plan, values: Sequence[Any]) -> None:
    """Raises ValueError where what the step changes in place lies in the memory of something else that it reads."""
    if not plan.written:
        return
    homes: dict[int, list[int]] = {}
    for number, value in enumerate(values):
        if isinstance(value, torch.Tensor) and value.numel() and value.device.type != "meta":
            homes.setdefault(value.untyped_storage().data_ptr(), []).append(number)
    for numbers in (x for x in homes.values() if len(x) > 1):
        spans = {x: span(values[x]) for x in numbers}
        for one in (x for x in numbers if x in plan.written):
            start, end = spans[one]
            shared = [x for x, (first, last) in spans.items() if x != one and first < end and start < last]
            if shared:
                names = [path for path, *_ in plan.parameters] + [
                    x[0] if isinstance(x, tuple) else "" for x in plan.batch
                ]
                raise ValueError(
                    f"{names[one]} shares memory with {names[shared[0]]}, and the step changes {names[one]} in place; "
                    "those that it was captured with did not: give copies (.clone()), or change nothing in place"
                )


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """Where in memory the elements of a tensor begin and end."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def is_same(given: Any, planned: Any) -> bool:
    """Is a value the planned one, and of its kind? NaN is NaN, 1 is neither True nor 1.0, and 0.0 is not -0.0."""
    if isinstance(planned, Foreign):
        return type(given).__qualname__ == planned.kind and is_same(foreign(given).value, planned.value)
    if type(given) is not type(planned):
        return False
    if isinstance(planned, tuple | list):
        return len(given) == len(planned) and all(map(is_same, given, planned))
    if isinstance(planned, frozenset):
        return {(type(x), x) for x in given} == {(type(x), x) for x in planned}
    if isinstance(planned, float | complex | slice | range):
        return repr(given) == repr(planned)
    return given == planned


def check_modes(model: nn.Module, plan: Plan) -> None:
    """Raises ValueError where a module trains that did not, or the other way round."""
    evaluating = tuple(path for path, module in model.named_modules() if not module.training)
    if evaluating != plan.evaluating:
        differing = ", ".join(sorted({*evaluating} ^ {*plan.evaluating}))
        raise ValueError(f"other modules are in evaluation mode than when the step was captured: {differing}")


def check_autocast(plan: Plan) -> None:
    """Raises ValueError where a step is called under another autocast than planned for."""
    active = torch.get_autocast_dtype(plan.device) if torch.is_autocast_enabled(plan.device) else None
    if active != plan.autocast:
        raise ValueError(f"called under autocast to {active}; the schedule was made for {plan.autocast}")


def check_conditions(plan: Plan, values: Sequence[Any]) -> None:
    """Raises RuntimeError where an operator cannot run as it is scheduled, for what the parameters are now."""
    with torch.no_grad():
        for holds, of, reason in plan.conditions:
            if not bool(holds(*(None if x is None else values[x] for x in of))):
                raise RuntimeError(f"this step cannot run by its schedule, because {reason}")
