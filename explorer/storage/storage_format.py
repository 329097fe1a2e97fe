"""JSON files that notice truncation and tampering.

A file is one JSON object: ``kind``, ``schema`` (version), ``checksum`` over the content, and ``content``. Where its
name ends in ``.gz`` it is compressed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any, TypeVar

from explorer.storage.conversion import WrongContentError, from_plain, to_plain
from explorer.storage.replacing import replacing
from explorer.units import shown

T = TypeVar("T")

_MOST_BYTES = 2**25
"""Of a file, unpacked: fifteen times what a network of 3,400 operators takes, and what is made of it fits a GB."""
_LOADERS = {
    "Profile": "; explorer.load_profile reads it",
    "Schedule": "; explorer.load_schedule reads it",
}


def write(path: str | Path, value: Any, *, schema: int) -> None:
    """Write ``value`` under its class name, with a checksum; replaces the file in one step."""
    data = text_of(value, schema=schema).encode()
    with replacing(path) as fresh:
        # Without the time, so that equal values make equal files.
        fresh.write_bytes(gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def text_of(value: Any, *, schema: int) -> str:
    """What ``write`` writes."""
    content = to_plain(value)
    document = {"kind": type(value).__name__, "schema": schema, "checksum": _checksum(content), "content": content}
    return json.dumps(document, separators=(",", ":"))


def parse(path: str | Path) -> Any:
    """Whatever JSON a file holds.

    Raises:
        ValueError: the file is missing, or truncated, or no JSON, or larger than any that was saved.
    """
    opened = gzip.open if Path(path).suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)  # a few MB can unpack to gigabytes
        if len(data) <= _MOST_BYTES:
            return json.loads(data)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not complete JSON ({error}): truncated, or not a saved file") from error
    except ValueError as error:  # a number of thousands of digits
        raise ValueError(f"{path} holds a number that there cannot be: one of too many digits") from error
    raise ValueError(f"{path} is too large; allowed: {_MOST_BYTES // 2**20} MiB, unpacked")


def read(path: str | Path, kind: type[T], *, schema: int) -> T:
    """Read what ``write`` wrote.

    Raises:
        ValueError: the file is missing, truncated, of another kind or version, changed since it was written, or
            its content is not a valid ``kind``.
    """
    document = parse(path)
    return read_document(document, kind, schema=schema, origin=str(path))


def read_document(document: Any, kind: type[T], *, schema: int, origin: str) -> T:
    """As ``read``, from what ``parse`` returned."""
    if not isinstance(document, dict) or document.get("kind") != kind.__name__:
        found = document.get("kind") if isinstance(document, dict) else type(document).__name__
        loader = _LOADERS.get(found, "") if isinstance(found, str) else ""
        raise ValueError(f"{origin} holds {shown(found)}, not a {kind.__name__}{loader}")
    if type(document.get("schema")) is not int or document["schema"] != schema:
        raise ValueError(f"{origin} has schema version {shown(document.get('schema'))}; this version reads {schema}")
    content = document.get("content")
    # An edit by hand is welcome: whoever deletes the checksum says that it was meant.
    if "checksum" in document and document["checksum"] != _checksum(content):
        raise ValueError(
            f"{origin} was changed after it was written (its checksum does not match); write it again, or delete "
            "its 'checksum' entry if the edit was yours"
        )
    return from_content(content, kind, origin=origin)


def from_content(content: Any, kind: type[T], *, origin: str) -> T:
    """Plain JSON types back to a ``kind``.

    Raises:
        ValueError: naming ``origin`` and the first entry that is wrong.
    """
    try:
        return from_plain(content, kind)
    except WrongContentError as error:
        raise ValueError(f"{origin} is not a valid {kind.__name__}: {error}") from error


def _checksum(content: Any) -> str:
    try:
        canonical = json.dumps(content, separators=(",", ":"), sort_keys=True)
    except RecursionError as error:
        raise ValueError("the content of a file is nested deeper than any that was saved") from error
    return hashlib.sha256(canonical.encode()).hexdigest()
