"""The ``schedule-explorer`` command."""
