"""The systems that a budget can be put to, and their comparison."""
