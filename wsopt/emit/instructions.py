"""The instructions of a partition as lines of Gluon: the one place where their text stands.

A product is kept as data until it is written, for the loop around it asks what is under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import indent


def write(instructions: Iterable[Instruction]) -> str:
    """Instructions as lines."""
    return "\n".join(map(str, instructions))


def when(condition: str, lines: str) -> str:
    """Lines for where a condition holds."""
    return f"if {condition}:\n{indent(lines, '    ')}"


FENCE = "fence_async_shared()"
"""Behind it copies see what threads have written to shared memory, and may overwrite what they have read there."""


# --- barriers -------------------------------------------------------------------------------------------


def wait(barrier: str, phase: str) -> str:
    """Wait until a phase of a barrier is complete."""
    return f"mbarrier.wait({barrier}, {phase})"


def arrive(barrier: str) -> str:
    """Arrive at a barrier."""
    return f"mbarrier.arrive({barrier}, count=1)"


def hand_back(barrier: str) -> str:
    """Hand back memory that threads have read, for a copy to overwrite: their loads end first, for which no barrier
    waits.
    """
    return f"{FENCE}\n{arrive(barrier)}"


def expect(barrier: str, nbytes: str | int) -> str:
    """Announce the bytes that will arrive at a barrier."""
    return f"mbarrier.expect({barrier}, {nbytes})"


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots that are filled and handed back in turn, each with two barriers; `depth` is the constant of their number.

    A step counts slots from the first, round and round.
    """

    name: str
    depth: str

    def full(self, step: str) -> str:
        """The barrier that says that the slot of a step is full."""
        return f"{self.name}_full.index({step} % {self.depth})"

    def empty(self, step: str) -> str:
        """The barrier that says that every reader has handed it back."""
        return f"{self.name}_empty.index({step} % {self.depth})"

    def wait_full(self, step: str) -> str:
        """Wait until what fills a slot has landed."""
        return wait(self.full(step), f"({step} // {self.depth}) & 1")

    def wait_empty(self, step: str) -> str:
        """Wait until every reader has handed a slot back."""
        return wait(self.empty(step), f"(({step} // {self.depth}) & 1) ^ 1")

    def release(self, step: str) -> str:
        """Hand a slot back."""
        return arrive(self.empty(step))


# --- copies ---------------------------------------------------------------------------------------------


def tma_load(descriptor: str, coordinates: Iterable[str], barrier: str, buffer: str) -> str:
    """Start a copy of a box of a tensor into shared memory."""
    return f"tma_load({descriptor}, [{', '.join(coordinates)}], {barrier}, {buffer})"


def tma_store(descriptor: str, coordinates: Iterable[str], buffer: str) -> str:
    """Start a copy of a staging buffer to a tensor."""
    return f"tma_store({descriptor}, [{', '.join(coordinates)}], {buffer})"


def stage(buffer: str, value: str) -> str:
    """Write a tile into its staging buffer, fenced for the copy engine."""
    return f"{buffer}.store({value})\n{FENCE}"


def store_wait(pending: str | int) -> str:
    """Wait until at most `pending` stores still read their staging buffers."""
    return f"tma.store_wait({pending})"


# --- products -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mma:
    """Start an asynchronous product. `use` is the expression for `add to what is there`, empty if always; one that
    `counts` reads the number of the K-block. It becomes so many tensor `instructions` a warpgroup.
    """

    target: str
    left: str
    right: str
    use: str
    instructions: int
    counts: bool = False

    def __str__(self) -> str:
        use = f", use_acc={self.use}" if self.use else ""
        return f"{self.target} = warpgroup_mma({self.left}, {self.right}, {self.target}{use}, is_async=True)"


Instruction = str | Mma


def mma_wait(outstanding: int, values: Iterable[str]) -> str:
    """Wait until at most `outstanding` later products are still running; `values` are kept in step."""
    kept = ", ".join(values)
    return f"{kept} = warpgroup_mma_wait({outstanding}, deps=({kept},))"


def zero(target: str, columns: str, layout: str) -> str:
    """Clear what products add to: a tile of a consumer's rows by so many columns."""
    return f"{target} = gl.zeros([CONSUMER_ROWS, {columns}], gl.float32, {layout})"


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
