"""Names of operations and of tiles, as typed keys: what something is, of what, of which consumer, of which K-block.

Their text is what people, models and recorded schedules call them. Whoever has a text looks up whose it is; nobody
reads anything out of it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import StrEnum


class OpKind(StrEnum):
    """The closed set of tile operations; what is ADDED to it is named by its subject (`lowering/kinds.py`)."""

    TMA_LOAD = "tma_load"
    MMA = "mma"
    RELEASE = "release"
    ACCUMULATE = "accumulate"
    ELEMENTWISE = "elementwise"
    RESCALE = "rescale"
    EPILOGUE = "epilogue"
    TMA_STORE = "tma_store"
    ADDED = "added"


class Unit(StrEnum):
    """What tile operations of a block compete for, besides the issue slots of their partition (`units.py`)."""

    TENSOR = "tensor"
    TMA = "tma"
    ALU = "alu"
    FMA = "fma"
    MUFU = "mufu"
    SHARED = "shared"
    MEMORY = "memory"


class ValueKind(StrEnum):
    """What a tile is: a copy of a tensor's, which a slot of a ring or the block holds; partial sums, sums, or values
    in a consumer's registers.
    """

    TILE = "tile"
    STATIONARY = "stationary"
    PARTIAL = "partial"
    SUM = "sum"
    VALUE = "value"


_WORDS = {
    OpKind.TMA_LOAD: "load",
    OpKind.ACCUMULATE: "add",
    OpKind.ELEMENTWISE: "",
    OpKind.TMA_STORE: "store",
    OpKind.ADDED: "",
}
"""What a kind is called in an operation's text, where that is not its own name."""


def _text(word: str, subject: str, instance: int | None, k_block: int) -> str:
    named = ":".join(part for part in (word, subject) if part)
    return named + (f"@{instance}" if instance is not None else "") + (f"#{k_block}" if k_block else "")


@functools.total_ordering
@dataclass(frozen=True, slots=True)
class OpId:
    """An operation: its kind, the tensor, product or phase that it is about (or none), the consumer that it is of or
    whose rows it is about (None: all), and which K-block of an iteration. Ordered as their texts are.
    """

    kind: OpKind
    subject: str
    instance: int | None = None
    k_block: int = 0

    def __str__(self) -> str:
        return _text(_WORDS.get(self.kind, self.kind), self.subject, self.instance, self.k_block)

    def __lt__(self, other: OpId) -> bool:
        return str(self) < str(other)


@functools.total_ordering
@dataclass(frozen=True, slots=True)
class ValueId:
    """A tile: what it is, of which tensor, product or item of the loop, of which consumer (None: of all), and of
    which K-block of an iteration. Ordered as their texts are.
    """

    kind: ValueKind
    subject: str
    instance: int | None = None
    k_block: int = 0

    def __str__(self) -> str:
        return _text(self.kind, self.subject, self.instance, self.k_block)

    def __lt__(self, other: ValueId) -> bool:
        return str(self) < str(other)
