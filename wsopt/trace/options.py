"""Options of a trace's measurement, as plain data that travels to the worker process."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from wsopt.bench.timing import TimingOptions

PLAIN, TRACED = "plain", "traced"
"""The kernel of a build, and the same with stamps."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """`launches` whose records are kept; rounds and milliseconds of the two kernels' times, which take turns.

    `hang_s`: seconds that a launch or a sample may take; `limit_s`: seconds without a word of the worker.
    """

    launches: int = 5
    seed: int = 0
    rounds: int = 21
    sample_ms: float = 10.0
    warm_up_ms: float = 300.0
    hang_s: float = 20.0
    limit_s: float = 300.0

    @property
    def timing(self) -> TimingOptions:
        """The part of it that the timing needs."""
        return TimingOptions(self.rounds, self.sample_ms, warm_up_ms=self.warm_up_ms)

    def to_text(self) -> str:
        """As JSON on one line."""
        return json.dumps(dataclasses.asdict(self))


def options_from_text(text: str) -> TraceOptions:
    """The options that `to_text` wrote."""
    return TraceOptions(**json.loads(text))
