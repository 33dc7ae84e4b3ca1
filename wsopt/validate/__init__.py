"""Validation: measures schedules that the model thinks good and bad, and holds its predictions against them.

`select` chooses diverse structures and `make` turns them into kernels, with an index of predictions; `measure`
and `worker` time them where only torch and triton are installed; `statistics`, `report` and `plot` say how far
the model is to be trusted. Importing it needs none of OR-Tools, torch, triton and matplotlib.
"""
