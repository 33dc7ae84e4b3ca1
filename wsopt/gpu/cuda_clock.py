"""The clock of a CUDA device: events around launches, CUDA graphs for short ones, a guard against hangs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from wsopt.gpu.errors import HangError
from wsopt.gpu.timing import Contestant, Launch


def wait(limit_s: float, what: str) -> None:
    """Wait for all that was launched so far. Raises HangError if it takes longer than `limit_s` seconds."""
    event = torch.cuda.Event()
    event.record()
    _wait_for(event, limit_s, what)


def _wait_for(event: Any, limit_s: float, what: str) -> None:
    # Polling, for nothing ends a call of the driver that waits for a kernel that does not end.
    end = time.monotonic() + limit_s
    while not event.query():
        if time.monotonic() > end:
            raise HangError(f"{what} did not end within {limit_s:g} s")
        time.sleep(5e-5)


class CudaClock:
    """Times plain launches by events; a sample longer than `limit_s` seconds is a HangError."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s

    def sample(self, launches: Sequence[Launch], count: int) -> float:
        """Milliseconds of `count` launches, going round the given ones."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for number in range(count):
            launches[number % len(launches)]()
        end.record()
        _wait_for(end, self._limit_s, "a sample")
        return float(start.elapsed_time(end))


def captured(contestant: Contestant, count: int) -> tuple[Contestant, int]:
    """A contestant whose one launch replays `count` launches out of a CUDA graph, and that count.

    The launches must have run before. Raises RuntimeError if they cannot be captured.
    """
    sets = len(contestant.launches)
    count = sets * max(1, count // sets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(count):
            contestant.launches[number % sets]()
    return Contestant(contestant.name, (graph.replay,)), count
