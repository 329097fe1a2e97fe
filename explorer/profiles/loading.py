"""Profiles by path or name: saved ones, published ones, and those that come with the package."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from explorer.arguments import a_path
from explorer.device_profile import SCHEMA, Profile
from explorer.profiles.published import is_published, profile_of
from explorer.storage import storage_format

BUNDLED_FOR = "a100-80gb"
"""Whose profile a model's name alone stands for."""
PRECISIONS = {"p100-16gb": "float32", "a100-80gb": "tf32"}
"""What bundled estimates of models in float32 were made in, by device, as ``explorer.estimate`` takes it."""


def load_profile(path: str | Path) -> Profile:
    """Read a profile; needs neither torch nor the model.

    Args:
        path: a file that ``Profile.save`` wrote, the name of a bundled profile, or a published instance of MONeT's.

    Raises:
        ValueError: no such file or bundled name, or the file is truncated, changed or of another version.
    """
    path = a_path(path, instead=", or the name of a bundled profile")
    if path.suffix == "" and not path.is_file():
        return storage_format.read(bundled_path(str(path)), Profile, schema=SCHEMA)
    document = storage_format.parse(path)
    if is_published(document):
        return profile_of(document)
    return storage_format.read_document(document, Profile, schema=SCHEMA, origin=str(path))


def bundled_path(name: str) -> Path:
    """Where the bundled profile ``name`` lies.

    Args:
        name: a file's name without its suffixes (``"resnet50-p100-16gb"``), or that of a model alone, which stands
            for its profile on the device that ``BUNDLED_FOR`` names.

    Raises:
        ValueError: there is none of that name; lists the models there are.
    """
    known = bundled_profiles()
    path = known.get(name) or known.get(f"{name}-{BUNDLED_FOR}")
    if path is None:
        models = dict.fromkeys(map(bundled_model, known))
        close = get_close_matches(name, known, n=2)
        raise ValueError(
            f"no bundled profile {name!r}; bundled: {', '.join(map(repr, models)) or 'none'}, also with their devices "
            f"({', '.join(map(repr, list(known)[:2]))} …; schedule-explorer profiles lists them all)"
            + (f"; did you mean {' or '.join(map(repr, close))}?" if close else "")
        )
    return path


def bundled_profiles() -> dict[str, Path]:
    """Every profile that comes with the package, by name."""
    folder = Path(__file__).parent
    return {x.name.removesuffix(".json.gz"): x for x in sorted(folder.glob("*.json.gz"))}


def bundled_model(name: str) -> str:
    """The model, as ``explorer.models.model_spec`` knows it, of a bundled profile."""
    return name.partition("-")[0]
