"""How a command ends: in an exit code, at most one line of error, and at once."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from explorer.extras import MissingExtraError, needing
from explorer.harmless import in_terminal

_SOLVERS = "plan search", "prove", "search", "scip"  # names of threads


class Commands(TyperGroup):
    """Ends every command in an exit code and at most one line of error, never in a traceback."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """What is wrong before the name of a command is told too."""
        try:
            return super().make_context(*arguments, **more)
        except Exception as error:
            if getattr(error, "option_name", None) is None:  # the help, where there are no arguments
                raise
            complain("error", f"{error.format_message().rstrip('.')}; see 'schedule-explorer --help'")  # pyright: ignore[reportAttributeAccessIssue]
            raise typer.Exit(2) from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            with needing(f"schedule-explorer {ctx.invoked_subcommand or ''}".strip()):
                return super().invoke(ctx)
        except (ValueError, OSError, MissingExtraError) as error:
            complain("error", str(error))
            raise typer.Exit(2) from error
        except MemoryError as error:
            complain("failed", str(error) or "out of memory")
            raise typer.Exit(1) from error
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            # What is wrong with the command's own arguments; of which class depends on Typer's version.
            if (message := getattr(error, "format_message", None)) is not None:
                command = (getattr(error, "ctx", None) or ctx).command_path
                complain("error", f"{message().rstrip('.')}; see '{command} --help'")
                raise typer.Exit(2) from error
            last = traceback.extract_tb(error.__traceback__)[-1]
            complain("failed", f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}: {error}")
            raise typer.Exit(1) from error


def complain(kind: str, message: str) -> None:
    """Say on standard error what is wrong, on one line."""
    typer.echo(in_terminal(f"{kind}: {' '.join(message.split())}"), err=True)


def end_solvers() -> None:
    """End the process at once if a solver is still at work: all is written, and a compilation may take a minute."""
    busy = any(thread.name.startswith(_SOLVERS) for thread in threading.enumerate())
    ended = sys.exc_info()[1]
    if busy and isinstance(ended, SystemExit) and isinstance(ended.code, int | None):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code or 0)
