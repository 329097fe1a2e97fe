"""What the notebooks of the course draw and count with; not part of the package, and imported from a clone."""
