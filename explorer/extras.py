"""Packages that an extra brings: one clear sentence where a feature needs one that is not installed.

The package alone needs torch and NumPy, so that a machine that trains takes on nothing else: docs/install.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

WHOLE = "explorer"
"""The extra that brings all that the explorer is, in notebooks and as a command."""
EXTRA_OF = {
    "anywidget": "notebook",
    "ipywidgets": "notebook",
    "jupyterlab": "notebook",
    "plotly": "notebook",
    "traitlets": "notebook",
    "voila": "notebook",
    "cvxpy": "solve",
    "highspy": "solve",
    "networkx": "solve",
    "numba": "solve",
    "platformdirs": "solve",
    "pyscipopt": "solve",
    "scipy": "solve",
    "yaml": "solve",
    "distributed": "sweep",
    "psutil": "sweep",
    "pyarrow": "sweep",
    "rich": "command",
    "typer": "command",
}
"""Each package, by the name that is imported, to the extra of ours that brings it."""


class MissingExtraError(ImportError):
    """A feature needs a package that is not installed; the message says what to install."""


@contextmanager
def needing(feature: str, *, extra: str | None = None) -> Iterator[None]:
    """Around imports for ``feature``: a missing package is named together with the extra that brings it.

    Args:
        feature: what needs them, for the message.
        extra: to be named instead of that of the first package that is missing.

    Raises:
        MissingExtraError: one of ``EXTRA_OF`` is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise _missing(feature, package, extra or EXTRA_OF[package]) from error


def check_installed(package: str, *, feature: str, extra: str | None = None) -> None:
    """Refuse at once where ``package`` would be missed later, in another process say.

    Raises:
        MissingExtraError: it is not installed.
    """
    if find_spec(package) is None:
        raise _missing(feature, package, extra or EXTRA_OF[package])


def _missing(feature: str, package: str, extra: str) -> MissingExtraError:
    return MissingExtraError(
        f"{feature} needs {package}, which is not installed: pip install 'schedule-explorer[{extra}]'", name=package
    )
