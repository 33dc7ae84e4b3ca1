"""What the emitter cannot write yet, as named constraints of the model: `emitter.v1`."""

from __future__ import annotations

import itertools

from wsopt.program.program import Iteration, OpKind, TileProgram
from wsopt.solve.variables import Model


def slot_in_step(m: Model) -> None:
    """emitter.v1: the loads of one ring slot stand together, in one stage of the loader; slots in order.

    All of a slot's loads come before the next slot's, and an iteration's before the next iteration's.
    """
    copies = range(m.program.structure.copies)
    for plan in m.program.rings:
        slots = [[load for load in plan.loads if load.k_block == c] for c in copies]
        for first, *others in slots:
            for other in others:
                m.cp.add(m.stage[other] == m.stage[first])
        for slot, later in itertools.pairwise(slots):
            for load, after in itertools.product(slot, later):
                m.cp.add(m.start[after] >= m.start[load])
        for load, after in itertools.product(slots[-1], slots[0]):
            if len(slots) > 1:
                m.cp.add(m.start[after] + m.ii >= m.start[load])


def few_overlaps(m: Model) -> None:
    """emitter.v1: a tile has a pass for every stage of its consumers, and one to itself for a short last K-block: the
    loop's ends are peeled off by stages, which may not take more passes than there are.

    A loop whose arithmetic waits for products overlaps one iteration with the next, and no more. Then a value is made
    again at most once before its last reader, and one older name of it is enough. Where a commit hands a slot back,
    nobody waits for its product, and there is nothing to peel off.
    """
    if m.program.tensor_columns:
        return
    most = m.program.k_iterations - bool(m.program.structure.tail) + 1
    most = min(most, 2) if m.program.computes_with_products else most
    for own in m.program.by_consumer.values():
        for one, other in itertools.permutations(own, 2):
            m.cp.add(m.start[other.id] < m.start[one.id] + most * m.ii)


def stretches(program: TileProgram) -> bool:
    """Whether a schedule stands at every larger II too, with its operations at the same stages and cycles.

    No constraint wants two operations closer to each other than some multiple of II, less nothing; so all
    differences that it asks for are still there with more time at the end of every stage. What breaks this
    is a time from one consumer to another that has to be the same for all of their operations.
    """
    return not program.of(OpKind.ELEMENTWISE) or len(program.by_consumer) == 1


def one_program(m: Model) -> None:
    """emitter.v1: consumers with arithmetic in the loop run one program, each some time after the first."""
    if stretches(m.program):
        return
    first, *others = m.program.by_consumer.values()
    for number, ops in enumerate(others, 1):
        shift = m.cp.new_int_var(0, m.horizon, f"shift[{number}]")
        for one, op in zip(first, ops, strict=True):
            m.cp.add(m.start[op.id] == m.start[one.id] + shift)


def within_a_pass(m: Model) -> None:
    """emitter.v1: a consumer's operations on a tile, or on partial sums, begin and end in one pass.

    Partial sums that are carried round the loop would be read while a later product is under way, and ptxas then runs
    the products one by one (its warning C7514).
    """
    if m.program.iteration is not Iteration.TILE and not m.program.adds_partials:
        return
    for own in m.program.by_consumer.values():
        for op in own:
            m.cp.add(m.start[op.id] >= m.start[own[0].id])
            m.cp.add(m.start[op.id] + m.t(op.issue) <= m.start[own[0].id] + m.ii)
