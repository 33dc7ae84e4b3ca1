"""Ids of operations and tiles as typed keys: kind, subject, consumer, K-block.

Their text is what people, models and recorded schedules call them. Whoever has a text looks up whose it is; nobody
reads anything out of it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import StrEnum


class OpKind(StrEnum):
    """The closed set of tile operations; what is ADDED to it is named by its subject (`lowering/cut.py`)."""

    TMA_LOAD = "tma_load"
    MMA = "mma"
    RELEASE = "release"
    ACCUMULATE = "accumulate"
    ELEMENTWISE = "elementwise"
    RESCALE = "rescale"
    READ = "read"
    WRITE = "write"
    TMA_STORE = "tma_store"
    ADDED = "added"


class Unit(StrEnum):
    """Units that tile operations of a block compete for, besides the issue slots of their role (`units.py`)."""

    TENSOR = "tensor"
    TMA = "tma"
    ALU = "alu"
    FMA = "fma"
    MUFU = "mufu"
    SHARED = "shared"
    MEMORY = "memory"


class ValueKind(StrEnum):
    """Kind of a tile: a copy of a tensor's, which a slot of a ring or the block holds; partial sums, sums, or values
    in a consumer's registers; a product's result, or a value that it takes, in tensor memory.
    """

    TILE = "tile"
    STATIONARY = "stationary"
    PARTIAL = "partial"
    SUM = "sum"
    VALUE = "value"
    RESULT = "result"
    OPERAND = "operand"


AGAIN = "again"
"""Subject of the arithmetic for which parts of rows are read a second time."""

_WORDS: dict[StrEnum, str] = {
    OpKind.TMA_LOAD: "load",
    OpKind.ACCUMULATE: "add",
    OpKind.ELEMENTWISE: "",
    OpKind.TMA_STORE: "store",
    OpKind.ADDED: "",
}
"""What a kind is called in an operation's text, where that is not its own name."""


@functools.total_ordering
@dataclass(frozen=True, slots=True)
class _Id:
    """Kind, subject, consumer (None: of all) and K-block of an iteration. Ordered as their texts are."""

    kind: StrEnum
    subject: str
    instance: int | None = None
    k_block: int = 0

    def __str__(self) -> str:
        named = ":".join(part for part in (_WORDS.get(self.kind, self.kind), self.subject) if part)
        named += f"@{self.instance}" if self.instance is not None else ""
        return named + (f"#{self.k_block}" if self.k_block else "")

    def __lt__(self, other: _Id) -> bool:
        return str(self) < str(other)


@dataclass(frozen=True, slots=True)
class OpId(_Id):
    """An operation: of a kind, on the tensor, product or phase that it is about (or none)."""

    kind: OpKind


@dataclass(frozen=True, slots=True)
class ValueId(_Id):
    """A tile: what it is, of which tensor, product or item of the loop."""

    kind: ValueKind
