"""The parts of the page that panels and controls are put together from, each with its script in ``frontend``."""
