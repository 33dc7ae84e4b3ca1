"""What the emitter cannot write yet, as named constraints of the model: `emitter.v1`."""

from __future__ import annotations

import itertools

from wsopt.program.program import Iteration, OpKind, TileOp, TileProgram
from wsopt.schedule.types import PartitionRole
from wsopt.solve.variables import Model


def loads_apart(m: Model) -> None:
    """emitter.v1: streamed loads are issued by a partition without tensor-core work."""
    for op in m.program.loop:
        if op.kind is OpKind.TMA_LOAD:
            m.cp.add(m.on[op.id, f"{PartitionRole.LOADER}0"] == 1)


def slot_in_step(m: Model) -> None:
    """emitter.v1: the loads of one ring slot stand together, in one stage of the loader; slots in order.

    All of a slot's loads come before the next slot's, and an iteration's before the next iteration's.
    """
    for plan in m.program.rings:
        slots = [
            [n for n in plan.loads if m.program.op(n).copy == c] for c in range(m.program.structure.copies)
        ]
        for first, *others in slots:
            for other in others:
                m.cp.add(m.stage[other] == m.stage[first])
        for slot, later in itertools.pairwise(slots):
            for load, after in itertools.product(slot, later):
                m.cp.add(m.start[after] >= m.start[load])
        for load, after in itertools.product(slots[-1], slots[0]):
            if len(slots) > 1:
                m.cp.add(m.start[after] + m.ii >= m.start[load])


def enough_k_iterations(m: Model) -> None:
    """emitter.v1: a tile has a pass for every stage of its consumers, and one to itself for a short last K-block.

    The loop's ends are peeled off by stages; they may not take more passes than there are.
    """
    spare = m.program.k_iterations - bool(m.program.structure.tail)
    for consumer in {op.consumer for op in m.program.loop if op.consumer is not None}:
        own = [op for op in m.program.loop if op.consumer == consumer]
        for one, other in itertools.permutations(own, 2):
            m.cp.add(m.start[other.id] < m.start[one.id] + (spare + 1) * m.ii)


def one_overlap(m: Model) -> None:
    """emitter.v1: a loop that computes values overlaps one iteration with the next, and no more.

    Then a value is made again at most once before its last reader, and one older name of it is enough.
    """
    if not m.program.computes_with_products:
        return
    for consumer in {op.consumer for op in m.program.loop if op.consumer is not None}:
        own = [op.id for op in m.program.loop if op.consumer == consumer]
        for one, other in itertools.permutations(own, 2):
            m.cp.add(m.start[other] < m.start[one] + 2 * m.ii)


def stretches(program: TileProgram) -> bool:
    """Whether a schedule stands at every larger II too, with its operations at the same stages and cycles.

    No constraint wants two operations closer to each other than some multiple of II, less nothing; so all
    differences that it asks for are still there with more time at the end of every stage. What breaks this
    is a time from one consumer to another that has to be the same for all of their operations.
    """
    return not program.of(OpKind.ELEMENTWISE) or all(op.consumer in (0, None) for op in program.loop)


def one_program(m: Model) -> None:
    """emitter.v1: consumers of a loop that computes values run one program, each some time after the first."""
    if stretches(m.program):
        return
    own: dict[int, list[TileOp]] = {}
    for op in m.program.loop:
        if op.consumer is not None:
            own.setdefault(op.consumer, []).append(op)
    for consumer, ops in own.items():
        if consumer == 0:
            continue
        shift = m.cp.new_int_var(0, m.horizon, f"shift[{consumer}]")
        for first, op in zip(own[0], ops, strict=True):
            m.cp.add(m.start[op.id] == m.start[first.id] + shift)


def partials_stay(m: Model) -> None:
    """emitter.v1: a consumer's operations on partial sums begin and end in one pass.

    Carried round the loop they would be read while a later product is under way, and ptxas then runs the
    products one by one (its warning C7514).
    """
    if not m.program.adds_partials:
        return
    for consumer in {op.consumer for op in m.program.loop if op.consumer is not None}:
        own = [op for op in m.program.loop if op.consumer == consumer]
        first = next(op for op in own if op.kind is OpKind.MMA)
        for op in own:
            m.cp.add(m.start[op.id] >= m.start[first.id])
            m.cp.add(m.start[op.id] + m.t(op.issue) <= m.start[first.id] + m.ii)


def tile_at_once(m: Model) -> None:
    """emitter.v1: where rows stream, a consumer ends a tile before it begins the next."""
    if m.program.iteration is not Iteration.TILE:
        return
    for consumer in {op.consumer for op in m.program.loop if op.consumer is not None}:
        own = [op for op in m.program.loop if op.consumer == consumer]
        for op in own:
            m.cp.add(m.start[op.id] >= m.start[own[0].id])
            m.cp.add(m.start[op.id] + m.t(op.issue) <= m.start[own[0].id] + m.ii)
