"""The process that benchmarks folders: `python -m wsopt.bench.bench_worker --rows FILE --options JSON DIR...`.

It appends one JSON object a line to FILE: what it runs on, then for each folder that it starts on it and its
row. After a hang or an error it ends, for the state of the device is not to be trusted then.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from wsopt import __version__
from wsopt.bench.bench_options import BenchOptions, options_from_text
from wsopt.bench.rows import Row, row_to_json
from wsopt.codegen.errors import HangError, first_line, launch_errors
from wsopt.runtime.guard import append_line, leave

EXIT_HANG, EXIT_ERROR = 3, 4


def main(arguments: Sequence[str]) -> None:
    """Benchmark the folders one after another; leaves by `os._exit`, 0 only if every row was written."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--options", type=options_from_text, required=True)
    parser.add_argument("folders", type=Path, nargs="+")
    chosen = parser.parse_args(arguments)
    append_line(chosen.rows, {"machine": machine_facts(), "versions": version_facts()})
    for folder in chosen.folders:
        append_line(chosen.rows, {"start": str(folder)})
        row, status = _bench(folder, chosen.options)
        append_line(chosen.rows, {"row": row_to_json(row)})
        if status:
            leave(status)
    leave(0)


def _bench(folder: Path, options: BenchOptions) -> tuple[Row, int]:
    from wsopt.bench.bench_folder import bench_folder

    try:
        return bench_folder(folder, options), 0
    except HangError as error:
        return Row(folder.name, folder.name, "hang", str(error)), EXIT_HANG
    except launch_errors() as error:
        traceback.print_exc()
        return Row(folder.name, folder.name, "error", first_line(error)), EXIT_ERROR


def machine_facts() -> dict[str, str | int]:
    """The card and its driver."""
    import torch

    device = torch.cuda.get_device_properties(0)
    return {
        "device": str(device.name),
        "multiprocessors": int(device.multi_processor_count),
        "memory_bytes": int(device.total_memory),
        "l2_bytes": int(device.L2_cache_size),
        "driver": _driver(),
    }


def _driver() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "unknown"
    query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "unknown"


def version_facts() -> dict[str, str]:
    """Releases of the packages that a measurement depends on."""
    import torch
    import triton

    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "triton": str(triton.__version__),
        "cuda": str(torch.version.cuda),
        "wsopt": __version__,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
