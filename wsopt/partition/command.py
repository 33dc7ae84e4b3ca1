"""What the command line does with graphs that several kernels compute, and with their builds."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from wsopt.partition.build import CutBuild, read_cut
from wsopt.partition.document import summary_of
from wsopt.partition.make import Progress
from wsopt.partition.text import cut_text
from wsopt.report.layout import counted
from wsopt.simulation import simulate


def compiled_text(found: CutBuild, where: Path) -> str:
    """What `compile` prints of a build."""
    s = found.summary
    kernels = counted(len({step["folder"] for step in s["steps"]}), "kernel")
    c = s["certificate"]
    launches = counted(len(s["steps"]), "launch", "launches")
    skipped = f"  skipped for lack of time: {'; '.join(s['skipped'])}\n" if "skipped" in s else ""
    return (
        f"{s['name']} on {s['machine']}: {launches} of {kernels}, {s['status']}, "
        f"predicted {s['predicted_us']:.1f} us (rooflines {s['roofline_us']:.1f} us), {found.seconds:.1f} s\n"
        f"  {counted(c['pieces'], 'piece')} considered, {c['bounded']:,} bounded, {c['solved']:,} solved; "
        f"{s['workspace_bytes']:,} bytes between kernels\n{skipped}"
        f"  written to {where}"
    )


def inspected(folder: Path) -> tuple[dict[str, Any], str]:
    """A build, checked again: what `--json` prints, and the report."""
    found = read_cut(folder)
    return summary_of(found.record), cut_text(found.record)


def simulated(folder: Path, seeds: int, progress: Progress) -> dict[str, Any]:
    """Execute each kernel of a build on the CPU, as `wsopt run` does one; the worst figures of all."""
    results = []
    for number, one in enumerate(read_cut(folder).kernels):
        show = functools.partial(progress, f"kernel {number}")
        results.append(simulate(one.graph, one.verified, one.kernel, seeds, show).summary())
    lines = {key: sum(one["lines"][key] for one in results) for key in ("run", "of")}
    figures = [key for key, value in results[0].items() if isinstance(value, float)]
    worst = {key: max(one[key] for one in results) for key in figures}
    return {"seeds": seeds, **worst, "lines": lines, "kernels": len(results)}
