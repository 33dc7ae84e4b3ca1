"""What a kernel is expected to take among others in a model, of the time that is predicted for it alone.

A prediction is of a kernel that runs on by itself, at the clock that its own power leaves it, and each launch of it
counts whole. In a model neither is so. All kernels there share a clock; in turns with the library's products, fast
products were measured to take 6 % less than predicted (`FASTER`). And a kernel of ours is launched while the one
before it ends, where one of Inductor's, in whose measured times launches are, waits for that end and is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.frontend.kinds import is_matmul
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph
from wsopt.machine.types import Machine
from wsopt.torch.cutting import flops

FASTER = ((0.5, 1.0), (0.7, 1.06))
"""By the share of the machine's sustained products a second, how many times a predicted time is the one measured in
turns: the least share at which it is another, and that from which on it is no more another. Between is in between.
`docs/benchmarks`, `docs/few_tiles`, `docs/calibration` and `docs/survey` have the measurements.
"""


@dataclass(frozen=True, slots=True)
class Among:
    """How many times a kernel's predicted time is what it takes among others, and microseconds of its launch, which
    pass while the kernel before it ends.
    """

    times: float
    launch_us: float

    def expected_us(self, predicted_us: float) -> float:
        """Microseconds among others of a kernel for which so many are predicted alone."""
        return predicted_us / self.times - self.launch_us

    def predicted_us(self, expected_us: float) -> float:
        """Microseconds that are predicted alone for a kernel that takes so many among others."""
        return (expected_us + self.launch_us) * self.times


ALONE = Among(1.0, 0.0)
"""What is measured, or not held against anything, gains nothing."""


def among_others(graph: Graph, theirs_us: float, machine: Machine) -> Among:
    """What a kernel gains that has to take less than so many microseconds.

    Attention gains its launch alone: its arithmetic waits for products, and predictions are off either way. Raises
    LoweringError for a graph that is no region.
    """
    products = [node for node in graph.nodes if is_matmul(node)]
    if not products or find_region(graph).chained:
        return Among(1.0, machine.kernel_launch_us)
    sustained = machine.sustained_tflops(graph.type_of(products[0].tensors[0]).dtype.value) * 1e6
    return Among(_times(flops(graph) / theirs_us / sustained), machine.kernel_launch_us)


def _times(share: float) -> float:
    (low, least), (high, most) = FASTER
    part = min(max((share - low) / (high - low), 0.0), 1.0)
    return least + part * (most - least)
