"""Quantized operands in a consumer's registers: packed fragments taken apart, scales of groups spread over them.

A thread loads 16 bytes of a row at a time, as words of 16 bits. Two words are a register, in which every instruction
takes a number of either word: a mask leaves its bits in the fraction of a number whose exponent gives them the value
that they have, which is subtracted again. A row is packed (`runtime/packing.py`) in the order in which what is taken
apart lies as the product's operand does, so that no element changes its thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wsopt.emit.tensors import GLUON, turned, word_elements
from wsopt.graph.types import DType
from wsopt.tensors.views import FRAGMENT, WITHOUT_FRACTION, Packing, Role, Source, View

SHARED_COLUMNS = 4
"""Threads of a warp that share a row of a product's operand."""

_THREAD_WORDS, _LANE_ROWS, _WARP_ROWS = 8, 8, 16
_SIGNED_I4, _SIGNED_I8 = 8, 128


@dataclass(frozen=True, slots=True)
class Unpacking:
    """A function of the kernel's own that takes fragments apart: its `name`, the assembly for two words, how many
    results that has, and the type of its elements. In `dims` a row's elements stand as words hold them, and `order`
    puts them in their places.
    """

    name: str
    assembly: tuple[str, ...]
    results: int
    dtype: DType
    dims: str
    order: tuple[int, ...]

    @property
    def types(self) -> str:
        """The types of the results, as text."""
        return ", ".join([GLUON[self.dtype]] * self.results)


def unpacking(view: View, dtype: DType) -> Unpacking:
    """How a product's operand of a type is made of a view's fragments."""
    if view.dtype is DType.I4:
        name = "unpacked_i4" if view.zero is None else f"unpacked_u4_{view.zero}".replace("-", "raised_by_")
        shifts = 0, 4, 8, 12
        asm = tuple(_four_bits(shifts, view.zero, dtype))
        return Unpacking(name, asm, len(shifts), dtype, "4, 4, 2, 2, 2", (0, 1, 3, 6, 5, 2, 4))
    asm = tuple(_eight_bits_f16() if dtype is DType.F16 else _eight_bits())
    return Unpacking("unpacked_i8", asm, 2, dtype, "4, 4, 2, 2", (0, 1, 3, 5, 2, 4))


def _twice(half: int) -> str:
    """A number of 16 bits in both halves of a register, as instructions have it."""
    return f"0x{half:04x}{half:04x}"


_NUMBER_WITHOUT_FRACTION = {DType.BF16: 0x4300, DType.F16: 0x6400}
"""The bits of `WITHOUT_FRACTION`."""


def _four_bits(shifts: tuple[int, ...], zero: int | None, dtype: DType) -> Iterator[str]:
    """Number by number: shifted to the end, masked, and less what the bits stand behind and the zero; of signed ones
    the sign's bit is turned round, and they are less its value. From raised numbers nothing is subtracted.
    """
    words, base = f"${len(shifts)}", _NUMBER_WITHOUT_FRACTION[dtype]
    behind, raised = base + (_SIGNED_I4 if zero is None else 0), zero == -WITHOUT_FRACTION[dtype]
    less = {} if raised else {"n": base + (_SIGNED_I4 if zero is None else zero)}
    yield from _numbers(x=behind, **less)
    for place, shift in enumerate(shifts):
        source = f"${place}" if shift else words
        if shift:
            yield f"shr.b32 ${place}, {words}, {shift};"
        yield f"lop3.b32 ${place}, {source}, {_twice(0xF)}, x, 0x6a;"
    for place, _ in enumerate(() if raised else shifts):
        yield f"sub.rn.{dtype.value}x2 ${place}, ${place}, n;"


def _numbers(**numbers: int) -> Iterator[str]:
    """The lines that name numbers that arithmetic takes from registers alone."""
    yield f".reg .b32 {', '.join(numbers)};"
    for name, number in numbers.items():
        yield f"mov.b32 {name}, {_twice(number)};"


def _eight_bits() -> Iterator[str]:
    """The instructions that take a word of eight-bit integers apart into bf16, whose fraction has room for seven
    bits: the sign's bit becomes the last of an exponent, of 128 or 256, which is subtracted.
    """
    base = _twice(_NUMBER_WITHOUT_FRACTION[DType.BF16])
    yield ".reg .b32 x;"
    yield "shr.b32 $1, $2, 8;"
    for place, source in ((0, "$2"), (1, "$1")):
        yield f"lop3.b32 x, {source}, {_twice(0x80)}, {base}, 0x6a;"
        yield f"lop3.b32 ${place}, {source}, {_twice(0x7F)}, {base}, 0x6a;"
        yield f"sub.rn.bf16x2 ${place}, ${place}, x;"


def _eight_bits_f16() -> Iterator[str]:
    """The instructions that take a word of eight-bit integers apart into f16, whose fraction has room for all."""
    yield from _numbers(x=_NUMBER_WITHOUT_FRACTION[DType.F16] + _SIGNED_I8)
    yield "shr.b32 $1, $2, 8;"
    for place, source in ((0, "$2"), (1, "$1")):
        yield f"lop3.b32 ${place}, {source}, {_twice(0xFF)}, x, 0x6a;"
        yield f"sub.rn.f16x2 ${place}, ${place}, x;"


# --- layouts --------------------------------------------------------------------------------------------


def words_layout(view: View) -> str:
    """The constant with the layout of a view's words in registers."""
    return f"WORDS_LAYOUT_{view.dtype.bits}"


def groups_layout(view: View) -> str:
    """The constant with the layout of a tile in groups that share a view's elements."""
    return f"GROUPS_LAYOUT_{view.each}"


def _bases(begin: int, end: int, make: str) -> list[str]:
    """Bases for the bits of a dimension from `begin` up to `end`, as text."""
    found, step = list[str](), begin
    while step < end:
        found.append(make.format(step))
        step *= 2
    return found


def _linear(reg: list[str], lanes: list[str], rows: int, warps: int, row: str, shape: str) -> str:
    """A linear layout whose rows lie as those of a product's operand do: eight over a warp's threads, eight behind
    them, 16 a warp, and more in registers.
    """
    spread = _bases(_WARP_ROWS, _WARP_ROWS * warps, row)
    reg = [*reg, row.format(_LANE_ROWS), *_bases(_WARP_ROWS * warps, rows, row)]
    lanes = [*lanes, *_bases(1, _LANE_ROWS, row)]
    parts = (", ".join(part) for part in (reg, lanes, spread))
    return "gl.DistributedLinearLayout([{}], [{}], [{}], [], {})".format(*parts, shape)


def _words(view: View, rows: int, depth: int, warps: int) -> str:
    """Layout of the words of a tile: 16 bytes a thread, those of the four that share a row side by side."""
    columns, unit = depth // word_elements(view), FRAGMENT[view.dtype] // word_elements(view)
    reg = [*_bases(1, _THREAD_WORDS, "[0, {}]"), *_bases(unit, columns, "[0, {}]")]
    return _linear(
        reg, _bases(_THREAD_WORDS, unit, "[0, {}]"), rows, warps, "[{}, 0]", f"[{rows}, {columns}]"
    )


def _groups(view: View, rows: int, depth: int, warps: int, as_rows: bool = True) -> str:
    """Layout of a tile in groups, the elements of which lie as those of a product's operand do; if not `as_rows`,
    with the groups before the rows.
    """
    groups, row, group = depth // view.each, "[{}, 0, 0]", "[0, {}, 0]"
    shape = f"[{rows}, {groups}, {view.each}]"
    if not as_rows:
        row, group, shape = group, row, f"[{groups}, {rows}, {view.each}]"
    reg = ["[0, 0, 1]", *_bases(2 * SHARED_COLUMNS, view.each, "[0, 0, {}]"), *_bases(1, groups, group)]
    return _linear(reg, ["[0, 0, 2]", "[0, 0, 4]"], rows, warps, row, shape)


def layouts(views: list[View], rows: int, depth: int, warps: int) -> Iterator[tuple[str, str, str]]:
    """Name, value and comment of the layouts that views of the loop are read with."""
    made = dict[str, tuple[str, str]]()
    for view in views:
        if view.packing is Packing.FRAGMENTS:
            made[words_layout(view)] = (
                _words(view, rows, depth, warps),
                "how words of packed elements lie in registers",
            )
        elif view.of(Role.STREAM, depth) > 1 < view.each:
            made[groups_layout(view)] = _groups(view, rows, depth, warps), "how groups that share a scale do"
            if not _as_rows(view):
                text = _groups(view, rows, depth, warps, as_rows=False)
                made[turned(groups_layout(view))] = text, "the same of what lies turned"
    yield from ((name, value, comment) for name, (value, comment) in made.items())


# --- what is read ---------------------------------------------------------------------------------------


def held_type(source: Source, users: list[DType], product: DType) -> DType:
    """The type in which a consumer has a source's elements: that of the product if they are taken apart, or their own
    where all that is computed of them, `users`, is.
    """
    own = source.view.dtype
    if source.view.packing is Packing.FRAGMENTS:
        return product
    if not own.is_float:
        return product if source.view.zero else own
    return own if users and all(user is own for user in users) else DType.F32


def loaded(view: View, buffer: str, dtype: DType, depth: int, layout: str) -> tuple[str, str]:
    """The text that loads a packed or shared tile from its box, and the kernel's own function that it calls."""
    if view.packing is Packing.FRAGMENTS:
        name = unpacking(view, dtype).name
        return f"{name}({buffer}.load({words_layout(view)}), {layout})", name
    if view.of(Role.STREAM, depth) == 1:
        return f"{buffer}.reshape((CONSUMER_ROWS,)).load(gl.SliceLayout(1, {layout}))", ""
    shape = groups_layout(view)
    return f"spread({of_groups(view, buffer)}, {view.each}, {shape}, {layout})", "spread"


def of_groups(view: View, buffer: str) -> str:
    """A tile with an element a group. A turned one is read as it lies, and turned in registers: see `tile_load`."""
    layout = f"gl.SliceLayout(2, {groups_layout(view)})"
    if _as_rows(view):
        return f"{buffer}.load({layout})"
    tile = f"{buffer}.load(gl.SliceLayout(2, {turned(groups_layout(view))})).permute((1, 0))"
    return f"gl.convert_layout({tile}, {layout}, assert_trivial=True)"


def _as_rows(view: View) -> bool:
    return view.roles[-1] is Role.STREAM


def narrow_name(primitive: str, dtype: DType) -> str:
    """The function that computes a primitive of two elements at a time, in their type."""
    return f"{primitive}_{dtype.value}"


NARROW = {
    narrow_name(name, dtype): f"{name}.rn.{dtype.value}x2"
    for name in ("mul", "sub")
    for dtype in (DType.BF16, DType.F16)
}
"""Such functions, with their instructions."""


def narrow_functions(names: frozenset[str]) -> list[tuple[str, str, str]]:
    """The functions of two narrow operands among some names: name, instruction, type."""
    types = {name: GLUON[DType(name.partition("_")[2])] for name in NARROW}
    return [(name, text, types[name]) for name, text in NARROW.items() if name in names]
