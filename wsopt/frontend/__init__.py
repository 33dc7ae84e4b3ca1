"""From a graph to a region: axes, values, rewrites, and refusals with remedies."""
