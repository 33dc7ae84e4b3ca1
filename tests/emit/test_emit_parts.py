"""Heads that are sums of powers of two: tiles in parts, each a copy, an accumulator, and products of its own."""

from __future__ import annotations

import functools

import attention_graphs as a
import pytest
from attention_graphs import Sizes
from emit_builds import Emitted, build, check_computes, small_case

from wsopt.codegen import compile_kernel
from wsopt.emit.source import expected_instructions
from wsopt.emit.sums import accumulator_names, accumulators, cut_to_subtiles, sum_layouts
from wsopt.graph.types import Graph
from wsopt.program.types import Sharing, Structure


def sizes(inner: int, column: int, *, queries: int = 200, keys: int = 200, dtype: str = "bf16") -> Sizes:
    return Sizes(1, 2, queries, keys, inner, column, dtype)


def cut(
    columns: int, subtiles: int, *, depth: int = 64, rows: int = 64, warps: int = 4, persistent: bool = True
) -> Structure:
    consumers = 1 if warps == 8 else 2
    return Structure(
        rows, columns, depth, consumers, warps, Sharing.COOPERATIVE, persistent, False, subtiles, 1
    )


CASES: dict[str, tuple[Graph, Structure]] = {
    "96": (a.attention(lambda _, x: x, sizes(96, 96)), cut(96, 3)),
    "96 causal": (a.attention(a.causal, sizes(96, 96)), cut(96, 3, depth=128)),
    "96, one tile a block": (a.attention(a.causal, sizes(96, 96)), cut(96, 3, persistent=False)),
    "96, eight warps": (a.attention(a.causal, sizes(96, 96)), cut(96, 3, rows=128, warps=8)),
    "96, inner padded alone": (a.attention(a.causal, sizes(96, 96)), cut(128, 4)),
    "96, f16, lse": (a.with_lse(a.causal, sizes(96, 96, dtype="f16")), cut(96, 3)),
    "96, two values": (a.two_values(sizes(96, 96)), cut(96, 3, depth=32)),
    "96, retention": (a.linear(a.rescaled, sizes(96, 96)), cut(96, 3)),
    "96, gated": (a.gated_output(sizes(96, 96)), cut(96, 3, depth=32)),
    "80": (a.attention(a.causal, sizes(80, 80)), cut(96, 3)),
    "80, grouped, ragged": (a.grouped("reshape", a.causal, sizes(80, 80, keys=300)), cut(96, 3)),
    "112 and 160": (a.attention(a.soft_cap, sizes(112, 160, keys=136)), cut(160, 5, depth=32)),
    "160, bias": (a.attention(a.bias("queries", "keys"), sizes(160, 160, queries=136)), cut(160, 5)),
    "96, bias": (a.attention(a.bias("queries", "keys"), sizes(96, 96, queries=136)), cut(96, 3)),
    "192": (a.attention(a.causal, sizes(192, 192)), cut(192, 3)),
    "192, narrow subtiles": (a.attention(a.window, sizes(192, 192)), cut(192, 6, depth=32)),
    "192 and 128": (a.attention(a.causal, sizes(192, 128)), cut(128, 2)),
    "224": (a.attention(a.causal, sizes(224, 224, queries=136)), cut(224, 7, depth=32)),
    "packed 96": (a.packed(a.causal, sizes(96, 96)), cut(96, 3)),
}


@functools.cache
def emitted(name: str) -> Emitted:
    graph, s = CASES[name]
    return build(graph, s)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    check_computes(emitted(name))


@pytest.mark.compiler
@pytest.mark.parametrize("name", CASES)
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    made = emitted(name)
    found = compile_kernel(made.source)
    assert found.tensor_instructions == expected_instructions(made.verified)
    assert (found.stack_bytes, found.spill_loads) == (0, 0)
    assert (found.overwritten_operands, found.early_arrivals) == (0, 0)


def test_a_tile_in_parts_takes_no_more_than_its_elements() -> None:
    made = emitted("96")
    (held,), program = made.verified.program.stationary, made.verified.program
    assert held.shape == (64, 96)
    assert program.stationary_bytes == 2 * 64 * 96 * 2
    assert [plan.slot_bytes for plan in program.rings] == [64 * 96 * 2] * 2
    assert f"mbarrier.expect(v_ring_full.index(step % v_DEPTH), {64 * 96 * 2})" in made.source


def test_parts_are_copied_to_one_barrier_each_from_its_own_place() -> None:
    loader = emitted("96").source.split("def loader")[1].split("def ")[0]
    copies = [line.strip() for line in loader.splitlines() if "tma_load(v_" in line]
    barrier = "v_ring_full.index(step % v_DEPTH)"
    assert copies == [
        f"tma_load(v_0_desc, [batch, k_block * TILE_DEPTH, 0], {barrier}, v_0_ring.index(step % v_DEPTH))",
        f"tma_load(v_64_desc, [batch, k_block * TILE_DEPTH, 64], {barrier}, v_64_ring.index(step % v_DEPTH))",
    ]


NEXT = "k_block * TILE_DEPTH"
FAULTS = {
    "the second part is copied from where the first begins": (f"{NEXT}, 64]", f"{NEXT}, 0]"),
    "the second part of the queries is the first": ("row_tile * TILE_ROWS, 64]", "row_tile * TILE_ROWS, 0]"),
    "the second part of a chain overwrites": (", s, is_async=True)", ", s, use_acc=False, is_async=True)"),
    "one accumulator is not rescaled": ("pv_2 = pv_2 * ", "unused = pv_2 * "),
    "one accumulator is not waited for": (
        "pv_0_to_1, pv_2 = warpgroup_mma_wait(0, deps=(pv_0_to_1, pv_2,))",
        "pv_0_to_1 = warpgroup_mma_wait(0, deps=(pv_0_to_1,))",
    ),
    "a product is left under way": ("pv_2 = warpgroup_mma_wait(0, ", "pv_2 = warpgroup_mma_wait(1, "),
    "a part's bytes are not announced": (f"k__DEPTH), {64 * 96 * 2})", f"k__DEPTH), {64 * 64 * 2})"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_part_is_found(fault: str) -> None:
    made, (right, wrong) = emitted("96"), FAULTS[fault]
    assert right in made.source
    checked = small_case(made)
    assert checked.fault(made.source, 3) is None
    assert checked.fault(made.source.replace(right, wrong), 8) is not None


def test_an_extent_that_is_a_power_of_two_stays_whole() -> None:
    whole = cut(128, 4)
    assert accumulator_names(whole, "o") == ("o",)
    assert sum_layouts(whole) == [("SUM_LAYOUT", 128), ("SUBTILE_LAYOUT", 32), ("LAYOUT_64", 64)]
    assert cut_to_subtiles(whole, "o") == [
        "o_0_to_1, o_2_to_3 = halves(o, LAYOUT_64)",
        "o_0, o_1 = halves(o_0_to_1, SUBTILE_LAYOUT)",
        "o_2, o_3 = halves(o_2_to_3, SUBTILE_LAYOUT)",
    ]


def test_no_subtile_lies_in_two_accumulators() -> None:
    s = cut(224, 7)
    assert accumulator_names(s, "o") == ("o_0_to_3", "o_4_to_5", "o_6")
    assert [one.layout for one in accumulators(s)] == ["LAYOUT_128", "LAYOUT_64", "SUBTILE_LAYOUT"]
    assert sum_layouts(s) == [("SUBTILE_LAYOUT", 32), ("LAYOUT_128", 128), ("LAYOUT_64", 64)]
    assert cut_to_subtiles(s, "o")[-1] == "o_4, o_5 = halves(o_4_to_5, SUBTILE_LAYOUT)"
