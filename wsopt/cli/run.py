"""`wsopt run`: a build executed, in the simulation or on a GPU, and compared with what its graph means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wsopt.cli.options import AsJson, Folder
from wsopt.errors import CheckError
from wsopt.terminal import print_json, print_text, progress


def run(
    folder: Folder,
    device: Annotated[
        str, typer.Option(metavar="cpu|cuda", help="cpu (interpreter, reduced extents) or cuda")
    ] = "cpu",
    seeds: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="N", help="interleavings, or random inputs")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Execute a build and compare it with what its graph means."""
    if device not in ("cpu", "cuda"):
        raise typer.BadParameter(f"{device!r}: give cpu or cuda", param_hint="--device")
    result = _run_cpu(folder, seeds) if device == "cpu" else _run_cuda(folder, seeds)
    if as_json:
        print_json({"device": device, **result})
    else:
        lines = result.get("lines")
        ran = f", {lines['run']} of {lines['of']} lines ran" if lines else ""
        of_row = f"of the worst row {result['max_row_error']:.1e} beyond its rounding"
        errors = f"relative error {result['max_relative_error']:.1e}, {of_row}"
        print_text(f"{folder}: {result['seeds']} seeds on {device}, {errors}{ran}")


def _run_cpu(folder: Path, seeds: int) -> dict[str, Any]:
    from wsopt.folder import read_folder
    from wsopt.partition import command as cuts
    from wsopt.partition.build import is_cut
    from wsopt.ranges.build import is_range
    from wsopt.ranges.command import simulated
    from wsopt.simulation import simulate

    with progress() as show:
        if is_range(folder):
            return simulated(folder, seeds, show)
        if is_cut(folder):
            return cuts.simulated(folder, seeds, show)
        found = read_folder(folder)
        result = simulate(
            found.graph,
            found.verified,
            found.kernel,
            seeds,
            lambda done, total: show("simulate", done, total),
        )
    return result.summary()


def _run_cuda(folder: Path, seeds: int) -> dict[str, Any]:
    from wsopt.requirements import require_torch, require_triton

    require_torch("--device cuda", "--device cpu executes the kernel without torch and GPU")
    require_triton("--device cuda")
    from wsopt.agreement.judge import NO_DIFFERENCE
    from wsopt.ranges.build import is_range
    from wsopt.ranges.command import run_on_gpu
    from wsopt.runtime.launch import require_gpu, run_folder

    require_gpu()
    if is_range(folder):
        return run_on_gpu(folder, seeds)
    worst = NO_DIFFERENCE
    for seed in range(seeds):
        result = run_folder(folder, seed=seed)
        if not result.accepted():
            raise CheckError(f"{folder}: {result}")
        worst |= result.worst
    return {"seeds": seeds, **worst.figures}
