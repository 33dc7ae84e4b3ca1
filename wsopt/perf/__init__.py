"""What a program costs on a machine, and the formula of its time."""
