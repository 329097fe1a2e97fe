"""MONeT's integer programs: as the paper writes them, and merged, grouped and incremental for interactive use."""
