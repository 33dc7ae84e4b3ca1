"""cut.json: kernels that run one after the other, what lies in memory between them, and the certificate."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from wsopt.graph.types import Graph, TensorType
from wsopt.partition.between import pitch, room
from wsopt.partition.cut import Cut, CutCertificate
from wsopt.partition.memory import Lifetime, places
from wsopt.partition.pieces import tensors

FORMAT = "wsopt.cut/1"


@dataclass(frozen=True, slots=True)
class Step:
    """A launch: the folder of its kernel, the whole graph's name of each tensor of the kernel's graph, its predicted
    time in microseconds, and what bounds that.
    """

    folder: str
    tensors: dict[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    predicted_us: float
    roofline_us: float
    bound_by: str


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor between kernels: where it lies in the workspace, in bytes, from which step to which it is kept, and
    the elements from one row to the next where these have room behind them (0 if it is dense).
    """

    tensor: str
    offset: int
    nbytes: int
    first: int
    last: int
    pitch: int = 0


@dataclass(frozen=True, slots=True)
class CutRecord:
    """A cut.json. `steps` are in the order in which they run; steps that are alike share a kernel. `skipped` is what
    there was no time for.
    """

    format: str
    name: str
    machine: str
    predicted_us: float
    roofline_us: float
    workspace_bytes: int
    steps: tuple[Step, ...]
    places: tuple[Place, ...]
    certificate: CutCertificate
    skipped: tuple[str, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """The kernels' folders, each once."""
        return tuple(dict.fromkeys(step.folder for step in self.steps))


RECORD = TypeAdapter(CutRecord)


def record_of(cut: Cut, machine: str, folders: dict[str, str], first: dict[str, Graph]) -> CutRecord:
    """The record of a cut whose kernels are in these folders, by the pieces' keys; `first` are the graphs that the
    kernels were made of.
    """
    steps = []
    for piece, price in zip(cut.pieces, cut.prices, strict=True):
        assert price.build is not None, "a cut that is chosen has its kernels"
        own = tensors(first[piece.key])
        summary = price.build.summary
        steps.append(
            Step(
                folders[piece.key],
                dict(zip(own, tensors(piece.graph), strict=True)),
                tuple(one.name for one in piece.graph.inputs),
                piece.graph.outputs,
                price.microseconds,
                summary["roofline_us"],
                price.build.schedule.prediction.bound_by,
            )
        )
    skipped = [
        f"{folders[piece.key]}: {told}"
        for piece, price in zip(cut.pieces, cut.prices, strict=True)
        if price.build is not None
        for told in price.build.summary.get("skipped", ())
    ]
    kept = _places(cut.graph, steps)
    end = max((one.offset + one.nbytes for one in kept), default=0)
    return CutRecord(
        FORMAT, cut.graph.name, machine, cut.microseconds, math.fsum(step.roofline_us for step in steps), end,
        tuple(steps), kept, cut.certificate, (*cut.skipped, *dict.fromkeys(skipped)),
    )  # fmt: skip


def lifetimes(graph: Graph, steps: list[Step] | tuple[Step, ...]) -> dict[str, tuple[int, int]]:
    """The first step at which each tensor between kernels is written, and the last at which it is written or read."""
    found: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for name in (*step.inputs, *step.outputs):
            if name not in graph.outputs and graph.input(name) is None:
                found[name] = found.get(name, (number, number))[0], number
    return found


def _places(graph: Graph, steps: list[Step]) -> tuple[Place, ...]:
    kept = lifetimes(graph, steps)
    apart = {name: pitch(graph, name) for name in kept}
    sizes = {
        name: TensorType(room(graph.type_of(name), apart[name]), graph.type_of(name).dtype).nbytes
        for name in kept
    }
    offsets = places([Lifetime(sizes[name], *kept[name]) for name in kept])
    return tuple(
        Place(name, offset, sizes[name], *kept[name], apart[name])
        for name, offset in zip(kept, offsets, strict=True)
    )


def record_text(record: CutRecord) -> str:
    """The text of cut.json."""
    return json.dumps(RECORD.dump_python(record, mode="json"), indent=1, ensure_ascii=False) + "\n"


def summary_of(record: CutRecord) -> dict[str, Any]:
    """What `compile --json` prints of a build whose kernels run one after the other."""
    data = RECORD.dump_python(record, mode="json")
    return {
        "name": record.name,
        "machine": record.machine,
        "status": "optimal" if record.certificate.proved else "feasible",
        "predicted_us": record.predicted_us,
        "roofline_us": record.roofline_us,
        "workspace_bytes": record.workspace_bytes,
        "steps": data["steps"],
        "places": data["places"],
        "certificate": data["certificate"],
        **({"skipped": data["skipped"]} if record.skipped else {}),
    }
