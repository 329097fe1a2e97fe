"""Kernels of ours in PyTorch's dispatcher, while a step is traced: casts, and operators that are made of others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def parameters_cast_once(parameters: Iterable[torch.Tensor], *, autocast: Container[str]) -> Iterator[None]:
    """While open, a trace has autocast cast each parameter once for all its uses, where eager mode does.

    Gradients of the uses then add up in the lower precision. PyTorch's own cache is for leaves of autograd, which
    parameters are not while they are traced.

    Args:
        parameters: as they are traced.
        autocast: the types of devices that it is enabled for, which may change; within an operator none is.
    """
    known = {id(x): x for x in parameters}
    operator: Any = torch.ops.aten._to_copy.default
    autograd: Any = torch._C.DispatchKey.Autograd
    casts: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    forget, thread = torch.clear_autocast_cache, threading.get_ident()

    def clear() -> None:
        if threading.get_ident() == thread:  # another's regions are its own
            casts.clear()
        forget()

    def run(source: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        dtype: Any = kwargs.get("dtype")
        by_autocast = source.device.type in autocast and _casts(source.device.type, dtype)
        by_autocast = by_autocast and torch.is_autocast_cache_enabled()
        if id(source) not in known or not source.requires_grad or not by_autocast:
            return operator._op_dk(autograd, source, **kwargs)
        if (id(source), dtype) not in casts:
            casts[id(source), dtype] = operator._op_dk(autograd, source, **kwargs)
        return casts[id(source), dtype]

    try:
        torch.clear_autocast_cache = clear
        operator.py_kernels[autograd] = run
        operator._dispatch_cache.clear()
        yield
    finally:
        torch.clear_autocast_cache = forget
        operator.py_kernels.pop(autograd, None)
        operator._dispatch_cache.clear()


@contextmanager
def casting_rules(rules: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """While open, autocast for the CPU follows these rules in this thread's traces, and casts for nothing else.

    Args:
        rules: by the name of an operator of ATen (``"softmax.int"``): called with the operator, its arguments and its
            keyword arguments, and no autocast.
    """
    private: Any = torch._C
    key, thread = private.DispatchKey.AutocastCPU, threading.get_ident()
    known = {x.removeprefix("aten::") for x in private._dispatch_get_registrations_for_dispatch_key("AutocastCPU")}

    def ruled(operator: Any, rule: Callable[..., Any] | None) -> Callable[..., Any]:
        composite = private._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")

        def run(*args: Any, **kwargs: Any) -> Any:
            followed = rule if threading.get_ident() == thread else None
            if followed is None and composite:
                return operator.decompose(*args, **kwargs)  # what it calls has rules of its own
            with private._ExcludeDispatchKeyGuard(private.DispatchKeySet(key)):
                return operator(*args, **kwargs) if followed is None else followed(operator, args, kwargs)

        return run

    with _kernels(key) as put:
        for name in known | rules.keys():
            operator = _operator(name)
            if operator is not None:
                # Of a known one for traces alone: what is compiled in would be replaced for all.
                put(operator, ruled(operator, rules.get(name)), everywhere=name not in known)
        yield


@contextmanager
def composites_by(functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """While open, operators that PyTorch makes of others are computed by these instead, for this thread's CPU tensors.

    Whoever calls them, a function of PyTorch's own included; below autocast, and above autograd.

    Args:
        functions: by the name of an operator of ATen: called with the operator and its arguments;
            ``operator.decompose`` is PyTorch's own way.
    """
    keys: Any = torch._C.DispatchKey
    thread = threading.get_ident()

    def ruled(operator: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            mine = threading.get_ident() == thread
            return function(operator, *args, **kwargs) if mine else operator.decompose(*args, **kwargs)

        return run

    with _kernels(keys.AutogradCPU) as put:
        for name, function in functions.items():
            operator = _operator(name)
            put(operator, ruled(operator, function), everywhere=True)
        yield


@contextmanager
def _kernels(key: Any) -> Iterator[Callable[..., None]]:
    """While open, operators have kernels of ours at a key of the dispatcher.

    Yields:
        What puts one there: ``(operator, kernel, *, everywhere)``, for traces, or for real tensors as well.
    """
    changed: list[Any] = []
    with torch.library._scoped_library("aten", "IMPL") as library:

        def put(operator: Any, kernel: Callable[..., Any], *, everywhere: bool) -> None:
            if everywhere:
                library.impl(operator.name().removeprefix("aten::"), kernel, key.name)
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
            changed.append(operator)

        try:
            yield put
        finally:
            for operator in changed:
                operator.py_kernels.pop(key, None)
                operator._dispatch_cache.clear()


def _operator(name: str) -> Any:
    """The operator of ATen that is called so (``"softmax.int"``); None where there is none."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def _casts(device: str, dtype: torch.dtype | None) -> bool:
    """Does enabled autocast ask for this cast? It excludes its own key then; the model's own casts do not."""
    keys: Any = torch._C.DispatchKey
    own = keys.AutocastCUDA if device == "cuda" else keys.AutocastCPU
    return torch.get_autocast_dtype(device) == dtype and torch._C._dispatch_tls_is_dispatch_key_excluded(own)
