"""Measures kernels beside what people use."""
