"""From a graph to a region: axes, values, rewrites, and what of a graph one kernel takes."""
