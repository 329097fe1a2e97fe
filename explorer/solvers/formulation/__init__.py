"""MONeT's integer programs: the grouped one, those for bounds, and the paper's own."""
