"""What kernels are written for: one record an architecture, and the record of a machine."""

from wsopt.targets.target import Sums, Target
from wsopt.targets.targets import HOPPER, TARGETS, target_of

__all__ = ["HOPPER", "TARGETS", "Sums", "Target", "target_of"]
