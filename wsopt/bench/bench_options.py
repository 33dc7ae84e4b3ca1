"""Options of a benchmark, as plain data that travels to the worker process."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from wsopt.bench.timing import TimingOptions
from wsopt.errors import InputError, Problem

DEFAULT_BASELINES = (
    "cublas",
    "eager",
    "inductor",
    "scaled_mm",
    "grouped_mm",
    "sdpa_cudnn",
    "sdpa_flash",
    "flex",
    "flash_attn_4",
    "copy",
)
BASELINES = (*DEFAULT_BASELINES, "sdpa", "read")
AGAINST = "against"


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of a benchmark.

    `tolerance` on the relative error of the kernel, `baseline_tolerance` on that of a baseline, which
    rounds where torch does. `hang_s`: seconds one launch or sample may take; `limit_s`: seconds a folder
    may take in all, compiling baselines included. Kernels under `graph_below_us` are timed in a CUDA graph
    too. In `settled_rounds` rounds of their own, if there are any, a contestant runs
    `settle_ms` untimed before each sample. Input sets together exceed `cache_factor`
    times the L2 and stay under `most_bytes`. `together`: folders share a process. `against`: a build folder of
    the same graph that is timed beside each, in the row of a baseline of that name. Raises InputError for a
    name that is no baseline, and for no rounds.
    """

    baselines: tuple[str, ...] = DEFAULT_BASELINES
    seed: int = 0
    tolerance: float = 1e-2
    baseline_tolerance: float = 5e-2
    rounds: int = 21
    sample_ms: float = 10.0
    settle_ms: float = 100.0
    settled_rounds: int = 5
    warm_up_ms: float = 500.0
    hang_s: float = 20.0
    limit_s: float = 600.0
    graph_below_us: float = 100.0
    cache_factor: float = 3.0
    most_bytes: int = 8 * 2**30
    together: bool = False
    against: str = ""

    def __post_init__(self) -> None:
        unknown = [name for name in self.baselines if name not in BASELINES]
        if unknown:
            told = f"no baseline {unknown[0]!r}; there are {', '.join(BASELINES)}"
            raise InputError("options", [Problem("baselines", told)])
        for name, least in (("rounds", 1), ("settled_rounds", 0)):
            if getattr(self, name) < least:
                raise InputError(
                    "options", [Problem(name, f"{getattr(self, name)}, at least {least} is needed")]
                )

    @property
    def timing(self) -> TimingOptions:
        """The part of it that the timing needs."""
        return TimingOptions(self.rounds, self.sample_ms, warm_up_ms=self.warm_up_ms)

    @property
    def settled(self) -> TimingOptions:
        """These options for settled times, where each kernel runs at the clock that its own power leaves it."""
        return TimingOptions(self.settled_rounds, self.sample_ms, self.settle_ms, warm_up_ms=0.0)

    def to_text(self) -> str:
        """As JSON on one line."""
        return json.dumps(dataclasses.asdict(self))


def options_from_text(text: str) -> BenchOptions:
    """The options that `to_text` wrote."""
    fields = json.loads(text)
    return BenchOptions(**fields | {"baselines": tuple(fields["baselines"])})


def count_sets(set_bytes: int, cache_bytes: int, options: BenchOptions) -> int:
    """How many sets of inputs and outputs to rotate, so that none is found in the cache of the launch before.

    Two at least where the memory allows it, 64 at most.
    """
    wanted = max(2, -(-int(options.cache_factor * cache_bytes) // set_bytes))
    return max(1, min(wanted, options.most_bytes // set_bytes, 64))
