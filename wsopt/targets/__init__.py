"""Targets of kernels: one record for each architecture, and the lookup by machine."""

from wsopt.targets.targets import HOPPER, TARGETS, LoopKind, Operands, Sums, Target, target_of

__all__ = ["HOPPER", "TARGETS", "LoopKind", "Operands", "Sums", "Target", "target_of"]
