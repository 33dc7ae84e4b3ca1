"""range.json: which kernel serves which extents of a build of several kernels, at what loss, and what is proved."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from wsopt.folder import KERNELS
from wsopt.ranges.choose import Choice

FORMAT = "wsopt.range/1"


@dataclass(frozen=True, slots=True)
class Member:
    """A kernel of the range: its folder, the extents its schedule was found at, and its predicted time there in
    microseconds.
    """

    folder: str
    home: dict[str, int]
    structure: str
    predicted_us: float


@dataclass(frozen=True, slots=True)
class RangeCertificate:
    """What a choice of kernels is worth: losses as shares of the best known time, and what is proved of it.

    `searched` are the extents at which all structures were searched; elsewhere the best known time is the least of
    all `near` structures'. Structures `considered` are counted once a search.
    """

    most: int
    worst_loss: float
    mean_loss: float
    switches: int
    worst_proved: bool
    mean_proved: bool
    switches_proved: bool
    deterministic: bool
    considered: int
    near: int
    solved: int
    rejected: tuple[str, ...]
    searched: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class RangeRecord:
    """A range.json. `ends` are the last extents of each dimension's classes; the lists after them have an entry a
    cell, a combination of classes, those of the last dimension next to each other. `skipped` is what there was no
    time for.
    """

    format: str
    name: str
    machine: str
    kernels: tuple[Member, ...]
    certificate: RangeCertificate
    ends: dict[str, tuple[int, ...]]
    serves: tuple[int, ...]
    predicted_us: tuple[float, ...]
    best_us: tuple[float, ...]
    skipped: tuple[str, ...] = ()

    @property
    def losses(self) -> tuple[float, ...]:
        """The loss of each cell, as a share of its best known time."""
        pairs = zip(self.predicted_us, self.best_us, strict=True)
        return tuple(predicted / best - 1 for predicted, best in pairs)


RECORD = TypeAdapter(RangeRecord)


def record_of(
    choice: Choice, name: str, machine: str, most: int, rejected: tuple[str, ...], *, alike: bool
) -> RangeRecord:
    """The record of a choice of at most so many kernels; `alike` where all give a row the same bits."""
    names = [dim.name for dim in choice.grid.dims]
    members = (
        Member(
            f"{KERNELS}/{number}",
            dict(zip(names, kernel.home, strict=True)),
            kernel.schedule.structure.describe(),
            kernel.schedule.prediction.microseconds,
        )
        for number, kernel in enumerate(choice.kernels)
    )
    certificate = RangeCertificate(
        most, choice.worst, choice.mean, choice.switches, *choice.proved, alike, choice.considered, choice.near,
        choice.solved, rejected, choice.samples,
    )  # fmt: skip
    return RangeRecord(
        FORMAT, name, machine, tuple(members), certificate, dict(zip(names, choice.grid.ends, strict=True)),
        choice.serves, choice.times, choice.best,
    )  # fmt: skip


def record_text(record: RangeRecord) -> str:
    """The text of range.json."""
    return json.dumps(RECORD.dump_python(record, mode="json"), indent=1, ensure_ascii=False) + "\n"


def summary_of(record: RangeRecord) -> dict[str, Any]:
    """What `compile --json` prints of a build of several kernels."""
    c = record.certificate
    return {
        "name": record.name,
        "machine": record.machine,
        "kernels": RECORD.dump_python(record, mode="json")["kernels"],
        "worst_loss": c.worst_loss,
        "mean_loss": c.mean_loss,
        "switches": c.switches,
        "proved": {"worst": c.worst_proved, "mean": c.mean_proved, "switches": c.switches_proved},
        "structures": {"considered": c.considered, "near": c.near, "solved": c.solved},
        "searched": [list(point) for point in c.searched],
        **({"skipped": list(record.skipped)} if record.skipped else {}),
    }
