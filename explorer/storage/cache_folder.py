"""Where this package keeps what it found out, between processes."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "SCHEDULE_EXPLORER_CACHE"


def cache_folder() -> Path | None:
    """The user's cache folder, or what ``SCHEDULE_EXPLORER_CACHE`` says; None where that is ``off``."""
    said = os.environ.get(VARIABLE, "")
    if said == "off":
        return None
    import platformdirs

    return Path(said) if said else platformdirs.user_cache_path("schedule-explorer")
