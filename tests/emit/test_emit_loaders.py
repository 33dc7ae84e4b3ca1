"""Kernels with two loading warps, which divide the rings: right under interleavings, compiled, no wait too many."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from emit_builds import MARGIN, SEEDS, Body, Emitted, case, graph_of, h200, small_case
from test_emit_computed import CASES as COMPUTED
from test_emit_k_block_mutants import SIZES
from test_emit_k_blocks import attention
from test_emit_k_blocks import structure as rows

from wsopt.checker import verify
from wsopt.codegen.aot import compile_kernel
from wsopt.emit.source import emit
from wsopt.frontend.region import find_region
from wsopt.interpret import mutants
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions
from wsopt.program.ids import OpKind
from wsopt.program.types import Structure
from wsopt.report.sentences import sentences
from wsopt.schedule.types import PartitionRole
from wsopt.solve.optimum import solve

CASES: dict[str, tuple[Body, Structure]] = {
    "whole": (lambda g: attention(g, "full"), rows(64)),
    "causal": (lambda g: attention(g, "causal"), rows(64, persistent=True)),
    "weights": COMPUTED["weights"],
    "apart": (COMPUTED["weights"][0], replace(COMPUTED["weights"][1], transforms=1)),
    "three rings": COMPUTED["gated"],
    "three consumers": (lambda g: attention(g, "causal"), rows(64, consumers=3, persistent=True)),
}


@functools.cache
def made(name: str, loaders: int = 2, kib: int = 227) -> Emitted:
    """The best schedule with so many loading warps."""
    body, structure = CASES[name]
    graph, machine = graph_of(body), replace(h200(), shared_memory_per_block_bytes=kib * 1024)
    program = lower(find_region(graph), structure, machine)
    solved = solve(replace(program, conditions=Conditions(loaders=loaders)), machine, MARGIN)
    assert solved.schedule is not None, solved.reason
    verified = verify(solved.schedule, program, machine, MARGIN)
    return Emitted(graph, verified, emit(verified))


def functions(source: str) -> dict[str, str]:
    """The text of each device function."""
    parts = (part.partition("(") for part in source.split("@gluon.jit\ndef ")[1:])
    return {name: rest.partition("\n\n\n")[0] for name, _, rest in parts}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    found = made(name)
    assert small_case(found).fault(found.source, SEEDS) is None


@pytest.mark.parametrize("name", CASES)
def test_each_warp_fills_its_own_rings(name: str) -> None:
    found = made(name)
    schedule, program, text = found.verified.schedule, found.verified.program, functions(found.source)
    loaders = [p for p in schedule.partitions if p.role is PartitionRole.LOADER]
    assert [(p.name, p.warps) for p in loaders] == [("loader0", 1), ("loader1", 1)]
    assert "loader" not in text
    loads = program.of(OpKind.TMA_LOAD)
    for partition in loaders:
        own = {op.id.subject for op in loads if schedule.place(op.id).partition == partition.name}
        other = {op.id.subject for op in loads} - own
        assert all(f"{tensor}_" in text[partition.name] for tensor in own)
        assert not any(f"tma_load({tensor}_" in text[partition.name] for tensor in other)
        late = own - found.graph.constants
        assert all(
            text[partition.name].index("gdc_wait()") < text[partition.name].index(f"tma_load({tensor}_")
            for tensor in late
        )


@pytest.mark.parametrize("name", CASES)
def test_the_warp_of_the_last_copy_lets_the_next_kernel_in(name: str) -> None:
    found = made(name)
    schedule, text = found.verified.schedule, functions(found.source)
    last = max(found.verified.program.of(OpKind.TMA_LOAD), key=lambda op: schedule.start(op.id))
    assert found.source.count("gdc_launch_dependents()") == 1
    assert text[schedule.place(last.id).partition].rstrip().endswith("gdc_launch_dependents()")


def test_words_say_who_brings_what() -> None:
    assert (
        sentences(made("causal").verified)[-1] == "Of 2 loading warps loader0 brings k and loader1 brings v."
    )
    assert sentences(made("three rings").verified)[-1].startswith("Of 2 loading warps loader0 brings x")
    assert not any("loading warps" in told for told in sentences(made("causal", 1).verified))


def test_one_loading_warp_has_the_roles_name() -> None:
    assert "loader" in functions(made("causal", 1).source)
    assert "loader0" not in functions(made("causal", 1).source)


def test_the_launch_has_no_more_warps() -> None:
    one, two = (made("causal", loaders).verified.schedule for loaders in (1, 2))
    assert one.base_registers == two.base_registers
    assert one.shared_memory_bytes == two.shared_memory_bytes
    assert {p.registers for p in one.partitions} == {p.registers for p in two.partitions}


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["causal", "apart"])
def test_compiles(name: str) -> None:
    found = compile_kernel(made(name).source)
    assert (found.stack_bytes, found.spill_loads, found.spill_stores) == (0, 0, 0)
    assert not found.early_arrivals


@pytest.mark.slow
def test_every_mutant_of_the_loading_warps_is_found() -> None:
    found = made("causal", kib=96)
    assert max(slots for _, slots in found.verified.schedule.rings) <= 3
    cases = [case(graph_of(lambda g, n=n, m=m: attention(g, "causal", n, m))) for n, m in SIZES]
    begin, end = (
        found.source[: found.source.index(f"def {name}(")].count("\n") for name in ("loader0", "consumer")
    )
    # A wait that has passed passes again; and K-blocks between two tiles waited for the products that read this set.
    lines = found.source.splitlines()
    every = (one for one in mutants(found.source) if begin < one.line <= end and one.kind != "double-wait")
    own = [one for one in every if one.kind != "late-wait" or "stationary_empty" not in lines[one.line - 1]]
    assert len(own) >= 12
    for mutant in own:
        assert any(one.fault(mutant.source, 20) for one in cases), f"{mutant.name} survives"
