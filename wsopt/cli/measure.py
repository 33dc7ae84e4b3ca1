"""`wsopt bench`, `calibrate` and `validate-model`: what a GPU is measured for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wsopt.cli.options import Folders, MachineName, listed
from wsopt.errors import CheckError
from wsopt.terminal import print_text, progress


def bench(
    folders: Folders,
    baseline: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="names, separated by commas; if not given, all that apply"),
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="write the results")
    ] = None,
    together: Annotated[bool, typer.Option("--together", help="one process for all folders")] = False,
) -> None:
    """Measure builds on this GPU beside what people use.

    Results are compared first; then the kernel and each baseline run in turns.
    """
    from wsopt.bench.bench import bench_folders
    from wsopt.bench.bench_options import DEFAULT_BASELINES, BenchOptions
    from wsopt.bench.table import text_table
    from wsopt.requirements import require_torch, require_triton

    every = [one for folder in folders for one in _measured(folder)]
    require_torch("bench")
    require_triton("bench")
    asked = listed(baseline)
    names = DEFAULT_BASELINES if asked is None else tuple(name for name in asked.split(",") if name)
    options = BenchOptions(baselines=names, together=together)
    document = bench_folders(every, options, json_path=json_path)
    print_text(text_table(document))


def _measured(folder: Path) -> list[Path]:
    """What is measured of a folder: a build, or of one whose kernels run one after the other the whole and each."""
    from wsopt.folder import one_kernel
    from wsopt.partition.build import is_cut, read_cut

    if not is_cut(folder):
        one_kernel(folder)
        return [folder]
    return [folder, *(folder / kernel for kernel in read_cut(folder).record.folders)]


def calibrate(
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="the machine file to write")
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="NAMES", help="beginnings of measurements' names, separated by commas")
    ] = "",
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="write the raw measurements")
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="the machine's name in its file")] = "measured",
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A B", help="hold two files of --json against each other"),
    ] = None,
) -> None:
    """Measure this GPU into a machine file.

    `wsopt compile --machine FILE` takes it.
    """
    from wsopt.calibrate.command import compare_files, run_calibrate

    if compare is not None:
        agree, text = compare_files(*compare)
        print_text(text)
        raise typer.Exit(0 if agree else CheckError.exit_status)
    print_text(run_calibrate(output, [word for word in only.split(",") if word], json_path, name))


def validate_model(
    graphs: Annotated[
        list[Path] | None, typer.Argument(metavar="[GRAPH.json]...", help="graphs to validate with")
    ] = None,
    machine: MachineName = "h200",
    count: Annotated[int, typer.Option(min=2, max=200, metavar="N", help="schedules of each graph")] = 12,
    candidates: Annotated[
        Path | None, typer.Option(metavar="DIR", help="with graphs: write candidates and end; else read them")
    ] = None,
    measured: Annotated[
        Path | None, typer.Option(metavar="FILE", help="what wsopt.validate.measure wrote for --candidates")
    ] = None,
    again: Annotated[
        Path | None, typer.Option(metavar="FILE", help="predict anew what an earlier --json has measured")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="write the validation")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="draw it")] = None,
    gate: Annotated[bool, typer.Option("--gate", help="fail where the model is not good enough")] = False,
) -> None:
    """Hold the model's predictions against measurements.

    Schedules that the model thinks good and bad are measured. Without a GPU here: `validate-model GRAPH...
    --candidates DIR`; `python -m wsopt.validate.measure DIR --json FILE` where there is one; then `validate-model
    --candidates DIR --measured FILE` here.
    """
    from wsopt.validate.command import Request, run

    request = Request(tuple(graphs or ()), machine, count, candidates, measured, again, json_path, plot)
    with progress() as show:
        text, shortfalls = run(request, show)
    print_text(text)
    if gate and shortfalls:
        raise CheckError("the model falls short:\n" + "\n".join(shortfalls))
