"""The process that touches the GPU: `python -m wsopt.validate.worker MODE --log FILE --options JSON DIR ITEM...`.

An ITEM is a candidate's GRAPH/NAME below DIR. MODE `check` compiles each, launches it once and compares its
numbers; MODE `time` measures all candidates of a graph in turns, a baseline beside them, and compares once more.
It appends one JSON object a line to FILE. After a hang or an error it ends, for the device is not to be trusted.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wsopt.bench.bench_options import BenchOptions, options_from_text
from wsopt.codegen.errors import HangError, first_line, launch_errors
from wsopt.runtime.guard import append_line, leave
from wsopt.validate.files import Measurement
from wsopt.validate.memory import gpu_facts, peak_bytes

if TYPE_CHECKING:
    from wsopt.validate.contest import Contest

EXIT_FAILED = 3
MODES = ("check", "time")


def main(arguments: Sequence[str]) -> None:
    """Work through the items; leaves by `os._exit`, 0 only if every one has its row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--options", type=options_from_text, required=True)
    parser.add_argument("folder", type=Path)
    parser.add_argument("items", nargs="+")
    chosen = parser.parse_args(arguments)
    _facts(chosen.log)
    pairs = [tuple(item.split("/")) for item in chosen.items]
    work = _check if chosen.mode == "check" else _time
    for graph, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        names = [name for _, name in group]
        if not work(chosen.folder / graph, names, chosen.options, chosen.log):
            # A device that hangs is asked nothing more.
            append_line(chosen.log, {"peak_bytes": peak_bytes()})
            leave(EXIT_FAILED)
    append_line(chosen.log, {"peak_bytes": peak_bytes(), **gpu_facts()})
    leave(0)


def _facts(log: Path) -> None:
    from wsopt.bench.bench_worker import machine_facts, version_facts

    append_line(log, {"card": machine_facts(), "versions": version_facts()})


def _check(folder: Path, names: Sequence[str], options: BenchOptions, log: Path) -> bool:
    """One row a candidate: whether its numbers are right. False if the process has to end."""
    from wsopt.validate.contest import Contest

    contest = Contest(folder, options, sets=1)
    for name in names:
        append_line(log, {"start": f"{folder.name}/{name}"})
        if not _noted(lambda contest=contest, name=name: [contest.check(name)], folder.name, name, log):  # type: ignore[misc]
            return False
    return True


def _time(folder: Path, names: Sequence[str], options: BenchOptions, log: Path) -> bool:
    """The rows of a graph's candidates, measured in turns. False if the process has to end."""
    from wsopt.validate.contest import Contest

    append_line(log, {"start": f"{folder.name}/{names[0]}"})
    contest = Contest(folder, options)
    return _noted(lambda: _timed(contest, names), folder.name, "", log)


def _timed(contest: Contest, names: Sequence[str]) -> list[Measurement]:
    for name in names:
        contest.enter(name)
    contest.enter_baseline()
    return contest.measure()


def _noted(work: Callable[[], list[Measurement]], graph: str, name: str, log: Path) -> bool:
    """Write the rows of a piece of work, or one row with the reason why there are none."""
    try:
        rows = work()
    except HangError as error:
        from wsopt.validate.contest import hanging

        rows, fine = [Measurement(graph, hanging(error) or name, "hang", str(error))], False
    except launch_errors() as error:
        traceback.print_exc()
        rows, fine = [Measurement(graph, name, "error", first_line(error))], False
    else:
        fine = True
    for row in rows:
        append_line(log, {"row": dataclasses.asdict(row)})
    return fine


if __name__ == "__main__":
    main(sys.argv[1:])
