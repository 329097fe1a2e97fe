"""Scheduled modules in the hands of libraries that train models: they take them as the models themselves."""

from __future__ import annotations

import copy
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import explorer
from explorer.capture import capture
from explorer.models import MODELS
from explorer.models.resnet import ResNet
from explorer.schedule import keep_all
from tests.capture.test_wide import same_bits, trained


def kept(model: nn.Module, batch: Any, loss: Any = None) -> Any:
    return explorer.apply(model, keep_all(capture(model, batch, loss=loss).graph), batch, loss=loss)


def classifier() -> tuple[nn.Module, list[dict[str, torch.Tensor]]]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 48}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=97, num_labels=3, **sizes))
    rows = torch.randint(1, 97, (8, 11))
    data = [{"input_ids": x, "attention_mask": torch.ones_like(x), "labels": x[0] % 3} for x in rows]
    return model.train(), data


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_the_trainer_of_hugging_face_with_its_defaults(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    model, data = classifier()
    plain = copy.deepcopy(model)
    # In another order than the signature's, and than the Trainer's.
    batch = {key: torch.stack([x[key] for x in data[:4]]) for key in ("labels", "input_ids", "attention_mask")}
    scheduled = kept(model, batch)
    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=4, num_train_epochs=1, report_to=[], use_cpu=True, disable_tqdm=True
    )
    for module in (scheduled, plain):
        transformers.Trainer(model=module, args=arguments, train_dataset=data).train()
    assert same_bits(list(scheduled.parameters()), list(plain.parameters()))
    scheduled.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]


def test_keywords_in_any_order_and_the_signature_of_the_model() -> None:
    model, data = classifier()
    batch = {key: torch.stack([x[key] for x in data[:4]]) for key in ("input_ids", "labels", "attention_mask")}
    scheduled = kept(model, batch)
    assert inspect.signature(scheduled.forward) == inspect.signature(model.forward)
    torch.manual_seed(1)
    first = scheduled(**batch).loss
    torch.manual_seed(1)
    assert torch.equal(first, scheduled(**dict(reversed(batch.items()))).loss)


@pytest.mark.thorough("no")
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate(precision: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state()
    spec = MODELS["resnet50"]
    torch.manual_seed(0)
    model, batch = ResNet((1, 1, 1, 1)).train(), spec.batch(batch_size=2, image_size=32)
    plain = copy.deepcopy(model)
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision)
    with accelerator.autocast():
        scheduled = kept(model, batch, spec.loss)
    for module in (scheduled, plain):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        prepared, optimizer = accelerator.prepare(module, optimizer)
        for _ in range(2):
            with accelerator.autocast():
                loss = prepared(*batch) if module is scheduled else spec.loss(prepared(batch[0]), batch[1])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    assert same_bits(list(scheduled.parameters()), list(plain.parameters()))
    if precision == "bf16":
        with pytest.raises(
            ValueError, match=r"forward of this ResNet was replaced on the object .* prepare the result"
        ):
            capture(plain, batch, loss=spec.loss)


def test_data_parallel_around_a_scheduled_module(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        spec = MODELS["resnet50"]
        torch.manual_seed(0)
        model, batch = ResNet((1, 1, 1, 1)).train(), spec.batch(batch_size=2, image_size=32)
        plain = copy.deepcopy(model)
        with pytest.raises(ValueError, match=r"DistributedDataParallel\(explorer.apply\(model, ...\)\)"):
            capture(DistributedDataParallel(plain), batch, loss=spec.loss)
        wrapped = DistributedDataParallel(kept(model, batch, spec.loss))
        expected = trained(lambda x, y: spec.loss(plain(x), y), plain, batch, spec.loss)
        with pytest.warns(UserWarning, match="gradients in buckets here"):
            found = trained(wrapped, wrapped, batch, spec.loss)
        assert same_bits(found, expected)
    finally:
        torch.distributed.destroy_process_group()
