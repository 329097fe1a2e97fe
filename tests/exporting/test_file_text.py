"""How exported files look: names that are defined, lines that fit, words about both passes."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from explorer.exporting.layout import WIDTH, broken, wrapped
from explorer.exporting.sources import Sources
from explorer.operators.convolution_algorithms import stand_in
from tests.exporting.test_export import batch, exported, file_of, small


def check_text(path: Path) -> str:
    """The text of a file, of which every name is defined, in annotations too, and every line fits."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F,E9,E501", "--line-length", "120"]
    ran = subprocess.run([*command, str(path)], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    module = exported(path)
    own = [x for x in vars(module).values() if getattr(x, "__module__", None) == module.__name__]
    for kind in filter(inspect.isclass, own):
        own += [x for x in vars(kind).values() if inspect.isfunction(x)]
    for found in own:
        if inspect.isclass(found) or inspect.isfunction(found):
            get_type_hints(found, vars(module))
    return path.read_text(encoding="utf-8")


class Blocks(nn.Module):
    """Convolutions, normalisations, and a sum that is in no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.1))
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.block(x)
        first, second = x.split(4, dim=-1)
        return self.head((first * second).mean((2, 3)))


def image_batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 3, 8, 8), torch.tensor([0, 2])


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_every_name_is_defined(seed: int | None, tmp_path: Path) -> None:
    text = check_text(file_of(tmp_path, Blocks(), image_batch(), loss=F.cross_entropy, seed=seed))
    assert "_ = None" not in text and ", = " not in text.replace("(x,) = ", "")
    assert "  # after block.2" in text  # the sum
    assert "gradient_of_stem_0_weight" in text and "_1_2_2" not in text
    assert "# update_buffers" not in text
    for name in ("forward", "backward"):
        assert f"def {name}(values: list[" in text


def test_partial_passes_say_for_which_results_they_are(tmp_path: Path) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.first(x), self.second(x)

    text = check_text(file_of(tmp_path, Pair(), torch.randn(2, 4)))
    assert '"""The backward pass of a step in which gradients came for result 0 alone.' in text


def test_a_file_has_a_second_definition_of_a_type_under_its_own_name() -> None:
    found = Sources({"Sizes"})
    assert found.name_of(stand_in) == "stand_in"
    assert "Sizes_2 = Sequence[int]" in found.constants
    assert "shape: Sizes_2, strides: Sizes_2 | None" in found.functions[-1]


@pytest.mark.parametrize(
    "line",
    [
        f"    {', '.join(f'name_{x}' for x in range(40))} = aten.split.Tensor(x, 'a, (b', [1, 2], 3)  # some, (layer",
        f"    x = aten.cat.default([{', '.join(f'name_{x}' for x in range(60))}], 1)",
        f"    del {', '.join(f'name_{x}' for x in range(40))}",
        f"    {', '.join(f'name_{x}' for x in range(40))} = values",
        f"    x = f({', '.join(f'name_{x}' for x in range(40))})[2]",
    ],
)
def test_long_lines_are_broken_where_python_allows(line: str) -> None:
    lines = broken(line)
    assert len(lines) > 1 and max(map(len, lines)) <= WIDTH
    before, after = (compile(f"def f():\n{x}", "", "exec") for x in (line, "\n".join(lines)))
    (one,), (two,) = ([x for x in code.co_consts if hasattr(x, "co_code")] for code in (before, after))
    assert one.co_code == two.co_code and one.co_names == two.co_names and one.co_consts == two.co_consts


def test_what_is_freed_together_is_in_one_statement() -> None:
    assert wrapped("    del a\n    del b, c\n    yield\n    del d") == "    del a, b, c\n    yield\n    del d"


def test_a_file_of_a_small_model_is_short(tmp_path: Path) -> None:
    text = file_of(tmp_path, small(), batch(), loss=F.cross_entropy).read_text(encoding="utf-8")
    shown: Any = text.partition("modules=(")[2].splitlines()[1:6]
    assert shown[1].strip() == "('Linear', {}, ('0', '3')),"


class _InParts(nn.Module):
    """Takes its first input, and a sum, apart."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, 1)
        up, down = (x + y).unbind(0)
        return self.head(left * right + y[:, :4]).sum() + (up * down).sum()


def test_parts_of_a_batch_have_names(tmp_path: Path) -> None:
    text = check_text(file_of(tmp_path, _InParts(), (torch.randn(2, 8), torch.randn(2, 8))))
    assert "batch_0" in text
