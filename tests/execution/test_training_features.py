"""What training loops do around steps: each feature trains a scheduled module to the same bits as eager mode does.

``docs/training.md`` lists them; a test there is one for each, and here one for each there.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler, swa_utils

import explorer
from explorer.capture.results import tensors_of_result
from tests.execution.models import branches, graph_of, shared, tied_attention
from tests.schedules import random_schedule

DOCS = Path(__file__).parents[2] / "docs" / "training.md"
STEPS = 3
TWO_AT_ONCE = "Two steps before one backward pass"
ROUNDED = {TWO_AT_ONCE}
"""Where a parameter is used several times in each, eager mode adds up all uses one by one, in another order."""


@dataclass
class Training:
    """One of the two that are compared.

    Attributes:
        step: a scheduled module, or the model.
        loss: of a batch, by its number.
        predict: what the model makes of a batch.
    """

    step: nn.Module
    loss: Callable[[int], torch.Tensor]
    predict: Callable[[], torch.Tensor]

    @property
    def trained(self) -> list[nn.Parameter]:
        return [x for x in self.step.parameters() if x.requires_grad]

    def sgd(self, **options: Any) -> optim.Optimizer:
        return optim.SGD(self.trained, **{"lr": 0.05, **options})

    def steps(self, optimizer: optim.Optimizer, *, first: int = 0) -> Iterator[int]:
        """Backward passes, each followed by what the caller does, then by the optimizer's step."""
        for number in range(first, first + STEPS):
            self.loss(number).backward()
            yield number
            optimizer.step()
            optimizer.zero_grad()


Feature = Callable[[Training], Any]
FEATURES: dict[str, Feature] = {}


def feature(name: str) -> Callable[[Feature], Feature]:
    """Enter a case under what the documentation calls it."""

    def enter(case: Feature) -> Feature:
        assert name not in FEATURES
        FEATURES[name] = case
        return case

    return enter


def run(optimizer: optim.Optimizer, training: Training) -> None:
    for _ in training.steps(optimizer):
        pass


@feature("SGD with Nesterov momentum and weight decay")
def nesterov(training: Training) -> None:
    run(training.sgd(momentum=0.9, nesterov=True, weight_decay=0.01), training)


@feature("AdamW with amsgrad")
def adamw(training: Training) -> None:
    run(optim.AdamW(training.trained, lr=0.01, amsgrad=True), training)


@feature("Adam, foreach")
def foreach(training: Training) -> None:
    run(optim.Adam(training.trained, lr=0.01, foreach=True), training)


@feature("Adam, fused")
def fused(training: Training) -> None:
    run(optim.Adam(training.trained, lr=0.01, fused=True), training)


@feature("Other optimizers: RMSprop, Adagrad, NAdam, Adafactor")
def others(training: Training) -> None:
    for kind in (optim.RMSprop, optim.Adagrad, optim.NAdam, optim.Adafactor):
        run(kind(training.trained, lr=0.01), training)


@feature("LBFGS, whose closure runs several steps")
def lbfgs(training: Training) -> None:
    optimizer = optim.LBFGS(training.trained, lr=0.05, max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = training.loss(0)
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]  # it wants a number, and takes a tensor
    optimizer.zero_grad()


@feature("Parameter groups with options of their own")
def groups(training: Training) -> None:
    large, small = ([x for x in training.trained if (x.ndim > 1) is wide] for wide in (True, False))
    run(optim.SGD([{"params": large, "weight_decay": 0.1}, {"params": small, "lr": 0.5}], lr=0.05), training)


@feature("Several optimizers")
def several(training: Training) -> None:
    first, second = training.sgd(), optim.AdamW(training.trained[1::2], lr=0.01)
    first.param_groups[0]["params"] = training.trained[::2]
    for _ in training.steps(first):
        second.step()
        second.zero_grad()


@feature("Learning rates: warm-up, then cosine")
def rates(training: Training) -> None:
    optimizer = training.sgd(momentum=0.9)
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    scheduler = lr_scheduler.SequentialLR(optimizer, [warm, lr_scheduler.CosineAnnealingLR(optimizer, 4)], [2])
    for _ in range(2):
        run(optimizer, training)
        scheduler.step()


@feature("Clipping by the norm of all gradients")
def clipping(training: Training) -> None:
    for _ in training.steps(optimizer := training.sgd(lr=0.5)):
        assert float(nn.utils.clip_grad_norm_(training.trained, 0.1)) > 0
        assert optimizer


@feature("Clipping by value")
def by_value(training: Training) -> None:
    for _ in training.steps(training.sgd(lr=0.5)):
        nn.utils.clip_grad_value_(training.trained, 0.01)


@feature("Accumulation over microbatches, with the loss scaled")
def accumulation(training: Training) -> None:
    optimizer = training.sgd()
    for number in range(2 * STEPS):
        (training.loss(number) / 2).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()


@feature("Gradients that are set to zero instead of None")
def zeros(training: Training) -> None:
    optimizer = training.sgd()
    for number in range(STEPS):
        training.loss(number).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


@feature("Hooks of parameters that change gradients")
def hooks(training: Training) -> None:
    for number, parameter in enumerate(training.trained):
        parameter.register_hook(lambda x, number=number: x * (1 + number))
    run(training.sgd(lr=0.001), training)


@feature("Hooks after accumulation")
def after_accumulation(training: Training) -> list[torch.Tensor]:
    seen: list[torch.Tensor] = []
    for parameter in training.trained:
        parameter.register_post_accumulate_grad_hook(lambda x: seen.append(x.grad.norm()))  # type: ignore[union-attr]
    run(training.sgd(), training)
    return sorted(seen)


@feature("Updates within the backward pass, by hooks of one's own")
def within(training: Training) -> None:
    def update(parameter: torch.Tensor) -> None:
        with torch.no_grad():
            parameter.sub_(parameter.grad, alpha=0.05)  # type: ignore[arg-type]
        parameter.grad = None

    for parameter in training.trained:
        parameter.register_post_accumulate_grad_hook(update)
    for number in range(STEPS):
        training.loss(number).backward()


@feature("Updates within the backward pass, by update_within")
def within_ours(training: Training) -> None:
    optimizer = optim.AdamW(training.trained, lr=0.01, foreach=False)
    updates = explorer.update_within(training.step, optimizer)
    run(optimizer, training)
    updates.remove()
    run(optimizer, training)


@feature("Noise added to gradients")
def noise(training: Training) -> None:
    for number in training.steps(training.sgd()):
        generator = torch.Generator().manual_seed(number)
        for x in training.trained:
            x.grad = x.grad + 0.01 * torch.randn(x.shape, generator=generator)  # type: ignore[operator]


@feature("Exponential moving average of parameters")
def moving_average(training: Training) -> Any:
    average = swa_utils.AveragedModel(copied(training.step), multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    for _ in training.steps(training.sgd()):
        average.update_parameters(training.step)
    return list(average.module.parameters())


@feature("A copy as a teacher")
def teacher(training: Training) -> Any:
    kept = copied(training.step)
    run(training.sgd(), training)
    return list(kept.parameters())


def copied(step: nn.Module) -> nn.Module:
    found = copy.deepcopy(step)
    return found.requires_grad_(requires_grad=False)


@feature("Validation in between, without gradients")
def validation(training: Training) -> list[torch.Tensor]:
    seen = []
    for _ in training.steps(training.sgd()):
        training.step.eval()
        with torch.no_grad():
            seen.append(training.predict())
        with torch.inference_mode():
            seen.append(training.predict().clone())
        training.step.train()
    return seen


@feature("Saving and loading the model in between")
def saving(training: Training) -> None:
    optimizer = training.sgd()
    run(optimizer, training)
    kept = copy.deepcopy(training.step.state_dict())
    run(optimizer, training)
    training.step.load_state_dict(kept)
    run(optimizer, training)


@feature("Saving and loading the optimizer in between")
def resuming(training: Training) -> None:
    first = training.sgd(momentum=0.9)
    run(first, training)
    second = training.sgd(momentum=0.1)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    run(second, training)


@feature("Parameters changed in place between steps")
def weights_clipped(training: Training) -> None:
    for _ in training.steps(training.sgd(lr=0.5)):
        with torch.no_grad():
            for x in training.trained:
                x.clamp_(-0.1, 0.1)


@feature("Parameters replaced between steps")
def assigned(training: Training) -> None:
    run(training.sgd(), training)
    known = {id(x): nn.Parameter(x.detach() * 0.5, x.requires_grad) for x in training.step.parameters()}
    for module in training.step.modules():
        for name, x in module.named_parameters(recurse=False):
            setattr(module, name, known[id(x)])  # what is tied stays so
    run(training.sgd(), training)


@feature("Parameters frozen after a while")
def frozen(training: Training) -> None:
    run(training.sgd(), training)
    training.trained[0].requires_grad_(requires_grad=False)
    run(training.sgd(), training)


@feature("Gradients of chosen parameters, torch.autograd.grad")
def chosen(training: Training) -> Any:
    wanted = training.trained[:2]
    return [x for number in range(STEPS) for x in torch.autograd.grad(training.loss(number), wanted)]


@feature("backward(inputs=…)")
def some_inputs(training: Training) -> Any:
    for number in range(STEPS):
        training.loss(number).backward(inputs=training.trained[:2])
        for x in training.trained[:2]:
            with torch.no_grad():
                x.sub_(x.grad, alpha=0.05)  # type: ignore[arg-type]
            x.grad = None


@feature("A loss that is part of a larger one")
def larger_loss(training: Training) -> None:
    optimizer = training.sgd()
    for number in range(STEPS):
        penalty = sum((x.square().sum() for x in training.trained), torch.zeros(()))
        (2 * training.loss(number) + 0.01 * penalty).backward()
        optimizer.step()
        optimizer.zero_grad()


@feature(TWO_AT_ONCE)
def two_at_once(training: Training) -> None:
    optimizer = training.sgd()
    for number in range(STEPS):
        (training.loss(number) + training.loss(number + 1)).backward()
        optimizer.step()
        optimizer.zero_grad()


@feature("Steps whose loss is not trained on")
def unused(training: Training) -> None:
    optimizer = training.sgd()
    for number in range(STEPS):
        training.loss(number)
        training.loss(number + 1).backward()
        optimizer.step()
        optimizer.zero_grad()


@feature("Detection of anomalies")
def anomalies(training: Training) -> None:
    with torch.autograd.set_detect_anomaly(mode=True, check_nan=True):
        run(training.sgd(), training)


@feature("Deterministic algorithms")
def deterministic(training: Training) -> None:
    torch.use_deterministic_algorithms(mode=True)
    try:
        run(training.sgd(), training)
    finally:
        torch.use_deterministic_algorithms(mode=False)


@feature("Hooks of saved tensors")
def saved_tensors(training: Training) -> None:
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        run(training.sgd(), training)


def trainings(make: Any) -> tuple[Training, Training]:
    model, batch, loss = make()
    module = explorer.apply(
        copy.deepcopy(model), random_schedule(graph_of(make), 3, keep=0.4), batch, loss=loss, check=False
    )

    def of(step: nn.Module) -> Training:
        def step_loss(number: int) -> torch.Tensor:
            torch.manual_seed(number)
            if isinstance(batch, dict):
                return step(**{name: x.roll(number, 0) for name, x in batch.items()})["loss"]
            if loss is None:
                return sum((x.mean() for x in tensors_of_result(step(batch.roll(number, 0)))), torch.zeros(()))
            x, y = (x.roll(number, 0) for x in batch)
            return step(x, y) if step is module else loss(step(x), y)

        def predict() -> torch.Tensor:
            return step(**batch)["logits"] if isinstance(batch, dict) else step(batch[0] if loss else batch)

        return Training(step, step_loss, lambda: tensors_of_result(predict())[0])

    return of(module), of(model)


@pytest.mark.sampled(36)
@pytest.mark.thorough("branches")
@pytest.mark.parametrize("make", [branches, shared, tied_attention], ids=lambda x: x.__name__)
@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_trains_as_in_eager_mode(name: str, make: Any) -> None:
    mine, eager = trainings(make)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="this step begins with gradients in memory")
        warnings.filterwarnings("ignore", message="Anomaly Detection has been enabled")
        found, expected = FEATURES[name](mine), FEATURES[name](eager)
    ours, theirs = mine.step.state_dict(), eager.step.state_dict()
    for key in theirs:
        if name in ROUNDED:
            torch.testing.assert_close(ours[key], theirs[key], rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(ours[key], theirs[key]), key
    for a, b in zip(found or (), expected or (), strict=True):
        assert torch.equal(a, b)
    assert all((x.grad is None) == (y.grad is None) for x, y in zip(mine.trained, eager.trained, strict=True))


def test_the_documentation_lists_them() -> None:
    listed = re.findall(r"^\| ([^|]+?) \| yes", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(FEATURES) <= set(listed)
    assert len(FEATURES) >= 30
