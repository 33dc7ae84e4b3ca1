"""What the command line does with graphs of named dimensions, and with builds of several kernels."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from wsopt.errors import CheckError
from wsopt.graph.symbolic import SymbolicGraph, bound
from wsopt.machine.types import Machine
from wsopt.pool.workers import Workers
from wsopt.ranges.build import RangeBuild, read_range
from wsopt.ranges.document import summary_of
from wsopt.ranges.find import Progress
from wsopt.ranges.make import build_range
from wsopt.ranges.points import grid_of
from wsopt.ranges.text import range_text
from wsopt.report.layout import counted
from wsopt.simulation import simulate


def compile_range(
    graph: SymbolicGraph,
    machine: Machine,
    target: Path,
    *,
    kernels: int,
    seconds: float | None,
    use_cache: bool,
    workers: Workers,
    progress: Progress,
) -> RangeBuild:
    """Compile a graph for its ranges and write the folder. Raises as `build_range`, and InputError for the target."""
    found = build_range(
        graph,
        machine,
        kernels=kernels,
        seconds=seconds,
        use_cache=use_cache,
        workers=workers,
        progress=progress,
    )
    found.save(target)
    return found


def compiled_text(found: RangeBuild, where: Path) -> str:
    """What `compile` prints of a build of several kernels."""
    s = found.summary
    proved = "proved the least" if s["proved"]["worst"] else "not proved the least"
    ends = ", ".join(f"{name} to {last:,}" for name, last in _lasts(found))
    skipped = f"  skipped for lack of time: {'; '.join(s['skipped'])}\n" if "skipped" in s else ""
    return (
        f"{s['name']} on {s['machine']}: {counted(len(s['kernels']), 'kernel')} for {ends}, {found.seconds:.1f} s\n"
        f"  predicted loss at most {s['worst_loss']:.2%} ({proved}), {s['mean_loss']:.2%} on the mean; "
        f"{counted(s['switches'], 'switch', 'switches')}\n"
        f"  {counted(s['structures']['considered'], 'structure')} considered at "
        f"{counted(len(s['searched']), 'sample')}, "
        f"{s['structures']['near']} priced everywhere\n{skipped}"
        f"  written to {where}"
    )


def _lasts(found: RangeBuild) -> list[tuple[str, int]]:
    return [(name, ends[-1]) for name, ends in found.record.ends.items()]


def inspected(folder: Path) -> tuple[dict[str, Any], str]:
    """A build of several kernels, checked again: what `--json` prints, and the report."""
    found = read_range(folder)
    return summary_of(found.record), range_text(found.record)


def simulated(folder: Path, seeds: int, progress: Progress) -> dict[str, Any]:
    """Execute each kernel of a build on the CPU, as `wsopt run` does one, for the largest extents that it serves; the
    worst figures of all.
    """
    found = read_range(folder)
    names, cells = [dim.name for dim in found.graph.dims], grid_of(found.graph.dims).cells
    results = []
    for number, one in enumerate(found.kernels):
        show = functools.partial(progress, f"kernel {number}")
        largest = max(
            cell for cell, serving in zip(cells, found.record.serves, strict=True) if serving == number
        )
        graph = bound(found.graph, dict(zip(names, largest, strict=True)))
        results.append(simulate(graph, one.verified, one.kernel, seeds, show).summary())
    lines = {key: sum(one["lines"][key] for one in results) for key in ("run", "of")}
    figures = [key for key, value in results[0].items() if isinstance(value, float)]
    worst = {key: max(one[key] for one in results) for key in figures}
    return {"seeds": seeds, **worst, "lines": lines, "kernels": len(results)}


def run_on_gpu(folder: Path, seeds: int) -> dict[str, Any]:
    """Run each kernel of a build on this GPU at the extents it was found at; raises CheckError for a wrong result."""
    from wsopt.agreement.judge import NO_DIFFERENCE
    from wsopt.runtime.launch import run_folder

    worst = NO_DIFFERENCE
    record = read_range(folder).record
    for member in record.kernels:
        for seed in range(seeds):
            result = run_folder(folder / member.folder, seed=seed)
            if not result.accepted():
                raise CheckError(f"{folder / member.folder}: {result}")
            worst |= result.worst
    return {"seeds": seeds, **worst.figures, "kernels": len(record.kernels)}
