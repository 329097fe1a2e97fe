"""How an exported file looks: its lines, blocks and sections."""

from __future__ import annotations

import itertools
import sys
import tokenize
from collections.abc import Iterable, Iterator
from io import StringIO

WIDTH = 110


def imports(lines: Iterable[str]) -> Iterator[str]:
    """The standard library's, then others'; what comes from one module in one line."""
    whole: set[str] = set()
    parts: dict[str, set[str]] = {}
    for line in lines:
        if line.startswith("import "):
            whole.add(line)
        else:
            _, module, _, name = line.split(" ", 3)
            parts.setdefault(module, set()).add(name)
    every = [*sorted(whole), *(f"from {x} import {', '.join(sorted(parts[x]))}" for x in sorted(parts))]
    standard = [x for x in every if x.split()[1].partition(".")[0] in sys.stdlib_module_names]
    yield "\n".join(standard)
    yield "\n".join(x for x in every if x not in standard)


_ENTER = """\
# Dataclasses look up their module by its name, also where what loads this file has not entered it there.
_for_dataclasses = type(sys)(__name__)
sys.modules.setdefault(__name__, _for_dataclasses)
"""
_LEAVE = """\
if sys.modules[__name__] is _for_dataclasses:
    del sys.modules[__name__]
"""


def loadable(head: str, rest: str) -> str:
    """A file with dataclasses: its imports, ``sys`` among them, and the rest. It loads by ``exec_module`` alone too."""
    return f"{head.rstrip()}\n\n{_ENTER}\n\n{rest.strip()}\n\n{_LEAVE}"


def section(title: str) -> str:
    """A line that begins one."""
    return f"# {title} {'-' * (WIDTH - 3 - len(title))}"


def rows(name: str, lines: list[str]) -> str:
    """A tuple, a line for each part."""
    inner = "".join(f"    {x},\n" for x in lines)
    return f"{name}=(\n{inner})," if lines else f"{name}=(),"


def wrapped(source: str) -> str:
    """Lines that are too long over several; what is freed together in one statement."""
    lines: list[str] = []
    for line in source.splitlines():
        if line.lstrip().startswith("del ") and lines and lines[-1].lstrip().startswith("del "):
            lines[-1] += f", {line.strip().removeprefix('del ')}"
        else:
            lines.append(line)
    return "\n".join(x for line in lines for x in broken(line))


def broken(line: str) -> list[str]:
    """A line, over several where it is too long: behind the commas of its longest brackets, its comment above."""
    if len(line) <= WIDTH:
        return [line]
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    tokens = [x for x in tokenize.generate_tokens(StringIO(text).readline) if x.string.strip()]
    if tokens[-1].type == tokenize.COMMENT:
        at = tokens[-1].start[1]
        return [f"{indent}{text[at:]}", *broken(indent + text[:at].rstrip())]
    start, end, commas = _longest_brackets(tokens)
    if not end:
        return _in_brackets(indent, text)
    head, inside, tail = text[:start], text[start:end], text[end:]
    edges = [0, *(x - start for x in commas), len(inside)]
    pieces = [inside[x:y].strip() for x, y in itertools.pairwise(edges)]
    lines = [indent + head]
    if len(lines[0]) > WIDTH and " = " in head:
        names, _, called = head.partition(" = ")
        before = names.replace(", ", ",\n").splitlines()
        lines = [f"{indent}(", *_filled(before, f"{indent}    "), f"{indent}) = {called}"]
    return [*lines, *_filled([x for x in pieces if x], f"{indent}    "), indent + tail]


def _in_brackets(indent: str, text: str) -> list[str]:
    """Names without brackets, in some."""
    if text.endswith(" = values"):
        return broken(f"{indent}({text.removesuffix(' = values')}) = values")
    if text.startswith("del "):
        return broken(f"{indent}del ({text.removeprefix('del ')})")
    return [indent + text]


def _longest_brackets(tokens: list[tokenize.TokenInfo]) -> tuple[int, int, list[int]]:
    """Where the insides of a line's longest brackets begin and end, and where the commas within end; 0 without any."""
    depth = start = 0
    commas: list[int] = []
    longest: tuple[int, int, list[int]] = 0, 0, []
    for token in tokens:
        if token.string in "([{":
            depth += 1
            if depth == 1:
                start, commas = token.end[1], []
        elif token.string in ")]}":
            depth -= 1
            if not depth and token.start[1] - start > longest[1] - longest[0]:
                longest = start, token.start[1], commas
        elif token.string == "," and depth == 1:
            commas.append(token.end[1])
    return longest


def _filled(pieces: list[str], indent: str) -> list[str]:
    """Pieces one behind the other, in as few lines as they fit into; the last has a comma as the others have."""
    lines = [""]
    for number, piece in enumerate(pieces, start=1):
        last = number == len(pieces) and len(pieces) > 1 and not piece.endswith(",")
        word = f"{piece}," if last else piece
        if len(indent) + len(word) > WIDTH:
            lines += [*broken(indent + word), ""]
            continue
        if lines[-1] and len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else indent + word
    return [x for x in lines if x]
