"""Faults that the interpreter finds in an emitted kernel."""

from __future__ import annotations

from wsopt.errors import CheckError


class KernelFault(CheckError):
    """Base of the faults; raised without a place, which the partition that hit it adds with `located`."""

    placed = False

    def located(self, place: str) -> KernelFault:
        """Return the fault with `place: ` before its text; a fault that has a place keeps it."""
        if self.placed:
            return self
        fault = type(self)(f"{place}: {self}")
        fault.placed = True
        return fault


class RaceError(KernelFault):
    """Memory was touched without the order that makes it safe, even if this interleaving was lucky."""


class DeadlockError(KernelFault):
    """No partition can go on, or the kernel does not end."""


class BarrierError(KernelFault):
    """An mbarrier was used against its count, its expected bytes or its lifetime."""


class InterpreterError(KernelFault):
    """The source asks for something that Triton would refuse or that the interpreter does not know."""


SOURCE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What Python raises for a fault in the source that it runs; becomes an InterpreterError with the source's line."""
