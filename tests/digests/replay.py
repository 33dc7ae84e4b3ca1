"""Committed schedules replayed: from a recorded schedule to a kernel's text, and to a digest of its machine code.

    python tests/digests/replay.py record [NAME...]    search again, and record the schedules that are found
    python tests/digests/replay.py renew [NAME...]     make digests anew from the recorded schedules

A change of the search changes no record, and so no digest: what changes a digest is the emitter. `record` and `renew`
are for changes that are meant. Digests are of one release of Triton each; both add those of the releases at hand.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import golden_kernels
import records
from emit_builds import MARGIN
from pydantic import TypeAdapter

from wsopt.checker import verify
from wsopt.driver import build
from wsopt.emit.source import emit
from wsopt.folder import read_schedule
from wsopt.frontend.region import find_region
from wsopt.graph.parse import load_graph, parse_graph
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import Graph
from wsopt.machine import load_machine
from wsopt.perf import timing
from wsopt.perf.price import lower
from wsopt.schedule.types import Schedule
from wsopt.schedule.verified import VerifiedSchedule

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCHEDULES = HERE / "schedules"
DIGESTS = HERE / "digests.json"
TEXTS = HERE / "texts.json"
FOLDERS = {"": ROOT / "problems", "truth-": ROOT / "docs" / "model" / "graphs"}
"""Where graphs lie that have a file, by what their records' names begin with."""

CHUNK = 5
"""Kernels that a process compiles, one after the other."""

_SCHEDULE = TypeAdapter(Schedule)


def names() -> list[str]:
    """Every recorded schedule."""
    return sorted(path.stem for path in SCHEDULES.glob("*.json"))


def recorded(name: str) -> dict[str, Any]:
    """A record: the graph where no file has it, the machine, the margin, the schedule less its prediction."""
    data: dict[str, Any] = json.loads((SCHEDULES / f"{name}.json").read_text(encoding="utf-8"))
    return data


def graph_of(name: str, record: Mapping[str, Any]) -> Graph:
    """The graph that a record is of."""
    if "graph" in record:
        return parse_graph(record["graph"], name)
    return load_graph(_graph_files()[name])


def source_of(name: str) -> str:
    """The kernel that a recorded schedule makes today. Raises CheckError if it is none of this model's any more."""
    return emit(verified_of(name))


def verified_of(name: str) -> VerifiedSchedule:
    """A recorded schedule as the checker hands it on. Raises CheckError if it is none of this model's any more."""
    record = recorded(name)
    machine = load_machine(record["machine"])
    # What the model predicts of it is no part of the record: it follows from the rest.
    unpredicted = {**record["schedule"], "prediction": _NOTHING}
    schedule = _SCHEDULE.validate_python(unpredicted)
    program = lower(find_region(graph_of(name, record)), schedule.structure, machine)
    slots = [depth for _, depth in schedule.rings]
    predicted = timing.predict(program, machine, schedule.ii, schedule.buffers, slots)
    unpredicted["prediction"] = TypeAdapter(type(predicted)).dump_python(predicted)
    return verify(_SCHEDULE.validate_python(unpredicted), program, machine, record["margin"])


_NOTHING = dict.fromkeys(
    ("start", "fill", "main", "epilogue", "tail", "power", "cycles", "sm_us", "dram_us", "l2_us", "roofline_us",
     "microseconds"), 0.0
) | {"waves": 0, "bound_by": ""}  # fmt: skip


# --- digests --------------------------------------------------------------------------------------------


def pythons() -> list[str]:
    """The Pythons whose Triton can be asked: this one, and the one that the caller names, of the oldest release."""
    return [sys.executable, *filter(None, [os.environ.get("WSOPT_TEST_TRITON_OTHER")])]


def release(python: str) -> str:
    """The release of Triton that a Python has."""
    code = "import importlib.metadata as m; print(m.version('triton'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def digests(python: str, sources: Iterable[str]) -> list[str]:
    """The digest of each kernel's machine code, without line information, as a Python's Triton compiles it.

    A process has several kernels: to begin one costs a third of a second and more, in which it reads all of Triton.
    """

    def some(chunk: Sequence[str]) -> list[str]:
        done = subprocess.run(
            [python, str(HERE / "sass_digest.py")], input=json.dumps(chunk), capture_output=True, text=True,
            check=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return done.stdout.split()

    wanted = list(sources)
    chunks = [wanted[begin : begin + CHUNK] for begin in range(0, len(wanted), CHUNK)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [digest for made in pool.map(some, chunks) for digest in made]


def known() -> dict[str, dict[str, str]]:
    """The committed digests by release and name."""
    data: dict[str, dict[str, str]] = (
        json.loads(DIGESTS.read_text(encoding="utf-8")) if DIGESTS.exists() else {}
    )
    return data


def text_digest(name: str) -> str:
    """A digest of the program of the kernel that a recorded schedule makes today: its text less what the docstring
    says, where it has its predicted time, which changes with the model and changes no machine code.
    """
    return hashlib.sha256(records.without_docstring(source_of(name)).encode()).hexdigest()[:32]


def texts() -> dict[str, str]:
    """Digests, by name, of the programs that the committed digests of machine code were made from."""
    data: dict[str, str] = json.loads(TEXTS.read_text(encoding="utf-8"))
    return data


# --- recording ------------------------------------------------------------------------------------------


def _graph_files() -> dict[str, Path]:
    return {
        f"{prefix}{path.stem}": path
        for prefix, folder in FOLDERS.items()
        for path in sorted(folder.glob("*.json"))
    }


def kernels() -> list[str]:
    """Every kernel that is to have a record: the goldens, whose structures are given, and graphs that have files."""
    return [*(f"golden-{name}" for name in golden_kernels.KERNELS), *_graph_files()]


def _record(name: str) -> dict[str, Any]:
    if name.startswith("golden-"):
        made = golden_kernels.emitted(name.removeprefix("golden-"))
        schedule, margin = made.verified.schedule, MARGIN
        return {"graph": graph_to_json(made.graph), **_data(schedule, "h200", margin)}
    built = build(load_graph(_graph_files()[name]), load_machine("h200"))
    text = built.files["schedule.json"]
    return _data(read_schedule(text), "h200", json.loads(text)["certificate"]["margin"])


def _data(schedule: Schedule, machine: str, margin: int) -> dict[str, Any]:
    data = _SCHEDULE.dump_python(schedule, mode="json")
    del data["prediction"]
    return {"machine": machine, "margin": margin, "schedule": data}


def record(chosen: list[str]) -> None:
    """Search, and write the records of these kernels, or of all."""
    SCHEDULES.mkdir(exist_ok=True)
    for name in kernels():
        if not chosen or name in chosen:
            text = json.dumps(_record(name), indent=None, ensure_ascii=False, separators=(",", ":"))
            (SCHEDULES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(f"recorded {name}", flush=True)


def renew(chosen: list[str]) -> None:
    """Write the digests of these kernels, or of all, for the releases of Triton at hand."""
    kept, wanted = known(), chosen or names()
    sources = [source_of(name) for name in wanted]
    for python in pythons():
        made = dict(zip(wanted, digests(python, sources), strict=True))
        own = kept.setdefault(release(python), {})
        changed = sorted(name for name, digest in made.items() if own.get(name) != digest)
        print(
            f"Triton {release(python)}: {len(changed)} of {len(made)} digests are new: {', '.join(changed)}"
        )
        kept[release(python)] = {
            name: digest for name, digest in sorted({**own, **made}.items()) if name in names()
        }
    DIGESTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    made_from = {name: text_digest(name) for name in names()}
    TEXTS.write_text(json.dumps(made_from, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    """Record or renew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=["record", "renew"])
    parser.add_argument("names", nargs="*")
    chosen = parser.parse_args()
    if chosen.task == "record":
        record(chosen.names)
    renew(chosen.names)


if __name__ == "__main__":
    main()
