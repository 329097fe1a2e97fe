"""What users choose: what to explore, a budget, options of the solver, curves to compare with."""
