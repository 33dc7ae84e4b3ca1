"""What the space of schedules does not hold, and what each limit of the emitter costs: `python -m wsopt.space`."""
