"""Mutants of good schedules: the checker refuses each, or it runs as well as the one it was made from.

Whether one runs is not asked of the checker's formulas: iterations are laid out on one time line, as far as the
ring takes to come round, and looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from schedule_examples import EXAMPLES, MARGIN, Example

from wsopt.perf import timing
from wsopt.program.program import OpKind, Unit
from wsopt.schedule import memory
from wsopt.schedule.types import EpilogueBuffers, PartitionRole, PlacedOp, Schedule

Spans = list[tuple[int, int]]


def overlapping(spans: Spans) -> bool:
    spans = sorted(span for span in spans if span[1] > span[0])
    return any(one[1] > other[0] for one, other in pairwise(spans))


def runs_in_time(s: Schedule, e: Example) -> bool:
    """Whether the iterations run as placed: values ready, units and threads free, slots empty."""
    where = {p.op: p for p in s.placed}
    ops = {str(op.id): op for op in e.program.loop}
    if len(where) != len(s.placed) or where.keys() != ops.keys():
        return False
    depth = s.rings[0][1]
    iterations = range(depth + max(p.stage for p in s.placed) + 3)

    def at(op: str, i: int) -> int:
        return (i + where[op].stage) * s.ii + where[op].cycle

    for edge in e.program.edges:
        source = ops[str(edge.source)]
        wake = e.machine.latency.mbarrier_wake if source.kind is OpKind.TMA_LOAD else 0
        for i in iterations:
            if at(str(edge.target), i + edge.distance) < at(str(edge.source), i) + source.latency + wake:
                return False
    for unit in Unit:
        held = [
            (at(n, i), at(n, i) + op.busy) for n, op in ops.items() if op.unit is unit for i in iterations
        ]
        if overlapping(held):
            return False
    for name in {p.partition for p in s.placed}:
        own = [op for n, op in ops.items() if where[n].partition == name]
        if overlapping([(at(str(op.id), i), at(str(op.id), i) + op.issue) for op in own for i in iterations]):
            return False
    return depth > 0 and all(
        min(filled_at(n + depth, at, e)) >= freed
        for n in range(2 * depth)
        for freed in handed_back_at(n, at, e)
    )


def filled_at(k_block: int, at: Callable[[str, int], int], e: Example) -> list[int]:
    """When the loads of a K-block, counted over all iterations, are issued."""
    i, copy = divmod(k_block, e.program.structure.copies)
    return [at(str(op.id), i) for op in e.program.loop if op.kind is OpKind.TMA_LOAD and op.copy == copy]


def handed_back_at(k_block: int, at: Callable[[str, int], int], e: Example) -> list[int]:
    """When each reader of a K-block has handed its slot back."""
    i, copy = divmod(k_block, e.program.structure.copies)
    own = [op for op in e.program.loop if op.kind is OpKind.RELEASE and op.copy == copy]
    return [at(str(op.id), i) + op.issue + op.latency for op in own]


def is_built(s: Schedule, e: Example) -> bool:
    """Whether its partitions and buffers are those of the structure and fit the card."""
    cut, card = e.program.structure, e.machine
    consumers = [p for p in s.partitions if p.role is PartitionRole.CONSUMER]
    loaders = [p for p in s.partitions if p.role is PartitionRole.LOADER]
    ours = {
        str(op.id): f"consumer{op.consumer}" if op.consumer is not None else "loader0"
        for op in e.program.loop
    }
    store_warps = [p for p in s.partitions if p.role is PartitionRole.STORE_WARP]
    asked = range(cut.consumers if s.buffers.store_warp else 0)
    threads = 128 * len(loaders) + sum(p.warps * 32 for p in consumers)
    dealt = sum(p.registers * p.warps * 32 for p in consumers) + sum(p.registers * 128 for p in loaders)
    need = e.program.accumulator_registers + e.program.epilogue.registers + MARGIN
    cost = e.program.epilogue
    whole = bool(cost.lent_bytes) and s.buffers.inputs == cut.subtiles
    per_consumer = cost.staged_bytes * s.buffers.staging or cost.staged_bytes - cost.lent_bytes
    per_consumer += e.program.epilogue.input_bytes * s.buffers.inputs
    used = e.program.rings[0].slot_bytes * s.rings[0][1] + cut.consumers * per_consumer
    return (
        s.structure == cut
        and [(p.index, p.warps) for p in consumers] == [(i, cut.consumer_warps) for i in range(cut.consumers)]
        and [p.name for p in loaders] == ["loader0"]
        and [(p.index, p.warps) for p in store_warps] == [(i, 1) for i in asked]
        and {p.op: p.partition for p in s.placed} == ours
        and all(p.registers % 8 == 0 and 24 <= p.registers <= 240 for p in s.partitions)
        and all(p.registers >= need for p in consumers)
        and dealt <= s.base_registers * threads <= card.registers_per_sm
        and used < s.shared_memory_bytes <= min(used + 2048, card.shared_memory_per_block_bytes)
        and (not whole) <= s.buffers.staging <= cost.stores
    )


def consistent(s: Schedule, e: Example) -> Schedule:
    """The schedule with its bytes and prediction worked out again, so that only what was changed is wrong."""
    used = memory.shared_memory(e.program, s.rings[0][1], s.buffers)
    return replace(
        s,
        shared_memory_bytes=used,
        prediction=timing.predict(e.program, e.machine, s.ii, s.buffers, [depth for _, depth in s.rings]),
    )


def moves(e: Example) -> Iterator[tuple[str, Schedule]]:
    """Operations placed elsewhere."""
    s = e.schedule
    for p in s.placed:
        for by in (-1, 1, s.ii // 2):
            yield f"{p.op} {by} cycles later", e.moved(p.op, cycle=(p.cycle + by) % s.ii)
        for by in (-1, 1):
            yield f"{p.op} {by} stages later", e.moved(p.op, stage=p.stage + by)
        yield f"without {p.op}", replace(s, placed=tuple(other for other in s.placed if other is not p))
        yield f"{p.op} twice", replace(s, placed=(*s.placed, p))
    for a, b in combinations(s.placed, 2):
        there = {a.op: b, b.op: a}

        def swapped(p: PlacedOp, there: dict[str, PlacedOp] = there) -> PlacedOp:
            return replace(p, cycle=there[p.op].cycle, stage=there[p.op].stage) if p.op in there else p

        yield f"{a.op} for {b.op}", e.each(swapped)
    names = [p.name for p in s.partitions if s.of(p.name)]
    for a_name, b_name in combinations(names, 2):
        other = {a_name: b_name, b_name: a_name}
        yield (
            f"{a_name} for {b_name}",
            e.each(lambda p, o=other: replace(p, partition=o.get(p.partition, p.partition))),
        )


def other_starts(s: Schedule) -> EpilogueBuffers:
    """Buffers whose stores are started by store warps where consumers did, or by consumers where store warps did."""
    return replace(s.buffers, store_warp=not s.buffers.store_warp)


def sizes(e: Example) -> Iterator[tuple[str, Schedule]]:
    """Other intervals, depths, buffers, registers and figures."""
    s = e.schedule
    ((ring, depth),) = s.rings
    for by in (-1, 1):
        yield f"II {by}", consistent(replace(s, ii=s.ii + by), e)
        yield f"depth {by}", consistent(replace(s, rings=((ring, depth + by),)), e)
        yield f"depth {by}, bytes as before", replace(s, rings=((ring, depth + by),))
        staged = replace(s.buffers, staging=s.buffers.staging + by)
        yield f"staging {by}", consistent(replace(s, buffers=staged), e)
        yield f"bytes {by}", replace(s, shared_memory_bytes=s.shared_memory_bytes + by)
        yield f"cycles {by}", replace(s, prediction=replace(s.prediction, cycles=s.prediction.cycles + by))
        yield f"base {8 * by}", replace(s, base_registers=s.base_registers + 8 * by)
    for d in sorted({1, 2} - {depth}):
        yield f"depth {d}", consistent(replace(s, rings=((ring, d),)), e)
    for place, p in enumerate(s.partitions):
        if p.role is PartitionRole.CONSUMER:
            for changed in (
                replace(p, registers=p.registers + 8),
                replace(p, registers=24),
                replace(p, warps=8),
            ):
                others = (*s.partitions[:place], changed, *s.partitions[place + 1 :])
                yield (
                    f"{p.name} with {changed.registers} of {changed.warps} warps",
                    replace(s, partitions=others),
                )
        yield f"without {p.name}", replace(s, partitions=(*s.partitions[:place], *s.partitions[place + 1 :]))
    yield "stores started by others", consistent(replace(s, buffers=other_starts(s)), e)
    yield "partitions in another order", replace(s, partitions=s.partitions[::-1])
    yield "another group", replace(s, structure=replace(s.structure, group=1))


@pytest.mark.parametrize("name", EXAMPLES)
def test_good_schedules_run_in_time(name: str, examples: dict[str, Example]) -> None:
    e = examples[name]
    assert runs_in_time(e.schedule, e)
    assert is_built(e.schedule, e)


@pytest.mark.parametrize("name", EXAMPLES)
def test_mutants_are_refused_or_run_as_well(name: str, examples: dict[str, Example]) -> None:
    e = examples[name]
    refused = alive = 0
    for what, mutant in (*moves(e), *sizes(e)):
        assert mutant != e.schedule, what
        if e.faults(mutant):
            refused += 1
            continue
        alive += 1
        assert runs_in_time(mutant, e), what
        assert is_built(mutant, e), what
        slots = [depth for _, depth in mutant.rings]
        again = timing.predict(e.program, e.machine, mutant.ii, mutant.buffers, slots)
        assert mutant.prediction == again, what
    assert refused >= 40
    assert refused > 2 * alive


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_cannot_run_is_refused(name: str, examples: dict[str, Example]) -> None:
    e = examples[name]
    broken = [(what, mutant) for what, mutant in moves(e) if not runs_in_time(mutant, e)]
    assert len(broken) >= 20
    assert [what for what, mutant in broken if not e.faults(mutant)] == []
