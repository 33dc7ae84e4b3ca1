"""Predicts measured schedules again with the present model, to judge it without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wsopt.errors import CheckError
from wsopt.frontend.region import find_region
from wsopt.graph.parse import parse_graph
from wsopt.lowering.lower import Cuttable
from wsopt.machine.types import Machine
from wsopt.perf import timing
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions, Overlap
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.schedule import budget, memory
from wsopt.schedule.types import Schedule
from wsopt.solve.optimum import solve
from wsopt.solve.search import DEFAULT_MARGIN
from wsopt.targets import Operands
from wsopt.validate.files import Candidate
from wsopt.validate.make import candidate
from wsopt.validate.select import held_to
from wsopt.validate.validation import GraphTruth, Validation

Progress = Callable[[str, int, int], None]


def predict_again(found: Validation, machine: Machine, progress: Progress) -> Validation:
    """The validation with the predictions that the present model makes for the same structures and rings.

    Raises CheckError for a schedule that the present model refuses.
    """
    total = sum(len(graph.made.candidates) for graph in found.graphs)
    done, graphs = 0, []
    for graph in found.graphs:
        region = find_region(parse_graph(dict(graph.made.graph), graph.name))
        renewed = []
        for one in graph.made.candidates:
            progress("predict", done, total)
            done += 1
            renewed.append(_predicted(region, one, machine, graph.name))
        graphs.append(GraphTruth(replace(graph.made, candidates=tuple(renewed)), graph.measured))
    return replace(found, machine=machine.name, graphs=tuple(graphs))


def _predicted(region: Cuttable, one: Candidate, machine: Machine, graph: str) -> Candidate:
    fields = dict(one.structure)
    operands = Operands(fields.get("operands", Operands.REGISTERS))
    structure = Structure(**{**fields, "sharing": Sharing(fields["sharing"]), "operands": operands})
    limited = held_to(lower(region, structure, machine), machine, one.slots)
    overlap = Overlap(one.overlap)
    program = replace(lower(region, structure, limited), conditions=Conditions(overlap=overlap))
    solved = solve(program, limited, DEFAULT_MARGIN)
    if solved.schedule is None:
        raise CheckError(
            f"graph {graph}, {one.name}: the present model has no schedule for it: {solved.reason}"
        )
    schedule = started_by(solved.schedule, program, limited, store_warps=one.store_warps)
    return candidate(one.name, one.why, schedule, one.slots, overlap)


def started_by(schedule: Schedule, program: TileProgram, machine: Machine, *, store_warps: bool) -> Schedule:
    """The schedule with its stores started by store warps or by consumers, as they were when it was measured, through
    the buffers that are best then: for a prediction, not to be emitted.
    """
    if schedule.buffers.store_warp == store_warps:
        return schedule
    slots = [depth for _, depth in schedule.rings]
    fitting = [
        buffers
        for buffers in budget.buffer_options(program)
        if buffers.store_warp == store_warps
        and buffers.inputs_by_loader == schedule.buffers.inputs_by_loader
        and memory.shared_memory(program, slots, buffers)
        <= memory.shared_capacity(program.structure, machine)
    ]
    if not fitting:
        raise CheckError(
            f"kernel {schedule.name}: no buffers fit its rings with the stores as they were started"
        )
    predicted = {b: timing.predict(program, machine, schedule.ii, b, slots) for b in fitting}
    best = min(fitting, key=lambda b: (predicted[b].microseconds, b))
    return replace(schedule, buffers=best, prediction=predicted[best])
