"""The command: `wsopt calibrate`, or `python -m wsopt.calibrate` where only torch and triton are installed."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from wsopt.calibrate.catalog import chosen_probes
from wsopt.calibrate.compare import compare, comparison_text
from wsopt.calibrate.fits import Figure, figures
from wsopt.calibrate.machine_file import base_figures, base_name, differences, machine_text
from wsopt.calibrate.run import Options, Progress, calibrate
from wsopt.calibrate.samples import Document, document_from_file
from wsopt.errors import CheckError, RequirementError, WsoptError
from wsopt.exit_status import with_exit_status
from wsopt.requirements import require_torch


def run_calibrate(output: Path | None, only: Sequence[str], json_path: Path | None, name: str) -> str:
    """Measure this GPU, write what is asked for, and return the report.

    Raises RequirementError without torch or a GPU, InputError for a word of `only` that fits no measurement.
    """
    chosen_probes(only)
    require_torch("calibrate")
    device = _require_gpu()
    if output is not None:
        base_name(device)
    with _shown() as progress:
        document = calibrate(Options(only=tuple(only)), progress)
    if json_path is not None:
        _write(json_path, document.to_text())
    if output is not None:
        _write(output, machine_file(document, name))
    return report(document)


def machine_file(document: Document, name: str) -> str:
    """The machine file of a calibration."""
    card = base_name(str(document.machine.get("device", "")))
    return machine_text(document, figures(document), name, card)


def compare_files(first: Path, second: Path) -> tuple[bool, str]:
    """Whether two calibrations' JSON files agree within their spreads, and what differs."""
    pairs = compare(document_from_file(first), document_from_file(second))
    if not pairs:
        raise CheckError(f"{first} and {second} have no figure in common")
    return all(pair.agrees for pair in pairs), comparison_text(pairs)


def report(document: Document) -> str:
    """The figures, and where they differ from the base of a machine file's."""
    found = figures(document)
    lines = [_line(figure) for figure in found]
    lines += [f"not measured: {name}: {why}" for name, why in document.failures.items()]
    try:
        base = base_figures(base_name(str(document.machine.get("device", ""))))
    except WsoptError as error:
        return "\n".join([*lines, str(error)])
    for item in differences(found, base):
        kept = ", fitted to whole kernels, stays" if item.kept else ""
        lines.append(f"differs: {item.name}: {item.measured:.4g}, the base has {item.base:g}{kept}")
    return "\n".join(lines)


def _line(figure: Figure) -> str:
    return f"{figure.name:36s} {figure.value:12.5g} +- {figure.spread:.2g}"


def _require_gpu() -> str:
    """The name of this machine's GPU; RequirementError if there is none that the kernels are for."""
    # Asked in a process of its own: CUDA, once started here, would be shared with the workers.
    import subprocess

    code = (
        "import torch; there = torch.cuda.is_available(); "
        "print(torch.cuda.get_device_capability()[0] if there else 0, torch.cuda.get_device_name() if there else '')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    generation, _, name = done.stdout.strip().partition(" ")
    if generation in ("", "0"):
        raise RequirementError("torch sees no CUDA GPU here; calibrate measures the GPU of this machine")
    if generation != "9":
        raise RequirementError(
            f"calibrate's kernels are for compute capability 9.0; {name} has {generation}.x"
        )
    return name


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


@contextmanager
def _shown() -> Iterator[Progress]:
    """Progress on a terminal; silent in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _stage, _done, _total: None
    elif importlib.util.find_spec("rich") is None:
        yield _plain_lines()
    else:
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("start", total=None)
            yield lambda stage, done, total: bar.update(task, description=stage, completed=done, total=total)


def _plain_lines() -> Callable[[str, int, int], None]:
    last = {"": -1}

    def show(stage: str, done: int, total: int) -> None:
        tenth = 10 * done // total
        if last.get(stage) != tenth:
            last[stage] = tenth
            print(f"{stage}: {done} of {total}", file=sys.stderr, flush=True)

    return show


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line; the exit status of `wsopt bench`: 0, or that of the error; 4 if two runs differ."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.calibrate", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="write a machine file")
    parser.add_argument("--json", type=Path, help="write the raw measurements")
    parser.add_argument("--only", default="", help="beginnings of names, with commas between")
    parser.add_argument("--name", default="measured", help="the machine's name in the file")
    parser.add_argument(
        "--compare", type=Path, nargs=2, metavar=("A", "B"), help="two files of raw measurements"
    )
    chosen = parser.parse_args(arguments)
    if chosen.compare:
        agree, text = compare_files(*chosen.compare)
        print(text)
        return 0 if agree else CheckError.exit_status
    only = [word for word in chosen.only.split(",") if word]
    print(run_calibrate(chosen.output, only, chosen.json, chosen.name))
    return 0
