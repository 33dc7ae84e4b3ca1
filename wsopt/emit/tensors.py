"""Tensors in an emitted kernel: descriptors, boxes, shared-memory layouts, coordinates, arguments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from wsopt.graph.types import DType
from wsopt.program.row_layout import SWIZZLES, swizzle_of
from wsopt.tensors.orders import is_turned
from wsopt.tensors.parts import parts
from wsopt.tensors.views import OUTER, Packing, Role, View

TORCH = {
    DType.F32: "torch.float32",
    DType.F16: "torch.float16",
    DType.BF16: "torch.bfloat16",
    DType.F8E4M3: "torch.float8_e4m3fn",
    DType.F8E5M2: "torch.float8_e5m2",
    DType.I32: "torch.int32",
    DType.I8: "torch.int8",
    DType.I4: "torch.uint8",
    DType.BOOL: "torch.bool",
}
GLUON = {
    DType.F32: "gl.float32",
    DType.F16: "gl.float16",
    DType.BF16: "gl.bfloat16",
    DType.F8E4M3: "gl.float8e4nv",
    DType.F8E5M2: "gl.float8e5",
    DType.I32: "gl.int32",
    DType.I8: "gl.int8",
    DType.I4: "gl.int16",
    DType.BOOL: "gl.int8",
}
"""Element types in memory: of bools the bytes, each 0 or 1, since TMA has no map of bools."""

SIGNATURE = {
    DType.F32: "fp32",
    DType.F16: "fp16",
    DType.BF16: "bf16",
    DType.F8E4M3: "fp8e4nv",
    DType.F8E5M2: "fp8e5",
    DType.I32: "i32",
    DType.I8: "i8",
    DType.I4: "i16",
    DType.BOOL: "i8",
}

PAIRS_LAYOUT = "PAIRS_LAYOUT"
"""The constant that says how a tile of pairs lies in registers, before it is split into one of each pair."""

FLAT_STEP = "FLAT_STEP"
"""The constant that says of how many elements pieces of a flat row begin at a multiple."""

WORD_BITS, _WORD = 16, ("gl.int16", "i16")
"""Bits of the words in which packed fragments are copied and loaded, and their type in Gluon and in a signature."""

_FRAGMENT_SWIZZLES = (64,)
"""Swizzle of packed fragments: eight threads that load 16 bytes each, of two rows, then read all banks."""


def word_elements(view: View) -> int:
    """Elements in a word of a tensor's fragments; 1 for a tensor that has none."""
    return WORD_BITS // view.dtype.bits if view.packing is Packing.FRAGMENTS else 1


def zero(dtype: DType) -> str:
    """Value of a load where it is masked; Triton casts no whole number to f8."""
    return "0.0" if dtype.is_float and dtype.bits < 16 else "0"


@dataclass(frozen=True, slots=True)
class Box:
    """A tensor moved by TMA: the box of one copy, and how it lies in shared memory.

    With `fold` the tensor's last dimension is seen in parts of so many elements, as two dimensions. A tile of several
    parts is a box each; `first` has the axes along which one of them does not begin with the tile, and where it does.
    `shape` is what one block copies: of a pair each has its part of the `whole`, which they divide along the
    dimension `split`.
    """

    name: str
    view: View
    shape: tuple[int, ...]
    swizzle: int
    fold: int = 0
    first: tuple[tuple[Role, int], ...] = ()
    split: int | None = None

    @property
    def whole(self) -> tuple[int, ...]:
        """Extents as the kernel's text has them: of a pair of blocks both parts."""
        return tuple(2 * extent if dim == self.split else extent for dim, extent in enumerate(self.shape))

    @property
    def folded_columns(self) -> int:
        """Columns of a part, where the last dimension is seen in parts: of pairs it has both elements of each."""
        return self.fold // self.view.step

    @property
    def across(self) -> list[int] | None:
        """Where the part of a pair's second block begins, in parts along each dimension; None without pairs."""
        return None if self.split is None else [int(dim == self.split) for dim in range(len(self.shape))]

    @property
    def descriptor(self) -> str:
        """The kernel's argument for its tensor."""
        return f"{self.name}_desc"

    @property
    def layout(self) -> str:
        """The constant that says how a box lies in shared memory."""
        return f"{self.name}_LAYOUT"

    @property
    def nbytes(self) -> int:
        """Bytes that one copy moves."""
        return math.prod(self.shape) * self.bits // 8

    @property
    def copied(self) -> tuple[int, ...]:
        """What one instruction's tensor map takes: a single row where each is at a place of its own, a page where
        several make a tile.
        """
        if page := self.view.page:
            return tuple(
                min(page, extent) if role is Role.STREAM else extent
                for role, extent in zip(self.view.roles, self.shape, strict=True)
            )
        if not self.view.rows_chosen:
            return self.shape
        return tuple(1 if dim == self.row else extent for dim, extent in enumerate(self.shape))

    @property
    def row(self) -> int:
        """The dimension of the rows."""
        return self.view.roles.index(Role.ROW)

    @property
    def bits(self) -> int:
        """Bits of what is copied, an element or a word of several."""
        return self.view.dtype.bits * word_elements(self.view)

    @property
    def gluon(self) -> str:
        """Gluon's type of what is copied."""
        return _WORD[0] if self.view.packing is Packing.FRAGMENTS else GLUON[self.view.dtype]

    @property
    def signature(self) -> str:
        """The type of what is copied in a kernel's signature."""
        return _WORD[1] if self.view.packing is Packing.FRAGMENTS else SIGNATURE[self.view.dtype]


def make_box(name: str, view: View, extents: Mapping[Role, int]) -> Box:
    """The box of a view that takes `extents` elements along its axes, one along batch and group."""
    shape = tuple(1 if role in OUTER else extents[role] for role in view.roles)
    inner = shape[-1] * view.dtype.bits // 8
    swizzles = _FRAGMENT_SWIZZLES if view.packing is Packing.FRAGMENTS else SWIZZLES
    swizzle = swizzle_of(inner, math.prod(shape[:-1]), swizzles)
    first = tuple(view.first.items())
    return Box(name, view, (*shape[:-1], shape[-1] // word_elements(view)), swizzle, first=first)


def part_boxes(name: str, view: View, extents: Mapping[Role, int]) -> tuple[Box, ...]:
    """The boxes of a view's tile: one for each choice of parts of its extents, named by where that begins."""
    roles = [role for role in view.roles if role not in OUTER]
    cut = [role for role in roles if len(parts(extents[role])) > 1]
    found = list[Box]()
    for chosen in itertools.product(*(parts(extents[role]) for role in roles)):
        own = dict(zip(roles, chosen, strict=True))
        ending = "".join(f"_{own[role].first}" for role in cut)
        box = make_box(name + ending, view, {role: part.length for role, part in own.items()})
        begins = view.first | {role: view.first.get(role, 0) + part.first for role, part in own.items()}
        found.append(replace(box, first=tuple((role, at) for role, at in begins.items() if at)))
    return tuple(found)


def row_box(name: str, view: View, extents: Mapping[Role, int], most: int, *, across: bool = False) -> Box:
    """Box of whole rows, not swizzled: a warp reads them along. Where that makes them one copy, rows are folded into
    parts of `most`. What lies turned is swizzled, for a warp reads it across; and all is where a warp lies `across`.
    """
    if across or is_turned(view):
        return make_box(name, view, extents)
    *outer, columns = (1 if role in OUTER else extents[role] for role in view.roles)
    extent = view.of(view.roles[-1], view.extents[-1])
    fold = most if columns > most and extent % most == 0 and not view.cutouts else 0
    inner = (columns // fold, fold) if fold else (columns,)
    return Box(name, view, (*outer, *inner), 0, fold, tuple(view.first.items()))


def tile_view(buffer: str, box: Box, first: Role) -> str:
    """The expression for a box as a matrix whose rows run along `first`, or as a vector: without batch dimensions,
    with a folded one whole.
    """
    matrix = _as_it_lies(buffer, box)
    return f"{matrix}.permute((1, 0))" if _is_turned(box, first) else matrix


def tile_load(buffer: str, box: Box, first: Role, layout: str) -> str:
    """The expression that brings a box into registers, in the `layout` of a matrix whose rows run along `first`.

    Triton 3.6 reads a transposed view of what is not swizzled as if it were not transposed. So it is read as it lies,
    in a layout of its own (`turned`), and transposed in registers, which moves nothing.
    """
    if box.swizzle or not _is_turned(box, first):
        return f"{tile_view(buffer, box, first)}.load({layout})"
    return f"{_as_it_lies(buffer, box)}.load({turned(layout)}).permute((1, 0))"


def tile_store(buffer: str, box: Box, first: Role, value: str) -> tuple[str, str]:
    """The buffer of a box, and the value for it of a matrix whose rows run along `first`; see `tile_load`."""
    if box.swizzle or not _is_turned(box, first):
        return tile_view(buffer, box, first), value
    return _as_it_lies(buffer, box), f"{value}.permute((1, 0))"


def turned(layout: str) -> str:
    """The constant for a register layout with its dimensions exchanged."""
    return f"{layout}_TURNED"


def _sides(box: Box) -> dict[Role, int]:
    """Extents of a box along its axes: without batch dimensions, with a folded one whole."""
    whole = (*box.shape[:-2], box.shape[-2] * box.shape[-1]) if box.fold else box.whole
    return {role: extent for role, extent in zip(box.view.roles, whole, strict=True) if role not in OUTER}


def _is_turned(box: Box, first: Role) -> bool:
    """Whether a box lies with its second dimension along `first`."""
    sides = _sides(box)
    return len(sides) > 1 and next(iter(sides)) is not first


def _as_it_lies(buffer: str, box: Box) -> str:
    """The expression for a box as a matrix or a vector in the order in which it lies."""
    sides = _sides(box)
    return buffer if len(sides) == len(box.shape) else f"{buffer}.reshape({tuple(sides.values())!r})"


def coordinates(box: Box, place: dict[Role, str]) -> tuple[str, ...]:
    """The coordinates of a box: for each dimension the expression of its axis, at a tile's `place`."""
    first = dict(box.first)

    def begins(role: Role) -> str:
        words = word_elements(box.view) if role is Role.STREAM else 1
        if (shared := box.view.sharing(role) * words) > 1 and place[role] != "0":
            spread = f" * {box.view.apart}" if role is box.view.roles[-1] and box.view.apart > 1 else ""
            begin = f" + {first[role] // words}" if role in first else ""  # slices are not spread
            return f"{place[role]} // {shared}{spread}{begin}"
        if box.view.step > 1 and role is box.view.roles[-1] and place[role] != "0":
            return f"({place[role]}) * {box.view.step}" + (f" // {box.fold}" if box.fold else "")
        terms = [place[role]] if place[role] != "0" or role not in first else []
        if box.fold and role is Role.COLUMN and terms != ["0"]:
            return f"({terms[0]}) // {box.fold}"
        return " + ".join([*terms, *([str(first[role])] if role in first else [])])

    if box.view.flat:
        begin = f"{_multiplied(place[Role.ROW])} * ROW_LENGTH // {FLAT_STEP} * {FLAT_STEP}"
        return "0", begin if place[Role.COLUMN] == "0" else f"{begin} + {place[Role.COLUMN]}"
    return (*map(begins, box.view.roles), *(("0",) if box.fold else ()))


def _multiplied(term: str) -> str:
    """A term as a factor of a product."""
    return f"({term})" if " + " in term else term
