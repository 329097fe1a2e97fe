"""The package as people install it: built, put into clean environments, and used there."""
