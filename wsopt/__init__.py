"""wsopt: warp-specialized GPU schedules found by constraint solving."""

__version__ = "0.1.0"
