"""Cost of a tile program on a machine, and the formula of its time."""
