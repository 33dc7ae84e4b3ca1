"""The process that measures: `python -m wsopt.calibrate.worker --log FILE --rounds N [--skip NAME]... [WORD]...`.

It appends one JSON object a line to FILE: what it runs on, how far compiling is, every probe it starts and its
figures. A kernel that hangs ends it; the parent starts another without that probe.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from wsopt.calibrate.build import build_all
from wsopt.calibrate.catalog import chosen_probes
from wsopt.calibrate.program import Probe
from wsopt.codegen.errors import HangError, first_line, launch_errors
from wsopt.runtime.guard import append_line, leave

EXIT_FAILED = 3


def main(arguments: Sequence[str]) -> None:
    """Compile, measure, and leave by `os._exit`: the ordinary way out waits for a kernel that hangs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("words", nargs="*")
    chosen = parser.parse_args(arguments)
    probes = [probe for probe in chosen_probes(chosen.words) if probe.name not in chosen.skip]
    _compile(probes, chosen.log)
    leave(_measure(probes, chosen.rounds, chosen.log))


def _compile(probes: Sequence[Probe], log: Path) -> None:
    # Torch and the kernels are loaded before the processes part, CUDA is not: it does not outlive a fork.
    programs = list(dict.fromkeys(probe.program for probe in probes if probe.program is not None))
    for module in ("torch", *(f"wsopt.calibrate.kernels.{program.module}" for program in programs)):
        importlib.import_module(module)
    build_all(
        programs, lambda done, total: append_line(log, {"stage": "compile", "done": done, "total": total})
    )


def _measure(probes: Sequence[Probe], rounds: int, log: Path) -> int:
    from wsopt.bench.bench_worker import machine_facts, version_facts
    from wsopt.calibrate.runner import Runner

    append_line(log, {"machine": machine_facts(), "versions": version_facts()})
    runner = Runner()
    total = rounds * len(probes)
    failed: set[Probe] = set()
    for count in range(rounds):
        for place, probe in enumerate(probes):
            append_line(log, {"start": probe.name})
            if probe in failed:
                continue
            try:
                figures = runner.run(probe)
            except launch_errors() as error:
                traceback.print_exc()
                append_line(log, {"failed": probe.name, "message": first_line(error)})
                if not _device_lives():
                    return EXIT_FAILED
                failed.add(probe)
                continue
            done = count * len(probes) + place + 1
            append_line(log, {"stage": "measure", "done": done, "total": total, "round": count})
            append_line(log, {"figures": {probe.name + end: value for end, value in figures.items()}})
    return 0


def _device_lives() -> bool:
    """Whether what was launched has ended and left no error behind."""
    from wsopt.runtime.hang import wait

    try:
        wait(1.0, "the device")
    except (RuntimeError, HangError):
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
