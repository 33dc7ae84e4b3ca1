"""The command line. Errors are one or two lines on standard error; `--debug` shows the traceback."""

from __future__ import annotations

import functools
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from wsopt.cli_export import export
from wsopt.cli_import import import_
from wsopt.cli_inspect import inspect, report
from wsopt.cli_lists import machines, ops, schema
from wsopt.cli_trace import trace
from wsopt.cli_tune import tune
from wsopt.errors import CheckError, WsoptError
from wsopt.terminal import interrupted, tell
from wsopt.terminal import print_json as _print_json
from wsopt.terminal import print_text as _print
from wsopt.terminal import progress as _progress

if TYPE_CHECKING:
    from wsopt.graph.symbolic import SymbolicGraph
    from wsopt.graph.types import Graph as TensorGraph
    from wsopt.machine.types import Machine

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Finds warp-specialized GPU schedules by constraint solving and writes them as Triton (Gluon) kernels.",
)

Graph = Annotated[Path, typer.Argument(metavar="GRAPH.json", help="the compute graph")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="a folder that compile wrote")]
Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="folders that compile wrote")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers search"
    ),
]


def _summary_text(summary: dict[str, Any], seconds: float, where: Path) -> str:
    kernel = summary["kernels"][0]
    roles = ", ".join(f"{p['role']} {p['warps']}w/{p['registers']}r" for p in kernel["partitions"])
    rings = ", ".join(f"{name} x{depth}" for name, depth in kernel["rings"].items())
    checks, made = summary["verified"]["interpreter"], kernel["ptxas"]
    skipped = f"  skipped for lack of time: {', '.join(summary['skipped'])}\n" if "skipped" in summary else ""
    under = f" under {summary['conditions']}" if "conditions" in summary else ""
    return (
        f"{summary['name']} on {summary['machine']}{under}: {summary['status']}, gap {summary['gap']:.1%}, "
        f"predicted {summary['predicted_us']:.1f} us (roofline {summary['roofline_us']:.1f} us), {seconds:.1f} s\n"
        f"  II {kernel['ii_cycles']} cycles; {roles}; {rings}; {kernel['shared_memory_bytes']} bytes shared\n"
        f"  checked: schedule, {checks['seeds']} interleavings (error {checks['max_relative_error']:.1e}, "
        f"{checks['lines']['run']} of {checks['lines']['of']} lines), "
        f"machine code ({made['registers']} registers, {made['tensor_instructions']} tensor instructions)\n{skipped}"
        f"  written to {where}"
    )


@app.command("compile")
def compile_(
    graph: Graph,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="the folder to write")] = None,
    machine: Annotated[str, typer.Option(help="a card's name or a machine file")] = "h200",
    time_limit: Annotated[float | None, typer.Option(min=0.001, help="seconds for the whole command")] = None,
    under: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="conditions, such as consumers=2,ring=3: the best under them"),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="neither read nor write the cache")] = False,
    tuned: Annotated[bool, typer.Option("--tuned", help="choose by what `tune` has measured")] = False,
    card: Annotated[str | None, typer.Option(help="with --tuned: the GPU, if several were measured")] = None,
    kernels: Annotated[
        int | None, typer.Option(min=1, max=64, help="of a graph with dims: kernels at most (default 4)")
    ] = None,
    cut: Annotated[
        bool, typer.Option("--cut", help="look for a cut into kernels also where one kernel computes all")
    ] = False,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Compile a graph into a folder with graph.json, schedule.json, kernel.py, report.txt and search.json.

    A graph that no single kernel computes is cut into several, with one run(). One with named dimensions (dims) is
    compiled for their ranges, to a few kernels with one run().
    """
    from wsopt.driver import build
    from wsopt.folder import check_target, write_folder
    from wsopt.graph.symbolic import SymbolicGraph, load_any
    from wsopt.machine.load import load_machine
    from wsopt.partition.make import is_refused
    from wsopt.program.conditions import FREE
    from wsopt.schedule.spec import parse_conditions

    _tuned_options(tuned=tuned, card=card, time_limit=time_limit, under=under)
    if tuned and scheduler is not None:
        raise typer.BadParameter(
            "`tune --scheduler` finds the candidates, and --tuned has them from the cache",
            param_hint="--scheduler",
        )
    conditions = FREE if under is None else parse_conditions(under, "--under")
    target = output or Path(f"{graph.stem}.wsopt")
    read = load_any(graph)
    record = load_machine(machine)
    check_target(target)
    if isinstance(read, SymbolicGraph):
        told = "is for graphs of numbers, not for one with dims"
        _one_kernel_options(tuned=tuned, under=under, what=told)
        _compile_range(
            read,
            record,
            target,
            kernels=kernels,
            seconds=time_limit,
            use_cache=not no_cache,
            scheduler=scheduler,
            as_json=as_json,
        )
        return
    if kernels is not None:
        raise typer.BadParameter("is for the range of a graph with dims", param_hint="--kernels")
    if cut or (not (tuned or under is not None) and is_refused(read, record)):
        _one_kernel_options(tuned=tuned, under=under, what="is for one kernel, not for a cut")
        _compile_cut(
            read,
            record,
            target,
            seconds=time_limit,
            use_cache=not no_cache,
            scheduler=scheduler,
            as_json=as_json,
        )
        return
    show, stop = _progress()
    try:
        if tuned:
            from wsopt.tune.tuned import tuned_build

            found = tuned_build(read, record, card=card, use_cache=not no_cache, progress=show, tell=tell)
        elif scheduler is not None:
            from wsopt.batch import BuildTask, build_one
            from wsopt.pool.cluster import workers_at

            task = BuildTask(read, record, under=conditions, seconds=time_limit)
            with workers_at(scheduler) as workers:
                (found,) = build_one(
                    task, workers, use_cache=not no_cache, progress=functools.partial(show, "search")
                )
        else:
            found = build(
                read, record, under=conditions, seconds=time_limit, use_cache=not no_cache, progress=show
            )
    finally:
        stop()
    write_folder(target, found.files)
    if as_json:
        _print_json({**found.summary, "solve_s": round(found.seconds, 3), "directory": str(target)})
    else:
        _print(_summary_text(found.summary, found.seconds, target))


def _tuned_options(*, tuned: bool, card: str | None, time_limit: float | None, under: str | None) -> None:
    """Refuse options that exclude `--tuned`, and the one that wants it."""
    if tuned and time_limit is not None:
        raise typer.BadParameter(
            "a search that is cut short has no fixed candidates", param_hint="--time-limit"
        )
    if card is not None and not tuned:
        raise typer.BadParameter(
            "says whose measurements count, and wants --tuned beside it", param_hint="--card"
        )
    if tuned and under is not None:
        raise typer.BadParameter("what `tune` has measured was made without conditions", param_hint="--under")


def _one_kernel_options(*, tuned: bool, under: str | None, what: str) -> None:
    """Refuse options that are about one kernel, where a graph gets several."""
    given = {"--tuned": tuned, "--under": under is not None}
    for option in (option for option, there in given.items() if there):
        raise typer.BadParameter(what, param_hint=option)


def _compile_range(
    graph: SymbolicGraph,
    machine: Machine,
    target: Path,
    *,
    kernels: int | None,
    seconds: float | None,
    use_cache: bool,
    scheduler: str | None,
    as_json: bool,
) -> None:
    from wsopt.pool.cluster import workers_at
    from wsopt.ranges.command import compile_range, compiled_text
    from wsopt.ranges.make import DEFAULT_KERNELS

    show, stop = _progress()
    try:
        with workers_at(scheduler) as workers:
            found = compile_range(
                graph,
                machine,
                target,
                kernels=kernels or DEFAULT_KERNELS,
                seconds=seconds,
                use_cache=use_cache,
                workers=workers,
                progress=show,
            )
    finally:
        stop()
    if as_json:
        _print_json({**found.summary, "solve_s": round(found.seconds, 3), "directory": str(target)})
    else:
        _print(compiled_text(found, target))


def _compile_cut(
    graph: TensorGraph,
    machine: Machine,
    target: Path,
    *,
    seconds: float | None,
    use_cache: bool,
    scheduler: str | None,
    as_json: bool,
) -> None:
    from wsopt.partition.command import compiled_text
    from wsopt.partition.make import build_cut
    from wsopt.pool.cluster import workers_at

    show, stop = _progress()
    try:
        with workers_at(scheduler) as workers:
            found = build_cut(
                graph, machine, seconds=seconds, use_cache=use_cache, workers=workers, progress=show
            )
    finally:
        stop()
    found.save(target)
    if as_json:
        _print_json({**found.summary, "solve_s": round(found.seconds, 3), "directory": str(target)})
    else:
        _print(compiled_text(found, target))


app.command()(inspect)
app.command()(report)


@app.command()
def run(
    folder: Folder,
    device: Annotated[str, typer.Option(help="cpu (interpreter, reduced extents) or cuda")] = "cpu",
    seeds: Annotated[int, typer.Option(min=1, max=100_000, help="interleavings, or random inputs")] = 20,
    as_json: AsJson = False,
) -> None:
    """Execute a build and compare it with what its graph means."""
    if device not in ("cpu", "cuda"):
        raise typer.BadParameter(f"{device!r}: give cpu or cuda", param_hint="--device")
    result = _run_cpu(folder, seeds) if device == "cpu" else _run_cuda(folder, seeds)
    if as_json:
        _print_json({"device": device, **result})
    else:
        lines = result.get("lines")
        ran = f", {lines['run']} of {lines['of']} lines ran" if lines else ""
        errors = f"relative error {result['max_relative_error']:.1e}, of the worst row {result['max_row_error']:.1e}"
        _print(f"{folder}: {result['seeds']} seeds on {device}, {errors}{ran}")


def _run_cpu(folder: Path, seeds: int) -> dict[str, Any]:
    from wsopt.folder import read_folder
    from wsopt.partition import command as cuts
    from wsopt.partition.build import is_cut
    from wsopt.ranges.build import is_range
    from wsopt.ranges.command import simulated
    from wsopt.simulation import simulate

    show, stop = _progress()
    try:
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
    finally:
        stop()
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


@app.command()
def bench(
    folders: Folders,
    baseline: Annotated[
        str | None, typer.Option(help="names, separated by commas; if not given, all that apply")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="write the results")
    ] = None,
    together: Annotated[bool, typer.Option("--together", help="one process for all folders")] = False,
) -> None:
    """Measure builds on this GPU against what people use: checked first, then timed interleaved."""
    from wsopt.bench.bench import bench_folders
    from wsopt.bench.bench_options import DEFAULT_BASELINES, BenchOptions
    from wsopt.bench.table import text_table
    from wsopt.requirements import require_torch, require_triton

    every = [one for folder in folders for one in _measured(folder)]
    require_torch("bench")
    require_triton("bench")
    names = DEFAULT_BASELINES if baseline is None else tuple(name for name in baseline.split(",") if name)
    options = BenchOptions(baselines=names, together=together)
    document = bench_folders(every, options, json_path=json_path)
    _print(text_table(document))


def _measured(folder: Path) -> list[Path]:
    """What is measured of a folder: a build, or of one whose kernels run one after the other the whole and each."""
    from wsopt.folder import one_kernel
    from wsopt.partition.build import is_cut, read_cut

    if not is_cut(folder):
        one_kernel(folder)
        return [folder]
    return [folder, *(folder / kernel for kernel in read_cut(folder).record.folders)]


app.command()(tune)
app.command()(export)
app.command("import")(import_)
app.command()(trace)


@app.command()
def calibrate(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="the machine file to write")] = None,
    only: Annotated[str, typer.Option(help="beginnings of measurements' names, separated by commas")] = "",
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="write the raw measurements")
    ] = None,
    name: Annotated[str, typer.Option(help="the machine's name in its file")] = "measured",
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A B", help="hold two files of --json against each other"),
    ] = None,
) -> None:
    """Measure this GPU into a machine file that compile takes as --machine."""
    from wsopt.calibrate.command import compare_files, run_calibrate

    if compare is not None:
        agree, text = compare_files(*compare)
        _print(text)
        raise typer.Exit(0 if agree else CheckError.exit_status)
    _print(run_calibrate(output, [word for word in only.split(",") if word], json_path, name))


@app.command("validate-model")
def validate_model(
    graphs: Annotated[
        list[Path] | None, typer.Argument(metavar="[GRAPH.json]...", help="graphs to validate with")
    ] = None,
    machine: Annotated[str, typer.Option(help="a card's name or a machine file")] = "h200",
    count: Annotated[int, typer.Option(min=2, max=200, help="schedules of each graph")] = 12,
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
    """Hold the model's predictions against measurements of good and bad schedules."""
    from wsopt.validate.command import Request, run

    request = Request(tuple(graphs or ()), machine, count, candidates, measured, again, json_path, plot)
    show, stop = _progress()
    try:
        text, shortfalls = run(request, show)
    finally:
        stop()
    _print(text)
    if gate and shortfalls:
        raise CheckError("the model falls short:\n" + "\n".join(shortfalls))


for _command in (machines, ops, schema):
    app.command()(_command)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="show the version and leave")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    del debug  # taken from the arguments by main, wherever it stands
    if version:
        from wsopt import __version__

        _print(f"wsopt {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        _print(context.get_help())


def _fail(message: str, status: int) -> NoReturn:
    sys.stderr.write(message + "\n")
    sys.exit(status)


def main() -> None:
    """Entry point of the command `wsopt`."""
    for stream in (sys.stdout, sys.stderr):
        # File names and texts of graphs can hold what a terminal or a pipe has no encoding for.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(args=arguments, prog_name="wsopt")
    except WsoptError as error:
        if debug:
            raise
        _fail(f"wsopt: {error}", error.exit_status)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        _fail(f"wsopt: {interrupted()}", 130)


if __name__ == "__main__":
    main()
