"""Arithmetic cut into phases, and the instruction counts of each.

A phase is a run of statements that need nothing but what products and earlier phases have left. A value that needs a
row's reduced value of the same tile begins a new phase, for the reduction has to end first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Iterable, Sequence

from wsopt.frontend.types import Contraction, Region
from wsopt.graph.types import DType
from wsopt.machine.cost import InstructionMix
from wsopt.machine.types import Machine
from wsopt.primitives import PRIMITIVES, Family, Primitive, exponential, family_of
from wsopt.program.facts import Arithmetic, Beside, RowReduction
from wsopt.program.lazy import Lazy, lazy_of
from wsopt.program.program import Item
from wsopt.program.row_layout import RowLayout
from wsopt.program.types import Structure
from wsopt.targets import Sums, target_of
from wsopt.tensors.statements import BEFORE, Reduction, Scalar, Statement, reduces_row
from wsopt.tensors.views import FULL, K_BLOCK, Packing, Role, Source, View

BodyItem = Statement | Reduction | Contraction

_ROW = frozenset({Role.ROW})
_COLUMN = frozenset({Role.COLUMN})
_SPECIAL = ("exp2", "rsqrt", "div", "sqrt", "log2")
QUAD_COLUMNS = 8
"""Columns of a run in which each of the four threads that share a row has two."""

# --- phases ---------------------------------------------------------------------------------------------


def is_scores(item: BodyItem) -> bool:
    """Whether an item is a product whose result is a value of the loop."""
    return isinstance(item, Contraction) and item.spans == K_BLOCK


def is_sums(item: BodyItem) -> bool:
    """Whether an item is a product that is summed over the streamed axis, after all phases."""
    return isinstance(item, Contraction) and item.spans == FULL


def body_levels(body: Sequence[BodyItem]) -> dict[str, int]:
    """The phase of every item of a loop: one more than those of products, and of row values that a K-block's value
    needs. Arithmetic goes with the first that uses it: next to its reader a product is part of an addition.
    """
    level: dict[str, int] = {}
    late: set[str] = set()
    rows: set[str] = set()
    for item in body:
        names = [name for name in item.reads if name in level]
        tile = is_scores(item) or (isinstance(item, Statement) and Role.STREAM in item.spans)
        level[item.name] = max((level[n] + (n in late or (tile and n in rows)) for n in names), default=0)
        if is_scores(item):
            late.add(item.name)
        elif isinstance(item, Reduction) or (not tile and rows & set(names)):
            rows.add(item.name)
    least = int(any(map(is_scores, body)))  # arithmetic comes behind the first products, where there are any
    for item in reversed(body):
        if isinstance(item, Statement):
            users = (level[user.name] for user in body if item.name in user.reads and not is_sums(user))
            level[item.name] = max(least, level[item.name], min(users, default=least))
    return level


def row_phases(items: Sequence[Item]) -> tuple[tuple[Item, ...], ...]:
    """The items of a tile of whole rows in phases: each has reductions of its own last.

    What one later phase alone reads is computed there, so that no tile is held for it.
    """
    level: dict[str, int] = {}
    late = {item.name for item in items if reduces_row(item)}
    for item in items:
        level[item.name] = max((level[n] + (n in late) for n in item.reads if n in level), default=0)
    for item in reversed(items):
        if isinstance(item, Statement):
            users = (level[user.name] for user in items if item.name in user.reads)
            level[item.name] = max(level[item.name], min(users, default=0))
    last = max(level.values(), default=0)
    return tuple(tuple(i for i in items if level[i.name] == number) for number in range(last + 1))


def lane_sums(body: Sequence[BodyItem], s: Structure, machine: Machine) -> frozenset[str]:
    """The sums of a loop that stay with the threads that hold a K-block's columns, until the loop is over.

    An accumulator's row lies in a quad of threads. A sum of whole rows in one warp that nothing in the loop reads can
    go on in each of the four by itself; that leaves two exchanges, one waiting for the other, to the end.
    """
    if target_of(machine).sums is not Sums.REGISTERS:  # a row is one thread's
        return frozenset()
    if s.rows * machine.warps_per_warpgroup < machine.mma_rows * s.consumer_warps or s.depth % QUAD_COLUMNS:
        return frozenset()
    read = {name for item in body for name in item.reads}
    sums = (item.name for item in body if isinstance(item, Reduction) and item.kind == "sum")
    return frozenset(name for name in sums if not read & {name, name + BEFORE})


# --- instruction counts ---------------------------------------------------------------------------------


def element_mix(
    items: Iterable[Item],
    spans: frozenset[Role],
    fused: Callable[[Statement], bool] = lambda item: False,
    rounding: float = 0.5,
    eighths: int = 0,
    maxima: float = 1.0,
    rows: Container[str | Scalar] = (),
) -> InstructionMix:
    """Instructions an element of a tile that spans these axes; what is `fused` is part of another instruction.

    One instruction rounds two elements, unless `rounding` says else, and computes two of 16 bits; what spans fewer
    axes is too little to count. What is divided by one of `rows`, values of a row, is multiplied by its reciprocal.
    So many `eighths` of the elements take another implementation where a primitive has one. A row's maximum takes
    `maxima` instructions an element.
    """
    mix = InstructionMix()
    for item in items:
        if isinstance(item, Reduction):
            mix = mix + InstructionMix({"max": maxima} if item.kind == "max" else {"add": 1})
        elif item.spans == spans and not fused(item):
            pairs = 0.5 if item.dtype in (DType.BF16, DType.F16) else 1.0
            pairs = rounding if family_of(item.primitive) is Family.ROUNDING else pairs
            by_row = item.primitive == "div" and item.args[1] in rows
            mix = mix + (_BY_ROW if by_row else _instructions(PRIMITIVES[item.primitive], eighths)) * pairs
    return mix


_BY_ROW = InstructionMix({"mul": 2})
"""Instructions of a division of an element by a value of its row, as the machine code for sm_90 has them: the
reciprocal is a row's, a thread has it once.
"""


def _instructions(primitive: Primitive, eighths: int) -> InstructionMix:
    """Instructions an element, some of them in the primitive's other implementation."""
    mix, other = InstructionMix(primitive.mix), primitive.otherwise
    if other is None or not eighths:
        return mix
    share = eighths / exponential.PACK
    kept = {kind: count - share * other.spared.get(kind, 0) for kind, count in mix.items()}
    return InstructionMix(kept) + InstructionMix(other.mix) * share


def _chain(items: Sequence[Item], s: Structure) -> tuple[int, int]:
    """Statements of a phase's longest chain, and special functions among them."""
    chain, special = 0, 0
    for item in (item for item in items if isinstance(item, Statement)):
        other = PRIMITIVES[item.primitive].otherwise if item.spans == K_BLOCK and s.exp2_eighths else None
        chain += 1 if other is None else other.chain
        special += other is None and "exp" in item.primitive
    return chain, special


def _fused(item: Statement, every: Sequence[BodyItem], *, sums: bool) -> bool:
    """Whether a multiplication becomes part of the one addition that reads it, or `sums` of one too."""
    readers = [other for other in every if item.name in other.reads]
    if item.primitive != "mul" or len(readers) != 1:
        return False
    (reader,) = readers
    if isinstance(reader, Reduction):
        return sums and reader.kind == "sum"
    return isinstance(reader, Statement) and reader.primitive in ("add", "sub")


def read_by(items: Iterable[Item], sources: Iterable[Source]) -> list[Source]:
    """The sources that items read."""
    names = {name for item in items for name in item.reads}
    return [source for source in sources if source.name in names]


_SPREAD = 2
"""Instructions an element in which Triton spreads 8-bit whole numbers to the words that a conversion takes, as the
machine code for sm_90 has them: a PRMT and a LOP3.
"""

_WIDENED = 1
"""Instructions an element in which tiles of 16-bit floats become f32 where products' sums lie, as the machine code
for sm_90 has them: of two neighbours one is shifted, and one is masked or moved.
"""


_UNPACKED = {
    DType.I4: {"logic": 7 / 8, "add": 0.5},
    DType.I8: {"logic": 5 / 4, "add": 0.5},
}
"""Instructions an element in which packed fragments are taken apart, as the machine code for sm_90 has them: of eight
elements of four bits four LOP3, three SHF and four HADD2; of four of eight bits four LOP3, one SHF and two HADD2.
"""


def _unpacked(views: Iterable[View]) -> InstructionMix:
    """Instructions an element in which a K-block's packed tiles are taken apart."""
    mix = InstructionMix()
    for view in views:
        raised = view.zero is not None and view.zero < 0  # they stay behind what is subtracted of others
        mix = mix + InstructionMix(
            {k: n for k, n in _UNPACKED[view.dtype].items() if k != "add" or not raised}
        )
    return mix


def widening_mix(narrow: DType, wide: DType) -> InstructionMix:
    """Instructions an element in which numbers of 8 bits become such of 16, as the machine code for sm_90 has them:
    of whole numbers a LOP3, and for two of them a PRMT and an addition; of floats, for two of them, one conversion to
    f16, and then one to f32 for each and one to bf16 for both.
    """
    if not narrow.is_float:
        return InstructionMix({"logic": 1.5, "add": 0.5})
    return InstructionMix({"convert": 0.5} if wide is DType.F16 else {"convert": 1.0, "add": 1.0})


def k_block_mix(
    items: Iterable[Item],
    every: Sequence[BodyItem],
    eighths: int,
    maxima: float = 1.0,
    taken_apart: Container[str | Scalar] = (),
) -> InstructionMix:
    """Instructions an element of a K-block for some items of a loop whose items are `every` one. Fragments that are
    `taken_apart` are in their product's type already: no instruction rounds them to it.
    """

    def fused(item: Statement) -> bool:
        rounded = family_of(item.primitive) is Family.ROUNDING and item.args[0] in taken_apart
        return rounded or _fused(item, every, sums=False)

    return element_mix(items, K_BLOCK, fused, eighths=eighths, maxima=maxima)


def k_block_phase(
    items: Sequence[Item],
    every: Sequence[BodyItem],
    streamed: Sequence[Source],
    s: Structure,
    apart: frozenset[str] = frozenset(),
    by_threads: bool = False,
) -> Arithmetic:
    """A phase of a loop whose items are `every` one, on a consumer's tile of a K-block; `apart` are its lane sums.
    Where rows are `by_threads`, one each, reductions exchange nothing, and a maximum takes three values at a time.
    """
    read = read_by(items, streamed)
    every_view = [source.view for source in read if source.spans == K_BLOCK and source.view.each == 1]
    packed = [view for view in every_view if view.packing is Packing.FRAGMENTS]
    plain = [view for view in every_view if view not in packed]
    statements, special = _chain(items, s)
    fragments = {source.name for source in read if source.view in packed}
    mix = k_block_mix(items, every, s.exp2_eighths, 0.5 if by_threads else 1.0, fragments) + _unpacked(packed)
    lanes = 1 if by_threads else 4
    floats = sum(view.dtype.is_float and view.dtype.bits < 32 for view in plain)
    whole = sum(view.dtype in (DType.I8, DType.BOOL) for view in plain)
    return Arithmetic(
        mix + InstructionMix({"logic": _WIDENED * floats + _SPREAD * whole}),
        s.rows * s.depth,
        statements,
        special,
        tuple(RowReduction(i.kind, lanes, apart=i.name in apart) for i in items if isinstance(i, Reduction)),
        waits=len(read)
        - (sum(source.view.each > 1 for source in read) if packed else 0),  # one ring holds both
        tiles=tuple(view.dtype.bits for view in plain),
        vectors=sum(s.rows * s.depth * view.dtype.bits / 16 for view in packed),
    )


def _exchanged(item: Item) -> str:
    """What threads that share a row make of it together: a running sum goes through them as a sum does."""
    if isinstance(item, Reduction):
        return "" if item.over_rows else item.kind
    return "sum" if item.primitive == "running_sum" else ""


def row_phase(
    items: Sequence[Item],
    every: Sequence[Item],
    sources: Sequence[Source],
    s: Structure,
    layout: RowLayout,
    machine: Machine,
    held: Sequence[Source] = (),
) -> Arithmetic:
    """A phase of a tile of rows. Column vectors are loaded once for every row that a warp has, but those that are
    `held`. What is computed of a row's values is, by each thread that has elements of the row; and of a column's, by
    each that has some of it.
    """
    vectors = [source for source in read_by(items, sources) if source.spans == _COLUMN]
    tiles = [one for one in read_by(items, sources) if one.spans == FULL and not one.view.is_copied]
    lanes, warps = layout.lanes[1], layout.warps[1]
    own, threads = s.rows // (layout.lanes[0] * layout.warps[0]), math.prod((*layout.lanes, *layout.warps))
    halves = sum(one.view.dtype.bits for one in vectors) / 16

    return Arithmetic(
        _tile_mix(items, every)
        + _row_mix(items) * (own * threads / (s.rows * s.columns))
        + _column_mix(items, (*vectors, *read_by(items, held))) * (1 / max(1, own)),
        s.rows * s.columns,
        sum(isinstance(item, Statement) for item in items),
        sum(isinstance(item, Statement) and item.primitive in _SPECIAL for item in items),
        tuple(
            RowReduction(kind, lanes, warps, rows=own, threads=threads)
            for kind in map(_exchanged, items)
            if kind
        ),
        vectors=halves * s.columns * layout.rows + len(tiles) * s.rows * s.columns,
        columns=len(vectors),
        lone=s.consumer_warps * s.blocks_an_sm <= machine.schedulers_per_sm,
    )


def _tile_mix(items: Iterable[Item], every: Sequence[Item]) -> InstructionMix:
    """Instructions of a tile of rows for each of its elements. What others are computed of is widened again where it
    was rounded to 16 bits.
    """
    rows = {item.name for item in every if isinstance(item, Reduction) or item.spans == _ROW}
    read = {name for item in every for name in item.reads}
    tiles = [item for item in items if isinstance(item, Statement) and item.spans == FULL]
    again = sum(one.dtype.is_float and one.dtype.bits == 16 and one.name in read for one in tiles)
    mix = element_mix(items, FULL, lambda item: _fused(item, every, sums=True), rows=rows)
    return mix + InstructionMix({"logic": _WIDENED * again})


def _row_mix(items: Iterable[Item]) -> InstructionMix:
    """Instructions of what is computed of a row's values, for each row."""
    return element_mix((item for item in items if isinstance(item, Statement)), _ROW, rounding=1.0)


_PLACING = (Family.INDEX, Family.INSIDE, Family.COMPARISON)


def _column_mix(items: Iterable[Item], vectors: Iterable[Source]) -> InstructionMix:
    """Instructions of what is computed of columns' values, for each column, and by which the vectors become f32.
    Numbers of columns, and what they are compared with, cost as elements do that are placed.
    """
    narrow = sum(one.view.dtype.is_float and one.view.dtype.bits < 32 for one in vectors)
    computed = (
        one for one in items if isinstance(one, Statement) and family_of(one.primitive) not in _PLACING
    )
    mix = element_mix(computed, _COLUMN, rounding=1.0)
    return mix + InstructionMix({"logic": _WIDENED * narrow})


def beside_products(items: Sequence[Item], views: Sequence[View], s: Structure, layout: RowLayout) -> Beside:
    """Counts of a consumer's reductions of its rows' tiles of a K-block, whose 16-bit numbers become f32 first."""
    mix = InstructionMix({"logic": 1}) * float(len(views)) + element_mix(items, K_BLOCK, rounding=1.0)
    reductions = tuple(RowReduction(i.kind, layout.lanes[1]) for i in items if isinstance(i, Reduction))
    nbytes = sum(s.rows * s.depth * view.dtype.bits // 8 for view in views)
    return Beside(Arithmetic(mix, s.rows * s.depth, len(items), 0, reductions), nbytes, s.rows)


@functools.lru_cache(maxsize=16)
def lazy_rows(region: Region) -> Lazy | None:
    """How rows of a loop may keep their maximum where it has grown by little; None where they may not.

    emitter.v1: not where that, or a sum relative to it, is read behind the loop.
    """
    items = [item for item in region.body if not isinstance(item, Contraction)]
    sums = {one.name: one.rescale for one in region.contractions if is_sums(one)}
    return lazy_of(items, sums, region.statements, [output.value for output in region.outputs])
