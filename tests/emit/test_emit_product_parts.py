"""Tiles of products whose columns are sums of powers of two, such as 192 and 48: several accumulators, and subtiles
of an epilogue that lie in one of them.
"""

from __future__ import annotations

import emit_builds as builds
import pytest
from emit_builds import SEEDS, kernels_of, small_case, structure
from emit_checks import check_products

from wsopt.graph.builder import GraphBuilder, Symbol


def scaled_columns(g: GraphBuilder) -> Symbol:
    """y = (x w') * s + b, with 576 columns: three tiles."""
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (576, 512), "bf16", constant=True)
    s, b = g.input("s", (576,), "f32"), g.input("b", (576,), "bf16", constant=True)
    return g.cast(g.matmul(x, w, transpose_b=True, name="p") * s + b, dtype="bf16", name="y")


def cast_weights(g: GraphBuilder) -> Symbol:
    """y = bf16(q) w': a left operand that consumers compute in registers."""
    q, w = g.input("q", (1024, 512), "i8"), g.input("w", (1024, 512), "bf16")
    return g.cast(g.matmul(g.cast(q, dtype="bf16"), w, transpose_b=True, name="p"), dtype="bf16", name="y")


def few_rows(g: GraphBuilder) -> Symbol:
    """y = gelu(x w' + b), of 40 rows."""
    x, w = g.input("x", (40, 512), "bf16"), g.input("w", (1024, 512), "bf16", constant=True)
    b = g.input("b", (1024,), "bf16", constant=True)
    return g.cast(g.gelu(g.matmul(x, w, transpose_b=True, name="p") + b), dtype="bf16", name="y")


def few_rows_of_bytes(g: GraphBuilder) -> Symbol:
    """The same of 104 rows, with weights of 8 bits and a scale a row of them."""
    x, q = g.input("x", (104, 512), "bf16"), g.input("q", (1024, 512), "i8", constant=True)
    w = g.dequantize(q, g.input("s", (1024, 1), "f32", constant=True), 512)
    return g.cast(g.matmul(x, g.cast(w, "bf16"), transpose_b=True, name="p"), dtype="bf16", name="y")


def cut(**fields: object) -> builds.Structure:
    return structure(192, 64, **{"consumers": 2, "subtiles": 3, **fields})  # type: ignore[arg-type]


CASES = {
    "plain": (builds.plain, cut()),
    "128 rows": (builds.plain, cut(rows=128, subtiles=6)),
    "eight warps": (builds.plain, cut(rows=128, warps=8, consumers=1)),
    "three consumers": (builds.plain, cut(consumers=3)),
    "ping-pong": (builds.plain, cut(subtiles=6, ping_pong=True)),
    "one tile a block": (builds.batched, cut(persistent=False)),
    "tail": (builds.ragged, cut(tail=16)),
    "residual": (builds.residual, cut()),
    "vectors": (scaled_columns, cut()),
    "two products": (builds.gated, cut(consumers=1)),
    "transposed": (builds.transposed, cut()),
    "promoted": (builds.scaled, structure(192, 128, 2, subtiles=3)),
    "cast in registers": (cast_weights, cut()),
    "40 rows": (few_rows, structure(48, 128, swap=True, subtiles=3)),
    "104 rows by weights of bytes": (few_rows_of_bytes, structure(112, 128, subtiles=7)),
}
emitted = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    made = emitted(name)
    assert small_case(made).fault(made.source, SEEDS) is None


@pytest.mark.compiler
@pytest.mark.parametrize("name", CASES)
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    check_products(emitted(name))


def test_a_tile_is_two_products_a_k_block() -> None:
    source = emitted("plain").source
    assert source.count("p_0_to_1 = warpgroup_mma(") == source.count("p_2 = warpgroup_mma(") > 0
    assert "p_0, p_1 = halves(p_0_to_1, SUBTILE_LAYOUT)" in source
    assert "w_0_desc, [column_tile * TILE_COLUMNS, " in source
    assert "w_128_desc, [column_tile * TILE_COLUMNS + 128, " in source


def test_vectors_are_loaded_for_a_power_of_two_of_columns() -> None:
    source = emitted("vectors").source
    assert "columns = column + gl.arange(0, 256, layout=COLUMNS_LAYOUT)" in source
    assert "mask=columns < column_extent" in source
    assert emitted("vectors").verified.program.epilogue.vector_bytes == 256 * (4 + 2)
