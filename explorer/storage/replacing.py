"""Files that are there whole, or as they were."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A file to write to, which then takes the place of ``path`` in one step.

    It is a new one of its own name, so that two processes may write at once: what is there then is that of one of them.
    Behind a symbolic link it is the file meant that is replaced. What is no regular file (a pipe, ``/dev/null``) is
    written to itself.

    Raises:
        OSError: it cannot be written; names ``path``.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    fresh = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        yield fresh
        fresh.replace(target)
    except OSError as error:
        if error.filename is None or Path(error.filename) != fresh:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        fresh.unlink(missing_ok=True)
