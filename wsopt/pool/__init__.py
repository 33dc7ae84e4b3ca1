"""Work by many processes: those of this machine, or the workers of a cluster of machines."""
