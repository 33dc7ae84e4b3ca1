"""Graphs of several kernels: pieces that a kernel may be made of, the cut that CP-SAT chooses, and its build."""
