"""Trainers take a scheduled module in the model's place: the same bits, checkpoints that go on, validation, clipping.

Schedules recompute, by PyTorch's own implementations. With gradients accumulated a step peaks higher than its schedule
says, which it tells once; what it computes is the same.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import explorer
from explorer.capture import capture
from explorer.execution.guards import ModelChangedError
from tests.capture.test_wide import same_bits
from tests.execution.test_libraries import classifier
from tests.schedules import random_schedule

ACCUMULATED = pytest.mark.filterwarnings("ignore:this step begins with gradients in memory:UserWarning")
PICTURES, SIDE, CLASSES, BATCH = 16, 8, 3, 2


class Net(nn.Module):
    """Convolutions and normalisations, which have buffers."""

    def __init__(self) -> None:
        super().__init__()
        width = 6
        self.blocks = nn.Sequential(
            *(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()),
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(images).mean(dim=(2, 3)))


class WithLoss(nn.Module):
    """What a scheduled module with its loss is compared with."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(images), labels)


def recomputing(model: nn.Module, batch: Any, loss: Any = None) -> explorer.ScheduledModule:
    graph = capture(model, batch, loss=loss).graph
    schedule = random_schedule(graph, 1, keep=0.5)
    assert schedule.recomputed(graph)
    return explorer.apply(model, schedule, batch, loss=loss)


def pictures() -> list[tuple[torch.Tensor, torch.Tensor]]:
    numbers = torch.Generator().manual_seed(1)
    images = torch.randn(PICTURES, 3, SIDE, SIDE, generator=numbers)
    return list(zip(images, torch.randint(CLASSES, (PICTURES,), generator=numbers), strict=True))


def net() -> Net:
    torch.manual_seed(0)
    return Net().train()


def scheduled_and_plain() -> tuple[tuple[nn.Module, nn.Module], tuple[nn.Module, nn.Module]]:
    """A model and its step, with a schedule and without, from the same parameters."""
    batch = next(iter(DataLoader(pictures(), BATCH)))  # type: ignore[arg-type]
    model, other = net(), net()
    return (model, recomputing(model, batch, F.cross_entropy)), (other, WithLoss(other))


def values(model: nn.Module) -> list[torch.Tensor]:
    return list(model.state_dict().values())


def hugging_face(folder: Path, model: nn.Module, data: list[Any], **more: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    arguments = transformers.TrainingArguments(
        str(folder),
        **{"eval_strategy": "epoch"} | more,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        num_train_epochs=2,
        max_grad_norm=0.01,
        save_strategy="epoch",
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    return transformers.Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:3])


def logged(trainer: Any) -> list[dict[str, float]]:
    kept = "loss", "grad_norm", "eval_loss"
    return [{name: x[name] for name in kept if name in x} for x in trainer.state.log_history]


@ACCUMULATED
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.thorough("1")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_hugging_face_trains_evaluates_and_goes_on(tmp_path: Path, accumulate: int) -> None:
    pytest.importorskip("accelerate")
    model, data = classifier()
    # It divides a loss by the number of microbatches unless the model does, as this one says it would and does not.
    model.accepts_loss_kwargs = False  # type: ignore[assignment]
    plain, resumed = copy.deepcopy(model), copy.deepcopy(model)
    batch = {key: torch.stack([x[key] for x in data[:4]]) for key in data[0]}
    found = []
    for name, module in (("scheduled", recomputing(model, batch)), ("plain", plain)):
        trainer = hugging_face(tmp_path / name, module, data, gradient_accumulation_steps=accumulate)
        trainer.train()
        found.append(logged(trainer))
    assert list(model.state_dict()) == list(plain.state_dict())
    assert same_bits(values(model), values(plain))
    assert found[0] == found[1]
    assert any("grad_norm" in x and x["grad_norm"] > 0.01 for x in found[0])  # it was clipped
    first = min((tmp_path / "scheduled").glob("checkpoint-*"), key=lambda x: int(x.name.split("-")[1]))
    assert json.loads((first / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]
    trainer = hugging_face(
        tmp_path / "resumed", recomputing(resumed, batch), data, gradient_accumulation_steps=accumulate
    )
    trainer.train(resume_from_checkpoint=str(first))
    assert same_bits(values(resumed), values(plain))


def test_a_loss_of_hugging_face_that_was_given_must_stay() -> None:
    model, data = classifier()
    model.config.problem_type = "single_label_classification"
    batch = {key: torch.stack([x[key] for x in data[:4]]) for key in data[0]}
    scheduled = recomputing(model, batch)
    scheduled(**batch)
    model.config.problem_type = "regression"
    with pytest.raises(ModelChangedError, match=r"config.problem_type is 'regression', and was"):
        scheduled(**batch)


@ACCUMULATED
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_hugging_face_counts_tokens_over_microbatches_where_the_sample_batch_has_their_number(tmp_path: Path) -> None:
    """Else it divides by the number of microbatches, which differs where they have different numbers of labels."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=29, **sizes)).train()
    plain = copy.deepcopy(model)
    rows = torch.randint(1, 29, (8, 11))
    ignored = torch.arange(11) <= torch.arange(8)[:, None]
    labels = rows.masked_fill(ignored, -100)
    data = [{"input_ids": x, "labels": y} for x, y in zip(rows, labels, strict=True)]
    batch = {"input_ids": rows[:4], "labels": labels[:4], "num_items_in_batch": torch.tensor(52.0)}
    for name, module in (("scheduled", recomputing(model, batch)), ("plain", plain)):
        hugging_face(tmp_path / name, module, data, gradient_accumulation_steps=2, eval_strategy="no").train()
    assert same_bits(values(model), values(plain))


@ACCUMULATED
@pytest.mark.thorough("1")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_accelerate_clips_accumulates_validates_and_goes_on(tmp_path: Path, accumulate: int) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state()
    accelerate.state.GradientState._reset_state()

    def train(model: nn.Module, step: nn.Module, *, resume: bool = False) -> list[float]:
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
        optimizer = torch.optim.AdamW(step.parameters(), lr=0.01)
        prepared, optimizer, loader = accelerator.prepare(step, optimizer, DataLoader(pictures(), BATCH))  # type: ignore[arg-type]
        told = []
        for epoch in range(2):
            if resume and epoch == 0:
                accelerator.load_state(str(tmp_path / "state"))
                continue
            model.train()
            for images, labels in loader:
                with accelerator.accumulate(prepared):
                    accelerator.backward(prepared(images, labels))
                    if accelerator.sync_gradients:
                        told.append(float(accelerator.clip_grad_norm_(model.parameters(), 0.1)))
                    optimizer.step()
                    optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                told.append(float(sum(prepared(*batch) for batch in loader)))
            if epoch == 0 and isinstance(step, explorer.ScheduledModule):
                accelerator.save_state(str(tmp_path / "state"))
        assert accelerator.unwrap_model(prepared) is step
        return told

    (model, scheduled), (other, plain) = scheduled_and_plain()
    told = train(model, scheduled)
    assert told == train(other, plain)
    assert max(told) > 0.1
    assert list(model.state_dict()) == list(other.state_dict())
    assert same_bits(values(model), values(other))
    (resumed, again), _ = scheduled_and_plain()
    assert train(resumed, again, resume=True) == told[len(told) // 2 :]
    assert same_bits(values(resumed), values(other))


def lightning_module() -> Callable[[nn.Module, nn.Module], Any]:
    lightning = pytest.importorskip("lightning")

    class Lit(lightning.LightningModule):
        """As people write one; the model's parameters are once in its state dict."""

        def __init__(self, model: nn.Module, step: nn.Module) -> None:
            super().__init__()
            self.model, self.told = model, []
            self.step = [step]  # not a part of its own: it shares everything with the model

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss = self.step[0](*batch)
            self.told.append(loss.item())
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            assert not torch.is_grad_enabled()
            assert not self.model.training
            self.told.append(self.step[0](*batch).item())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.model.parameters(), lr=0.01)

    return Lit


@ACCUMULATED
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")  # Lightning's own
@pytest.mark.thorough("1")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_lightning_clips_accumulates_validates_and_goes_on(tmp_path: Path, accumulate: int) -> None:
    lightning = pytest.importorskip("lightning")
    kind = lightning_module()

    def train(model: nn.Module, step: nn.Module, *, epochs: int, checkpoint: Path | None = None) -> tuple[Any, Any]:
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=epochs,
            accumulate_grad_batches=accumulate,
            gradient_clip_val=0.1,
            num_sanity_val_steps=0,
            enable_checkpointing=False,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        module = kind(model, step)
        loader = DataLoader(pictures(), BATCH)  # type: ignore[arg-type]
        trainer.fit(module, loader, loader, ckpt_path=checkpoint)
        return trainer, module

    (model, scheduled), (other, plain) = scheduled_and_plain()
    (_, module), (_, expected) = train(model, scheduled, epochs=2), train(other, plain, epochs=2)
    assert module.told == expected.told
    assert list(module.state_dict()) == list(expected.state_dict())
    assert same_bits(values(module), values(expected))
    (half, part), (resumed, again) = scheduled_and_plain()[0], scheduled_and_plain()[0]
    trainer, _ = train(half, part, epochs=1)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    train(resumed, again, epochs=2, checkpoint=tmp_path / "half.ckpt")
    assert same_bits(values(resumed), values(other))
