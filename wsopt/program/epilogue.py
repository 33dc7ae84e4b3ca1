"""What follows a tile's loop: values of its sums and rows, the tiles that they read, the outputs, and its cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from wsopt.machine.cost import InstructionMix
from wsopt.tensors.statements import Item
from wsopt.tensors.views import FULL, Output, Source

_NO_INSTRUCTIONS = InstructionMix()


@dataclass(frozen=True, slots=True)
class EpilogueCost:
    """Cost of one consumer's epilogue of one tile, in cycles, bytes and registers.

    `alone` is cycles when no other consumer runs its epilogue; `together` when all do. `staged_bytes` is
    one staging buffer (a subtile of every kind of output), `lent_bytes` those of it for which the full inputs'
    buffers would do; `input_bytes` is a subtile of every full tile that the epilogue reads; `registers` the live
    values beside the accumulators, a thread. `vector_bytes` is what vectors along the columns take.
    """

    alone: int
    together: int
    staged_bytes: int
    input_bytes: int
    registers: int
    stores: int
    lent_bytes: int = 0
    vector_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The epilogue of a tile: `items`, which read `sources`, whole tiles and vectors, and `outputs`. Where the
    loop stores them itself there are no items. Vectors are `prefetched` at the loop's start; where each subtile loads
    some of its own they come `late`. `mix` are the instructions an element of a tile; those on rows or columns alone
    are too few to count. `sum_bytes` are those of a consumer's sums that it reads from tensor memory. Of a share of
    tiles, the `ragged` ones, threads store what they have staged, for their last rows are another segment's.
    """

    items: tuple[Item, ...]
    sources: tuple[Source, ...]
    outputs: tuple[Output, ...]
    prefetched: bool
    late: bool = False
    mix: InstructionMix = _NO_INSTRUCTIONS
    sum_bytes: int = 0
    ragged: float = 0.0
    full: tuple[Source, ...] = field(init=False, repr=False, compare=False)
    """The sources of whole tiles, which TMA brings."""
    tile_outputs: tuple[Output, ...] = field(init=False, repr=False, compare=False)
    """The outputs of whole tiles, which TMA stores."""

    def __post_init__(self) -> None:
        # Found once: every choice of buffers of every structure asks for them.
        full = tuple(source for source in self.sources if source.spans == FULL and source.view.is_copied)
        object.__setattr__(self, "full", full)
        object.__setattr__(self, "tile_outputs", tuple(one for one in self.outputs if one.is_tile))

    @property
    def vectors(self) -> tuple[Source, ...]:
        """The sources that are read by address: rows, columns, scalars, and tiles that TMA does not take."""
        return tuple(source for source in self.sources if source not in self.full)
