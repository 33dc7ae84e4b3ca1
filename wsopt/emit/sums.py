"""The sums of a consumer's tile in registers: accumulators, their layouts, and how the epilogue cuts them.

A tile whose columns are a power of two has one accumulator; else one for each part of its columns, and no epilogue
subtile lies in two of them. Names count subtiles: `o` is all of a tile, `o_2` the third, `o_0_to_1` the first two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wsopt.program.types import Structure
from wsopt.tensors.parts import parts


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Subtiles [low, high) of a tile of sums, which one product leaves: `columns` as the text says them, and the
    constant with their layout.
    """

    low: int
    high: int
    columns: str
    layout: str


def accumulators(s: Structure) -> tuple[Accumulator, ...]:
    """The accumulators of a tile of sums, by columns."""
    cut = parts(s.columns)
    if len(cut) == 1:
        return (Accumulator(0, s.subtiles, "TILE_COLUMNS", "SUM_LAYOUT"),)
    width = s.subtile_columns
    return tuple(
        Accumulator(
            one.first // width, (one.first + one.length) // width, str(one.length), _layout(s, one.length)
        )
        for one in cut
    )


def accumulator_names(s: Structure, name: str) -> tuple[str, ...]:
    """The identifiers of a product's sums, one for each accumulator."""
    return tuple(subtile_name(s, name, one.low, one.high) for one in accumulators(s))


def operand_layouts(s: Structure) -> tuple[tuple[str, str], ...]:
    """The layouts of a product's left operand in registers: one for each accumulator, with the accumulator's."""
    every = accumulators(s)
    if len(every) == 1:
        return (("OPERAND_LAYOUT", "SUM_LAYOUT"),)
    return tuple((f"OPERAND_LAYOUT_{one.columns}", one.layout) for one in every)


def sum_layouts(s: Structure) -> list[tuple[str, int]]:
    """The layouts of sums, by name, with their columns: of accumulators, of subtiles, and of what lies between."""
    first, *rest = parts(s.columns)
    halves, columns = list[tuple[str, int]](), first.length if rest else first.length // 2
    while columns > s.subtile_columns:
        halves.append((f"LAYOUT_{columns}", columns))
        columns //= 2
    return [*([] if rest else [("SUM_LAYOUT", s.columns)]), ("SUBTILE_LAYOUT", s.subtile_columns), *halves]


def _layout(s: Structure, columns: int) -> str:
    """The constant with the layout of so many of a tile's columns."""
    return "SUBTILE_LAYOUT" if columns == s.subtile_columns else f"LAYOUT_{columns}"


def cut_to_subtiles(s: Structure, name: str) -> list[str]:
    """Lines that cut a tile of sums to subtiles."""
    return [line for one in accumulators(s) for line in _halves(s, name, one.low, one.high)]


def _halves(s: Structure, name: str, low: int, high: int) -> Iterator[str]:
    """Lines that cut subtiles [low, high), a power of two of them, into halves down to single ones."""
    if high - low == 1:
        return
    middle = (low + high) // 2
    left, right = (subtile_name(s, name, a, b) for a, b in ((low, middle), (middle, high)))
    layout = _layout(s, s.subtile_columns * (high - low) // 2)
    yield f"{left}, {right} = halves({subtile_name(s, name, low, high)}, {layout})"
    yield from _halves(s, name, low, middle)
    yield from _halves(s, name, middle, high)


def cut_along(whole: str, names: Sequence[str], columns: int) -> Iterator[str]:
    """Lines that cut a consumer's tile of so many columns into equal parts, a power of two of them, by name. Each has
    elements of every thread, so that none changes its thread.
    """
    middle, width = len(names) // 2, columns // 2
    both = names[:middle], names[middle:]
    first, second = (own[0] if middle == 1 else f"{own[0]}_to_{len(own) - 1}" for own in both)
    halves = f"{whole}.reshape((CONSUMER_ROWS, 2, {width})).permute((0, 2, 1))" if width > 1 else whole
    yield f"{first}, {second} = {halves}.split()"
    if middle > 1:
        for half, own in zip((first, second), both, strict=True):
            yield from cut_along(half, own, width)


def subtile_name(s: Structure, name: str, low: int, high: int) -> str:
    """The name of the subtiles [low, high) of a tile of sums."""
    if high - low == s.subtiles:
        return name
    return f"{name}_{low}" if high - low == 1 else f"{name}_{low}_to_{high - 1}"
