"""How compiled kernels are called."""
