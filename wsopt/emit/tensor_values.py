"""Loops whose values go through tensor memory: what a consumer does in a K-block, and the products' warp for a tile.

A consumer reads scores into registers, computes, writes the operand of the next product, and rescales that one's sums
where they lie; then it tells the product. A commit behind each product says that its result is there. Nobody waits
for a product but who reads what it left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from wsopt.emit import lazy, tensor_tiles, text
from wsopt.emit.functions import Function, function, seen
from wsopt.emit.instructions import Instruction, Loop, wait, when
from wsopt.emit.operations import Operations
from wsopt.emit.plan import STATIONARY, KernelPlan
from wsopt.emit.ranges import scalar_loads, tile_range
from wsopt.emit.rings import Ring
from wsopt.emit.slots import step_at
from wsopt.emit.tensor_sums import commit
from wsopt.program.ids import OpKind, ValueId, ValueKind
from wsopt.program.program import TileOp
from wsopt.program.types import Space
from wsopt.schedule.budget import correction_columns
from wsopt.schedule.program_order import consumer_order, one_by_one
from wsopt.schedule.types import PartitionRole, PlacedOp

_SUBTILE = "SUBTILE_COLUMNS"

# --- consumers ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Pass:
    """Writes a consumer's pass: one K-block, operation by operation. `met` are the barriers that it has waited at."""

    operations: Operations
    masked: bool
    met: set[str] = field(default_factory=set)

    @property
    def plan(self) -> KernelPlan:
        """The kernel's plan."""
        return self.operations.plan

    def write(self) -> Iterator[Instruction]:
        """The instructions of the pass."""
        order = [step.op for step in consumer_order(self.plan.verified, overlapped=not self.masked)]
        for number, op in enumerate(order):
            yield from self._operation(op)
            for product in filter(tensor_tiles.takes_operand, self.operations.products):
                last = not any(_feeds(later, product) for later in order[number + 1 :])
                if _feeds(op, product) and last:
                    yield tensor_tiles.tell(tensor_tiles.ready(self.plan, product, "index"))
        yield "step += 1"

    def _operation(self, op: TileOp) -> Iterator[Instruction]:
        match op.kind:
            case OpKind.READ:
                yield from self._read(op)
            case OpKind.WRITE:
                # In its scores' columns it waits for nothing: they come when the product before has read those. Who
                # does not rescale has to meet each of that one's ends all the same, to know the last by its phase.
                rescales = any(not one.apart for one in self.plan.program.of(OpKind.RESCALE))
                if self.plan.program.value(op.output).within is None or not rescales:
                    yield from self._behind(lambda product: op.output in product.inputs)
                yield from self._written(op)
            case OpKind.RESCALE:
                yield from self._behind(lambda product: op.output == product.output)
                yield from _rescale(self.plan, op, self._value(op.inputs[0]), "index")
            case OpKind.ELEMENTWISE:
                yield from self._meet(op)
                yield from self.operations.arithmetic(op, lambda _: 0, 0, masked=self.masked)
                yield from lazy.kept(self.operations, op, masked=self.masked)
            case OpKind.RELEASE:
                yield next(ring for ring in self.plan.rings if op.id in ring.plan.releases).release()
            case _:
                raise AssertionError(f"{op.kind} is not a consumer's")

    def _value(self, value: ValueId) -> str:
        return self.plan.value(value.subject)

    def _read(self, op: TileOp) -> Iterator[Instruction]:
        """A product's result brought into registers; its columns are handed back if nothing else takes them."""
        (result,) = op.inputs
        product = next(one for one in self.operations.products if one.output == result)
        yield tensor_tiles.wait_ended(self.plan, product, tensor_tiles.STEP)
        yield f"{self._value(result)} = {tensor_tiles.tile(self.plan, result, 'index')}.load({self.plan.loop_layout})"
        if tensor_tiles.handed_back(self.plan, product):
            yield tensor_tiles.tell(tensor_tiles.empty(self.plan, product, "index"))

    def _written(self, op: TileOp) -> Iterator[Instruction]:
        """A value on its way to a product, or factors on theirs to who rescales sums."""
        value, made = self._value(op.inputs[0]), op.output
        assert made is not None, f"{op.id} has a result"
        if self.plan.program.value(made).space is Space.TENSOR:
            yield f"{tensor_tiles.tile(self.plan, made, 'index')}.store({value})"
            return
        slots = tensor_tiles.handed(self.plan, made)
        yield wait(f"{slots.name}_empty.index(index)", tensor_tiles.BEFORE)
        yield f"{slots.name}.index(index).store({value})"
        yield tensor_tiles.tell(f"{slots.name}_full.index(index)")

    def _behind(self, which: Callable[[TileOp], bool]) -> Iterator[Instruction]:
        """Wait for the K-block before's product of a kind, once a pass."""
        for product in (one for one in self.operations.products if which(one)):
            told = tensor_tiles.wait_ended(self.plan, product, tensor_tiles.BEFORE)
            if told not in self.met:
                self.met.add(told)
                yield told

    def _meet(self, op: TileOp) -> Iterator[Instruction]:
        """Wait for the slots that arithmetic reads, once a pass."""
        for tile in (one for one in op.inputs if one.kind is ValueKind.TILE):
            ring, _, _ = self.operations.place(tile)
            if ring.name not in self.met:
                self.met.add(ring.name)
                yield ring.wait_full()


def _rescale(plan: KernelPlan, op: TileOp, value: str, consumer: str) -> Iterator[str]:
    """A product's sums multiplied by the factor of each row, slice by slice: a consumer takes subtiles, a correction
    warpgroup what its registers hold.
    """
    assert op.output is not None, f"{op.id} has a result"
    layout, width = ("CORRECTION_LAYOUT", "CORRECTION_COLUMNS") if op.apart else ("SUBTILE_LAYOUT", _SUBTILE)
    count = plan.s.columns // correction_columns(plan.s) if op.apart else plan.s.subtiles
    factor, part = f"{value}_of_rows", f"{plan.value(op.output.subject)}_part"
    lines = [f"{factor} = gl.expand_dims(gl.convert_layout({value}, gl.SliceLayout(1, {layout})), 1)"]
    for columns in _slices(plan, op.output, consumer, width, count):
        lines += [f"{part} = {columns}", f"{part}.store({part}.load({layout}) * {factor})"]
    yield from lines if plan.program.lazy is None else [lazy.where_moved(value, lines)]


def _feeds(op: TileOp, product: TileOp) -> bool:
    """Whether a product waits for an operation of a consumer: for its operand, or for its sums."""
    return op.output is not None and (op.output in product.inputs or op.output == product.output)


def _slices(plan: KernelPlan, sums: ValueId, consumer: str, width: str, count: int) -> Iterator[str]:
    """So many slices of a consumer's sums in tensor memory, each of the columns that `width` names."""
    for number in range(count):
        yield f"{tensor_tiles.tile(plan, sums, consumer)}.slice({number} * {width}, {width})"


def passes(operations: Operations, *, masked: bool = False) -> Loop:
    """A consumer's loop: pass for pass a K-block, with masks or without."""
    operations = replace(operations, writer=replace(operations.writer, called=set()))
    steady = tuple(_Pass(operations, masked).write())
    return Loop((), 0, 0, 1, steady, (), frozenset(operations.writer.called))


def _sums(operations: Operations) -> Iterator[TileOp]:
    """The products that leave sums."""
    return (one for one in operations.products if one.output and one.output.kind is ValueKind.SUM)


def cleared(operations: Operations) -> Iterator[str]:
    """Lines that clear a consumer's sums, to which every K-block adds."""
    zeros = "gl.zeros([CONSUMER_ROWS, SUBTILE_COLUMNS], gl.float32, SUBTILE_LAYOUT)"
    for product in _sums(operations):
        assert product.output is not None, f"{product.id} leaves sums"
        subtiles = _slices(operations.plan, product.output, "index", _SUBTILE, operations.plan.s.subtiles)
        yield from (f"{one}.store({zeros})" for one in subtiles)


def whole(operations: Operations) -> Iterator[str]:
    """The waits for a tile's sums, behind its last K-block."""
    for product in _sums(operations):
        yield tensor_tiles.wait_ended(operations.plan, product, tensor_tiles.BEFORE)


def read(plan: KernelPlan, names: Iterable[str], subtile: int) -> list[str]:
    """A subtile of a tile's sums brought into registers under these names."""
    part = f"slice({subtile} * SUBTILE_COLUMNS, SUBTILE_COLUMNS).load(SUBTILE_LAYOUT)"
    every = zip(names, plan.summed, strict=True)
    return [
        f"{name} = {tensor_tiles.tile(plan, ValueId(ValueKind.SUM, sums, 0), 'index')}.{part}"
        for name, sums in every
    ]


def layouts(plan: KernelPlan) -> Iterator[tuple[str, str, str]]:
    """Layouts of values in tensor memory, and of those that are read into registers: one row for each thread."""
    s, machine = plan.s, plan.verified.machine
    rows = f"[{machine.threads_per_warp}, 1], [{s.consumer_warps}, 1], [0, 1]"
    fed = (op.inputs[0] for op in tensor_tiles.products(plan) if tensor_tiles.takes_operand(op))
    operand = next(map(plan.program.value, fed), None)
    yield "SUM_LAYOUT", f"TensorMemoryLayout(({s.rows}, {s.columns}), 1)", ""
    yield "RESULT_LAYOUT", f"TensorMemoryLayout(({s.rows}, {s.depth}), 1)", "of a K-block's scores"
    if operand is not None:
        yield (
            "OPERAND_LAYOUT",
            f"TensorMemoryLayout(({s.rows}, {s.depth}), 1)",
            "of what the next product takes",
        )
        if operand.within is not None:
            columns = s.depth * operand.dtype.bits // 32
            yield "OPERAND_COLUMNS", str(columns), "of the scores' columns, those that it takes"
    yield (
        plan.loop_layout,
        f"gl.BlockedLayout([1, {s.depth}], {rows})",
        "a row a thread, as tensor memory has its lanes",
    )
    yield "SUBTILE_LAYOUT", f"gl.BlockedLayout([1, {s.subtile_columns}], {rows})", ""
    if s.corrections:
        columns = correction_columns(s)
        yield (
            "CORRECTION_COLUMNS",
            str(columns),
            "of sums that a correction warpgroup has in registers at a time",
        )
        yield "CORRECTION_LAYOUT", f"gl.BlockedLayout([1, {columns}], {rows})", ""
        yield (
            "FACTOR_LAYOUT",
            "gl.SwizzledSharedLayout(1, 1, 1, order=[0])",
            "of rows' factors in shared memory",
        )


# --- correction ------------------------------------------------------------------------------------------


def correction(plan: KernelPlan) -> Function:
    """The function of the warpgroup that rescales the sums of all consumers, by the factors that these hand it."""
    order = one_by_one(plan.verified, f"{PartitionRole.CORRECTION}0")
    lines = [line for op in order for line in _corrected(plan, op)]
    loop = "for _ in range(begin, end):\n" + text.block("\n".join([*lines, "step += 1"]))
    scalars, loads = _scalars(plan)
    body = [*scalar_loads(plan), tile_range(plan), loop]
    parameters = [*seen(plan, PartitionRole.CORRECTION, own=False), *scalars, *plan.order_table, *plan.sizes]
    begin = ["step = 0", *loads, "# Rescales the sums of all consumers, which go on meanwhile."]
    return function(plan, PartitionRole.CORRECTION, parameters, begin, "\n".join(body))


def _corrected(plan: KernelPlan, op: TileOp) -> Iterator[str]:
    """The rescaling of one consumer's sums, when its factors and the product before are there."""
    consumer, (given,) = str(op.id.instance), op.inputs
    product = next(one for one in tensor_tiles.products(plan) if one.id.subject == op.id.subject)
    slots, factor = tensor_tiles.handed(plan, given), plan.value(given.subject)
    yield wait(f"{slots.name}_full.index({consumer})", tensor_tiles.STEP)
    yield f"{factor} = {slots.name}.index({consumer}).load(gl.SliceLayout(1, CORRECTION_LAYOUT))"
    yield tensor_tiles.tell(f"{slots.name}_empty.index({consumer})")
    yield wait(tensor_tiles.ended(plan, product, consumer), tensor_tiles.BEFORE)
    yield from _rescale(plan, op, factor, consumer)
    yield tensor_tiles.tell(tensor_tiles.rescaled(plan, product, consumer))


def _scalars(plan: KernelPlan) -> tuple[list[str], list[str]]:
    """The arguments of a role that reads bounds' scalars, or which tiles a block takes, and the line before: they
    come from memory, which the kernel before may still be writing.
    """
    scalars = [argument for name in plan.scalars for argument in plan.vectors[name].arguments]
    return scalars, ["gdc_wait()"] if scalars or plan.order_table else []


# --- the warp that issues products ----------------------------------------------------------------------


def mma_warp(plan: KernelPlan, operations: Operations) -> Function:
    """The function of the warp: pass for pass it issues the products of all consumers, in the schedule's order."""
    placed = _products(plan)
    depth = max(one.stage for one in placed)
    count = "end - begin" + (f" + {depth}" if depth else "")
    loop = f"for number in range({count}):\n" + text.block(
        "\n".join([*_pass(plan, operations, placed), "step += 1"])
    )
    back = [f"step -= {depth}"] if depth else []
    held, hand = [], []
    if plan.stationary:
        held = [STATIONARY.wait_full("visit")]
        hand = [commit(STATIONARY.empty("visit"))] if plan.s.persistent else []
    body = [*scalar_loads(plan), tile_range(plan), *held, loop, *back, *hand, "visit += 1"]
    scalars, loads = _scalars(plan)
    parameters = [*seen(plan, PartitionRole.MMA_WARP, own=False), *scalars, *plan.order_table, *plan.sizes]
    what = "# Issues the products of all tiles; commits tell consumers and the loader of their ends."
    begin = ["step = 0", "visit = 0", *loads, what]
    return function(plan, PartitionRole.MMA_WARP, parameters, begin, "\n".join(body))


def _products(plan: KernelPlan) -> list[PlacedOp]:
    """The products in the order of a pass."""
    placed = plan.verified.schedule.of(f"{PartitionRole.MMA_WARP}0")
    own = [one for one in placed if plan.program.named(one.op).kind is OpKind.MMA]
    first = min(one.stage for one in own)
    return sorted((replace(one, stage=one.stage - first) for one in own), key=lambda one: (one.cycle, one.op))


def _pass(plan: KernelPlan, operations: Operations, placed: list[PlacedOp]) -> Iterator[str]:
    """A pass: products of the stage s are of the K-block that is s passes old, if there is one."""
    depth, met = max(one.stage for one in placed), set[tuple[str, int]]()
    for stage, own in itertools.groupby(placed, key=lambda one: one.stage):
        lines = [line for one in own for line in _product(plan, operations, one, placed, met)]
        bounds = [f"number >= {stage}"] if stage else []
        bounds += ["number < end - begin" + (f" + {stage}" if stage else "")] if stage < depth else []
        condition = " and ".join(bounds)
        yield when(condition, "\n".join(lines)) if condition else "\n".join(lines)


def _product(
    plan: KernelPlan, operations: Operations, one: PlacedOp, placed: list[PlacedOp], met: set[tuple[str, int]]
) -> Iterator[str]:
    """A product with its waits, and the commits behind it."""
    op, place, step = plan.program.named(one.op), -one.stage, step_at(-one.stage)
    own = replace(operations, index=str(op.id.instance))
    assert op.output is not None, f"{op.id} has a result"
    for ring in _rings(own, op):
        if (ring.name, place) not in met:
            met.add((ring.name, place))
            yield ring.wait_full(place)
    if tensor_tiles.handed_back(plan, _first(plan, op)):
        yield wait(tensor_tiles.empty(plan, op, own.index), f"({step} & 1) ^ 1")
    if tensor_tiles.takes_operand(op):
        yield wait(tensor_tiles.ready(plan, op, own.index), f"{step} & 1")
    if tensor_tiles.is_corrected(plan, op):
        yield wait(tensor_tiles.rescaled(plan, op, own.index), f"{step} & 1")
    lefts, rights = own.operands(op, place, lambda _: 0, 0, 0)
    target, scores = tensor_tiles.tile(plan, op.output, own.index), op.output.kind is ValueKind.RESULT
    for number, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        use = ", use_acc=False" if scores and not number else ""
        yield f"tcgen05_mma({left}, {right}, {target}{use})"
    yield commit(tensor_tiles.ended(plan, op, own.index))
    for ring in _rings(own, op):
        if one is _last_reader(plan, own, ring, placed):
            yield commit(ring.empty(place))


def _first(plan: KernelPlan, op: TileOp) -> TileOp:
    """The same operation of the first consumer."""
    return plan.program.op(replace(op.id, instance=0))


def _rings(operations: Operations, op: TileOp) -> list[Ring]:
    """The rings from which a product takes an operand."""
    return [operations.place(tile)[0] for tile in op.inputs if tile.kind is ValueKind.TILE]


def _last_reader(plan: KernelPlan, operations: Operations, ring: Ring, placed: list[PlacedOp]) -> PlacedOp:
    """The product behind whose end a slot is handed back: of those that read it the last that is issued."""
    readers = (one for one in placed if ring in _rings(operations, plan.program.named(one.op)))
    return max(readers, key=lambda one: (one.stage, one.cycle, one.op))
