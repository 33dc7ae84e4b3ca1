"""Files of `wsopt trace`, beside a build: the traced kernel, where its stamps lie, and what the model predicts.

The standard library is enough for it, so that the measuring half runs where only torch and triton are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wsopt.errors import InputError, Problem

FOLDER = "trace"
KERNEL, STAMPS, RESULT, RECORDS = "kernel.py", "stamps.json", "trace.json", "records.json"
FORMAT = "wsopt.trace.stamps/2"

START, REACHED = "start", "reached"


@dataclass(frozen=True, slots=True)
class Moment:
    """A stamp of a pass: a moment of an operation, in the loop over K-blocks that masks touch or in the other."""

    op: str
    point: str
    masked: bool


@dataclass(frozen=True, slots=True)
class PredictedOp:
    """An operation of a partition's loop, in cycles.

    Both starts count from the partition's first operation with stamps, in the same iteration: `scheduled` is the
    schedule's, `start` the one in the steady state as it runs. The operation's instructions hold the partition for
    `issue` cycles, its result is there `latency` cycles after the start. In the pass of iteration i + `stage` its
    stamps are those numbered `started` and, where it waits, `reached`; `k_block` is which K-block of an iteration has
    them. One whose instructions are mixed with those of the one before has none. `awaited` is the operation that
    first waits for its result, `later` iterations on.
    """

    op: str
    words: str
    scheduled: int
    start: int
    issue: int
    latency: int
    stage: int
    k_block: int
    started: int | None
    reached: int | None
    awaited: str | None
    later: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's words among those of its block: from `first` on, so many `tile_words` a tile."""

    name: str
    role: str
    first: int
    tile_words: int
    tile: tuple[str, ...]
    passes: tuple[Moment, ...]
    ops: tuple[PredictedOp, ...]

    @property
    def stamped(self) -> tuple[PredictedOp, ...]:
        """The operations with stamps; starts count from the first of them."""
        return tuple(op for op in self.ops if op.started is not None)


@dataclass(frozen=True, slots=True)
class Stamped:
    """All that a measurement has to know of a traced kernel.

    `digest` is of the text of kernel.py, `output` the name of the records. In cycles, as predicted: `interval` is the
    effective II, `runs` an iteration of the steady state as it runs, `epilogue` a tile's epilogue. `copies` are the
    K-blocks of an iteration.
    """

    name: str
    machine: str
    digest: str
    output: str
    blocks: int
    tiles: int
    k_blocks: int
    block_words: int
    copies: int
    ii: int
    interval: int
    runs: int
    epilogue: int
    registers: int
    spills: int
    structure: str
    partitions: tuple[Partition, ...]

    @property
    def words(self) -> int:
        """Words of all records."""
        return self.blocks * self.block_words


def digest(source: str) -> str:
    """The digest of a kernel's text."""
    return hashlib.sha256(source.encode()).hexdigest()


def to_text(stamped: Stamped) -> str:
    """The text of stamps.json."""
    return json.dumps({"format": FORMAT, **dataclasses.asdict(stamped)}, indent=1) + "\n"


def load_stamped(folder: Path) -> Stamped:
    """What `wsopt trace --prepare` left beside a build.

    Raises InputError if it is missing or damaged, or if the kernel beside it is another one.
    """
    path = folder / FOLDER / STAMPS
    try:
        text, source = path.read_text("utf-8"), path.with_name(KERNEL).read_text("utf-8")
    except OSError as error:
        raise _refuse(
            path,
            f"cannot be read: {error.strerror}; `wsopt trace {folder} --prepare` writes it, where all of wsopt's "
            "requirements are installed",
        ) from error
    try:
        found = _stamped(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise _refuse(path, f"is no stamps.json of this release; prepare it again ({error})") from error
    if found.digest != digest(source):
        raise _refuse(path, f"is of another kernel than {KERNEL} beside it; prepare it again")
    return found


def _refuse(path: Path, why: str) -> InputError:
    return InputError(str(path), [Problem("", why)])


def _stamped(data: dict[str, Any]) -> Stamped:
    if data.pop("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    partitions = (_partition(one) for one in data.pop("partitions"))
    return Stamped(**data, partitions=tuple(partitions))


def _partition(data: dict[str, Any]) -> Partition:
    moments = tuple(Moment(**one) for one in data.pop("passes"))
    ops = tuple(PredictedOp(**one) for one in data.pop("ops"))
    return Partition(**{**data, "tile": tuple(data["tile"])}, passes=moments, ops=ops)
