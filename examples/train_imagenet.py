"""Train a classifier of images under a memory budget: on one device, or on several with torchrun.

    python examples/make_pictures.py /tmp/pictures
    python examples/train_imagenet.py /tmp/pictures --image-size 64 --depths 1 1 1 1 --batch-size 16 --budget "80 %"
    torchrun --nproc-per-node=8 examples/train_imagenet.py /data/imagenet --amp bfloat16 --budget "8 GiB"

DATA has a folder ``train`` and a folder ``val``, each with one folder of pictures for every class.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.progress import track
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

import explorer
from explorer.models.mobilenet import MobileNetV2
from explorer.models.resnet import ResNet
from explorer.models.vgg import VGG
from explorer.models.vit import ViT

MODELS = {
    "resnet50": lambda options, classes: ResNet(options.depths, classes=classes),
    "vgg16": lambda _, classes: VGG(classes=classes),
    "mobilenet_v2": lambda _, classes: MobileNetV2(classes=classes),
    "vit_b16": lambda options, classes: ViT(image_size=options.image_size, classes=classes),
}
SUFFIXES = {".jpeg", ".jpg", ".png", ".webp"}
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
Box = tuple[float, float, float, float]


class Pictures(Dataset):
    """The pictures below a folder that has one folder for each class."""

    def __init__(self, folder: Path, image_size: int, *, training: bool) -> None:
        """Find them; classes have the order of their names."""
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}; DATA must have folders train and val")
        self.classes = sorted(x.name for x in folder.iterdir() if x.is_dir())
        self.files = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((folder / name).iterdir())
            if path.suffix.lower() in SUFFIXES
        ]
        if not self.files:
            raise ValueError(f"no pictures in {folder}; it must have a folder of {', '.join(SUFFIXES)} for each class")
        self.image_size, self.training = image_size, training

    def __len__(self) -> int:
        """How many."""
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """One picture, normalised, float32 of shape (3, image_size, image_size), and the number of its class."""
        path, label = self.files[index]
        picture = Image.open(path).convert("RGB")
        box = random_box(*picture.size) if self.training else central_box(*picture.size)
        picture = picture.resize((self.image_size, self.image_size), Image.Resampling.BILINEAR, box)
        if self.training and torch.rand(()) < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(picture)).float() / 255
        return ((pixels - MEAN) / STD).permute(2, 0, 1).contiguous(), label


def random_box(width: int, height: int) -> Box:
    """A part of a picture: 8 % to all of its area, 3:4 to 4:3, as networks for ImageNet are trained on."""
    for _ in range(10):
        share, aspect, across, down = torch.rand(4).tolist()
        area = (0.08 + 0.92 * share) * width * height
        ratio = (4 / 3) ** (2 * aspect - 1)
        w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if w <= width and h <= height:
            left, top = across * (width - w), down * (height - h)
            return left, top, left + w, top + h
    return central_box(width, height)


def central_box(width: int, height: int) -> Box:
    """The square in the middle, seven eighths of the shorter side."""
    side = 0.875 * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def loaders(options: argparse.Namespace, process: Process) -> tuple[DataLoader, DataLoader, int]:
    """Batches to train on and to evaluate with, and how many classes there are."""
    pictures = Pictures(options.data / "train", options.image_size, training=True)
    others = Pictures(options.data / "val", options.image_size, training=False)
    if others.classes != pictures.classes:
        raise ValueError(f"the classes in {options.data}/train and {options.data}/val differ")
    wanted = options.batch_size * options.accumulate * process.count
    if len(pictures) < wanted:
        raise ValueError(f"{options.data}/train has {len(pictures)} pictures, and an update takes {wanted}")
    settings: dict[str, Any] = {"num_workers": options.workers, "pin_memory": process.device.type == "cuda"}
    sampler = DistributedSampler(pictures, process.count, process.rank, seed=options.seed, drop_last=True)
    # A schedule is for batches of one size: a last, smaller one is left out, and its pictures come in other epochs.
    training = DataLoader(pictures, options.batch_size, sampler=sampler, drop_last=True, **settings)
    own = Subset(others, range(process.rank, len(others), process.count))
    return training, DataLoader(own, options.batch_size, **settings), len(pictures.classes)


@dataclass(frozen=True)
class Process:
    """This process among those that train together."""

    rank: int
    count: int
    device: torch.device

    @classmethod
    def started(cls) -> Process:
        """As torchrun started it, or alone."""
        rank, count, local = (int(os.environ.get(x, y)) for x, y in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
        device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if count > 1:
            distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(rank, count, device)

    def tell(self, text: str) -> None:
        """Print, once for all processes."""
        if self.rank == 0:
            print(text, flush=True)

    def from_first(self, make: Callable[[], Any]) -> Any:
        """What the first process makes, for all, as two searches may end with two schedules; or its failure."""
        made: list[Any] = [None]
        if self.rank == 0:
            try:
                made = [make()]
            except ValueError as error:
                made = [error]
        if self.count > 1:
            distributed.broadcast_object_list(made, src=0, device=self.device)
        if isinstance(made[0], ValueError):
            raise made[0] if self.rank == 0 else SystemExit(1)
        return made[0]

    def batches(self, loader: DataLoader) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Images and labels, on the device."""
        for images, labels in loader:
            yield images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)


class WithLoss(nn.Module):
    """A model that returns its loss, as one with a schedule does."""

    def __init__(self, model: nn.Module, loss: nn.Module) -> None:
        """Of both."""
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of a batch."""
        return self.loss(self.model(images), labels)


def precision(options: argparse.Namespace) -> torch.dtype | None:
    """What forward passes are cast to."""
    return getattr(torch, options.amp) if options.amp else None


def cast(options: argparse.Namespace, process: Process) -> torch.autocast:
    """Around a forward pass."""
    dtype = precision(options)
    return torch.autocast(process.device.type, dtype, enabled=dtype is not None)


def make_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, options: argparse.Namespace, process: Process
) -> nn.Module:
    """What returns the loss of a batch: the model with its schedule, or with its loss; tells what memory it takes."""
    loss = nn.CrossEntropyLoss(label_smoothing=options.label_smoothing)
    images = torch.randn(options.batch_size, 3, options.image_size, options.image_size, device=process.device)
    batch = images, torch.zeros(options.batch_size, dtype=torch.int64, device=process.device)
    if options.schedule or options.budget:
        schedule = process.from_first(lambda: find_schedule(model, batch, loss, optimizer, options, process))
        step = explorer.apply(model, schedule, batch, loss=loss)
    else:
        step = WithLoss(model, loss)
    if process.count > 1:
        # Gradients that are views of the buckets are in memory once, not twice.
        return DistributedDataParallel(step, gradient_as_bucket_view=True)
    if process.device.type == "cpu":
        around: dict[str, Any] = {"optimizer": optimizer, "accumulate": options.accumulate > 1}
        casts = {} if options.schedule or options.budget else {"autocast": precision(options)}
        peak_bytes = explorer.measure(step, batch, steps=1, **around, **casts).peak_bytes
        process.tell(f"measured peak {explorer.format_bytes(peak_bytes)} of an iteration, before training")
    return step


def find_schedule(
    model: nn.Module,
    batch: Any,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    options: argparse.Namespace,
    process: Process,
) -> explorer.Schedule:
    """Read the schedule, or solve for one within the budget; tells what is predicted of an iteration."""
    average_bytes = 0 if options.ema is None else sum(x.nbytes for x in (*model.parameters(), *model.buffers()))
    if options.schedule:
        schedule = explorer.load_schedule(options.schedule)
        profile = explorer.load_profile(options.profile) if options.profile else None
    else:
        iteration: dict[str, Any] = {
            "optimizer": optimizer,
            "accumulate": options.accumulate > 1,
            "distributed": "ddp-views" if process.count > 1 else None,
            "autocast": precision(options),
        }
        if options.estimate:
            profile = explorer.estimate(model, batch, loss=loss, device=options.estimate, **iteration)
        else:
            profile = explorer.profile(model, batch, loss=loss, **iteration)
        plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
        budget_bytes = explorer.parse_bytes(options.budget, whole=plain.peak_bytes + average_bytes)
        solution = explorer.solve(profile, budget=max(1, budget_bytes - average_bytes), exact=options.exact)
        if solution.schedule is None:
            raise ValueError(solution.message)
        schedule = solution.schedule
        profile.save(options.output / "profile.json")
        schedule.save(options.output / "schedule.json")
    if profile is not None:
        peak_bytes = explorer.simulate(profile, schedule).peak_bytes
        process.tell(f"predicted peak {explorer.format_bytes(peak_bytes)} of an iteration")
    if average_bytes:
        process.tell(f"beside it {explorer.format_bytes(average_bytes)} of the average")
    return schedule


@dataclass(frozen=True)
class Training:
    """What changes as a model is trained.

    Attributes:
        model: what is evaluated and saved; the step shares its parameters.
        average: of the model over time, if wanted.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: LambdaLR
    scaler: torch.amp.GradScaler
    average: AveragedModel | None

    @classmethod
    def of(cls, model: nn.Module, options: argparse.Namespace, *, updates: int, device: str) -> Training:
        """Before the first of ``updates`` updates."""
        matrices = [x for x in model.parameters() if x.ndim > 1]
        vectors = [x for x in model.parameters() if x.ndim <= 1]  # biases, and scales and shifts of normalisations
        groups = [{"params": matrices, "weight_decay": options.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        optimizer = torch.optim.SGD(groups, lr=options.learning_rate, momentum=0.9)
        warm_up = min(updates - 1, updates * options.warm_up // options.epochs)
        scheduler = LambdaLR(optimizer, partial(warm_up_and_cosine, warm_up=warm_up, updates=updates))
        scaler = torch.amp.GradScaler(device, enabled=options.amp == "float16")
        average = None
        if options.ema is not None:
            average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(options.ema), use_buffers=True)
        return cls(model, optimizer, scheduler, scaler, average)

    def update(self) -> None:
        """By the gradients that are there."""
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler.get_scale() < scale:
            return  # float16 overflowed, and nothing was changed
        self.scheduler.step()
        if self.average is not None:
            self.average.update_parameters(self.model)

    def save(self, path: Path, *, epochs: int) -> None:
        """Write all that another run needs to go on after so many epochs."""
        unfinished = path.with_suffix(".new")
        torch.save({"epochs": epochs, **{name: x.state_dict() for name, x in self._parts().items()}}, unfinished)
        unfinished.replace(path)  # a run that ends meanwhile leaves the one before

    def resume(self, path: Path) -> int:
        """Go on from what ``save`` wrote, after so many epochs."""
        if not path.is_file():
            raise ValueError(f"there is no checkpoint {path}")
        state = torch.load(path, map_location="cpu", weights_only=True)
        try:
            for name, part in self._parts().items():
                part.load_state_dict(state[name])
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"{path} is of a run with other options: {str(error).splitlines()[0]}") from error
        return state["epochs"]

    def _parts(self) -> dict[str, Any]:
        return {name: x for name, x in vars(self).items() if x is not None}


def warm_up_and_cosine(update: int, *, warm_up: int, updates: int) -> float:
    """The learning rate of an update, as a share of the highest."""
    if update < warm_up:
        return (update + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (update - warm_up) / (updates - warm_up)))


def train_epoch(
    step: nn.Module, training: Training, loader: DataLoader, options: argparse.Namespace, process: Process, name: str
) -> float:
    """Train on every picture once; the mean loss."""
    training.model.train()
    count = len(loader) // options.accumulate * options.accumulate  # what makes no whole update is left out
    batches = zip(range(1, count + 1), process.batches(loader), strict=False)
    total = torch.zeros((), device=process.device)
    hidden = process.rank > 0 or not sys.stdout.isatty()
    for number, (images, labels) in track(batches, name, count, transient=True, disable=hidden):
        complete = number % options.accumulate == 0
        # Only the last microbatch of an update exchanges gradients with other processes.
        with step.no_sync() if process.count > 1 and not complete else contextlib.nullcontext():
            with cast(options, process):
                loss = step(images, labels)
            training.scaler.scale(loss / options.accumulate).backward()
        total += loss.detach()
        if complete:
            training.update()
    return total.item() / count


@torch.no_grad()
def evaluate(
    model: nn.Module, loader: DataLoader, options: argparse.Namespace, process: Process
) -> tuple[float, float]:
    """Shares of the pictures whose class is the likeliest, and among the five likeliest."""
    model.eval()
    if process.count > 1:
        for buffer in model.buffers():  # running means are each process's own
            distributed.broadcast(buffer, src=0)
    counts = torch.zeros(3, device=process.device)
    for images, labels in process.batches(loader):
        with cast(options, process):
            logits = model(images)
        right = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
        counts += torch.stack([right[:, 0].sum(), right.sum(), torch.tensor(len(labels), device=process.device)])
    if process.count > 1:
        distributed.all_reduce(counts)
    first, five, pictures = counts.tolist()
    return first / pictures, five / pictures


def run(options: argparse.Namespace, process: Process) -> None:
    """Prepare, then train, evaluate and save in every epoch."""
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        loader, others, classes = loaders(options, process)
        torch.manual_seed(options.seed)
        model = MODELS[options.model](options, classes).to(process.device).train()
        updates = options.epochs * (len(loader) // options.accumulate)
        training = Training.of(model, options, updates=updates, device=process.device.type)
        step = make_step(model, training.optimizer, options, process)
        done = training.resume(options.resume) if options.resume else 0
    except (ValueError, OSError, MemoryError) as error:
        raise SystemExit(f"error: {error}") from None
    if process.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for epoch in range(done, options.epochs):
        began = time.perf_counter()
        # Random numbers begin anew: a run that goes on draws those of one that was never ended.
        torch.manual_seed(options.seed + epoch * process.count + process.rank)
        assert isinstance(loader.sampler, DistributedSampler)
        loader.sampler.set_epoch(epoch)  # another order of the pictures
        told = f"epoch {epoch + 1}/{options.epochs}"
        loss = train_epoch(step, training, loader, options, process, told)
        told += f": {time.perf_counter() - began:.1f} s, loss {loss:.4f}"
        if process.device.type == "cuda":
            told += f", measured peak {explorer.format_bytes(torch.cuda.max_memory_allocated())}"
        first, five = evaluate(training.average or model, others, options, process)
        if process.rank == 0:
            training.save(options.output / "checkpoint.pt", epochs=epoch + 1)
        process.tell(f"{told}, top-1 {100 * first:.1f} %, top-5 {100 * five:.1f} %")


def parse() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="folder with train and val")
    add("--output", type=Path, default=Path("output"), help="folder for the checkpoint and for what is solved")
    add("--resume", type=Path, metavar="FILE", help="a checkpoint to go on from, with the same options otherwise")
    memory = parser.add_mutually_exclusive_group()
    memory.add_argument("--schedule", type=Path, metavar="FILE", help="train by it; it is for one model and batch")
    memory.add_argument("--budget", help="solve for a schedule within it: '8 GiB', '80 %%' of what PyTorch takes")
    add("--profile", metavar="FILE", help="of --schedule, to say what is predicted")
    add(
        "--estimate", metavar="DEVICE", help="for --budget where plain PyTorch does not fit: estimate, such as for H100"
    )
    add("--exact", action="store_true", help="solve for a schedule that gives PyTorch's own bits")
    add("--model", choices=MODELS, default="resnet50")
    add("--depths", type=at_least_one, nargs=4, default=(3, 4, 6, 3), help="blocks in the four groups of the ResNet")
    add("--image-size", type=at_least_one, default=224, help="sides of the pictures, as the network sees them")
    add("--batch-size", type=at_least_one, default=64, help="of a microbatch, in each process")
    add("--accumulate", type=at_least_one, default=1, help="microbatches for each update")
    add("--amp", choices=("bfloat16", "float16"), help="mixed precision")
    add("--epochs", type=at_least_one, default=90)
    add("--learning-rate", type=float, default=0.1, help="the highest; 0.1 is for 256 pictures an update")
    add("--warm-up", type=int, default=5, help="epochs in which it rises")
    add("--weight-decay", type=float, default=1e-4, help="not of biases and normalisations")
    add("--label-smoothing", type=float, default=0.1)
    add("--ema", type=float, metavar="DECAY", help="evaluate an average over time, such as of 0.9999")
    add("--workers", type=int, default=4, help="processes that read pictures, for each that trains")
    add("--seed", type=int, default=0)
    return parser.parse_args()


def at_least_one(text: str) -> int:
    """A positive whole number."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


def main() -> None:
    """Train as the command line says."""
    options = parse()
    process = Process.started()
    try:
        run(options, process)
    finally:
        if process.count > 1:
            distributed.destroy_process_group()


if __name__ == "__main__":
    main()
