"""Split sums: several blocks have a part of a tile's K-blocks each, and the last to arrive adds up and stores."""

from __future__ import annotations

import dataclasses
import functools

import emit_builds as builds
import pytest
from emit_builds import Body, Emitted, build, graph_of, small_case, structure
from emit_checks import check_products
from other_compiler import compiled_by

from wsopt.codegen import CompiledKernel, compile_kernel
from wsopt.emit.recipe_of import launch_recipe
from wsopt.emit.source import emit
from wsopt.emit.stamps import Trace
from wsopt.errors import LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.program.types import Structure
from wsopt.simulation import first_k_blocks, simulate

SEEDS = 2


def of_rows(g: GraphBuilder) -> tuple[Symbol, ...]:
    """y = softmax(x w') and the logarithms of its denominators: rows that are reduced behind the products."""
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (64, 512), "bf16", constant=True)
    p = g.matmul(x, w, transpose_b=True, name="p")
    shifted = g.exp(p - g.reduce_max(p, axis=1, keepdims=True))
    y = shifted / g.reduce_sum(shifted, axis=1, keepdims=True)
    return g.cast(y, dtype="bf16", name="y"), g.log(g.reduce_sum(shifted, axis=1), name="logs")


def widened(g: GraphBuilder) -> Symbol:
    """y = bf16(q) w': a left operand that a warpgroup of its own computes."""
    q, w = g.input("q", (1024, 512), "i8"), g.input("w", (1024, 512), "bf16")
    return g.cast(g.matmul(g.cast(q, dtype="bf16"), w, transpose_b=True, name="p"), dtype="bf16", name="y")


def with_transforms(s: Structure) -> Structure:
    return dataclasses.replace(s, transforms=1)


CASES: dict[str, tuple[Body, Structure]] = {
    "plain": (builds.plain, structure(256, consumers=2, subtiles=4, splits=4)),
    "swapped": (builds.plain, structure(64, consumers=2, swap=True, splits=4)),
    "residual": (builds.residual, structure(128, consumers=2, subtiles=2, splits=3)),
    "residual refilled": (builds.residual, structure(128, consumers=2, subtiles=4, splits=2)),
    "gated": (builds.gated, structure(128, consumers=2, subtiles=2, splits=2)),
    "scaled": (builds.scaled, structure(128, 128, 2, subtiles=2, splits=2)),
    "promoted": (builds.scaled, structure(64, 128, copies=2, splits=3)),
    "batched": (builds.batched, structure(splits=5)),
    "one part a block": (builds.batched, structure(persistent=False, splits=3)),
    "ping-pong": (builds.plain, structure(128, consumers=2, subtiles=2, ping_pong=True, splits=3)),
    "ping-pong of three": (builds.plain, structure(consumers=3, ping_pong=True, splits=2)),
    "192 columns": (builds.plain, structure(192, consumers=2, subtiles=3, splits=2)),
    "eight warps": (builds.plain, structure(128, rows=128, warps=8, subtiles=2, splits=2)),
    "seven parts": (builds.plain, structure(128, consumers=2, subtiles=2, splits=7)),
    "parts one by one": (builds.plain, structure(128, consumers=3, splits=8)),
    "transposed": (builds.transposed, structure(splits=2)),
    "rows": (of_rows, structure(splits=3)),
    "computed operands": (widened, structure(splits=2)),
    "computed apart": (widened, with_transforms(structure(consumers=2, splits=2))),
}


ADDED: dict[str, tuple[Body, Structure]] = {
    f"{name}, added": (body, dataclasses.replace(s, splits=max(3, s.splits), atomics=True))
    for name, (body, s) in CASES.items()
}
"""The same in three parts and more, which atomics add up (`test_emit_atomics.py`)."""


@functools.cache
def emitted(name: str) -> Emitted:
    body, s = (CASES | ADDED)[name]
    return build(graph_of(body), s)


@functools.cache
def compiled(name: str) -> CompiledKernel:
    return compile_kernel(emitted(name).source)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES | ADDED)
def test_computes(name: str) -> None:
    made = emitted(name)
    found = simulate(made.graph, made.verified, made.source, SEEDS)
    assert found.lines_run == found.lines


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "promoted", "ping-pong"])
@pytest.mark.parametrize("more", [0, 1, 2, 3])
def test_any_number_of_k_blocks(name: str, more: int) -> None:
    made = emitted(name)
    k_blocks = first_k_blocks(made.verified) + more
    assert small_case(made, k_blocks).fault(made.source, 3) is None


# --- machine code ---------------------------------------------------------------------------------------


@pytest.mark.compiler
@pytest.mark.parametrize("name", list(CASES)[::2])
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    check_products(emitted(name), compiled(name))


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["plain", "gated", "192 columns", "swapped"])
def test_partial_sums_move_in_pairs(name: str) -> None:
    """A thread stores and loads two neighbours of a row at a time; and each consumer has one atomic."""
    made, found = emitted(name), dict(compiled(name).sass)
    s, products = made.verified.program.structure, 2 if name == "gated" else 1
    own = s.consumers * products * s.rows * s.columns // (s.consumer_warps * 32) // 2
    assert found["STG"] == own + s.consumers  # and the counter, cleared
    assert found["LDG"] == own * s.splits
    assert found["ATOMG"] == s.consumers


def test_compiles_with_another_triton(other_triton: str) -> None:
    names = list(CASES)[::4]  # some of those that are compiled above
    for name, other in zip(names, compiled_by(other_triton, [emitted(n).source for n in names]), strict=True):
        mine = dataclasses.asdict(compiled(name))
        assert other["triton_version"] != mine["triton_version"]
        for figure in ("tensor_instructions", "stack_bytes", "spill_loads", "spill_stores", "warps"):
            assert other[figure] == mine[figure], (name, figure)


# --- text -----------------------------------------------------------------------------------------------


def test_only_the_last_to_arrive_counts_a_visit() -> None:
    lines = emitted("residual").source.split("def consumer(")[1].split("@gluon.jit")[0].splitlines()
    (last,) = (number for number, line in enumerate(lines) if line.strip().startswith("if last_to_arrive("))
    inside = [line.strip() for line in lines[last + 1 :] if line.startswith(" " * 12)]
    assert "visit += 1" in inside
    assert any(line.startswith("tma_load(r_desc") for line in inside)
    assert sum(line.startswith("epilogue(") for line in inside) == 2
    assert not any("epilogue(" in line or "visit += 1" in line for line in lines[:last])


def test_loads_are_in_a_loop_where_registers_are_too_few_for_all() -> None:
    def loads(name: str) -> str:
        return emitted(name).source.split("def combined(begin)")[1].split("return sums")[0]

    assert "for part in gl.static_range(1, SPLITS):" in loads("plain")
    assert "for part in range(1, SPLITS):" in loads("seven parts")
    assert "thread_barrier()" not in loads("plain") + loads("seven parts")
    assert "for part in range(1, SPLITS):" in loads("parts one by one")
    assert "thread_barrier()" in loads("parts one by one")


def test_the_workspace_waits_for_the_kernel_before() -> None:
    text = emitted("plain").source.split("def consumer(")[1]
    assert text.index("gdc_wait()") < text.index("workspace_ptr + ")


@pytest.mark.parametrize(("name", "k_blocks"), [("plain", 4), ("promoted", 6), ("ping-pong", 3)])
def test_each_part_has_k_blocks_enough(name: str, k_blocks: int) -> None:
    checks = launch_recipe(emitted(name).verified).checks
    told = ("the contracted axis is too short for this schedule",)
    (check,) = (one for one in checks if one.message == told)
    assert (check.relation, check.right) == ("at_least", k_blocks)


def test_a_traced_kernel_is_refused() -> None:
    with pytest.raises(LoweringError, match=r"sums are split over 4 blocks.*--under splits=1"):
        emit(emitted("plain").verified, Trace())


def test_names_of_split_sums_are_free_elsewhere() -> None:
    def named(g: GraphBuilder) -> Symbol:
        x, w = g.input("part", (512, 512), "bf16"), g.input("workspace", (512, 512), "bf16")
        return g.cast(g.matmul(x, w, transpose_b=True), dtype="bf16", name="arrivals")

    assert "part_desc" in build(graph_of(named), structure()).source
    made = build(graph_of(named), structure(splits=2))
    assert "part__desc" in made.source
    assert small_case(made).fault(made.source, 1) is None


# --- mistakes -------------------------------------------------------------------------------------------

MISTAKES = {
    "no barrier before the arrival": ("    thread_barrier()\n", ""),
    "an arrival that releases nothing": ('sem="acq_rel"', 'sem="acquire"'),
    "an arrival that acquires nothing": ('sem="acq_rel"', 'sem="release"'),
    "an arrival within the block": ('scope="gpu"', 'scope="cta"'),
    "the first to arrive": ("== SPLITS - 1", "== 0"),
    "one too early": ("== SPLITS - 1", "== SPLITS - 2"),
    "a counter left as it is": ("gl.store(counter, 0)", "gl.store(counter, SPLITS)"),
    "a part left out": ("gl.static_range(1, SPLITS)", "gl.static_range(2, SPLITS)"),
    "the last K-block left out": (
        "(number + 1) * k_iterations // SPLITS",
        "(number + 1) * k_iterations // SPLITS - 1",
    ),
    "one counter for both consumers": (
        "part // SPLITS * CONSUMERS + index)):",
        "part // SPLITS * CONSUMERS)):",
    ),
    "one place for both consumers": ("(part * CONSUMERS + index)", "(part * CONSUMERS)"),
    "the next part's place": (
        "workspace_ptr + (part * CONSUMERS",
        "workspace_ptr + ((part + 1) % parts * CONSUMERS",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name: str) -> None:
    right, wrong = MISTAKES[name]
    made = emitted("residual")
    assert right in made.source
    assert small_case(made).fault(made.source.replace(right, wrong), SEEDS) is not None


@pytest.mark.slow
def test_a_visit_for_every_part_is_found() -> None:
    made = emitted("residual")
    wrong = made.source.replace("            visit += 1\n", "        visit += 1\n")
    assert wrong != made.source
    assert small_case(made).fault(wrong, SEEDS) is not None
