"""Error bounds of a right kernel's results, element by element, and the comparison with them.

Written once for NumPy and for torch: the functions here take the array library as an argument and import none.
"""
