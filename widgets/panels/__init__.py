"""The panels of an explorer: each a part of the page, drawn from a scene."""
