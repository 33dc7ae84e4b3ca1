"""Kernels for graphs with named dimensions: few of them that together cover the ranges, and a build of several."""
