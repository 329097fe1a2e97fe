"""Is this kernel the owner's own, or one that a page gives to its visitors?"""

from __future__ import annotations

import os

VARIABLE = "SCHEDULE_EXPLORER_VISITOR"
_VOILA = "VOILA_PREHEAT"  # which Voila sets in every kernel that it starts, whoever served the page


def for_visitors() -> bool:
    """May others than the owner of this machine's files be at the page?

    Said by the environment that the server starts the kernel with; nothing that comes from a page can change it.
    """
    return VARIABLE in os.environ or _VOILA in os.environ
