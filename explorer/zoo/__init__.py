"""Schedules that come with the package, for the bundled profiles, and what is proven of each."""
