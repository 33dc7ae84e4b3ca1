"""Tensors as a kernel sees them: its axes by role, how a tensor lies along them, where it is read and stored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from wsopt.graph.types import DType


class Role(StrEnum):
    """Role of an axis in the kernel: tiled over the grid (batch, head, group, row, column), streamed by the loop, or
    held whole (inner: what a product in the loop contracts that does not stream).

    `group` is a second batch axis, along which some tensors are broadcast: query heads that share keys; `head` is a
    third, as the heads of keys in a batch of sequences. `page` is a
    tensor's own: which of its pages is read is chosen by a table. `segment` is the axis of matrices each of which
    multiplies rows of its own: run-time offsets cut the rows into segments, and a tile lies in one.
    """

    BATCH = "batch"
    HEAD = "head"
    GROUP = "group"
    ROW = "row"
    COLUMN = "column"
    STREAM = "stream"
    INNER = "inner"
    PAGE = "page"
    SEGMENT = "segment"


BATCHES = (Role.BATCH, Role.HEAD, Role.GROUP)
"""The batch axes of a kernel, the outermost first: tiles of one element along them follow each other."""


OUTER = (*BATCHES, Role.PAGE, Role.SEGMENT)
"""The axes along which a tile, or what one instruction copies of it, has one element."""


FULL = frozenset({Role.ROW, Role.COLUMN})
"""The axes of a whole tile, as opposed to a row, a column or a scalar of it."""


K_BLOCK = frozenset({Role.ROW, Role.STREAM})
"""The axes of a tile of values inside the loop: the block's rows by one K-block of the streamed axis."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The dimension of a view along whose axis, `role`, the elements of another tensor say which place is read.

    `source` is that tensor as a source, by name. So many `places` are read in all; one outside the tensor is zeros.
    Along a tensor's pages a place has `elements` of the streamed axis; 0 where it has all of them.
    """

    role: Role
    source: str
    places: int
    elements: int = 0


FRAGMENT = {DType.I4: 128, DType.I8: 64}
"""Elements of a row that are packed as fragments together: 16 bytes for each of the four threads that share a row."""


WITHOUT_FRACTION = {DType.BF16: 128, DType.F16: 1024}
"""The number of each type whose last bit of the fraction is worth one: bits of whole numbers are read behind it."""


TRANSPOSED_BITS = 16
"""Bits of the elements that the tensor core transposes: operands of others lie along what is contracted."""
TMA_BITS = 128
"""Bits of which the addresses of a tensor map's rows are multiples (CUDA driver API, cuTensorMapEncodeTiled)."""
LINE_BITS = 1024
"""Bits of a line of memory. TMA copies rows in pieces as long as one, and takes two for each that begins within."""

SLOT_BYTES = 128
"""What a copy's place in shared memory is a multiple of (CUDA programming guide, tensor copies)."""


class Packing(StrEnum):
    """How a constant's elements are laid out anew, once, before the first launch; extents stay as they are."""

    FRAGMENTS = "fragments"
    """Along a row in the order in which the threads that hold it as a product's operand read words of it."""
    TURNED = "turned"
    """Columns one behind the other, instead of rows."""
    PADDED = "padded"
    """Rows with room behind them, so that TMA can begin with each."""
    LINES = "lines"
    """Rows with room behind them, so that each begins with a line of memory."""
    SPREAD = "spread"
    """Elements of a row with room behind them, so that TMA can begin with each."""


WITH_ROOM = frozenset({Packing.PADDED, Packing.LINES})
"""Packings after which elements follow each other as before: a kernel that is told the strides reads them in any way
that TMA does.
"""


PAIR = 2
"""Neighbours of a row that TMA copies together where one of them is read: what a register tile is split into."""


def is_slice(cutout: tuple[int, int, int], extent: int) -> bool:
    """Whether a cutout of so many elements lies within a dimension whose elements are known, without zeros."""
    first, whole, last = cutout
    return first >= 0 and first + extent == last <= whole


@dataclass(frozen=True, slots=True)
class View:
    """How a tensor of the graph lies in memory, dimension by dimension, named by the region's axes.

    `extents` and `strides` are in elements; `roles` gives each dimension's axis. Dimensions of extent one
    are left out, and axes that were merged are one dimension. `origin` says for each dimension which
    dimensions of the graph's tensor, of `rank` dimensions, it stands for.

    `parts` is empty unless a dimension of the tensor was split between axes. It has (take, step) for each
    dimension: of the first tensor's dimension in its origin only `take` neighbours belong to it (0: all), and
    of the last one every `step`-th element. So heads split into (8, 4) are (0, 4) and (4, 1).

    `cutouts` is empty unless a dimension is a slice of the tensor's, or has zeros around it. It has for each of them
    None, or where the slice begins, which is before the tensor where zeros are; how many elements there are to slice
    from, 0 where another dimension's parts tell; and where what is read of the tensor ends.

    The places along one dimension may be `chosen` by another tensor: its extent is the tensor's own then, and not
    that of the axis.

    So many neighbours along the streamed axis share `each` element: those of a group share its scale. Those of a
    block share it along the columns as well (`column_each`). Whole numbers of four bits are signed, or unsigned and
    less a `zero`; a negative one raises them, and what is subtracted from them likewise. A constant may have a
    `packing`; its strides are those of the packed tensor then.

    Of the innermost dimension, or its innermost part, one element may be seen alone, and so of a dimension in front
    of another of which a slice has one: what is seen begins at an `offset` of so many elements then, and `single` has
    such dimensions, each with its extent and stride.

    One that is `by_address` threads read and write, whether or not TMA could copy it. One that is `flat` TMA copies
    from one row of all its elements, where a multiple of so many of them begins: its own rows begin between.
    """

    tensor: str
    dtype: DType
    roles: tuple[Role, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    origin: tuple[tuple[int, ...], ...]
    rank: int
    constant: bool = False
    parts: tuple[tuple[int, int], ...] = ()
    cutouts: tuple[tuple[int, int, int] | None, ...] = ()
    chosen: Chosen | None = None
    each: int = 1
    column_each: int = 1
    zero: int | None = None
    packing: Packing | None = None
    offset: int = 0
    single: tuple[tuple[int, int, int], ...] = ()
    by_address: bool = False
    flat: int = 0

    def sharing(self, role: Role) -> int:
        """Neighbours along an axis that share each element."""
        return {Role.STREAM: self.each, Role.COLUMN: self.column_each}.get(role, 1)

    def of(self, role: Role, extent: int) -> int:
        """The tensor's elements along an axis that so many of the axis have: where neighbours share them, and they
        follow each other in memory, as many as TMA copies to a slot at least.
        """
        if self.step > 1 and role is self.roles[-1]:
            return extent * self.step
        found = max(1, extent // self.sharing(role))
        if self.sharing(role) == 1 or role is not self.roles[-1]:
            return found
        return max(found, SLOT_BYTES * 8 // self.dtype.bits)

    @property
    def places(self) -> tuple[int, ...]:
        """How many places along each dimension are read or written."""
        pairs = zip(self.roles, self.extents, strict=True)
        return tuple(
            self.chosen.places if self.chosen and role is self.chosen.role else extent
            for role, extent in pairs
        )

    @property
    def is_pitched(self) -> bool:
        """Whether TMA can begin with each of its rows."""
        steps = zip(self.extents, self.strides[:-1], strict=False)
        return not any(stride * self.dtype.bits % TMA_BITS for extent, stride in steps if extent > 1)

    @property
    def is_copied(self) -> bool:
        """Whether TMA copies it."""
        return (self.is_aligned or self.flat > 0) and not self.by_address

    @property
    def is_aligned(self) -> bool:
        """Whether its rows lie and begin as TMA takes them, so that threads can read and write 16 bytes at a time."""
        if not self.strides or (self.step == 1 and (self.offset or self.strides[-1] != 1)):
            return False
        return self.is_pitched and self.first.get(self.roles[-1], 0) * self.dtype.bits % TMA_BITS == 0

    @property
    def step(self) -> int:
        """Elements of a row that TMA copies for each that is read: both of every pair, of which one is read. The
        tensor has the other one, for the pairs are a dimension of it, or a part of one.
        """
        pairs = (self.rank - 1, PAIR, 1) in self.single or (self.parts and self.parts[-1] == (0, PAIR))
        whole = self.strides[-1:] == (PAIR,) and self.roles[-1] is Role.COLUMN and not self.first
        return PAIR if pairs and whole and self.offset < PAIR else 1

    @property
    def moved(self) -> View:
        """The view as TMA copies it, whichever of a pair is read."""
        return replace(self, offset=0) if self.step > 1 else self

    @property
    def apart(self) -> int:
        """Elements of memory from one element of a row to the next."""
        return TMA_BITS // self.dtype.bits if self.packing is Packing.SPREAD else 1

    @property
    def rows_chosen(self) -> bool:
        """Whether every row is read at a place of its own."""
        return self.chosen is not None and self.chosen.role is Role.ROW

    @property
    def page(self) -> int:
        """Elements of the streamed axis in a page of the tensor, if it lies in pages; 0 if not."""
        return self.chosen.elements if self.chosen else 0

    @property
    def first(self) -> dict[Role, int]:
        """Where slices begin, by axis, if that is not with the tensor."""
        begins = zip(self.roles, self.cutouts, strict=False)
        return {role: cutout[0] for role, cutout in begins if cutout and cutout[0]}

    @property
    def known(self) -> frozenset[Role]:
        """The axes along which every call has as many elements: inner parts of a dimension."""
        own = zip(self.roles, self.origin, self.parts, strict=False)
        inner = frozenset(role for role, dims, (take, _) in own if take and len(dims) == 1)
        return inner - {self.chosen.role if self.chosen else None}

    def stride(self, role: Role) -> int:
        """Elements between neighbours along an axis; 0 where the tensor is broadcast along it."""
        return self.strides[self.roles.index(role)] if role in self.roles else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the elements that the region reads or writes."""
        return math.prod(self.places) * self.dtype.bits // 8

    @property
    def fetched_bytes(self) -> int:
        """Bytes that come from memory where they are read: of pairs both elements."""
        return self.step * self.nbytes


def bytes_once(read: Iterable[tuple[View, int]]) -> int:
    """The bytes of tensors that are read once, of which views read so many each. Slices of a tensor that overlap, as
    the taps of a convolution do, together read no more than the tensor has.
    """
    views = dict[str, list[tuple[View, int]]]()
    for view, nbytes in read:
        views.setdefault(view.tensor, []).append((view, nbytes))
    return sum(_least(own) for own in views.values())


def _least(read: Sequence[tuple[View, int]]) -> int:
    """The bytes that are read of a tensor in several ways: all of these, but no more than it has, where they tell."""
    found = 0
    for view, nbytes in read:
        dims = zip(view.cutouts, view.extents, strict=False)
        ends = [cutout[1] if cutout else extent for cutout, extent in dims]
        if view.chosen or view.single or view.offset or not all(ends):
            return sum(nbytes for _, nbytes in read)
        found = max(found, math.prod(ends) * view.dtype.bits // 8 if ends else nbytes)
    return min(found, sum(nbytes for _, nbytes in read))


@dataclass(frozen=True, slots=True)
class Bound:
    """Element j of the streamed axis counts for row i only where row * i + stream * j + constant + t >= 0, in whole
    numbers without a limit.

    t is the sum of the run-time `terms`, each a coefficient times a scalar by its source's name: an i32 that is one
    for a tile. Where the graph adds to such a scalar, its own sum wraps around in i32 (`wraps`): the bound is the
    graph's comparison while every scalar is at most `FAR` from zero, and beyond that says nothing.
    """

    row: int
    stream: int
    constant: int
    terms: tuple[tuple[int, str], ...] = ()
    wraps: bool = False

    @property
    def scalars(self) -> tuple[str, ...]:
        """The names of its run-time scalars' sources."""
        return tuple(name for _, name in self.terms)


FAR = 2**28
"""Scalars of a bound that are further from zero are beyond all axes, which have less than `FAR` / 2 elements."""

MOST_TERMS = 4
"""How often a bound's scalars are added at most: sums of so many numbers up to `FAR`, two indices and numbers up to
`FAR` / 4 stay within i32.
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor that the loop's values or the epilogue read; `spans` are the axes of the tile it varies along."""

    name: str
    view: View
    spans: frozenset[Role]

    @property
    def is_tile(self) -> bool:
        """Whether each element of a tile has one of its own; neighbours along the columns may share one instead, as
        those of a channel share its weight.
        """
        return self.spans == FULL and self.view.column_each == 1


@dataclass(frozen=True, slots=True)
class Share:
    """Run-time extent of an axis: an input's dimension divided by the `divisor` elements of its inner axes."""

    tensor: str
    dim: int
    divisor: int


@dataclass(frozen=True, slots=True)
class Output:
    """A graph output: which value of the epilogue is stored, and where. Of tensors that are stored one behind the
    other in one output each has a `name` of its own; the view has the output's.

    `shape` says for each dimension of the graph's tensor which input's dimension has its extent at run
    time, or 1 for a dimension that no axis varies along; one that is made of several axes is a product. One that is
    made `over_rows` has one value a column, which is there when all rows have been seen.
    """

    name: str
    value: str
    view: View
    shape: tuple[tuple[str, int] | tuple[Share | int, ...] | int, ...]
    over_rows: bool = False

    @property
    def is_tile(self) -> bool:
        """Whether it has rows and columns that TMA stores; else threads store it by address."""
        return self.has_columns and not self.by_threads

    @property
    def has_columns(self) -> bool:
        """Whether it has rows and columns; else it is a value of a row, of each group of one, or of a column."""
        return Role.COLUMN in self.view.roles and self.view.column_each == 1 and not self.over_rows

    @property
    def by_threads(self) -> bool:
        """Whether threads store its rows and columns: TMA cannot begin at each of its rows."""
        return self.has_columns and not (self.view.is_copied and self.view.step == 1)


def pow2(extent: int) -> int:
    """The least power of two that an extent fits: what layouts in registers can have."""
    return 1 << max(0, extent - 1).bit_length()
