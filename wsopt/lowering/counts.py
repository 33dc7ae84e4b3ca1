"""Instruction counts of runs of arithmetic: phases of a K-block or of rows, and reductions beside
products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from wsopt.lowering.phases import BodyItem
from wsopt.machine.cost import InstructionMix
from wsopt.machine.types import Machine
from wsopt.primitives import PRIMITIVES, Family, family_of
from wsopt.program.counts import Arithmetic, Beside, RowReduction
from wsopt.program.program import Item
from wsopt.program.row_layout import RowLayout
from wsopt.program.types import Structure
from wsopt.tensors.statements import BEFORE, Reduction, Statement
from wsopt.tensors.views import FULL, K_BLOCK, Role, Source, View

_SPECIAL = ("exp2", "rsqrt", "div", "sqrt", "log2")
QUAD_COLUMNS = 8
"""Columns of a run in which each of the four threads that share a row has two."""


def statement_mix(item: Statement) -> InstructionMix:
    """Instructions an element of a statement."""
    return InstructionMix(PRIMITIVES[item.primitive].mix)


def element_mix(
    items: Iterable[Statement | Reduction],
    spans: frozenset[Role],
    fused: Callable[[Statement], bool] = lambda item: False,
) -> InstructionMix:
    """Instructions an element of a tile that spans these axes; what is `fused` is part of another instruction.

    Rounding takes two elements at a time; what spans fewer axes is too little to count.
    """
    mix = InstructionMix()
    for item in items:
        if isinstance(item, Reduction):
            mix = mix + InstructionMix({"max" if item.kind == "max" else "add": 1})
        elif item.spans == spans and not fused(item):
            pairs = 0.5 if family_of(item.primitive) is Family.ROUNDING else 1.0
            mix = mix + statement_mix(item) * pairs
    return mix


def lane_sums(body: Sequence[BodyItem], s: Structure, machine: Machine) -> frozenset[str]:
    """The sums of a loop that stay with the threads that hold a K-block's columns, until the loop is over.

    An accumulator's row lies in a quad of threads. A sum of whole rows in one warp that nothing in the loop reads can
    go on in each of the four by itself; that leaves two exchanges, one waiting for the other, to the end.
    """
    if s.rows * machine.warps_per_warpgroup < machine.mma_rows * s.consumer_warps or s.depth % QUAD_COLUMNS:
        return frozenset()
    read = {name for item in body for name in item.reads}
    sums = (item.name for item in body if isinstance(item, Reduction) and item.kind == "sum")
    return frozenset(name for name in sums if not read & {name, name + BEFORE})


def _fused(item: Statement, every: Sequence[BodyItem], *, sums: bool) -> bool:
    """Whether a multiplication becomes part of the one addition that reads it, or `sums` of one too."""
    if item.primitive != "mul":
        return False
    readers = [other for other in every if item.name in other.reads]
    if len(readers) != 1:
        return False
    (reader,) = readers
    if isinstance(reader, Reduction):
        return sums and reader.kind == "sum"
    return isinstance(reader, Statement) and reader.primitive in ("add", "sub")


def _read(items: Sequence[Item], sources: Sequence[Source]) -> list[Source]:
    """The sources that items read."""
    names = {name for item in items for name in item.reads}
    return [source for source in sources if source.name in names]


def k_block_phase(
    items: Sequence[Item],
    every: Sequence[BodyItem],
    streamed: Sequence[Source],
    s: Structure,
    apart: frozenset[str] = frozenset(),
) -> Arithmetic:
    """A phase of a loop whose items are `every` one, on a consumer's tile of a K-block; `apart` are its lane sums."""
    read = _read(items, streamed)
    tiles = tuple(source.view.dtype.bits for source in read if source.spans == K_BLOCK)
    mix = element_mix(items, K_BLOCK, lambda item: _fused(item, every, sums=False))
    return Arithmetic(
        mix + InstructionMix({"convert": 0.5 * sum(bits < 32 for bits in tiles)}),
        s.rows * s.depth,
        sum(isinstance(item, Statement) for item in items),
        sum(isinstance(item, Statement) and "exp" in item.primitive for item in items),
        tuple(RowReduction(i.kind, apart=i.name in apart) for i in items if isinstance(i, Reduction)),
        waits=len(read),
        tiles=tiles,
    )


def row_phase(
    items: Sequence[Item],
    every: Sequence[Item],
    sources: Sequence[Source],
    s: Structure,
    layout: RowLayout,
) -> Arithmetic:
    """A phase of a tile of whole rows. Column vectors are loaded once for every row that a warp has."""
    vectors = [source for source in _read(items, sources) if source.spans == frozenset({Role.COLUMN})]
    lanes, warps = layout.lanes[1], layout.warps[1]
    return Arithmetic(
        element_mix(items, FULL, lambda item: _fused(item, every, sums=True)),
        s.rows * s.columns,
        sum(isinstance(item, Statement) for item in items),
        sum(isinstance(item, Statement) and item.primitive in _SPECIAL for item in items),
        tuple(RowReduction(item.kind, lanes, warps) for item in items if isinstance(item, Reduction)),
        vectors=len(vectors) * s.columns * layout.rows,
    )


def beside_products(items: Sequence[Item], views: Sequence[View], s: Structure, layout: RowLayout) -> Beside:
    """Counts of a consumer's reductions of its rows' tiles of a K-block, whose 16-bit numbers become f32 first."""
    mix = InstructionMix({"logic": 1}) * float(len(views))
    for item in items:
        if isinstance(item, Reduction):
            mix = mix + InstructionMix({"max" if item.kind == "max" else "add": 1})
        elif item.spans == K_BLOCK:
            mix = mix + statement_mix(item)
    reductions = tuple(RowReduction(i.kind, layout.lanes[1]) for i in items if isinstance(i, Reduction))
    nbytes = sum(s.rows * s.depth * view.dtype.bits // 8 for view in views)
    return Beside(Arithmetic(mix, s.rows * s.depth, len(items), 0, reductions), nbytes, s.rows)
