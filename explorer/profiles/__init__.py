"""Profiles from files: the bundled ones, which lie in this folder, saved ones, and MONeT's published instances."""
