"""The CP-SAT model of a tile program, bounds, and the search over structures."""
