"""Regions as frozen data: what of a graph becomes one kernel, before it is cut to tiles.

A region has axes, each with a role; views of the graph's tensors along them; the products, reductions and scalar
statements of its streamed loop; and what follows them.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from wsopt.graph.types import DType
from wsopt.tensors.orders import row_tiles
from wsopt.tensors.statements import Reduction, Statement, takes_row
from wsopt.tensors.views import FULL, Bound, Output, Role, Source, View, bytes_once


@dataclass(frozen=True, slots=True)
class Contraction:
    """One matmul of the region: rows of `left` with columns of `right`.

    One that spans rows and columns is summed over the streamed axis; its `left` may be a value of the loop,
    by name, and with `rescale` (a row value of the loop) what was summed before a K-block is multiplied by it
    first. One that spans rows and the streamed axis contracts the inner axis and is a value of the loop.
    `promote` asks that sums are moved to f32 registers at least every 128 elements (f8 operands). Sources by name are
    `factors` of partial sums: each has one element for a block of the streamed axis.
    """

    name: str
    left: View | str
    right: View
    promote: bool
    spans: frozenset[Role] = FULL
    rescale: str | None = None
    factors: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the loop's values among its operands."""
        return tuple(name for name in (self.left, self.rescale) if isinstance(name, str))


_NOT_OF_ALL_ROWS = (Role.INNER, Role.SEGMENT)
"""The axes along which no product has all rows: each row lies in one segment."""


class End(StrEnum):
    """How a loop leaves out elements of K-blocks beyond the end of the streamed axis."""

    NOTHING = "nothing"
    """It would not count: zeros add nothing to the loop's sums."""
    BOUND = "bound"
    """The last of the region's bounds is the end; it moves with the axis at run time."""
    MASKS = "masks"
    """The graph's own masks end every row before; at run time they have to as well, which the launcher checks."""


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a graph that becomes one kernel.

    `statements` are the epilogue's; with reductions among them a tile has whole rows, and without products
    they are all that a tile is for: tiles of rows stream, and each is read, computed and stored. `body` is what
    one K-block of the loop computes, in order, where that is more than the products (empty otherwise); `beside`
    what each consumer computes beside the products of a K-block from its `tiles` of the operands. `running` is what a
    part of rows that no SM holds adds to their reductions, where there are such rows. `ending` is what is computed of
    reductions over all rows when they are complete: one value a column. Outside
    `bounds`, all of which have to hold, an element of the streamed axis adds nothing; a statement of
    `unmasked` is the other value of its pair where they hold. `end` says why nothing beyond the axis counts;
    with `full_rows` every row has an element within `bounds`, for a number was taken for minus infinity. A
    `deterministic` one wants the same bits of a row whatever rows there are beside it. Where rows are cut into
    segments, each with matrices of its own, `offsets` say where those of each end. What is made of rows that a
    consumer holds may be made `in_parts` as well: of the same rows read part by part, as a structure of fewer columns
    has them. Products of weights in groups may have `scaled_sums` as well: the scales are factors of partial sums.
    """

    name: str
    doc: str
    extents: tuple[tuple[Role, int], ...]
    contractions: tuple[Contraction, ...]
    sources: tuple[Source, ...]
    statements: tuple[Statement | Reduction, ...]
    outputs: tuple[Output, ...]
    body: tuple[Statement | Reduction | Contraction, ...] = ()
    bounds: tuple[Bound, ...] = ()
    unmasked: tuple[tuple[str, str], ...] = ()
    beside: tuple[Statement | Reduction, ...] = ()
    tiles: tuple[Source, ...] = ()
    end: End = End.NOTHING
    full_rows: bool = False
    deterministic: bool = False
    running: tuple[Statement | Reduction, ...] = ()
    ending: tuple[Statement, ...] = ()
    offsets: Source | None = None
    in_parts: Region | None = None
    scaled_sums: Region | None = None
    row_sources: tuple[Source, ...] = field(init=False, repr=False, compare=False)
    """The sources whose tiles of rows stream, where there is no product."""

    def __post_init__(self) -> None:
        # Found once: every structure asks for them, many times.
        own = filter(self._is_tile, self.sources)
        object.__setattr__(self, "row_sources", tuple(one for one in own if one.view.is_copied))

    @property
    def by_threads(self) -> bool:
        """Whether threads read all tiles of rows by address: TMA takes none, or there are none, where all that is
        computed with are vectors.
        """
        return not (self.contractions or self.row_sources)

    def _is_tile(self, source: Source) -> bool:
        return source.is_tile and not self.contractions

    @property
    def tile_sources(self) -> tuple[Source, ...]:
        """The sources whose tiles are the iterations of a loop without a product: those that stream, or where none
        does those that threads read.
        """
        return self.row_sources or tuple(filter(self._is_tile, self.sources))

    def of_structure(self, columns: int, *, read: bool, stored: bool) -> Region:
        """The region that a structure of so many columns is one of: that in parts, where a row has more; that whose
        tiles of rows are `read`, or `stored`, by threads.
        """
        own = self.in_parts if self.in_parts and columns < self.extent(Role.COLUMN) else self
        return _by_address(own, read=read) if stored else own

    def of_sums(self, scaled: bool) -> Region:
        """The region that a structure is one of whose partial sums are `scaled`, or else its weights."""
        return self.scaled_sums if scaled and self.scaled_sums else self

    def extent(self, role: Role) -> int:
        """Elements along an axis; 1 for an axis the region does not have."""
        for axis, extent in self.extents:  # a plain loop: it is asked for by every structure, many times
            if axis == role:
                return extent
        return 1

    @property
    def chained(self) -> bool:
        """Whether products of the loop feed others, or reductions do that go on from K-block to K-block: a block then
        holds rows of one tensor for the former, and whole columns.
        """
        running = any(isinstance(item, Reduction) for item in self.body)
        return running or any(contraction.spans != FULL for contraction in self.contractions)

    @property
    def whole_rows(self) -> bool:
        """Whether rows of a tile are reduced, or summed up place by place: a tile has to have all columns."""
        return any(map(takes_row, self.statements))

    @property
    def operand_dtype(self) -> DType:
        """Element type of the tensor cores' operands; without products of the first tensor that streams, or where
        none does of the first that is stored.
        """
        if self.contractions:
            first = self.contractions[0]
            return (first.left if isinstance(first.left, View) else first.right).dtype
        return (*self.operands, *(output.view for output in self.outputs))[0].dtype

    @property
    def widened(self) -> tuple[View, ...]:
        """The streamed operands of a loop that computes values whose elements have 8 bits, and the products' 16."""
        own = dict.fromkeys(one.right for one in self.contractions if self.chained)
        return tuple(view for view in own if view.dtype is not self.operand_dtype)

    @property
    def promote(self) -> bool:
        """Whether any product asks for sums in f32 registers."""
        return any(contraction.promote for contraction in self.contractions)

    @property
    def tile_outputs(self) -> tuple[Output, ...]:
        """The outputs of whole tiles, which TMA stores; others are one value a row."""
        return tuple(output for output in self.outputs if output.is_tile)

    @property
    def passes(self) -> int:
        """How often rows are read: again where an output has rows that no SM holds until they are reduced."""
        return 2 if self.running and any(output.has_columns for output in self.outputs) else 1

    @property
    def full_sources(self) -> tuple[Source, ...]:
        """The sources that TMA brings for the epilogue: whole tiles, varying along rows and columns."""
        return tuple(source for source in self.sources if source.spans == FULL and self.contractions)

    @property
    def operands(self) -> tuple[View, ...]:
        """The streamed tensors, each once, left ones first; without a product those whose tiles are iterations."""
        rows = dict.fromkeys(source.view.moved for source in self.tile_sources)
        return (*rows, *(view for view in self._product_views if Role.STREAM in view.roles))

    @property
    def row_tiles(self) -> tuple[View, ...]:
        """Without products the tensors whose elements a tile's threads have."""
        beside = (one.view for one in self.sources if self._is_tile(one) and not one.view.is_copied)
        return row_tiles(self.operands, self.outputs, beside)

    @property
    def streamed_sources(self) -> tuple[Source, ...]:
        """The sources that vary along the streamed axis: they come K-block by K-block, as operands do."""
        return tuple(source for source in self.sources if Role.STREAM in source.spans)

    @property
    def factor_sources(self) -> tuple[Source, ...]:
        """The sources that multiply partial sums of products."""
        names = {name for one in self.contractions for name in one.factors}
        return tuple(source for source in self.sources if source.name in names)

    @property
    def choosing(self) -> frozenset[str]:
        """The sources, by name, that choose places of others."""
        views = [*self._product_views, *(source.view for source in self.sources)]
        return frozenset(view.chosen.source for view in views if view.chosen)

    @property
    def streams(self) -> tuple[View, ...]:
        """All tensors that are streamed, each once: operands, then what the loop's values read."""
        return tuple(dict.fromkeys((*self.operands, *(s.view for s in self.streamed_sources))))

    @property
    def stationary_operands(self) -> tuple[View, ...]:
        """The products' operands that the loop holds, each once."""
        return tuple(view for view in self._product_views if Role.STREAM not in view.roles)

    @property
    def _product_views(self) -> tuple[View, ...]:
        views = [c.left for c in self.contractions] + [c.right for c in self.contractions]
        return tuple(dict.fromkeys(view for view in views if isinstance(view, View)))

    def operand_name(self, view: View) -> str:
        """A name for a streamed tensor: its own, with a number where it is streamed in more than one way."""
        same = [other for other in self.streams if other.tensor == view.tensor]
        return view.tensor if len(same) == 1 else f"{view.tensor}_{same.index(view)}"

    @property
    def flops(self) -> int:
        """Multiplications and additions of the products, as if nothing were masked."""
        inner = self.extent(Role.INNER)
        whole = math.prod(extent for role, extent in self.extents if role not in _NOT_OF_ALL_ROWS)
        columns = self.extent(Role.COLUMN)
        return 2 * sum(whole if c.spans == FULL else whole // columns * inner for c in self.contractions)

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any kernel for this region moves: every tensor read or written once."""
        views = [*self._product_views, *(s.view for s in self.sources)]
        views += [self.offsets.view] if self.offsets else []
        read = {(view.tensor, view.cutouts, view.chosen): (view, view.fetched_bytes) for view in views}
        return bytes_once(read.values()) + sum(output.view.nbytes for output in self.outputs)


@functools.lru_cache(maxsize=16)
def _by_address(region: Region, *, read: bool) -> Region:
    """A region of rows whose tiles no copy takes away, nor brings where threads `read` them."""
    sources = (
        replace(one, view=replace(one.view, by_address=True)) if read and one.spans == FULL else one
        for one in region.sources
    )
    outputs = (
        replace(one, view=replace(one.view, by_address=True)) if one.has_columns else one
        for one in region.outputs
    )
    return replace(region, sources=tuple(sources), outputs=tuple(outputs), in_parts=None)
