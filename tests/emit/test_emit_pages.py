"""Kernels whose streamed tensors lie in pages, found by a table: executed, mutated, compiled, refused."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from emit_builds import Case, Emitted, build, case, graph_of, h200, small_case
from emit_checks import check_machine_code
from other_compiler import compiled_by
from paged_graphs import Paged

from wsopt.errors import CheckError, LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.lengths import KINDS
from wsopt.graph.reference import random_inputs
from wsopt.interpret import execute, mutants
from wsopt.lowering.structures import structures
from wsopt.perf.price import lower
from wsopt.program.types import Sharing, Structure
from wsopt.report.text import pages_of
from wsopt.schedule.budget import partitions
from wsopt.schedule.types import EpilogueBuffers
from wsopt.simulation import simulate
from wsopt.tensors.views import Role

PAGED = Paged()


def structure(depth: int = 64, consumers: int = 1, columns: int = 64, **ways: int | bool) -> Structure:
    return replace(
        Structure(64, columns, depth, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1), **ways
    )


@functools.cache
def emitted(paged: Paged, s: Structure) -> Emitted:
    return build(graph_of(paged), s)


def full(made: Emitted, paged: Paged) -> Case:
    """A case in which every sequence has all keys that its table has places for."""
    inputs = random_inputs(made.graph, 1)
    if paged.lengths:
        inputs["n"][:] = paged.keys
    return case(made.graph, inputs=inputs)


CUTS: dict[str, tuple[Paged, Structure]] = {
    "four pages in a K-block, the last ragged": (PAGED, structure()),
    "sixteen pages in a K-block": (replace(PAGED, places=21, heads=1), structure(256)),
    "heads outside of pages, two consumers": (
        replace(PAGED, page=32, places=5, by_head=True, queries=72),
        structure(consumers=2),
    ),
    "a page is a K-block": (replace(PAGED, page=64, places=4), structure()),
    "a page is four K-blocks": (replace(PAGED, page=256, places=2), structure()),
    "one page for each": (replace(PAGED, page=200, places=1), structure()),
    "one sequence, one head, no length": (replace(PAGED, heads=1, batches=1, lengths=False), structure()),
    "heads in parts": (replace(PAGED, width=96), structure(columns=96, subtiles=3)),
    "sums split": (PAGED, structure(splits=2)),
    "equal shares": (PAGED, structure(shares=True)),
    "equal shares of large pages": (replace(PAGED, page=128, places=3), structure(shares=True)),
}


@pytest.mark.parametrize("name", CUTS)
def test_computes(name: str) -> None:
    paged, s = CUTS[name]
    made = emitted(paged, s)
    assert case(made.graph).fault(made.source, 2) is None
    assert small_case(made).fault(made.source, 1) is None


@pytest.mark.parametrize("page", [64, 128, 256])
def test_k_blocks_of_whole_pages_have_no_loop_with_masks(page: int) -> None:
    """The end of the axis cuts none of them, so a loop for one that it cuts would never run."""
    made = emitted(replace(PAGED, page=page, places=3, lengths=False), structure())
    assert "stream_extent, matmul" not in made.source
    assert "stream_extent, matmul" in emitted(replace(PAGED, lengths=False), structure()).source
    found = simulate(made.graph, made.verified, made.source, 2)
    assert found.lines_run == found.lines


def test_a_place_outside_reads_zeros_and_nothing_else() -> None:
    made = emitted(PAGED, structure())
    inputs = random_inputs(made.graph, 0)
    inputs["n"][:] = PAGED.keys
    inputs["table"][...] = np.array([[-1], [2**31 - 1], [-(2**31)]])
    inputs["table"][0, 3] = PAGED.pages
    found = case(made.graph, inputs=inputs)
    assert (found.referee.expected["o"].value == 0).all()
    assert found.check(made.source, 0) is None
    inputs["table"][:, 2] = PAGED.pages - 1
    found = case(made.graph, inputs=inputs)
    assert (found.referee.expected["o"].value != 0).any()
    assert found.check(made.source, 0) is None


def test_a_page_may_be_read_by_all_and_more_than_once() -> None:
    made = emitted(PAGED, structure())
    inputs = random_inputs(made.graph, 0)
    inputs["table"][...] = 5
    assert case(made.graph, inputs=inputs).check(made.source, 1) is None


def test_lengths_of_all_kinds() -> None:
    made = emitted(PAGED, structure())
    for seed in range(0, KINDS, 3):
        inputs = random_inputs(made.graph, seed)
        assert case(made.graph, inputs=inputs).check(made.source, seed) is None, inputs["n"]


def test_pages_that_no_length_reaches_are_not_read() -> None:
    made, lengths = emitted(PAGED, structure()), np.array([64, 0, 100], np.int32)
    inputs = random_inputs(made.graph, 0) | {
        "n": lengths,
        "table": np.arange(21, dtype=np.int32).reshape(3, 7) % 8,
    }
    inputs["table"][0, 4:] = inputs["table"][1] = 8
    clean = case(made.graph, inputs=inputs)
    poisoned = {name: inputs[name].copy() for name in ("k_cache", "v_cache")}
    for cache in poisoned.values():
        cache[8] = np.nan
    assert Case(inputs | poisoned, clean.referee).check(made.source, 0) is None


def test_the_table_is_read_when_the_kernel_before_has_ended() -> None:
    made = emitted(PAGED, structure())
    one, wait = full(made, PAGED), "visit = 0\n    gdc_wait()"
    early = made.source.replace(wait, f"early = gl.load(table_ptr)\n    {wait}", 1)
    assert early != made.source
    assert "table is used before gdc_wait" in str(one.check(early, 0))


def test_other_tables_run_and_other_pages_do_not() -> None:
    made = emitted(PAGED, structure())
    for other in (replace(PAGED, places=1), replace(PAGED, batches=5, places=30, pages=100, queries=70)):
        assert case(graph_of(other)).check(made.source, 1) is None
    with pytest.raises(CheckError, match="k_cache has pages of 32 elements: this schedule reads 16"):
        execute(made.source, random_inputs(graph_of(replace(PAGED, page=32)), 0), seed=0)


MISTAKES = {"place", "unmasked-place", "page", "part", "page-start", "drop-load"}


@pytest.mark.parametrize(
    ("paged", "kinds"),
    [(replace(PAGED, batches=2, heads=1), MISTAKES - {"page-start"}),
     (replace(PAGED, batches=1, heads=1, page=128, places=2), {"place", "page-start", "drop-load"})],
)  # fmt: skip
def test_every_mistake_in_a_place_is_found(paged: Paged, kinds: set[str]) -> None:
    made = emitted(paged, structure())
    one, found = full(made, paged), [m for m in mutants(made.source) if m.kind in MISTAKES]
    assert one.check(made.source, 0) is None
    assert {mutant.kind for mutant in found} == kinds
    assert [mutant.name for mutant in found if one.check(mutant.source, 0) is None] == []


@pytest.mark.slow
def test_the_simulation_goes_through_tables_and_lengths() -> None:
    made = emitted(PAGED, structure())
    found = simulate(made.graph, made.verified, made.source, 5)
    assert found.lines_run == found.lines


def test_bytes_are_those_of_the_pages_that_are_read() -> None:
    region = find_region(graph_of(PAGED))
    caches = 2 * PAGED.batches * PAGED.keys * PAGED.heads * PAGED.width * 2
    rest = 2 * PAGED.batches * PAGED.heads * PAGED.queries * PAGED.width * 2
    assert region.compulsory_bytes == caches + rest + 4 * (PAGED.batches * PAGED.places + PAGED.batches)
    assert region.extent(Role.STREAM) == PAGED.keys


def test_each_page_takes_an_instruction() -> None:
    def issue(page: int) -> int:
        region = find_region(graph_of(replace(PAGED, page=page, places=4)))
        return lower(region, structure(128), h200()).ops[0].issue

    assert issue(16) > issue(32) > issue(64) > issue(128) == issue(256)


def test_k_blocks_have_whole_pages_or_are_whole_parts_of_one() -> None:
    depths = {s.depth for s in structures(find_region(graph_of(replace(PAGED, page=64, places=4))), h200())}
    assert depths == {32, 64, 128, 256}
    assert {s.depth for s in structures(find_region(graph_of(replace(PAGED, page=96))), h200())} == {32}


@pytest.mark.compiler
def test_machine_code_is_what_was_asked_for() -> None:
    made = emitted(*CUTS["equal shares"])
    check_machine_code(made)


@pytest.mark.other_triton
def test_the_other_release_compiles_it_too(other_triton: str) -> None:
    (found,) = compiled_by(other_triton, [emitted(*CUTS["equal shares of large pages"]).source])
    assert (found["stack_bytes"], found["spill_loads"]) == (0, 0)


def _slots(g: GraphBuilder) -> Symbol:
    """Keys and values of whole sequences, which a slot each chooses."""
    slot = g.input("slot", (3,), "i32")
    caches = (g.input(f"{name}_cache", (5, 96, 2, 64), "bf16") for name in "kv")
    k, v = (g.transpose(g.gather(cache, slot), perm=(0, 2, 1, 3)) for cache in caches)
    q = g.input("q", (3, 2, 4, 64), "bf16")
    weights = g.cast(g.softmax(g.matmul(q, k, transpose_b=True), axis=-1), dtype="bf16")
    return g.cast(g.matmul(weights, v), dtype="bf16", name="o")


def _shared(g: GraphBuilder, *, again: bool) -> Symbol:
    """Keys and values that are one tensor, which all heads share; or two views of one."""
    cache, table = g.input("cache", (9, 16, 64), "bf16"), g.input("table", (2, 7), "i32")
    pages = g.gather(cache, table, name="pages")
    k = g.reshape(pages, shape=(2, 112, 64))
    v = k if again else g.reshape(pages, shape=(2, 112, 64))
    q = g.input("q", (2, 72, 64), "bf16")
    weights = g.cast(g.softmax(g.matmul(q, k, transpose_b=True), axis=-1), dtype="bf16")
    return g.cast(g.matmul(weights, v), dtype="bf16", name="o")


@pytest.mark.parametrize("again", [True, False])
def test_one_gather_may_be_keys_and_values(again: bool) -> None:
    made = build(graph_of(functools.partial(_shared, again=again)), structure())
    assert case(made.graph).check(made.source, 0) is None
    assert small_case(made).check(made.source, 0) is None


def test_a_table_may_choose_whole_sequences() -> None:
    made = build(graph_of(_slots), structure())
    inputs = random_inputs(made.graph, 0)
    inputs["slot"][:] = (4, -1, 2)
    assert case(made.graph, inputs=inputs).check(made.source, 0) is None
    assert small_case(made).check(made.source, 0) is None


def _attention(g: GraphBuilder, k: Symbol, v: Symbol) -> Symbol:
    q = g.input("q", (2, 2, 72, 64), "bf16")
    weights = g.cast(g.softmax(g.matmul(q, k, transpose_b=True), axis=-1), dtype="bf16")
    return g.cast(g.matmul(weights, v), dtype="bf16", name="o")


def _rows(g: GraphBuilder) -> Symbol:
    cache, places = g.input("cache", (300, 64), "bf16"), g.input("places", (2, 2, 96), "i32")
    return _attention(g, *(g.gather(cache, places, name=name) for name in ("keys", "values")))


def _heads(g: GraphBuilder) -> Symbol:
    cache, places = g.input("cache", (2, 96, 300), "bf16"), g.input("places", (64,), "i32")
    keys = g.gather(cache, places, axis=2, name="keys")
    k = g.reshape(keys, shape=(2, 1, 96, 64))
    return _attention(g, k, g.input("v", (2, 2, 96, 64), "bf16"))


def _computed(g: GraphBuilder) -> Symbol:
    cache, table = g.input("cache", (9, 2, 16, 64), "bf16"), g.input("table", (2, 6), "i32")
    keys = g.gather(g.cast(g.exp(cache), dtype="bf16", name="e"), table, name="keys")
    turned = g.reshape(g.transpose(keys, perm=(0, 2, 1, 3, 4)), shape=(2, 2, 96, 64))
    return _attention(g, turned, turned)


def _turned(g: GraphBuilder) -> Symbol:
    cache, table = g.input("cache", (9, 2, 16, 64), "bf16"), g.input("table", (2, 6), "i32")
    pages = (g.gather(cache, table, name=name) for name in ("keys", "values"))
    turned = (g.transpose(one, perm=(0, 2, 3, 1, 4)) for one in pages)
    return _attention(g, *(g.reshape(one, shape=(2, 2, 96, 64)) for one in turned))


REFUSED = {
    "single keys": (
        _rows,
        "node keys: places chooses single elements of the streamed axis, and whole pages",
    ),
    "columns": (_heads, "node keys: places chooses along other axes than the streamed one and batches"),
    "computed": (_computed, "e, of which it reads elements, is computed; compute e before"),
    "pages inside": (_turned, "node keys: table chooses single elements of the streamed axis"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    body, told = REFUSED[name]
    with pytest.raises(LoweringError, match=told):
        find_region(graph_of(body))


@pytest.mark.parametrize("page", [4, 12, 80])
def test_pages_that_fit_no_k_block_are_told(page: int) -> None:
    region = find_region(graph_of(replace(PAGED, page=page)))
    told = f"k_cache: it lies in pages of {page} .* pages of a power of two from 8 on, or a multiple of 32"
    with pytest.raises(LoweringError, match=told):
        next(structures(region, h200()))


def test_a_warp_that_copies_several_pages_has_registers_that_no_consumer_can_take() -> None:
    def registers(paged: Paged, s: Structure) -> list[int]:
        program = lower(find_region(graph_of(paged)), s, h200())
        return [one.registers for one in partitions(program, EpilogueBuffers(1, 1), h200())]

    large, many = replace(PAGED, page=64, places=4), structure(consumers=2)
    assert registers(large, structure()) == [240, 24]
    assert registers(PAGED, structure()) == [240, 56]
    assert registers(replace(PAGED, queries=100), many) == [240, 240, 24]


def test_inspect_says_what_lies_in_pages() -> None:
    def told(paged: Paged) -> list[str]:
        return pages_of(emitted(paged, structure()).verified.program)

    assert told(PAGED)[0] == "pages      k_cache: 16 elements, 4 a K-block, at places of table"
    large = replace(PAGED, page=256, places=2)
    assert told(large)[1] == "pages      v_cache: 256 elements, 4 K-blocks each, at places of table"
