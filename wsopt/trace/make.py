"""Makes the traced kernel of a build: emitted from the same schedule, compiled ahead of time, and simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from wsopt.codegen.aot import compile_kernel
from wsopt.emit.plan_of import plan_of
from wsopt.emit.records import RoleRecords, layout, outputs
from wsopt.emit.source import emit, expectation
from wsopt.emit.stamps import Event, Point, Trace
from wsopt.errors import CheckError, LoweringError
from wsopt.folder import BuildFolder, replace_folder
from wsopt.perf.contention import contended_interval
from wsopt.perf.effective_ii import effective_ii
from wsopt.perf.steady_state import SteadyState, steady_state
from wsopt.program.ids import OpId, OpKind
from wsopt.program.types import Sharing
from wsopt.report.words import named_ops
from wsopt.schedule.passes import in_pass
from wsopt.schedule.types import PartitionRole, PlacedOp
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.simulation import simulate
from wsopt.trace import files
from wsopt.trace.files import Moment, Partition, PredictedOp, Stamped

SEEDS = 2
"""Interleavings that a traced kernel is executed under: its schedule has passed more of them without stamps."""


def make_traced(build: BuildFolder, trace: Trace) -> Path:
    """Write the traced kernel of a build, and where its stamps lie, to the folder `trace` beside the build's files.

    Raises LoweringError for a target without stamps, CheckError for a kernel that does not compile to the same tensor
    instructions or computes something else in the simulation.
    """
    if build.verified.program.tensor_columns:
        raise LoweringError(
            f"graph {build.graph.name}: kernels for {build.verified.machine.name} cannot be traced yet: products "
            "whose sums are in tensor memory have no stamps; compile the graph for a card of the Hopper generation"
        )
    source = emit(build.verified, trace)
    compiled = compile_kernel(source)
    wanted = expectation(build.verified).tensor_instructions
    if compiled.tensor_instructions != wanted:
        found = compiled.tensor_instructions
        raise CheckError(f"the traced kernel has {found} tensor instructions, expected {wanted}")
    simulate(build.graph, build.verified, source, SEEDS)
    stamped = stamped_of(build.verified, trace, source)
    stamped = replace(
        stamped, registers=compiled.registers, spills=compiled.spill_loads + compiled.spill_stores
    )
    folder = build.path / files.FOLDER
    replace_folder(folder, {files.KERNEL: source, files.STAMPS: files.to_text(stamped)})
    return folder


def stamped_of(verified: VerifiedSchedule, trace: Trace, source: str) -> Stamped:
    """Where the stamps of a traced kernel lie, and what the model predicts of their operations."""
    plan = plan_of(verified, trace)
    roles, schedule, program = layout(plan), verified.schedule, verified.program
    (records,), runs = outputs(plan), steady_state(verified)
    slots = [depth for _, depth in schedule.rings]
    alone = program.structure.consumers == 1 or program.structure.sharing is Sharing.PING_PONG
    return Stamped(
        name=schedule.name,
        machine=schedule.machine,
        digest=files.digest(source),
        output=records.name,
        blocks=trace.blocks,
        tiles=roles[0].tiles,
        k_blocks=roles[0].k_blocks,
        block_words=roles[-1].end,
        copies=program.structure.copies,
        ii=schedule.ii,
        interval=max(
            schedule.ii,
            contended_interval(program, verified.machine, slots),
            effective_ii(program, verified.machine, max(slots)),
        ),
        runs=round(runs.interval),
        epilogue=program.epilogue.alone if alone else program.epilogue.together,
        registers=0,
        spills=0,
        structure=program.structure.describe(),
        partitions=tuple(_partitions(verified, roles, runs)),
    )


def _partitions(
    verified: VerifiedSchedule, roles: tuple[RoleRecords, ...], runs: SteadyState
) -> Iterator[Partition]:
    for one in roles:
        moments = tuple(Moment(event.op, event.point.value, event.masked) for event in one.passes)
        for place, index in enumerate(one.indices):
            name = f"{one.role}{index}"
            first = one.first + place * one.tiles * one.tile_words
            ops = tuple(_ops(verified, one, index, runs))
            yield Partition(name, one.role.value, first, one.tile_words, one.tile, moments, ops)


def _ops(
    verified: VerifiedSchedule, records: RoleRecords, index: int, runs: SteadyState
) -> Iterator[PredictedOp]:
    """The operations of a partition's loop, by their scheduled start."""
    ii, program = verified.schedule.ii, verified.program
    consumes = records.role is PartitionRole.CONSUMER
    words = {str(one.op.id): one.words for one in named_ops(verified)}
    # Consumers in ping-pong have one schedule, that of the one whose turn it is.
    own = in_pass(verified, f"{records.role}{index}") or in_pass(verified, f"{records.role}0")
    placed = {one.op: one for one in own}
    starts = {op: one.stage * ii + one.cycle for op, one in placed.items()}
    ordered = sorted(starts, key=lambda op: (starts[op], op))
    stamps = {op: _stamps_of(verified, records, program.named(op).id) for op in ordered}
    first = next((op for op in ordered if stamps[op][0] is not None), "")
    for text in ordered:
        op, (started, reached) = program.named(text), stamps[text]
        awaited, later = _awaited(verified, op.id, placed) if op.kind is OpKind.MMA else (None, 0)
        yield PredictedOp(
            op=text, words=words[text], scheduled=starts[text] - starts[first],
            start=runs.starts[text] - runs.starts[first], issue=op.issue, latency=op.latency,
            stage=placed[text].stage if consumes else 0, k_block=0 if consumes else op.copy, started=started,
            reached=reached, awaited=awaited, later=later,
        )  # fmt: skip


def _stamps_of(verified: VerifiedSchedule, records: RoleRecords, op: OpId) -> tuple[int | None, int | None]:
    """The numbers of an operation's stamps in a pass: that of its start, and where it waits that of its waits.

    Consumers share the text of the first, K-blocks of an iteration that of the first in a loader.
    """
    if records.role is PartitionRole.CONSUMER:
        shared = op if op.instance is None else replace(op, instance=0)
    else:
        shared = replace(op, k_block=0)
    return _number(records, verified, shared, Point.START), _number(records, verified, shared, Point.REACHED)


def _number(records: RoleRecords, verified: VerifiedSchedule, op: OpId, point: Point) -> int | None:
    """The number of an operation's stamp in a pass. A slot is waited for before the first of its loads."""
    if records.role is PartitionRole.LOADER and point is Point.REACHED:
        place = records.passes.index(Event(str(op), Point.START)) - 1
        return place if records.passes[place].point is Point.REACHED else None
    event = Event(str(op), point)
    return records.passes.index(event) if event in records.passes else None


def _awaited(
    verified: VerifiedSchedule, product: OpId, placed: dict[str, PlacedOp]
) -> tuple[str | None, int]:
    """The operation of the same partition that first waits for a product, and how many iterations later."""
    ii, found = verified.schedule.ii, list[tuple[int, str, int]]()
    for edge in verified.program.edges:
        text = str(edge.target)
        if edge.source == product and text in placed and edge.target.kind is not OpKind.MMA:
            when = (placed[text].stage + edge.distance) * ii + placed[text].cycle
            found.append((when, text, edge.distance))
    return min(found)[1:] if found else (None, 0)
