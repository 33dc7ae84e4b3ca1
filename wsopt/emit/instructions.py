"""The instructions of a partition: the closed set that the templates can write, one macro each.

Fields hold finished identifiers, numbers and expressions; nothing is left to compute.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar


class Instruction:
    """Base of all instructions; `macro` names what writes it, `template` where that is."""

    macro: ClassVar[str]
    template: ClassVar[str] = "instructions.jinja"

    def facts(self) -> dict[str, Any]:
        """The fields by name, for the template."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class WaitFull(Instruction):
    """Wait until the copies into a slot have landed."""

    macro: ClassVar[str] = "wait_full"
    ring: str
    step: str
    depth: str


@dataclass(frozen=True, slots=True)
class WaitEmpty(Instruction):
    """Wait until every reader has handed a slot back."""

    macro: ClassVar[str] = "wait_empty"
    ring: str
    step: str
    depth: str


@dataclass(frozen=True, slots=True)
class Expect(Instruction):
    """Announce the bytes that will arrive at a slot's barrier."""

    macro: ClassVar[str] = "expect"
    barrier: str
    nbytes: str


@dataclass(frozen=True, slots=True)
class TmaLoad(Instruction):
    """Start a copy of a box of a tensor into shared memory."""

    macro: ClassVar[str] = "tma_load"
    descriptor: str
    coordinates: tuple[str, ...]
    barrier: str
    buffer: str


@dataclass(frozen=True, slots=True)
class Mma(Instruction):
    """Start an asynchronous product. `use` is the expression for `add to what is there`, empty if always; one that
    `counts` reads the number of the K-block. It becomes so many tensor `instructions` a warpgroup.
    """

    macro: ClassVar[str] = "mma"
    target: str
    left: str
    right: str
    use: str
    instructions: int
    counts: bool = False


@dataclass(frozen=True, slots=True)
class TensorMma(Instruction):
    """Start an asynchronous product into tensor memory. `use` is the expression for `add to what is there`."""

    macro: ClassVar[str] = "tensor_mma"
    template: ClassVar[str] = "tensor_memory.jinja"
    target: str
    left: str
    right: str
    use: str


@dataclass(frozen=True, slots=True)
class Commit(Instruction):
    """Have the tensor core arrive at a barrier when all products issued before have ended."""

    macro: ClassVar[str] = "commit"
    template: ClassVar[str] = "tensor_memory.jinja"
    barrier: str


@dataclass(frozen=True, slots=True)
class SumsLoad(Instruction):
    """Bring a subtile of a tile's sums from tensor memory into registers."""

    macro: ClassVar[str] = "sums_load"
    template: ClassVar[str] = "tensor_memory.jinja"
    target: str
    sums: str
    subtile: int
    layout: str


@dataclass(frozen=True, slots=True)
class MmaWait(Instruction):
    """Wait until at most `outstanding` later products are still running; `values` are kept in step."""

    macro: ClassVar[str] = "mma_wait"
    outstanding: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Accumulate(Instruction):
    """Add partial sums to the sums in registers."""

    macro: ClassVar[str] = "accumulate"
    target: str
    partial: str


@dataclass(frozen=True, slots=True)
class Release(Instruction):
    """Hand a slot back to the loader."""

    macro: ClassVar[str] = "release"
    ring: str
    step: str
    depth: str


@dataclass(frozen=True, slots=True)
class Advance(Instruction):
    """Count slots."""

    macro: ClassVar[str] = "advance"
    slots: int


@dataclass(frozen=True, slots=True)
class TurnWait(Instruction):
    """Wait for this consumer's turn in the streamed loop."""

    macro: ClassVar[str] = "turn_wait"


@dataclass(frozen=True, slots=True)
class TurnPass(Instruction):
    """Let the next consumer into the streamed loop: this one has met all its slots."""

    macro: ClassVar[str] = "turn_pass"


@dataclass(frozen=True, slots=True)
class Zero(Instruction):
    """Clear what products add to: a tile of a consumer's rows by so many columns."""

    macro: ClassVar[str] = "zero"
    target: str
    columns: str
    layout: str


@dataclass(frozen=True, slots=True)
class StoreWait(Instruction):
    """Wait until at most `pending` stores still read their staging buffers; if it is `optional`, not where `pending`
    is None.
    """

    macro: ClassVar[str] = "store_wait"
    pending: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Stage(Instruction):
    """Write a tile into its staging buffer, fenced for the copy engine."""

    macro: ClassVar[str] = "stage"
    buffer: str
    value: str


@dataclass(frozen=True, slots=True)
class TmaStore(Instruction):
    """Start a copy of a staging buffer to a tensor."""

    macro: ClassVar[str] = "tma_store"
    descriptor: str
    coordinates: tuple[str, ...]
    buffer: str


@dataclass(frozen=True, slots=True)
class RowStore(Instruction):
    """Store a value a row by address where `mask` holds: in the first subtile, unless it is the `only` one."""

    macro: ClassVar[str] = "row_store"
    addresses: str
    value: str
    mask: str
    only: bool


@dataclass(frozen=True, slots=True)
class WaitPhase(Instruction):
    """Wait until a phase of a barrier is complete: a tile has landed, a store was staged or has read its buffer."""

    macro: ClassVar[str] = "wait_phase"
    barrier: str
    phase: str


@dataclass(frozen=True, slots=True)
class Signal(Instruction):
    """Arrive at a barrier."""

    macro: ClassVar[str] = "signal"
    barrier: str


@dataclass(frozen=True, slots=True)
class WaitFreed(Instruction):
    """Wait until of the stores before the one numbered `number` at most `pending` still read their buffers: for the
    one that is `awaited`, of the tile before where that is below 0. If it is `optional`, not where `pending` is None.
    """

    macro: ClassVar[str] = "wait_freed"
    number: str
    awaited: str
    pending: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Refill(Instruction):
    """Start the copy of a later subtile into the buffer that this subtile has read."""

    macro: ClassVar[str] = "refill"
    barrier: str
    nbytes: int
    descriptor: str
    coordinates: tuple[str, ...]
    buffer: str


@dataclass(frozen=True, slots=True)
class Assign(Instruction):
    """A scalar expression on tiles, rows or columns."""

    macro: ClassVar[str] = "assign"
    target: str
    expression: str


@dataclass(frozen=True, slots=True)
class Loop:
    """A consumer's streamed loop: peeled start, steady state from pass `first`, peeled end.

    `peeled` of the last passes stand in the end; with fewer than `least` passes the loop cannot run. `called` are the
    kernel's own functions and constants that it names.
    """

    prologue: tuple[Instruction, ...]
    first: int
    peeled: int
    least: int
    steady: tuple[Instruction, ...]
    drain: tuple[Instruction, ...]
    called: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Added(Instruction):
    """The lines of an operation of a kind that was added."""

    macro: ClassVar[str] = "added"
    lines: str
