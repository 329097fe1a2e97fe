"""Networks beside ``torch.compile``: eager mode, compiled steps, and ours at the same peak and as small as can be.

    python -m benchmarks.execution.beside_compile [MODEL …] [--fuse] [--rounds 5] [--json FILE]

All in one run: peaks are measured, times are medians of steps that take turns. ``torch.compile`` is asked for three of
its activation budgets; the smallest of its peaks counts, and its time there. Models other than ours are Hugging Face's,
from configuration alone; only the loss leaves the step, as in a training loop that looks at nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

import explorer
from benchmarks.provenance import add_rows, record
from benchmarks.timing_in_turns import median_times_ms
from explorer.execution.steps import step_of, unchanged
from explorer.models import ModelSpec, model_spec
from explorer.models.gpt import GPT, GPTConfig
from explorer.models.transformers import LossAlone
from explorer.torch_private import activation_budget

_ROWS, _LENGTH, _WIDTH, _LAYERS, _HEADS = 4, 256, 256, 6, 8
_RATIOS = (1.0, 0.5, 0.0)
Made = tuple[nn.Module, Any]


class WithLoss(nn.Module):
    """A network and its loss: only that leaves the step."""

    def __init__(self, spec: ModelSpec) -> None:
        """Of a bundled model."""
        super().__init__()
        assert spec.loss is not None, "language models have theirs inside"
        self.model, self.loss = spec.build(), spec.loss

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return self.loss(self.model(source), target)


def gpt() -> Made:
    """Ours, with GPT-2's vocabulary."""
    config = GPTConfig(layers=_LAYERS, width=_WIDTH, heads=_HEADS, context=_LENGTH, dropout=0.0)
    return GPT(config), (_tokens(config.vocabulary), _tokens(config.vocabulary))


def llama() -> Made:
    """Like Llama: SwiGLU, RMSNorm, rotary positions; Llama 2's vocabulary."""
    return _of_hugging_face(
        "Llama",
        "ForCausalLM",
        hidden_size=_WIDTH,
        intermediate_size=3 * _WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        use_cache=False,
    )


def bert() -> Made:
    """Masked language model; BERT's vocabulary."""
    return _of_hugging_face(
        "Bert",
        "ForMaskedLM",
        hidden_size=_WIDTH,
        intermediate_size=4 * _WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def t5() -> Made:
    """Encoder and decoder; T5's vocabulary."""
    return _of_hugging_face(
        "T5",
        "ForConditionalGeneration",
        d_model=_WIDTH,
        d_ff=4 * _WIDTH,
        num_layers=_LAYERS // 2,
        num_heads=_HEADS,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        use_cache=False,
    )


def vit() -> Made:
    """Image classifier: ViT's patches of 16 x 16 pixels."""
    module = import_module("transformers")
    config = module.ViTConfig(
        hidden_size=_WIDTH, intermediate_size=4 * _WIDTH, num_hidden_layers=_LAYERS, num_attention_heads=_HEADS
    )
    config.num_labels = 1000
    batch = {"pixel_values": torch.randn(_ROWS, 3, 224, 224), "labels": torch.randint(0, 1000, (_ROWS,))}
    return LossAlone(module.ViTForImageClassification(config).train()), batch


def resnet50() -> Made:
    """Bottlenecks."""
    return _convolutional("resnet50", batch_size=8, image_size=64)


def mobilenet_v2() -> Made:
    """Depthwise convolutions."""
    return _convolutional("mobilenet_v2", batch_size=8, image_size=64)


def unet() -> Made:
    """Encoder and decoder with connections between them."""
    return _convolutional("unet", batch_size=2, image_size=(64, 96))


MODELS: dict[str, Callable[[], Made]] = {
    x.__name__: x for x in (gpt, llama, bert, t5, vit, resnet50, mobilenet_v2, unet)
}


@dataclass(frozen=True)
class Row:
    """One model; peaks in bytes as measured, times in ms.

    Attributes:
        model: its name.
        eager_bytes: plain PyTorch's peak.
        compiled_bytes: smallest peak of the compiled steps.
        least_bytes: at our smallest budget.
        at_compiled_bytes: ours within ``compiled_bytes``, None where we know no schedule.
        chosen_bytes: of a compiled step with our choice of what it saves, within ``compiled_bytes``; None if none is.
        eager_ms: a plain step.
        compiled_ms: the compiled step with the smallest peak.
        at_compiled_ms: ours at that peak.
        chosen_ms: the compiled step with our choice.
        least_ms: at our smallest budget.
        predicted: were both of our peaks as predicted, to the byte?
    """

    model: str
    eager_bytes: int
    compiled_bytes: int
    least_bytes: int
    at_compiled_bytes: int | None
    chosen_bytes: int | None
    eager_ms: float
    compiled_ms: float
    at_compiled_ms: float | None
    chosen_ms: float | None
    least_ms: float
    predicted: bool


def main() -> None:
    """Print a row for each model, and put them among those of a JSON file if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fuse", action="store_true", help="offer kernels for chains of calls, too")
    parser.add_argument("--json", type=Path, help="also put the rows here")
    options = parser.parse_args()
    run = record(options)
    print(
        f"{'model':>12} {'eager':>14} {'compiled':>14} {'ours there':>14} {'/compiled':>9}"
        f" {'ours, compiled':>14} {'/compiled':>9} {'ours, least':>14} {'/compiled':>9}   MiB, ms"
    )
    for name in options.models or MODELS:
        row = measured(name, fuse=options.fuse, rounds=options.rounds)
        show(row)
        if options.json:
            add_rows(options.json, [asdict(row)], run, by="model")


def measured(name: str, *, fuse: bool, rounds: int) -> Row:
    """Measure one model in all ways."""
    torch.manual_seed(0)
    model, batch = MODELS[name]()
    eager = explorer.measure(model, batch, steps=1)
    peaks = {x: explorer.measure_compiled(model, batch, activation_memory_budget=x, steps=1) for x in _RATIOS}
    ratio = min(peaks, key=lambda x: peaks[x].peak_bytes)
    compiled_bytes = peaks[ratio].peak_bytes
    profile = explorer.profile(model, batch, fuse=fuse)
    least = explorer.smallest_budget(profile)
    assert least.minimum is not None
    budgets = {"least": least.minimum.budget_bytes, "there": compiled_bytes}
    solutions = {x: explorer.solve(profile, budget=budget, remember=False) for x, budget in budgets.items()}
    modules = {
        x: explorer.apply(model, solution.schedule, batch, check=False)
        for x, solution in solutions.items()
        if solution.schedule is not None
    }
    ours = {x: explorer.measure(module, batch, steps=1).peak_bytes for x, module in modules.items()}
    chosen = chosen_within(model, batch, compiled_bytes)
    runs = {"eager": step_of(model, batch)} | {x: step_of(module, batch) for x, module in modules.items()}
    with unchanged(model):
        torch.compiler.reset()
        with activation_budget(ratio):
            compiled = torch.compile(model)
            assert isinstance(compiled, nn.Module)
            runs["compiled"] = step_of(compiled, batch)
            runs["compiled"]()
        if chosen is not None:
            runs["chosen"] = step_of(chosen.module, batch)
        for step in runs.values():
            step()
        times_ms = median_times_ms(runs, rounds=rounds)
    torch.compiler.reset()
    return Row(
        model=name,
        eager_bytes=eager.peak_bytes,
        compiled_bytes=compiled_bytes,
        least_bytes=ours["least"],
        at_compiled_bytes=ours.get("there"),
        chosen_bytes=None if chosen is None else chosen.measured_peak_bytes,
        eager_ms=times_ms["eager"],
        compiled_ms=times_ms["compiled"],
        at_compiled_ms=times_ms.get("there"),
        chosen_ms=times_ms.get("chosen"),
        least_ms=times_ms["least"],
        predicted=all(ours[x] == solutions[x].peak_bytes for x in ours),
    )


def chosen_within(model: nn.Module, batch: Any, budget_bytes: int) -> explorer.Compiled | None:
    """A compiled step with our choice of what it saves; None where none keeps the budget."""
    try:
        return explorer.compiled_within(model, batch, budget=budget_bytes)
    except ValueError as error:
        print(error, flush=True)
        return None


def show(row: Row) -> None:
    """Peaks and times of a model."""

    def cell(amount: int | None, time_ms: float | None) -> str:
        return f"{'none':>14}" if amount is None or time_ms is None else f"{amount / 2**20:7.1f} {time_ms:6.0f}"

    def beside(time_ms: float | None) -> str:
        return "" if time_ms is None else f"{time_ms / row.compiled_ms:.3f} x"

    print(
        f"{row.model:>12} {cell(row.eager_bytes, row.eager_ms)} {cell(row.compiled_bytes, row.compiled_ms)}"
        f" {cell(row.at_compiled_bytes, row.at_compiled_ms)} {beside(row.at_compiled_ms):>9}"
        f" {cell(row.chosen_bytes, row.chosen_ms)} {beside(row.chosen_ms):>9} {cell(row.least_bytes, row.least_ms)}"
        f" {row.least_bytes / row.compiled_bytes:9.3f}   {'as predicted' if row.predicted else 'NOT AS PREDICTED'}",
        flush=True,
    )


def _convolutional(name: str, **sizes: Any) -> Made:
    spec = model_spec(name)
    return WithLoss(spec), spec.batch(**sizes)


def _tokens(vocabulary: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (_ROWS, _LENGTH))


def _of_hugging_face(kind: str, head: str, **options: Any) -> Made:
    module = import_module("transformers")
    config = getattr(module, f"{kind}Config")(**options)
    tokens = _tokens(config.vocab_size)
    return LossAlone(getattr(module, kind + head)(config).train()), {"input_ids": tokens, "labels": tokens}


if __name__ == "__main__":
    main()
