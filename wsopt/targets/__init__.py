"""Targets of kernels: one record for each architecture, and the lookup by machine."""

from wsopt.targets.target import Sums, Target
from wsopt.targets.targets import HOPPER, TARGETS, target_of

__all__ = ["HOPPER", "TARGETS", "Sums", "Target", "target_of"]
