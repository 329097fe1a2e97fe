"""A CUDA device that is not there: what a CPU build of PyTorch needs to capture and run steps on fake CUDA tensors."""
