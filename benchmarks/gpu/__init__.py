"""What there is to measure on a CUDA device."""
