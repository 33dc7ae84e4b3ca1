"""Builds of pieces, from the cache on disk, or made in processes of their own, several at a time."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from wsopt.build import Build
from wsopt.errors import InputError, InternalError
from wsopt.graph.serialize import graph_to_json
from wsopt.torch.outcomes import Outcome, Refusal, Wanted, known


def build_all(wanted: Sequence[Wanted], machine: str, workers: int) -> list[Outcome]:
    """What comes of building graphs, in their order.

    `workers` processes work at once, 0 are as many as there are cores. Raises InternalError if one of them fails.
    """
    found = [known(one, machine) for one in wanted]
    missing = [number for number, one in enumerate(found) if one is None]
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        made = pool.map(lambda number: _made(wanted[number], machine), missing)
        made_of = dict(zip(missing, made, strict=True))
    return [made_of[number] if one is None else one for number, one in enumerate(found)]


def _made(wanted: Wanted, machine: str) -> Outcome:
    """A build from a process of its own, which no thread and no CUDA context of this one disturbs."""
    below = None if wanted.below_us == math.inf else wanted.below_us
    task = json.dumps({"graph": graph_to_json(wanted.graph), "machine": machine, "below_us": below})
    done = subprocess.run(
        [sys.executable, "-m", "wsopt.torch.worker"],
        input=task, capture_output=True, text=True, check=False, env=_environment(),
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise InternalError(f"the process that builds a piece ended with: {last[0]}")
    outcome = json.loads(done.stdout)
    if "files" in outcome:
        return Build(outcome["files"], outcome["summary"], outcome["seconds"])
    if outcome["status"] == InputError.exit_status:
        raise InternalError(f"a piece's graph or requirement is refused: {outcome['error']}")
    return Refusal(outcome["error"], outcome["bound_us"])


def _environment() -> dict[str, str]:
    """The environment with this process's places to import from, which a test or a notebook may have added to."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
