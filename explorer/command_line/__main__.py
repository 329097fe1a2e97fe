"""The entry point of ``schedule-explorer``, where what the command is made of may be missing."""

from __future__ import annotations

import sys

from explorer.extras import MissingExtraError, needing


def main() -> None:
    """Run the command, or say what to install for it."""
    try:
        with needing("schedule-explorer as a command"):
            from explorer.command_line import commands
    except MissingExtraError as error:
        sys.exit(_refused(error))
    commands.main()


def _refused(error: MissingExtraError) -> int:
    sys.stderr.write(f"error: {error}\n")
    return 2


if __name__ == "__main__":
    main()
