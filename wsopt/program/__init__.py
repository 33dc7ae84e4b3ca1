"""The tile program: what a block does, as frozen data, and the structures that a region is cut to."""
