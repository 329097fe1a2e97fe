"""Checkmate (Jain et al., MLSys 2020): optimal rematerialisation by integer programming, its rounding, its baselines.

``nodes``: the step as it sees it; ``recomputing``: its optimal recomputation for given checkpoints; ``cells``,
``program``: its integer program (section 4.5); ``solving``: answers.
"""
