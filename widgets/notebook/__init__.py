"""An explorer in a notebook's cells."""
