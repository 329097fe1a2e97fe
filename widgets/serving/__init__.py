"""The explorer as a page for visitors."""
