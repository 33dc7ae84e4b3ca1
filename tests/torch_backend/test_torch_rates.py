"""The times of Inductor's kernels: those that were measured at their sizes, between them something in between."""

from __future__ import annotations

import json
from typing import Any

import pytest
from room_imports import ROOT

from wsopt.graph import Graph, GraphBuilder
from wsopt.machine import Machine, load_machine
from wsopt.torch.rates import Attention, Masks, Rates, inductor_us, measured

DOCUMENT = json.loads((ROOT / "wsopt" / "torch" / "rates.json").read_text(encoding="utf-8"))
TIMES = {(one["kind"], *one["shape"]): one["us"] for one in DOCUMENT["rows"]}


def product(rows: int, columns: int, contracted: int, after: str = "", dtype: str = "bf16") -> Graph:
    g = GraphBuilder("piece")
    x = g.input("x", (rows, contracted), dtype)
    w = g.input("w", (columns, contracted), dtype, constant=True)
    h = g.matmul(x, w, transpose_b=True)
    if after == "gate":
        v = g.input("v", (columns, contracted), dtype, constant=True)
        h = g.mul(g.silu(h), g.matmul(x, v, transpose_b=True))
    if after == "residual":
        h = g.add(h, g.input("r", (rows, columns), "bf16"))
    g.output(g.cast(h, dtype="bf16", name="y"))
    return g.build()


def attention(heads: int, keys: int, depth: int, causal: bool) -> Graph:
    g = GraphBuilder("piece")
    q, k, v = (g.input(name, (heads, keys, depth), "bf16") for name in "qkv")
    s = g.mul(g.matmul(q, k, transpose_b=True), depth**-0.5)
    if causal:
        i, j = g.iota(shape=(keys, 1), axis=0), g.iota(shape=(1, keys), axis=1)
        s = g.where(g.less_equal(j, i), s, float("-inf"))
    g.output(g.cast(g.matmul(g.cast(g.softmax(s), "bf16"), v), "bf16", name="o"))
    return g.build()


def test_the_file_says_where_it_was_measured() -> None:
    assert DOCUMENT["format"] == "wsopt.rates/2"
    assert DOCUMENT["machine"]["device"] == "NVIDIA H200"
    assert {"torch", "triton", "cuda"} <= set(DOCUMENT["versions"])
    assert set(measured()) == {"product", "attention", "bytes"}


def test_measured_sizes_take_the_measured_time(h200: Machine) -> None:
    assert inductor_us(product(4096, 4096, 1024), h200) == pytest.approx(TIMES["product", 4096, 4096, 1024])
    for causal in (False, True):
        time = TIMES["attention", 64, 2048, 128, int(causal)]
        # Of a causal one the diagonal counts as well.
        assert inductor_us(attention(64, 2048, 128, causal), h200) == pytest.approx(time, rel=1e-3)


def test_a_mask_that_is_read_makes_the_library_slower_and_a_softmax_apart_slower_still(h200: Machine) -> None:
    graph = attention(64, 2048, 128, True)
    called, masked, written_out = (inductor_us(graph, h200, None, how) for how in Attention)
    assert masked == pytest.approx(TIMES["attention", 64, 2048, 128, Masks.READ])
    scores = 64 * 2048 * 2048 * 2
    assert written_out > 2 * scores / measured()["bytes"].speed((2 * scores,))
    assert called < masked < written_out


def test_between_measured_sizes_is_something_in_between(h200: Machine) -> None:
    low, high = TIMES["product", 4096, 4096, 1024], TIMES["product", 4096, 4096, 4096]
    assert low < inductor_us(product(4096, 4096, 2048), h200) < high
    low, high = TIMES["attention", 64, 2048, 64, 0], TIMES["attention", 64, 2048, 128, 0]
    assert low < inductor_us(attention(64, 2048, 96, False), h200) < high


def test_beyond_the_grid_is_the_speed_at_its_edge() -> None:
    rates = Rates({(2,): 10.0, (8,): 40.0})
    assert [rates.speed((size,)) for size in (1, 2, 4, 8, 64)] == pytest.approx([10, 10, 20, 40, 40])


def test_less_than_the_smallest_takes_as_long(h200: Machine) -> None:
    """A row of a product, or few queries: kernels are bound by weights, by keys, or by their launch."""
    assert Rates({(2, 4): 1.0, (8, 16): 1.0}).padding((1, 1)) == 8.0
    rows = [inductor_us(product(rows, 4096, 4096), h200) for rows in (1, 4, 16)]
    assert rows == pytest.approx([TIMES["product", 16, 4096, 4096]] * 3)
    assert inductor_us(attention(32, 16, 128, True), h200) == min(
        us for (kind, *_), us in TIMES.items() if kind == "attention"
    )
    assert inductor_us(decoding(32, 65536, 128), h200) > 2 * 2 * 32 * 65536 * 128 / 4.8e6


def decoding(heads: int, keys: int, depth: int) -> Graph:
    g = GraphBuilder("piece")
    q, k, v = (
        g.input(name, (heads, rows, depth), "bf16") for name, rows in zip("qkv", (1, keys, keys), strict=True)
    )
    s = g.mul(g.matmul(q, k, transpose_b=True), depth**-0.5)
    g.output(g.cast(g.matmul(g.cast(g.softmax(s), "bf16"), v), "bf16", name="o"))
    return g.build()


def test_a_size_without_a_measurement_beside_it_has_the_best_speed() -> None:
    assert Rates({(1, 1): 5.0, (1, 2): 7.0, (2, 1): 6.0}).speed((2, 2)) == 7.0


def test_what_follows_a_product_is_a_kernel_of_its_own(h200: Machine) -> None:
    bare = inductor_us(product(4096, 4096, 4096), h200)
    moved = 3 * 2 * 4096 * 4096  # the product is read, the residual too, the sum is written
    around = moved / measured()["bytes"].speed((moved,))
    assert inductor_us(product(4096, 4096, 4096, "residual"), h200) == pytest.approx(bare + around)
    assert inductor_us(product(4096, 4096, 4096, "gate"), h200) == pytest.approx(2 * bare + around)


def test_rows_take_the_time_of_their_bytes(h200: Machine) -> None:
    g = GraphBuilder("piece")
    x = g.input("x", (8192, 1024), "bf16")
    g.output(g.cast(g.softmax(x), dtype="bf16", name="y"))
    moved = 2 * 2 * 8192 * 1024
    assert inductor_us(g.build(), h200) == pytest.approx(moved / measured()["bytes"].speed((moved,)))


def test_another_machine_has_rates_in_proportion(h200: Machine) -> None:
    h100 = load_machine("h100_sxm")
    share: Any = h100.sustained_tflops("bf16") / h200.sustained_tflops("bf16")
    graph = product(4096, 4096, 4096)
    assert inductor_us(graph, h100) == pytest.approx(inductor_us(graph, h200) / share)


def test_an_operand_that_is_computed_is_written_before_its_product(h200: Machine) -> None:
    g = GraphBuilder("piece")
    x, w = g.input("x", (16, 8192), "bf16"), g.input("w", (8192, 8192), "i8")
    wide = g.cast(g.mul(g.cast(w, "bf16"), g.input("s", (8192, 1), "bf16")), "bf16")
    g.output(g.cast(g.matmul(x, wide, transpose_b=True), "bf16", name="y"))
    alone = inductor_us(product(16, 8192, 8192), h200)
    both = (1 + 2) * 8192 * 8192
    assert inductor_us(g.build(), h200) >= alone + both / measured()["bytes"].speed((both,))
