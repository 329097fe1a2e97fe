"""How an exported file looks: its lines, blocks and sections."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator

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


def filled(text: str) -> str:
    """A long line of numbers over several; one with text in it stays as it is."""
    if "\n" in text or "'" in text or len(text) <= WIDTH:
        return text
    name, _, value = text.partition("=")
    inner = textwrap.fill(value.removesuffix(",")[1:-1], WIDTH - 8, break_long_words=False)
    return f"{name}=(\n{textwrap.indent(inner, '    ')}\n),"


def wrapped(source: str) -> str:
    """Long lists of names over several lines; blank-free, as it is one step."""
    lines = []
    for line in source.splitlines():
        body = line.strip()
        if len(line) <= WIDTH:
            lines.append(line)
        elif body.endswith("= values"):
            lines += block("(", body.removesuffix(" = values"), ") = values")
        elif body.startswith("return ["):
            lines += block("return [", body.removeprefix("return [").removesuffix("]"), "]")
        elif body.startswith("given += ["):
            lines += block("given += [", body.removeprefix("given += [").removesuffix("]"), "]")
        elif body.startswith("del "):
            lines += block("del (", body.removeprefix("del "), ")")
        else:
            call, _, comment = line.partition("  # ")
            lines += [f"    # {comment}", call] if comment else [call]
    return "\n".join(lines)


def block(start: str, names: str, end: str) -> list[str]:
    """Names over several lines, between others."""
    inner = textwrap.fill(names.rstrip(", ") + ",", WIDTH - 8, break_long_words=False)
    return [f"    {start}", *textwrap.indent(inner, " " * 8).splitlines(), f"    {end}"]
