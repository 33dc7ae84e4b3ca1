"""Learns the register margin: `python -m wsopt.learn problems/*.json` writes `wsopt/solve/margin.json`.

Each graph is compiled as `wsopt compile` does, and the kernels that ptxas was asked about are recorded. For the
one that was handed over, and for those whose live tiles leave fewest registers, the least limit is found with
which ptxas still has no spill: what the code names when it may have more says little. Graphs go by the key that
`wsopt tune` knows them by.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wsopt.candidates import Asked, Contest, ask
from wsopt.checker import verify
from wsopt.emit.source import emit
from wsopt.exit_status import with_exit_status
from wsopt.frontend.region import find_region
from wsopt.graph.parse import load_graph
from wsopt.lowering.lower import Cuttable
from wsopt.lowering.structures import structures
from wsopt.machine.load import load_machine
from wsopt.machine.types import Machine
from wsopt.perf.price import lower
from wsopt.program.program import TileProgram
from wsopt.program.types import Structure
from wsopt.report.facts import structure_fields
from wsopt.schedule import budget
from wsopt.schedule.types import PartitionRole
from wsopt.schedule.verified import VerifiedSchedule, for_trial
from wsopt.solve.bound import infeasible, lower_bound_us
from wsopt.solve.margin import DATA, FORMAT, margin_of
from wsopt.solve.optimum import solve
from wsopt.solve.search import live_set
from wsopt.tune.tuned import graph_key, triton_version

_TIGHTEST = 2
"""Schedules of each graph, beside those of the compile loop, that are looked at."""


def limited(verified: VerifiedSchedule, limit: int) -> VerifiedSchedule:
    """The schedule with `limit` registers a thread for each consumer, to try what ptxas does: not to hand over.

    What the consumers give up goes to the loader, so that all start with the same number as before: ptxas
    refuses a tensor instruction whose accumulators do not fit that.
    """
    schedule, machine = verified.schedule, verified.machine
    s, step = schedule.structure, machine.register_granularity
    groups = s.consumers * s.consumer_warps // machine.warps_per_warpgroup
    most = (groups * limit + machine.setmaxnreg_max_registers) // (groups + 1)
    base = min(schedule.base_registers, most // step * step)
    left = base * (groups + 1) - groups * limit
    partitions = tuple(
        dataclasses.replace(p, registers=limit if p.role is PartitionRole.CONSUMER else left)
        for p in schedule.partitions
    )
    changed = dataclasses.replace(schedule, partitions=partitions, base_registers=base)
    return for_trial(verified, schedule=changed)


def least_limit(asked: Asked) -> int:
    """The least limit with which a consumer has no spill, by bisection; above its own limit if it has one there."""
    machine = asked.verified.machine
    step = machine.register_granularity
    fits = budget.consumers_registers(asked.verified.program, machine)
    if asked.complaint:
        return fits + step
    spills = asked.verified.program.accumulator_registers // step * step
    while fits - spills > step:
        limit = (fits + spills) // 2 // step * step
        tried = limited(asked.verified, limit)
        again = ask(emit(tried), tried)
        if again.complaint:
            spills = limit
        else:
            fits = limit
    return fits


def tightest(region: Cuttable, machine: Machine) -> Iterator[VerifiedSchedule]:
    """Schedules whose live tiles leave the least of a consumer's registers, each with other tiles there; the
    fastest of each by its bound. Where the margin matters, these are the ones that it lets through or not.
    """
    best: dict[Structure, tuple[int, float, TileProgram]] = {}
    for structure in structures(region, machine):
        program = lower(region, structure, machine)
        if not infeasible(program, machine, 0):
            slack = budget.consumers_registers(program, machine) - budget.needed_registers(program, 0)
            found = slack, lower_bound_us(program, machine), program
            key = live_set(program)
            best[key] = min(best.get(key, found), found, key=lambda one: one[:2])
    for _, _, program in sorted(best.values(), key=lambda one: (*one[:2], one[2].structure))[:_TIGHTEST]:
        schedule = solve(program, machine, 0).schedule
        if schedule is not None:
            yield verify(schedule, program, machine, 0)


def _row(asked: Asked, graph: str) -> dict[str, Any]:
    program, structure = asked.verified.program, asked.verified.schedule.structure
    compiled = asked.compiled
    return {
        "graph": graph,
        "structure": structure_fields(structure),
        "accumulators": program.accumulator_registers,
        "epilogue": program.epilogue.registers,
        "limit": budget.consumers_registers(program, asked.verified.machine),
        "named": {
            "consumers": list(compiled.tensor_registers) if compiled else [],
            "loader": list(compiled.copy_registers) if compiled else [],
        },
        "complaint": asked.complaint,
        "least": least_limit(asked),
    }


def learn(paths: Sequence[Path], machine: Machine) -> dict[str, Any]:
    """The data of the margin, from these graphs."""
    rows, contests = [], []
    for path in paths:
        graph = load_graph(path)
        contest, key = Contest(find_region(graph), machine), graph_key(graph)
        contests.append((key, contest))
        for asked in _worth_learning(contest, machine):
            rows.append(_row(asked, key))
            print(f"{path.name}: {rows[-1]['least']} registers for {rows[-1]['named']}", file=sys.stderr)
    reasons = [
        {"graph": key, "structure": structure.describe(), "complaint": why}
        for key, contest in contests
        for structure, why in contest.rejected.items()
    ]
    return {
        "format": FORMAT,
        "machine": machine.name,
        "triton": triton_version(),
        "oracle": {
            "graphs": len(contests),
            "kernels": sum(len(contest.asked) for _, contest in contests),
            "solved_again": sum(contest.rounds - 1 for _, contest in contests),
            "reasons": reasons,
        },
        "kernels": rows,
    }


def _worth_learning(contest: Contest, machine: Machine) -> Iterator[Asked]:
    """Kernels that were kept or dropped for spills by the compile loop, and the tightest ones of the region."""
    contest.run()
    found = {source: one for source, one in contest.asked.items() if one.spilled or not one.complaint}
    for tight in tightest(contest.region, machine):
        source = emit(tight)
        found.setdefault(source, ask(source, tight))
    yield from (one for one in found.values() if one.spilled or not one.complaint)


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line; 0 if the file was written."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.learn", description=__doc__)
    parser.add_argument("graphs", type=Path, nargs="+")
    parser.add_argument("--machine", default="h200")
    parser.add_argument("-o", "--output", type=Path, default=DATA)
    chosen = parser.parse_args(arguments)
    data = learn(sorted(chosen.graphs), load_machine(chosen.machine))
    chosen.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(margin_of(data))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
