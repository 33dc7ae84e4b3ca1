"""From a region and a structure to a tile program."""
