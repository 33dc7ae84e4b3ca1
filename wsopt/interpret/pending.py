"""A product under way, as a register tensor sees the one that its values come from."""

from __future__ import annotations

from typing import Protocol

from wsopt.interpret.dtypes import Array


class Pending(Protocol):
    """An asynchronous wgmma from its issue on."""

    @property
    def what(self) -> str:
        """The product's name in errors: its instruction and its line in the kernel."""

    @property
    def retired(self) -> bool:
        """Has its partition waited for it?"""

    @property
    def values(self) -> Array:
        """The accumulator after it; InterpreterError before it was performed."""
