"""Chooses structures of a graph to be measured: good and bad ones, unlike each other, the same every time.

All structures that no budget rules out are looked at, each also with its ring held to few slots. Some come from
the best by their bound; the others are spread over the range of predicted time, each as unlike the ones chosen
before it as there are.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

from wsopt.lowering.lower import Cuttable
from wsopt.lowering.structures import structures
from wsopt.machine.types import Machine
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions, Overlap
from wsopt.program.program import TileProgram
from wsopt.program.types import Structure
from wsopt.schedule import budget, memory
from wsopt.solve.bound import infeasible, lower_bound_us, max_depth

REACH = 3.0
"""Structures whose bound is more than this many times the best are no choice that a search would waver at."""

SHALLOW = (1, 2, 3)
"""Slots that a ring is held to: one does not overlap anything, two is the least that does."""

NEXT_BEST, SPREAD, SHALLOW_RING = "next best", "spread", "shallow ring"

PUBLISHED = ((2, Overlap.NEXT_FIRST), (3, Overlap.NONE))
"""Consumers and their overlap in the schedules of attention that experts have published.

Each consumer has the rows of one tensor instruction.
"""

_LEAST_APART = 2
_FIELDS = operator.attrgetter(*(field.name for field in fields(Structure)))
"""The values of a structure's fields."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A structure, the depth that its ring is held to (0: as deep as fits), and the bound of its time.

    `overlap` is what is asked of the order of a consumer's K-blocks.
    """

    structure: Structure
    slots: int
    program: TileProgram
    bound_us: float
    overlap: Overlap = Overlap.ANY

    @property
    def free(self) -> bool:
        """Whether the entry has no condition beyond those of the search."""
        return not self.slots and self.overlap is Overlap.ANY

    @property
    def loop(self) -> tuple[int, int, int, int, int, Overlap]:
        """Key of the entry's loop: where the loop of one entry is refused, so are those with the same key."""
        s = self.structure
        return s.rows, s.columns, s.depth, s.consumers, self.slots, self.overlap

    @property
    def describe(self) -> str:
        """One line for people."""
        asked = "" if self.overlap is Overlap.ANY else f", {self.overlap}"
        return self.structure.describe() + asked + (f", ring held to {self.slots}" if self.slots else "")


@dataclass(frozen=True, slots=True)
class Wish:
    """A place among the candidates: the entries that may fill it, by range of their bound and by ring depth."""

    why: str
    shallow: bool
    low_us: float
    high_us: float
    best_first: bool
    overlap: Overlap = Overlap.ANY


def held_to(program: TileProgram, machine: Machine, slots: int) -> Machine:
    """The machine with just the shared memory for a ring of so many slots, and the fewest buffers beside it."""
    if not slots:
        return machine
    return _with_shared_memory(machine, memory.shared_memory(program, slots, budget.least_buffers(program)))


@functools.lru_cache(maxsize=4096)
def _with_shared_memory(machine: Machine, nbytes: int) -> Machine:
    """The machine whose blocks have so much: one for all programs, as caches of other rooms compare machines."""
    return replace(machine, shared_memory_per_block_bytes=nbytes)


def pool(region: Cuttable, machine: Machine, margin: int) -> tuple[Entry, ...]:
    """Every entry that no budget rules out, best bound first, up to `REACH` times the best."""
    found = [entry for s in structures(region, machine) for entry in _entries(region, s, machine, margin)]
    found.sort(key=lambda entry: (round(entry.bound_us, 6), entry.slots, entry.structure))
    return tuple(entry for entry in found if entry.bound_us <= REACH * found[0].bound_us)


def _entries(region: Cuttable, s: Structure, machine: Machine, margin: int) -> Iterator[Entry]:
    program = lower(region, s, machine)
    if infeasible(program, machine, margin):
        return
    deepest = max_depth(program, machine)
    for slots in (0, *(n for n in SHALLOW if n < deepest)):
        limited = held_to(program, machine, slots)
        held = lower(region, s, limited) if slots else program
        yield Entry(s, slots, held, lower_bound_us(held, limited))
    for consumers, overlap in (
        PUBLISHED if program.computes_with_products and s.rows == machine.mma_rows else ()
    ):
        if s.consumers == consumers:
            asked = replace(program, conditions=Conditions(overlap=overlap))
            yield Entry(s, 0, asked, lower_bound_us(asked, machine), overlap)


def wishes(count: int, best_us: float, *, computes: bool = False) -> tuple[Wish, ...]:
    """The places of `count` candidates beside the first choice, whose bound is `best_us`.

    A quarter are the next best, a sixth have shallow rings, the rest are spread in even steps of the
    logarithm of the time. Where the loop `computes` values, the published schedules come first.
    """
    asked = [overlap for _, overlap in PUBLISHED] if computes else []
    shown = [Wish(f"published: {one}", False, best_us, math.inf, True, one) for one in asked]
    near, shallow = math.ceil(count / 4), math.ceil(count / 6)
    rest = max(0, count - near - shallow - len(shown))
    steps = [best_us * REACH ** (step / max(1, rest)) for step in range(rest + 1)]
    found = [Wish(NEXT_BEST, False, best_us, best_us * REACH, True) for _ in range(min(near, count))]
    found += [Wish(SPREAD, False, low, high, False) for low, high in itertools.pairwise(steps)]
    found += [Wish(SHALLOW_RING, True, best_us, best_us * REACH, False) for _ in range(shallow)]
    return (*shown, *found)[:count]


def choose(entries: Iterable[Entry], taken: Sequence[Entry], wish: Wish) -> Entry | None:
    """The entry for a place, or None if there is none left.

    Best first: the least bound that differs from all taken ones in two fields or more. Otherwise the one
    that is least like those taken; among equals the least bound.
    """
    fitting = [
        e
        for e in entries
        if bool(e.slots) == wish.shallow
        and e.overlap is wish.overlap
        and wish.low_us <= e.bound_us <= wish.high_us
    ]
    if wish.overlap is not Overlap.ANY:
        return next(iter(fitting), None)
    if wish.best_first:
        return next((e for e in fitting if _apart(e, taken)[0] >= _LEAST_APART), None)
    return max(fitting, key=lambda e: _apart(e, taken), default=None)


def _apart(entry: Entry, taken: Sequence[Entry]) -> tuple[int, int]:
    """In how many fields an entry differs from the one most like it, and from all together."""
    distances = [_distance(entry, other) for other in taken]
    return min(distances, default=0), sum(distances)


def _distance(one: Entry, other: Entry) -> int:
    apart: int = sum(map(operator.ne, _FIELDS(one.structure), _FIELDS(other.structure)))
    return apart + (1 if one.slots != other.slots else 0) + (1 if one.overlap != other.overlap else 0)
