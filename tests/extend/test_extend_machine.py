"""A machine with other capacities is one file: what the solver chooses follows it, and the kernel keeps to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from emit_builds import MARGIN, graph_of, h200, plain
from fewer_structures import one_of

from wsopt.checker import faults
from wsopt.driver import build
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph
from wsopt.machine import Machine, load_machine
from wsopt.perf.price import lower
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.search import Search

CARD = """\
base = "h200"
name = "half_card"
title = "Half an H200"

sm_count = { value = 66, source = "estimate: half of the H200's" }
registers_per_sm = { value = 49152, source = "estimate: three quarters of the H200's" }
shared_memory_per_sm_bytes = { value = 102400, source = "estimate: 100 KiB" }
shared_memory_per_block_bytes = { value = 101376, source = "estimate: 99 KiB, with 1 KiB reserved" }

[tensor]
bf16 = { value = 1024, source = "estimate: half of the H200's" }

[dense_tflops]
bf16 = { value = 247.4, source = "derived: 66 SMs x 2 x 1024 at 1830 MHz" }
f16 = { value = 494.7, source = "derived: 66 SMs x 2 x 2048 at 1830 MHz" }
f8e4m3 = { value = 989.4, source = "derived: 66 SMs x 2 x 4096 at 1830 MHz" }
f8e5m2 = { value = 989.4, source = "derived: 66 SMs x 2 x 4096 at 1830 MHz" }
i8 = { value = 989.4, source = "derived: 66 SMs x 2 x 4096 at 1830 MHz" }
tf32 = { value = 247.4, source = "derived: 66 SMs x 2 x 1024 at 1830 MHz" }
"""


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    path = tmp_path_factory.mktemp("card") / "half_card.toml"
    path.write_text(CARD, encoding="utf-8")
    return load_machine(path)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of(plain)


def best(graph: Graph, machine: Machine) -> VerifiedSchedule:
    with one_of(4):
        return Search(find_region(graph), machine, MARGIN).run()[0]


@pytest.fixture(scope="module")
def small(graph: Graph, half: Machine) -> VerifiedSchedule:
    return best(graph, half)


@pytest.fixture(scope="module")
def large(graph: Graph) -> VerifiedSchedule:
    return best(graph, h200())


@pytest.mark.solver
def test_the_schedule_follows_the_capacities(small: VerifiedSchedule, large: VerifiedSchedule) -> None:
    assert (small.program.tiles, large.program.tiles) == (64, 128), "a tile for each SM, or nearly"
    assert small.schedule.shared_memory_bytes <= 101376 < large.schedule.shared_memory_bytes
    assert sum(p.registers * p.warps * 32 for p in small.schedule.partitions) <= 49152
    assert (small.program.structure.columns, large.program.structure.columns) == (128, 128)
    products = 64 * 128 * 512 // 1024 * small.program.structure.consumers
    assert small.schedule.ii * small.program.k_iterations >= products
    assert small.schedule.prediction.microseconds > 1.9 * large.schedule.prediction.microseconds


@pytest.mark.solver
def test_a_schedule_of_the_larger_card_is_refused(half: Machine, large: VerifiedSchedule) -> None:
    program = lower(large.program.region, large.program.structure, half)
    found = faults(large.schedule, program, half, MARGIN)
    asked = [
        f"tensor is asked for 512 cycles of an II of {large.schedule.ii}",
        f"shared memory: {large.schedule.shared_memory_bytes} bytes, a block has 101376",
        "registers: the launch takes 63488, an SM has 49152",
    ]
    assert set(asked) <= set(found)


@pytest.mark.solver
@pytest.mark.compiler
def test_its_kernel_is_simulated_and_assembled(graph: Graph, half: Machine) -> None:
    with one_of(6):
        made = build(graph, half, use_cache=False)
    (kernel,) = made.summary["kernels"]
    assert made.summary["machine"] == "half_card"
    assert made.summary["verified"]["interpreter"]["seeds"] == 20
    assert (kernel["ptxas"]["spill_loads"], kernel["ptxas"]["stack_bytes"]) == (0, 0)
    assert kernel["shared_memory_bytes"] <= 101376
    assert "on half_card." in made.files["kernel.py"]


def test_the_page_on_extending_shows_this_file() -> None:
    page = Path(__file__).parents[2] / "docs" / "extend.md"
    assert f"```toml\n{CARD}```" in page.read_text(encoding="utf-8")
