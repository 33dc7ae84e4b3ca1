"""Races and folders of candidates that need no solver, and a measurer that needs no GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from wsopt.bench.bench_options import BenchOptions
from wsopt.bench.rows import BaselineRow, Document, Row, Timing
from wsopt.tune.candidates import MANIFEST, Candidate, Candidates, candidates_text
from wsopt.tune.races import Race, code_digest

CARD = "NVIDIA H200"

RACE = Race(
    graph="g",
    machine="h200",
    source="s1",
    against="s1",
    triton="3.6.0",
    card=CARD,
    status="ok",
    graph_name="small",
    keep=3,
    rank=1,
    predicted_us=10.0,
    date="2026-11-03T10:00:00Z",
    wsopt="0.1.0",
    torch="2.11.0",
    driver="580.1",
    time_us=10.0,
    against_us=10.0,
    ratio=1.0,
    spread=0.002,
)


def race(source: str, ratio: float | None = 1.0, spread: float = 0.002, **more: object) -> Race:
    """A race of this kernel against s1; without a ratio it was wrong."""
    if ratio is None:
        none = {"time_us": None, "against_us": None, "ratio": None, "spread": None}
        return replace(RACE, source=source, status="wrong", message="y is off by 1", **none, **more)
    return replace(RACE, source=source, ratio=ratio, spread=spread, time_us=10.0 / ratio, **more)


def kernel(number: int, comment: str = "") -> str:
    """The source of a kernel that is told from others by a number."""
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    return f'"""Kernel {number}. {comment}"""\n{lines}\nNUMBER = {number}\n'


def write_candidates(path: Path, count: int, graph: str = "g") -> Candidates:
    """A folder of candidates, of kernels that do nothing."""
    rows = []
    for rank in range(1, count + 1):
        (path / f"{rank:02}").mkdir(parents=True)
        (path / f"{rank:02}" / "kernel.py").write_text(kernel(rank))
        rows.append(Candidate(rank, f"{rank:02}", code_digest(kernel(rank)), 10.0 + rank, 10.0))
    found = Candidates(graph, "small", "h200", 132, count, tuple(rows))
    (path / MANIFEST).write_text(candidates_text(found))
    return found


@dataclass
class FakeMeasurer:
    """Stands in for the benchmark: each folder's speed against the first by its name, 1 if not given.

    A speed that is a string is the status of a failure. `asked` are the folders it was asked for.
    """

    speeds: Mapping[str, float | str] = field(default_factory=dict)
    card: str = CARD
    sms: int = 132
    triton: str = "3.6.0"
    spread: float = 0.002
    before: Callable[[str], None] = lambda name: None
    asked: list[str] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    def __call__(self, folder: Path, options: BenchOptions) -> Document:
        assert Path(options.against, "kernel.py").is_file()
        self.before(folder.name)
        self.asked.append(folder.name)
        self.limits.append(options.limit_s)
        facts = (("device", self.card), ("driver", "580.1"), ("multiprocessors", self.sms))
        versions = (("torch", "2.11.0"), ("triton", self.triton), ("wsopt", "0.1.0"))
        return Document("2026-11-03T10:00:00Z", facts, versions, (self._row(folder.name),))

    def _row(self, name: str) -> Row:
        speed = self.speeds.get(name, 1.0)
        if isinstance(speed, str):
            return Row(name, name, speed, f"it is {speed}")
        first, ours = Timing(10.0, 9.9, 10.1, 21), Timing(10.0 / speed, 9.9 / speed, 10.1 / speed, 21)
        against = BaselineRow("against", "ok", time=first, ratio=speed, spread=self.spread)
        return Row(name, name, "ok", kernel=ours, baselines=(against,))
