"""The text of a file that tells ``torch.compile`` what to save, on torch alone."""

from __future__ import annotations

import inspect
import textwrap

from explorer.compiling import Compiled, partitioning
from explorer.exporting.layout import WIDTH, loadable, section
from explorer.harmless import in_docstring
from explorer.units import format_bytes

FIRST_WORDS = "What torch.compile saves of"
_LAYOUTS = {
    True: "Convolutions run with the channels of a pixel side by side, in the backward pass, too, where the compiler "
    "would copy gradients and pictures into other layouts if it was not told.",
    False: "Convolutions run with tensors laid out as the model has them, not in the compiler's own way on a CPU, "
    "which puts the channels of a pixel side by side, and copies weights and their gradients for it.",
}
_SCHEDULED = '''

def scheduled(model: nn.Module) -> nn.Module:
    """The model, compiled with what is saved as above; train it in any loop, with its own parameters."""
    return compiled(model, CHOICE)
'''
_SCHEDULED_WITH_LOSS = '''

def scheduled(model: nn.Module, loss: Any) -> nn.Module:
    """Model and loss, compiled with what is saved as above; train it in any loop, with the model's own parameters.

    The loss must be the one that the plan was made with.
    """
    return compiled(Step(model, loss), CHOICE)
'''


def compiled_text(made: Compiled, *, with_loss: bool) -> str:
    """All of the file.

    Args:
        made: what is said; its module is not run.
        with_loss: the loss is not the model's own.
    """
    source = inspect.getsource(partitioning)
    imports = source[source.index("from __future__") : source.index("\n\n@dataclass")]
    functions = source[source.index("@dataclass") :]
    choice = made.choice
    table = [
        "CHOICE = Choice(",
        f"    graph={choice.graph!r},",
        *_names("inputs", choice.inputs),
        *_names("saved", choice.saved),
        *_names("again", choice.again),
        f"    torch_version={choice.torch_version!r},",
        f"    channels_last={choice.channels_last},",
        ")",
    ]
    imports = imports.replace("import hashlib\n", "import hashlib\nimport sys\n")
    head = f'"""{_words(made, with_loss=with_loss)}"""\n\n{imports}'
    parts = [
        section("how it is said to PyTorch's partitioner") + "\n\n",
        functions.rstrip() + "\n\n",
        section("what is saved, and what is computed again"),
        "# Nodes of the graph that the compiler traces, in order.",
        "\n".join(table),
        (_SCHEDULED_WITH_LOSS if with_loss else _SCHEDULED).rstrip(),
    ]
    return loadable(head, "\n".join(parts))


def _names(name: str, values: tuple[str, ...]) -> list[str]:
    if not values:
        return [f"    {name}=(),"]
    lines = [""]
    for value in values:
        word = f"{value!r},"
        if lines[-1] and len(lines[-1]) + 1 + len(word) > WIDTH - 8:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [f"    {name}=(", *(f"        {x}" for x in lines), "    ),"]


def _words(made: Compiled, *, with_loss: bool) -> str:
    schedule = made.schedule
    use = "scheduled(model, loss)  # called with (inputs, target)" if with_loss else "scheduled(model)"
    said = [
        _wrapped(f"{FIRST_WORDS} {schedule.identity.model}, after a schedule: {schedule.method}."),
        f"    model = {use}",
        _wrapped(
            f"{len(made.saved)} results are saved for the backward pass; a peak of "
            f"{format_bytes(made.predicted_peak_bytes)} is predicted, model and batch included"
            f"{_budget(made)}. The compiler decides on the rest of what is in memory, and compiled steps of "
            "small networks were up to a quarter above what was predicted, of products of many matrices at once "
            "(einsum over experts) up to 60 %: measure a step before you rely on it."
        ),
    ]
    if made.choice.channels_last is not None:
        said.append(_wrapped(_LAYOUTS[made.choice.channels_last]))
    if made.unsaid:
        points = "\n".join(_wrapped(f"* {x}.") for x in made.unsaid)
        said.append(f"What the schedule has and this form cannot say:\n{points}")
    said.append(
        _wrapped(
            f"Made with and for torch {made.choice.torch_version}. Under another version it runs if that traces the "
            "same graph, and says so at the first step if not. Batches of other shapes are refused."
        )
    )
    return "\n\n".join(said) + "\n"


def _budget(made: Compiled) -> str:
    budget = "" if made.budget_bytes is None else f", of the schedule's budget of {format_bytes(made.budget_bytes)}"
    peak = "" if made.measured_peak_bytes is None else f", and {format_bytes(made.measured_peak_bytes)} was measured"
    return budget + peak


def _wrapped(text: str) -> str:
    return "\n".join(map(in_docstring, textwrap.wrap(text, WIDTH, break_long_words=True, break_on_hyphens=False)))
