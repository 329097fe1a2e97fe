"""The places in which a step has its tensors, and each of them told apart, for as long as it is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def in_places(root: nn.Module, kind: str, prefix: str) -> Iterator[tuple[str, Any]]:
    """What the modules below hold in their dictionaries of a kind, each of which is looked at once."""
    looked_at: set[int] = set()
    for path, module in root.named_modules(prefix=prefix):
        held = getattr(module, kind)
        if id(held) not in looked_at:
            looked_at.add(id(held))
            yield from ((f"{path}.{name}" if path else name, x) for name, x in held.items() if x is not None)


@contextlib.contextmanager
def plain_tensors_as_buffers(step: nn.Module) -> Iterator[frozenset[str]]:
    """While open, the tensors that modules keep as plain attributes are buffers of theirs, and so part of a trace.

    Yields:
        Their names.
    """
    moved: list[tuple[nn.Module, str, torch.Tensor]] = []
    names: set[str] = set()
    try:
        for path, module in step.named_modules():
            for name, value in plain_tensors(module).items():
                _refuse_copies(module, name, value, f"{path}.{name}".removeprefix("step.model."))
                moved.append((module, name, value))
                names.add(f"{path}.{name}")
                del module.__dict__[name]
                module._buffers[name] = value  # noqa: SLF001 - register_buffer refuses names that are in use
        yield frozenset(names)
    finally:
        for module, name, value in moved:
            module._buffers.pop(name, None)  # noqa: SLF001 - likewise
            module.__dict__[name] = value


def _refuse_copies(module: nn.Module, name: str, value: torch.Tensor, path: str) -> None:
    """Buffers of a shallow copy are the original's; its attributes are not."""
    if module._buffers.get(name, value) is not value:  # noqa: SLF001 - likewise
        raise ValueError(
            f"{path} is another tensor than that of the module which this one is a shallow copy of (copy.copy), with "
            "which it shares its buffers: copy.deepcopy, or the same tensor in both"
        )


def plain_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors that one module keeps as plain attributes."""
    return {name: x for name, x in vars(module).items() if isinstance(x, torch.Tensor)}


def distinct_leaves(mode: FakeTensorMode, leaves: list[Any]) -> list[Any]:
    """Fake tensors for the leaves of a batch, each an object of its own.

    Tracing tells tensors apart by identity: one that is passed twice, or is a parameter too, would be read as one of
    the two for both. Those that share memory still do.
    """
    return [_distinct(mode, x) if isinstance(x, torch.Tensor) else x for x in leaves]


def _distinct(mode: FakeTensorMode, leaf: torch.Tensor) -> torch.Tensor:
    with mode, torch.no_grad():
        fake = leaf if isinstance(leaf, FakeTensor) and leaf.fake_mode is mode else mode.from_tensor(leaf)
        return fake.detach().requires_grad_(leaf.requires_grad)
