"""Buffers in which an epilogue's stores are staged, and the stores that they wait for: arithmetic on buffers alone.

A store's buffer is the one of its kind whose last store was issued first. The candidates are the staging buffers
and, behind them, where every subtile of the full inputs has a buffer of its own, those of the subtiles that were read
already: what was read of them is in registers, and nothing is copied into them before the next tile. Stores end
in the order in which they were issued, so a wait names how many of the last ones may still be reading.

Whoever starts the stores, these are the same: a store warp is told of each that is staged, and tells of each that has
read its buffer.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

from wsopt.graph.types import DType
from wsopt.program.known import of_program
from wsopt.program.program import TileProgram
from wsopt.program.types import Structure
from wsopt.schedule.types import EpilogueBuffers
from wsopt.tensors.views import Role, View

Kind = tuple[DType, tuple[Role, ...]]
"""What makes subtiles of two tensors alike: element type and order of axes, and so box, layout and bytes. One can be
staged where another was read.
"""

_TILES = 3
"""Tiles after which waits repeat: each finds the stores of the one before it."""


def kind(view: View) -> Kind:
    """The kind of a tensor's subtiles."""
    return view.dtype, view.roles


def kind_bytes(one: Kind, s: Structure) -> int:
    """Bytes of a subtile of this kind."""
    return s.rows * s.subtile_columns * one[0].bits // 8


@dataclass(frozen=True, slots=True)
class Buffer:
    """A subtile's buffer of one consumer: of the full input `source`, or without one a staging buffer of a kind."""

    kind: Kind
    source: str
    number: int


@dataclass(frozen=True, slots=True)
class Store:
    """One store of a tile: which output's subtile, where it is staged, and how many stores may still be reading
    their buffers when that is written; `pending` is None where nothing can be reading it.
    """

    output: str
    subtile: int
    buffer: Buffer
    pending: int | None


@dataclass(frozen=True, slots=True)
class Stores:
    """A tile's stores in the order of their issue. Before the next tile's inputs are copied at most `refill` stores
    may still be reading; None where they can be copied at any time.
    """

    stores: tuple[Store, ...]
    refill: int | None

    def awaited(self, number: int) -> tuple[int, int] | None:
        """The store for which the one numbered `number` waits, and how many come between the two; None if it does not
        wait. Numbers below zero are of the tile before, counted from this one's first.
        """
        pending = self.stores[number].pending
        return None if pending is None else (number - 1 - pending, pending)

    @property
    def left(self) -> tuple[tuple[int, int], ...]:
        """The stores for which the next tile waits, each with the number of those that come after it."""
        count = len(self.stores)
        found = {count + wait[0] for n in range(count) if (wait := self.awaited(n)) and wait[0] < 0}
        if self.refill is not None:
            found.add(count - 1 - self.refill)
        return tuple((number, count - 1 - number) for number in sorted(found))


def staging_buffers(program: TileProgram, buffers: EpilogueBuffers) -> dict[Kind, int]:
    """Number of a consumer's staging buffers of each kind: one at least where no input lends any."""
    after, lends = program.after, buffers.inputs == program.structure.subtiles
    lent = {kind(source.view) for source in after.full if lends}
    kinds = dict.fromkeys(kind(output.view) for output in after.tile_outputs)
    return {one: buffers.staging if one in lent else max(1, buffers.staging) for one in kinds}


@of_program
def tile_stores(program: TileProgram, buffers: EpilogueBuffers) -> Stores:
    """The stores of one consumer's tile, in the steady state of a block that has many."""
    after, s = program.after, program.structure
    outputs = tuple((output.name, kind(output.view)) for output in after.tile_outputs)
    inputs = tuple((source.name, kind(source.view)) for source in after.full if buffers.inputs == s.subtiles)
    staging = tuple(staging_buffers(program, buffers).items())
    return _stores(outputs, inputs, staging, s.subtiles, _TILES if s.persistent else 1)


@dataclass(slots=True)
class _Issue:
    """Stores as they are issued: the number of the last one from each buffer, and how many are known to be done."""

    last: dict[Buffer, int]
    issued: int = 0
    done: int = 0

    def wait(self, *needed: Buffer) -> int | None:
        """How many stores may be outstanding so that these buffers can be written; None without a wait."""
        until = max(self.last.get(buffer, -1) for buffer in needed) + 1
        if until <= self.done:
            return None
        self.done = until
        return self.issued - until


@functools.lru_cache(maxsize=4096)
def _stores(
    outputs: tuple[tuple[str, Kind], ...],
    inputs: tuple[tuple[str, Kind], ...],
    staging: tuple[tuple[Kind, int], ...],
    subtiles: int,
    tiles: int,
) -> Stores:
    """The stores of the last of so many tiles; `inputs` are those that lend their buffers."""
    lent = [Buffer(kind, source, number) for number in range(subtiles) for source, kind in inputs]
    issue, found, refill = _Issue({}), list[Store](), None
    for tile in range(tiles):
        if tile and lent:
            refill = issue.wait(*lent)
        found.clear()
        used: dict[Buffer, int] = {}
        for subtile, (output, kind) in itertools.product(range(subtiles), outputs):
            free = [Buffer(kind, "", number) for number in range(dict(staging)[kind])]
            free += [one for one in lent if one.kind == kind and one.number <= subtile]
            chosen = min(free, key=lambda one: used.get(one, -1))
            found.append(Store(output, subtile, chosen, issue.wait(chosen)))
            issue.last[chosen] = used[chosen] = issue.issued
            issue.issued += 1
    return Stores(tuple(found), refill)
