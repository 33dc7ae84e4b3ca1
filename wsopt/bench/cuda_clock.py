"""The clock of a CUDA device: events around launches, and CUDA graphs for short ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wsopt.bench.timing import Contestant, Launch
from wsopt.runtime.hang import wait_for


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
        wait_for(end, self._limit_s, "a sample")
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
