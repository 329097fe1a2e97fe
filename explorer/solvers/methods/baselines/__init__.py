"""The heuristics that Checkmate compares itself with (its section 5.1 and Table 1)."""
