"""A scheduled module behaves like the model it was made from, and says clearly what it cannot do."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional

import explorer
from explorer.capture import capture
from explorer.schedule import Free, Run, keep_all
from tests.execution.models import Branches, branches, graph_of, shared
from tests.schedules import random_schedule


def scheduled_branches(keep: float = 0.3) -> tuple[explorer.ScheduledModule, nn.Module, tuple[torch.Tensor, ...]]:
    model, batch, loss = branches()
    schedule = random_schedule(graph_of(branches), 1, keep=keep)
    return explorer.apply(model, schedule, batch, loss=loss), model, batch


def test_it_is_the_model_to_its_user() -> None:
    module, model, batch = scheduled_branches()
    assert isinstance(module, Branches)
    assert list(module.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(module.parameters(), model.parameters(), strict=True))
    module.eval()
    assert not model.training
    assert torch.equal(module(batch[0]), model(batch[0]))
    assert torch.equal(module(*batch), functional.cross_entropy(model(batch[0]), batch[1]))
    module.train()
    with torch.no_grad():
        module(*batch)
    module.load_state_dict(model.state_dict())


def test_statistics_are_updated_once_a_step() -> None:
    module, _, batch = scheduled_branches(keep=0.0)
    module(*batch).backward()
    assert int(module.norm.num_batches_tracked) == 1


def test_a_copy_trains_on_its_own() -> None:
    module, model, batch = scheduled_branches()
    other = copy.deepcopy(module)
    other(*batch).backward()
    assert all(x.grad is not None for x in other.parameters())
    assert all(x.grad is None for x in model.parameters())


def test_gradients_accumulate() -> None:
    module, _, batch = scheduled_branches()
    torch.manual_seed(0)
    module(*batch).backward()
    once = [x.grad.clone() for x in module.parameters() if x.grad is not None]
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="begins with gradients in memory"):
        module(*batch).backward()
    module(*batch)  # said once
    twice = [x.grad for x in module.parameters() if x.grad is not None]
    assert all(torch.equal(2 * a, b) for a, b in zip(once, twice, strict=True))


def test_unused_graph_is_freed_without_the_garbage_collector() -> None:
    module, _, batch = scheduled_branches(keep=1.0)
    gc.collect()
    gc.disable()
    try:
        context = weakref.ref(module(*batch).grad_fn)
        assert context() is None
    finally:
        gc.enable()


def test_backward_twice_is_refused() -> None:
    module, _, batch = scheduled_branches()
    loss = module(*batch)
    loss.backward()
    with pytest.raises(RuntimeError, match=r"second time|called twice"):
        loss.backward()


# create_graph=True itself warns of the cycle that it would make.
@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
@pytest.mark.parametrize("option", ["retain_graph", "create_graph"])
def test_keeping_the_graph_is_refused(option: str) -> None:
    module, _, batch = scheduled_branches()
    with pytest.raises(RuntimeError, match="neither retain_graph=True nor create_graph=True"):
        module(*batch).backward(**{option: True})


def test_changing_a_parameter_before_backward_is_noticed() -> None:
    module, _, batch = scheduled_branches()
    loss = module(*batch)
    with torch.no_grad():
        module.head.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_another_batch_is_refused() -> None:
    module, _, (images, labels) = scheduled_branches()
    with pytest.raises(ValueError, match=r"batch\[0\] has shape \(3, 3, 16, 16\).*drop_last"):
        module(images[:3], labels[:3])
    with pytest.raises(ValueError, match=r"batch\[0\] has dtype torch.float64"):
        module(images.double(), labels)
    with pytest.raises(ValueError, match="strides"):
        module(images.contiguous(memory_format=torch.channels_last), labels)


def test_another_plain_argument_is_refused() -> None:
    model, x, _ = shared()
    graph = capture(model, (x, 2.0)).graph
    module = explorer.apply(model, keep_all(graph), (x, 2.0))
    with pytest.raises(ValueError, match=r"batch\[1\] is 3.0; the schedule was made for 2.0"):
        module(x, 3.0)


def test_a_schedule_for_another_model_or_batch_is_refused() -> None:
    model, batch, loss = branches()
    schedule = keep_all(graph_of(branches))
    smaller = tuple(x[:2] for x in batch)
    with pytest.raises(ValueError, match="the batch differs"):
        explorer.apply(model, schedule, smaller, loss=loss)
    model.head = nn.Linear(16, 7)
    with pytest.raises(ValueError, match="the model differs"):
        explorer.apply(model, schedule, batch, loss=loss)
    with pytest.raises(ValueError, match="captured operators differ"):
        explorer.apply(branches()[0], schedule, batch, loss=lambda x, y: functional.cross_entropy(x, y) * 2)


def test_a_tampered_schedule_is_refused() -> None:
    model, batch, loss = branches()
    whole = keep_all(graph_of(branches))
    number, first_free = next((i, x) for i, x in enumerate(whole.steps) if isinstance(x, Free))
    early = explorer.Schedule(whole.identity, (first_free, *whole.steps), "edited")
    with pytest.raises(ValueError, match="step 0 frees"):
        explorer.apply(model, early, batch, loss=loss)
    missing = explorer.Schedule(whole.identity, whole.steps[: number + 1], "edited")
    with pytest.raises(ValueError, match="never runs"):
        explorer.apply(model, missing, batch, loss=loss)
    unknown = explorer.Schedule(whole.identity, (Run(0, "magic"), *whole.steps[1:]), "edited")
    with pytest.raises(ValueError, match="has no implementation 'magic'"):
        explorer.apply(model, unknown, batch, loss=loss)


def test_pickling_says_what_to_do_instead() -> None:
    module, _, _ = scheduled_branches()
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(module)


def test_measuring_changes_nothing() -> None:
    module, _, batch = scheduled_branches()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    module(*batch).backward()
    after_one = {name: x.clone() for name, x in module.state_dict().items()}
    gradients = [x.grad for x in module.parameters()]
    state = torch.get_rng_state()
    explorer.measure(module, batch, steps=1)
    assert all(torch.equal(x, after_one[name]) for name, x in module.state_dict().items())
    assert all(a is b.grad for a, b in zip(gradients, module.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(before["norm.running_mean"], after_one["norm.running_mean"])


def test_a_cuda_graph_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, batch = scheduled_branches()
    for name in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    with pytest.raises(ValueError, match="a CUDA graph is being captured"):
        module(*batch)
    assert int(module.norm.num_batches_tracked) == 0
    assert all(x.grad is None for x in module.parameters())
    monkeypatch.undo()
    module(*batch).backward()


def test_a_cuda_graph_of_the_backward_pass_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, batch = scheduled_branches()
    loss = module(*batch)
    for name in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    with pytest.raises(ValueError, match="a CUDA graph is being captured"):
        loss.backward()
    assert all(x.grad is None for x in module.parameters())
    monkeypatch.undo()
    module(*batch).backward()


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * mask


@pytest.mark.parametrize("together", [tuple, list, dict])
def test_several_inputs_beside_a_loss_predict_together_or_one_by_one(together: type) -> None:
    torch.manual_seed(0)
    model, x, mask, target = Masked(), torch.randn(5, 8), torch.rand(5, 3), torch.randn(5, 3)
    inputs = {"x": x, "mask": mask} if together is dict else together((x, mask))
    batch = (inputs, target)
    graph = capture(model, batch, loss=functional.mse_loss).graph
    module = explorer.apply(model, keep_all(graph), batch, loss=functional.mse_loss)
    wanted = x @ model.layer.weight.T + model.layer.bias
    for training in (False, True):
        module.train(training)
        with torch.no_grad():
            for found in (module(x, mask), module(x, mask=mask), module(inputs)):
                assert torch.allclose(found, wanted * mask)
            assert torch.allclose(module(inputs, target), functional.mse_loss(wanted * mask, target))
    module(inputs, target).backward()
