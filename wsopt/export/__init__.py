"""Writes a build as a cubin, a description of its launch, and a C++ launcher: no Python where the kernel runs."""
