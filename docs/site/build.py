"""Builds the site: notebooks executed, the reference from docstrings, links checked; opens from disk.

    python docs/site/build.py [--output build/site] [--only course papers …] [--as-they-are]

Needs the extra ``docs``. What is executed is kept in ``build/notebooks`` until a notebook or the code changes;
``--only`` executes those whose path has one of the words, ``--as-they-are`` none, and shows the others without outputs.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import plotly
from executing import executed, still
from links import broken

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
KEPT = ROOT / "build" / "notebooks"
STAGE = ROOT / "build" / "stage"
STATIC = ROOT / "build" / "static"
CODE = ("explorer", "widgets", "teaching", "benchmarks")
IN_A_BROWSER = ("app",)
"""Notebooks that are pages of their own, and have nothing to show here."""

SECTIONS = {
    "Capture and profile": ("profile", "profile_compiled", "estimate", "load_profile", "Profile", "TrainingGraph"),
    "Solve": ("solve", "smallest_budget", "trade_off", "largest_batch", "largest_sequence", "SolveSession"),
    "Schedules and what they take": (
        "Solution",
        "Status",
        "Schedule",
        "keep_all",
        "load_schedule",
        "simulate",
        "Timeline",
    ),
    "Addresses": ("place", "Placement"),
    "Run": (
        "apply",
        "ScheduledModule",
        "add_schedule",
        "update_within",
        "export",
        "selective_schedule",
        "compiled_schedule",
        "compiled",
        "compiled_within",
        "Compiled",
    ),
    "Measure": ("measure", "measure_runs", "measure_compiled", "Measurement", "residual", "residual_by_run"),
    "Explain": ("explain", "explain_all", "explain_operator", "memory_price"),
    "Explore": ("explore", "Explorer"),
    "Sweeps": ("sweep", "Sweep", "load_sweep"),
    "Units": ("format_bytes", "parse_bytes"),
}
"""Of the reference; a name of ``explorer`` that is in none of them is an error."""


def main() -> None:
    """Build, check, and say where the site is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD")
    parser.add_argument("--as-they-are", action="store_true")
    arguments = parser.parse_args()
    stage()
    notebooks(arguments.only, execute=not arguments.as_they_are)
    reference()
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-c",
        str(HERE),
        str(STAGE),
        str(arguments.output),
    ]
    subprocess.run(command, check=True, cwd=ROOT)
    wrong = broken(arguments.output)
    for link in wrong:
        print(link)
    if wrong:
        sys.exit(f"{len(wrong)} links lead nowhere")
    print(f"The site: {(arguments.output / 'index.html').as_uri()}")


def stage() -> None:
    """All that is tracked, for pages link to files of the code too, and what the theme needs besides."""
    shutil.rmtree(STAGE, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (STAGE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, STAGE / name)
    shutil.copy2(HERE / "index.md", STAGE)
    STATIC.mkdir(exist_ok=True)
    shutil.copy2(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", STATIC)
    shutil.copy2(HERE / "site.css", STATIC)


def notebooks(words: list[str], *, execute: bool) -> None:
    """Put executed notebooks in the place of those without outputs."""
    code = hashlib.sha256()
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            code.update(path.read_bytes())
    KEPT.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        name = path.relative_to(ROOT)
        if path.stem in IN_A_BROWSER or not execute or (words and not any(x in str(name) for x in words)):
            continue
        key = hashlib.sha256(path.read_bytes() + code.digest()).hexdigest()[:16]
        kept = KEPT / f"{path.stem}-{key}.ipynb"
        if not kept.exists():
            print("executing", name, flush=True)
            for old in KEPT.glob(f"{path.stem}-*.ipynb"):
                old.unlink()
            nbformat.write(executed(path, root=ROOT), kept)
        nbformat.write(still(nbformat.read(kept, as_version=4)), STAGE / name)


def reference() -> None:
    """A page for each section, with every public name."""
    import explorer

    known = [x for names in SECTIONS.values() for x in names]
    if missing := set(explorer.__all__) ^ set(known):
        raise SystemExit(f"SECTIONS and explorer.__all__ differ in {', '.join(sorted(missing))}")
    folder = STAGE / "api"
    folder.mkdir()
    pages = []
    for title, names in SECTIONS.items():
        page = title.lower().replace(" ", "-")
        pages.append(page)
        parts = [f"# {title}\n"]
        for name in names:
            kind = "class" if isinstance(getattr(explorer, name), type) else "function"
            options = "   :members:\n   :member-order: bysource\n" if kind == "class" else ""
            parts.append(f"```{{eval-rst}}\n.. auto{kind}:: explorer.{name}\n{options}```\n")
        (folder / f"{page}.md").write_text("\n".join(parts), encoding="utf-8")
    listed = "\n".join(pages)
    head = "# Reference\n\nEvery public name, with its signature, from the docstrings: `import explorer`.\n\n"
    (folder / "index.md").write_text(f"{head}```{{toctree}}\n:maxdepth: 2\n\n{listed}\n```\n", encoding="utf-8")


if __name__ == "__main__":
    main()
