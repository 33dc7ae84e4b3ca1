"""How far a right kernel's results can be from the reference, element by element, and whether they are.

Written once for NumPy and for torch: the functions here take the array library as an argument and import none.
"""
