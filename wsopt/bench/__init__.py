"""Times kernels beside the libraries that people use."""
