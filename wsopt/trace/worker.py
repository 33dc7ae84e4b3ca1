"""The process that touches the GPU: `python -m wsopt.trace.worker DIR --log FILE --options JSON`.

It runs the kernel of a build and the traced one on the same inputs, compares the numbers of both, times them in
turns, and writes what it finds as one JSON object a line to FILE. It leaves by `os._exit`, for the ordinary way out
waits for the device.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wsopt.codegen.errors import first_line, launch_errors
from wsopt.runtime.guard import append_line, leave
from wsopt.trace.files import FOLDER, KERNEL, Stamped, load_stamped
from wsopt.trace.options import PLAIN, TRACED, TraceOptions, options_from_text

EXIT_FAILED = 4


def main(arguments: Sequence[str]) -> None:
    """Measure one build; status 0 only if all is written."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--options", type=options_from_text, required=True)
    chosen = parser.parse_args(arguments)
    status = _work(chosen.folder, chosen.options, chosen.log)
    leave(status)


def _work(folder: Path, options: TraceOptions, log: Path) -> int:
    import torch

    if not torch.cuda.is_available():
        append_line(log, {"missing": "torch sees no GPU here"})
        return EXIT_FAILED
    from wsopt.bench.bench_worker import machine_facts, version_facts

    append_line(log, {"card": machine_facts(), "versions": version_facts()})
    try:
        _measure(folder, load_stamped(folder), options, log)
    except launch_errors() as error:
        traceback.print_exc()
        append_line(log, {"failed": first_line(error)})
        return EXIT_FAILED
    return 0


def _measure(folder: Path, stamped: Stamped, options: TraceOptions, log: Path) -> None:
    """Numbers, times, records: in this order, for records of a wrong kernel say nothing."""
    import torch

    from wsopt.bench.cuda_clock import CudaClock
    from wsopt.bench.timing import Contestant, measure
    from wsopt.codegen.kernel_file import load_kernel_file
    from wsopt.runtime import hang, launch
    from wsopt.runtime.inputs import poisoned, random_inputs

    plain = launch.load_folder(folder)
    traced = replace(plain, module=load_kernel_file(folder / FOLDER / KERNEL))
    inputs = random_inputs(plain.graph, options.seed, "cuda")
    expected = launch.reference(plain.graph, inputs)
    records = torch.zeros(stamped.words, dtype=torch.int32, device="cuda")
    outputs = poisoned({name: item.value for name, item in expected.items()})
    begin, _ = traced.module.prepare({**outputs, stamped.output: records}, **inputs)
    kernels = {
        PLAIN: launch.prepare(plain, inputs, expected),
        TRACED: launch.Prepared(inputs, outputs, begin),
    }
    for name, one in kernels.items():
        _check(name, one.agreements(expected, name, options.hang_s))
    contestants = [Contestant(name, (one.launch,)) for name, one in kernels.items()]
    times = measure(contestants, CudaClock(options.hang_s), options.timing)
    append_line(log, {"times": times})
    for _ in range(options.launches):
        records.zero_()
        kernels[PLAIN].launch()
        begin()
        hang.wait(options.hang_s, TRACED)
        append_line(log, {"records": [word % (1 << 32) for word in records.tolist()]})
    append_line(log, {"done": True})


def _check(name: str, agreements: Sequence[tuple[str, Any]]) -> None:
    wrong = [f"{key} {found.told}" for key, found in agreements if not found.accepted]
    if wrong:
        raise ValueError(f"the {name} kernel computes something else: {'; '.join(wrong)}")


if __name__ == "__main__":
    main(sys.argv[1:])
