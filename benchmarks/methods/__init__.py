"""Other systems beside the solver, and sets of implementations beside each other."""
