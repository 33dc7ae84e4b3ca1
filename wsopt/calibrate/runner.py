"""Runs one probe on the GPU and returns its figures. Imported by the worker only: it needs torch.

What a loop costs is the difference of two lengths over the difference of the lengths; on several SMs, the
median over them.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from wsopt.bench.reads import reading
from wsopt.calibrate.build import box_layout, build, constant_arguments
from wsopt.calibrate.program import Mode, Place, Probe
from wsopt.runtime.hang import wait

HANG_S = 10.0
SHORT, LONG, STREAM, LONG_STREAM = 32, 160, 1024, 4096
PITCH = 4096
"""Columns of the bf16 matrix that boxes are copied from and to: rows lie 8 KB apart, as in a product."""

FAR_ROWS = 2**20
"""Rows of that matrix, 8 GB: a launch does not find in L2 what one before it read."""


class Runner:
    """Runs probes; keeps the buffers and the built kernels between them."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.sms = int(torch.cuda.get_device_properties(self.device).multi_processor_count)
        self._out = torch.zeros((65536, 3), dtype=torch.int64, device=self.device)
        self._sink = torch.zeros((65536, 3), dtype=torch.float32, device=self.device)
        self._matrix: torch.Tensor | None = None
        self._far_row = 0
        self._launches: dict[Probe, Any] = {}

    def run(self, probe: Probe) -> dict[str, float]:
        """The figures of a probe by the end of their names ("" for its main one)."""
        return _MODES[probe.mode](self, probe)

    def _kernel(self, probe: Probe) -> Any:
        assert probe.program is not None
        if probe not in self._launches:
            self._launches[probe] = build(probe.program)
        return self._launches[probe]

    def _time(self, launch: Callable[[], object]) -> float:
        """Milliseconds of the work that `launch` puts on the stream. Raises HangError if it does not end."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch()
        end.record()
        wait(HANG_S, "a kernel")
        return float(start.elapsed_time(end))

    def _cycles(self, launch: Callable[[], object], blocks: int) -> tuple[torch.Tensor, float]:
        """Launch: the cycles that each block reported, and the milliseconds of all."""
        elapsed = self._time(launch)
        return self._out[:blocks].cpu().to(torch.float64), elapsed

    def _slope(self, launch: Callable[[int], object], blocks: int, lengths: tuple[int, int]) -> torch.Tensor:
        launch(1)
        short, _ = self._cycles(lambda: launch(lengths[0]), blocks)
        long, _ = self._cycles(lambda: launch(lengths[1]), blocks)
        return (long - short) / (lengths[1] - lengths[0])

    def _fresh_rows(self, count: int) -> int:
        """The first of `count` rows of the matrix behind those given out before; from its start at its end."""
        begin = self._far_row if self._far_row + count <= FAR_ROWS else 0
        self._far_row = begin + count
        return begin

    def _descriptor(self, probe: Probe) -> Any:
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        assert probe.program is not None
        if self._matrix is None:
            self._matrix = torch.zeros((FAR_ROWS, PITCH), dtype=torch.bfloat16, device=self.device)
        assert probe.program.box is not None
        return TensorDescriptor(
            self._matrix, [FAR_ROWS, PITCH], [PITCH, 1], list(probe.program.box), box_layout(probe.program)
        )


def _roles(runner: Runner, probe: Probe) -> dict[str, float]:
    kernel, blocks = runner._kernel(probe)[(runner.sms, 1, 1)], runner.sms
    assert probe.program is not None
    rest = constant_arguments(probe.program)

    def launch(k_iterations: int) -> None:
        lengths = [k_iterations if place < probe.groups else 0 for place in range(3)]
        kernel(runner._out, runner._sink, *lengths, 0.5, *rest)

    slopes = runner._slope(launch, blocks, (SHORT, LONG))[:, : probe.groups].max(dim=1).values
    return {"": float(slopes.median()) / probe.per}


def _alone(runner: Runner, probe: Probe) -> dict[str, float]:
    kernel, blocks = runner._kernel(probe)[(runner.sms, 1, 1)], runner.sms
    assert probe.program is not None
    rest = [*([0] if "third" in probe.options else []), *constant_arguments(probe.program)]

    def launch(k_iterations: int) -> None:
        kernel(runner._out, runner._sink, k_iterations, *rest)

    slopes = runner._slope(launch, blocks, (SHORT, LONG))[:, 0]
    return {"": float(slopes.median()) / probe.per}


def _load(runner: Runner, probe: Probe) -> dict[str, float]:
    return _stream(runner, probe, [probe.depth])


def _store(runner: Runner, probe: Probe) -> dict[str, float]:
    return _stream(runner, probe, [])


def _stream(runner: Runner, probe: Probe, first: list[int]) -> dict[str, float]:
    """Cycles a box, and, on all SMs, bytes a second of all of them together."""
    blocks = probe.blocks or runner.sms
    kernel, descriptor = runner._kernel(probe)[(blocks, 1, 1)], runner._descriptor(probe)
    assert probe.program is not None
    assert probe.program.box is not None
    rest = constant_arguments(probe.program)
    rows, wide = probe.program.box
    # From L2, a block stays within 64 KB; from device memory, it reads nothing twice.
    far = probe.place is Place.DRAM
    columns = PITCH if far else max(wide, 2**16 // (2 * rows))
    # The rate of all SMs is taken by the host's clock of events, so it takes longer launches.
    longest = STREAM if probe.blocks or far else LONG_STREAM
    lengths = (longest // 4, longest)

    def launch(k_iterations: int) -> None:
        height = rows * (math.ceil(k_iterations * wide / columns) if far else 1)
        apart = 0 if probe.place is Place.SAME else height
        begin = runner._fresh_rows(blocks * height) if far else 0
        kernel(descriptor, runner._out, k_iterations, *first, begin, apart, height, columns, *rest)

    launch(lengths[0])
    short, short_ms = runner._cycles(lambda: launch(lengths[0]), blocks)
    long, long_ms = runner._cycles(lambda: launch(lengths[1]), blocks)
    steps = lengths[1] - lengths[0]
    found = {"": float(((long - short) / steps)[:, 0].median())}
    if not probe.blocks and long_ms > short_ms:
        found[".rate"] = blocks * probe.per * steps / (1e-3 * (long_ms - short_ms))
    return found


def _block(runner: Runner, probe: Probe) -> dict[str, float]:
    """Cycles in a block from its first instruction on, and from a block's end to the next one's start."""
    kernel, descriptor, waves = runner._kernel(probe), runner._descriptor(probe), 8
    assert probe.program is not None
    rest = constant_arguments(probe.program)
    blocks = runner.sms * waves

    def launch() -> None:
        kernel[(blocks, 1, 1)](descriptor, runner._out, *rest)

    launch()
    reported, _ = runner._cycles(launch, 2 * blocks)
    inside, outside = reported[0::2], reported[1::2]
    names = (".issue", ".arrival", ".end")
    found = {n: float(v) for n, v in zip(names, inside.median(dim=0).values, strict=True)}
    gaps: list[float] = []
    for sm in outside[:, 1].unique():
        chosen = outside[:, 1] == sm
        entries, order = outside[chosen, 0].sort()
        ends = entries + inside[chosen, 2][order]
        gaps += (entries[1:] - ends[:-1]).tolist()
    return {**found, ".turnover": statistics.median(gaps)}


def _launch(runner: Runner, probe: Probe) -> dict[str, float]:
    """Microseconds from one empty kernel to the next, on a stream and in a CUDA graph."""
    kernel = runner._kernel(probe)[(runner.sms, 1, 1)]

    def launch(count: int) -> None:
        for _ in range(count):
            kernel(runner._out)

    launch(4)
    times = []
    for count in (200, 1000):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(count)
        graph.replay()
        times.append(statistics.median([runner._time(graph.replay) for _ in range(5)]))
    plain = runner._time(lambda: launch(1000)) - runner._time(lambda: launch(200))
    return {".graph_us": 1e3 * (times[1] - times[0]) / 800, ".stream_us": 1e3 * plain / 800}


def _sustained(runner: Runner, probe: Probe) -> dict[str, float]:
    """Clock and rate of the tensor core, first cold and for a moment, then under the power limit."""
    kernel = runner._kernel(probe)[(runner.sms, 1, 1)]
    assert probe.program is not None
    rest = constant_arguments(probe.program)
    settings = dict(probe.program.constants)
    k_blocks, columns = int(settings["ISSUES"]), int(settings["COLUMNS"])

    def launch(k_iterations: int) -> None:
        lengths = [k_iterations if place < probe.groups else 0 for place in range(3)]
        kernel(runner._out, runner._sink, *lengths, 0.5, *rest)

    launch(1)
    found = {}
    for name, heat_s, k_iterations in ((".cold", 0.0, 64), (".hot", 0.7, 4096)):
        end = time.monotonic() + heat_s
        while time.monotonic() < end:
            runner._time(lambda: launch(4096))
        cycles, elapsed = [], []
        for _ in range(5):
            reported, spent = runner._cycles(functools.partial(launch, k_iterations), runner.sms)
            cycles.append(float(reported[:, : probe.groups].max(dim=1).values.median()))
            elapsed.append(spent)
        slowest = statistics.median(elapsed)
        flops = runner.sms * probe.groups * k_iterations * k_blocks * 2 * 64 * columns * 64
        found[f"{name}.mhz"] = statistics.median(cycles) / (1e3 * slowest)
        found[f"{name}.tflops"] = flops / (slowest * 1e9)
    return found


def _library(runner: Runner, probe: Probe) -> dict[str, float]:
    """TFLOP/s of torch's bf16 product of 8192 cubed after half a second of it."""
    size = 8192
    left, right = (torch.randn((size, size), device=runner.device).bfloat16() for _ in range(2))
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        runner._time(lambda: [left @ right for _ in range(20)])
    elapsed = [runner._time(lambda: [left @ right for _ in range(20)]) for _ in range(3)]
    return {".tflops": 20 * 2 * size**3 / (statistics.median(elapsed) * 1e9)}


def _copy(runner: Runner, probe: Probe) -> dict[str, float]:
    """Bytes a second, read plus written, of a device-to-device copy of 2 GB."""
    source = torch.zeros(2**31, dtype=torch.uint8, device=runner.device)
    target = torch.empty_like(source)
    return _rate(runner, lambda: target.copy_(source), 2 * 2**31)


def _read(runner: Runner, probe: Probe) -> dict[str, float]:
    """Bytes a second of a kernel that only reads 2 GB."""
    return _rate(runner, reading(2**31, runner.device), 2**31)


def _rate(runner: Runner, launch: Callable[[], object], nbytes: int) -> dict[str, float]:
    """Bytes a second of launches that move so many each, after a first one."""
    runner._time(launch)
    elapsed = [runner._time(launch) for _ in range(5)]
    return {".rate": nbytes / (1e-3 * statistics.median(elapsed))}


_MODES: Mapping[Mode, Callable[[Runner, Probe], dict[str, float]]] = {
    Mode.ROLES: _roles,
    Mode.ALONE: _alone,
    Mode.LOAD: _load,
    Mode.STORE: _store,
    Mode.BLOCK: _block,
    Mode.LAUNCH: _launch,
    Mode.SUSTAINED: _sustained,
    Mode.LIBRARY: _library,
    Mode.COPY: _copy,
    Mode.READ: _read,
}
