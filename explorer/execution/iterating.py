"""What a measured step has around its two passes: gradients of earlier microbatches, and an optimizer's step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn, optim

from explorer.capture import Capture
from explorer.execution.optimizers import OptimizerLike, Updater, state_tensors, with_loss
from explorer.execution.scheduled import ScheduledModule, by_itself
from explorer.execution.trained import parameter_names, trained_in
from explorer.execution.updating import step_one


class Iterating:
    """The rest of an iteration of one module.

    Attributes:
        updates: an optimizer takes part, so that parameters change.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        loss: object = None,
        optimizer: OptimizerLike | None = None,
        accumulate: bool = False,
    ) -> None:
        """Not begun yet.

        Args:
            module: a model, or one that ``apply`` made, which knows its loss, and when it is updated.
            loss: of a model, which may have parameters too.
            optimizer: another one like it does the work, so that the one given stays as it is; None: none.
            accumulate: there are gradients, which fresh ones are added to.

        Raises:
            ValueError: the optimizer is unknown, or the module's schedule is for another iteration.
        """
        captured = type(module).plans[0].capture if isinstance(module, ScheduledModule) else None
        planned = None if captured is None else captured.graph.iteration
        both = with_loss(module, loss if captured is None else captured.loss)
        updater = None if optimizer is None else Updater.of(optimizer, both)
        self._updater = updater
        self.updates = updater is not None
        self._accumulate = accumulate
        self._within = planned is not None and planned.within
        self._module = module
        self._trained = [x for x in both.parameters() if x.requires_grad]
        self._reached = None if captured is None else _reached(captured, both)
        self._optimizer = None if updater is None else updater.over(updater.trained)
        if planned is not None and planned.within and updater is None:
            raise ValueError(
                f"this schedule has every parameter updated within the backward pass, by {planned.optimizer}: give "
                "optimizer=…, the optimizer or its name"
            )
        if self._within and accumulate:
            raise ValueError("this schedule has gradients used up within the backward pass: they cannot be accumulated")

    def see(self) -> None:
        """After a backward pass: what has a gradient now is what gets one in every step."""
        self._reached = [x for x in self._trained if x.grad is not None]

    @contextmanager
    def ready(self, look: Callable[[], None]) -> Iterator[list[torch.Tensor]]:
        """While open, there is what is there when an iteration begins, which is yielded: state and gradients.

        Args:
            look: runs a step by itself that calls ``see``: of a plain model nothing else says which parameters get
                gradients. Called where that matters.
        """
        if self._reached is None and (self._optimizer is not None or self._accumulate):
            look()
        held: list[torch.Tensor] = []
        with ExitStack() as stack:
            if isinstance(self._module, ScheduledModule):
                stack.enter_context(by_itself(self._module))
            if self._optimizer is not None:
                held += self._state(self._optimizer)
                if self._within:
                    for parameter in self._trained:
                        handle = parameter.register_post_accumulate_grad_hook(self._update)
                        stack.callback(handle.remove)
            if self._accumulate:
                for parameter in self._reached or ():
                    parameter.grad = torch.zeros_like(parameter)
                    held.append(parameter.grad)
            yield held

    def finish(self) -> None:
        """After the backward pass: the update, unless there was one; and gradients go, unless they are accumulated."""
        if self._optimizer is not None and not self._within:
            self._optimizer.step()
        if not self._accumulate:
            for parameter in self._trained:
                parameter.grad = None

    def _state(self, optimizer: optim.Optimizer) -> list[torch.Tensor]:
        """Of an optimizer, from its first step on."""
        started = () if self._updater is None else self._updater.started
        reached = {id(x) for x in self._reached or ()}
        for parameter in self._trained:
            if id(parameter) in reached or id(parameter) in started:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        for parameter in self._trained:
            parameter.grad = None
        return state_tensors(optimizer)

    def _update(self, parameter: torch.Tensor) -> None:
        assert self._optimizer is not None
        step_one(self._optimizer, parameter)


def _reached(captured: Capture, model: nn.Module) -> list[nn.Parameter]:
    return list(trained_in(captured.graph, parameter_names(captured), model).values())
