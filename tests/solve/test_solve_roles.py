"""Who does what is chosen by costs alone: the same graph, machines whose figures differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from solve_examples import MARGIN, region, structure

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder
from wsopt.machine import Machine
from wsopt.program.types import Structure
from wsopt.schedule.types import PartitionRole
from wsopt.solve import search
from wsopt.solve.search import Search


def _weights() -> Region:
    """y = x w' with weights of i8 that are cast."""
    g = GraphBuilder("weights")
    x, w = g.input("x", (64, 4096), "bf16"), g.input("w", (8192, 4096), "i8", constant=True)
    g.output(g.cast(g.matmul(x, g.cast(w, "bf16"), transpose_b=True), "bf16", name="y"))
    return find_region(g.build())


def _roles(of: Region, machine: Machine, *among: Structure) -> set[PartitionRole]:
    """The roles of the best schedule among these structures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "structures", lambda *_: iter(among))
        verified, _ = Search(of, machine, MARGIN).run()
    return {partition.role for partition in verified.schedule.partitions}


@pytest.mark.solver
def test_who_casts_weights_is_chosen_by_the_cost_of_the_trip(h200: Machine) -> None:
    own = structure(64, 64, 128, 1)
    among = (own, replace(own, transforms=1))
    assert PartitionRole.TRANSFORM not in _roles(_weights(), h200, *among)
    latency = replace(h200.latency, fence_behind_stores=0.0, mbarrier_arrive=0.0, mbarrier_wait=0.0)
    cheap = replace(h200, latency=latency, shared_memory_bytes_per_cycle=1024)
    assert PartitionRole.TRANSFORM in _roles(_weights(), cheap, *among)


@pytest.mark.solver
def test_who_starts_stores_is_chosen_by_the_cost_of_starting_them(h200: Machine) -> None:
    product, s = region(4096, 4096, 512), replace(structure(64, 256, 64, 2), subtiles=4)
    assert PartitionRole.STORE_WARP in _roles(product, h200, s)
    free = replace(h200, tma_store_box_cycles=0.0, tma_store_bytes_per_cycle=1e4)
    assert PartitionRole.STORE_WARP not in _roles(product, free, s)
