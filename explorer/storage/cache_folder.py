"""Where this package keeps what it found out, between processes."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "SCHEDULE_EXPLORER_CACHE"


def cache_folder() -> Path | None:
    """The user's cache folder, or what ``SCHEDULE_EXPLORER_CACHE`` says; None where that is ``off``.

    None too where platformdirs is not installed, as on a machine that only profiles and runs: docs/install.md.
    """
    said = os.environ.get(VARIABLE, "")
    if said and said != "off":
        return Path(said).expanduser()
    if said == "off" or find_spec("platformdirs") is None:
        return None
    import platformdirs

    return platformdirs.user_cache_path("schedule-explorer")
