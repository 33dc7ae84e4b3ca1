"""The command line. Errors are one or two lines on standard error; `--debug` shows the traceback."""

from __future__ import annotations

import io
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from wsopt.cli.compile import compile_
from wsopt.cli.export import export
from wsopt.cli.import_ import import_
from wsopt.cli.inspect import inspect, report
from wsopt.cli.lists import machines, ops, schema
from wsopt.cli.measure import bench, calibrate, validate_model
from wsopt.cli.run import run
from wsopt.cli.trace import trace
from wsopt.cli.tune import tune
from wsopt.errors import WsoptError
from wsopt.terminal import interrupted, print_text

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Finds warp-specialized GPU schedules by constraint solving and writes them as Triton (Gluon) kernels.",
    epilog="To begin: compile GRAPH.json, then run and inspect the folder that it wrote; none of them needs a GPU. "
    "Exit status: 0 done; 2 the input is wrong; 3 well-formed, but no kernel is made of it, with the reason; "
    "4 a check failed, and nothing is handed over.",
)

app.command("compile")(compile_)
app.command("inspect")(inspect)
app.command("report")(report)
app.command("run")(run)
app.command("bench")(bench)
app.command("tune")(tune)
app.command("export")(export)
app.command("import")(import_)
app.command("trace")(trace)
app.command("calibrate")(calibrate)
app.command("validate-model")(validate_model)
app.command("machines")(machines)
app.command("ops")(ops)
app.command("schema")(schema)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="show the version and leave")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    del debug  # taken from the arguments by main, wherever it stands
    if version:
        from wsopt import __version__

        print_text(f"wsopt {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print_text(context.get_help())


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
            traceback.print_exc()
            sys.exit(error.exit_status)
        _fail(f"wsopt: {error}", error.exit_status)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        _fail(f"wsopt: {interrupted()}", 130)
