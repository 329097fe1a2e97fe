"""The figures and tables of the papers, made anew: MONeT, Checkmate, rotor and MODeL.

``notebooks/papers/`` shows them, a cell each; ``coverage`` lists them all. What takes minutes is made by
``python -m benchmarks.papers.full`` and stored in ``benchmarks/results/papers/`` with where it comes from.
"""
