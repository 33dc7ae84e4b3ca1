"""Random well-formed graphs: `random_graph(seed, index)` is the same graph anywhere, with the features it has."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from fuzz_chains import DECODE, chain_graph
from fuzz_draft import Draft
from fuzz_products import grouped_graph, normed_product_graph, product_graph, reduced_product_graph
from fuzz_rows import row_graph, wrong_axis_graph
from fuzz_steps import steps, store_some

from wsopt.graph.builder import GraphBuilder

Json = dict[str, Any]

NAMES = (
    *("out", "row", "rows", "kernel", "torch", "triton", "gl", "tl", "launch", "run", "prepare", "grid"),
    *(
        "loader",
        "consumer",
        "store_warp",
        "epilogue",
        "slot",
        "tile",
        "k_iterations",
        "column",
        "batch",
        "device",
    ),
    *("print", "len", "range", "max", "int", "self", "y_desc", "x_ptr", "_", "__name__", "outputs", "seed"),
    *("arguments", "stream", "step", "k", "index", "order", "x_stride", "ring", "value", "numpy", "inputs"),
    *(
        "match",
        "type",
        "x_0",
        "x_1",
        "x_full",
        "x_empty",
        "M",
        "N",
        "K",
        "a",
        "l",
        "I",
        "static",
        "constexpr",
    ),
    *keyword.kwlist,
)
"""Names that mean something in Python or in an emitted kernel."""


@dataclass(frozen=True, slots=True)
class Made:
    """A graph in the file's format, and the names of its features."""

    data: Json
    features: frozenset[str]


def elementwise_graph(d: Draft) -> None:
    """Neither a product nor a reduction."""
    store_some(d, steps(d, d.tensor("x", (d.extent(), d.extent(any_number=False)), "bf16"), 3))


def three_products_graph(d: Draft) -> None:
    """A chain of three products."""
    extent = d.extent(any_number=False)
    a, b, c, e = (d.tensor(name, (extent, extent), "bf16") for name in "abce")
    first = d.g.cast(a @ b, dtype="bf16")
    store_some(d, [d.g.cast(first @ c, dtype="bf16") @ e])


def dequantized_graph(d: Draft) -> None:
    """A product with weights that are stored in few bits."""
    m, n, k = d.extent(), d.extent(any_number=False), 128 * d.pick((1, 2, 4))
    q, scale = d.tensor("q", (n, k), "i8", plain=True), d.tensor("scale", (n, k // 64), "bf16", plain=True)
    w = d.g.cast(d.g.dequantize(q, scale, group=64), dtype="bf16")
    store_some(d, [d.g.matmul(d.tensor("x", (m, k), "bf16"), w, transpose_b=True)])


FAMILIES: Mapping[str, tuple[float, Callable[[Draft], None]]] = {
    "family product": (9, product_graph),
    "family reduced product": (2.5, reduced_product_graph),
    "family normed product": (2, normed_product_graph),
    DECODE: (1, chain_graph),
    "family chain": (5, chain_graph),
    "family rows": (5, row_graph),
    "family wrong axis": (0.3, wrong_axis_graph),
    "family elementwise": (0.2, elementwise_graph),
    "family three products": (0.2, three_products_graph),
    "family dequantized": (0.2, dequantized_graph),
    "family groups": (0.15, grouped_graph),
}


def random_graph(seed: int, index: int, family: str | None = None) -> Made:
    """Graph `index` of a seed, of a `family` that is asked for or of one that is drawn."""
    d = Draft(np.random.default_rng([seed, index]), GraphBuilder(f"fuzz_{seed}_{index}"))
    drawn = d.weighted({name: weight for name, (weight, _) in FAMILIES.items()})
    family = family or drawn
    d.mark(family)
    FAMILIES[family][1](d)
    if d.chance(0.1):
        _add_unneeded(d)
    data = d.g.to_json()
    if d.chance(0.2):
        data = _renamed(d, data)
    if d.chance(0.1):
        d.mark("nodes in any order")
        d.rng.shuffle(data["nodes"])
    return Made(data, frozenset(d.features))


def _add_unneeded(d: Draft) -> None:
    """Inputs and nodes that no output needs, of shapes that have nothing to do with the rest."""
    shape = (d.extent(), d.extent())
    unused = d.tensor("unused", shape, d.pick(("bf16", "f32", "i8", "bool")))
    d.mark("unused input")
    if d.chance(0.6):
        d.mark("dead node")
        number = d.g.cast(unused, dtype="f32", name=d.fresh("dead"))
        d.g.reduce_sum(number, axis=d.pick((0, 1)))
    if d.chance(0.3):
        d.mark("dead node")
        d.g.matmul(d.tensor("unused", (8, 24), "f16"), d.tensor("unused", (24, 40), "f16"))
    if d.chance(0.3):
        d.mark("dead node")
        d.g.iota(shape=shape, axis=1)


def _renamed(d: Draft, data: Json) -> Json:
    """The graph with some of its tensors, and perhaps itself, called by names that mean something else."""
    d.mark("names of others")
    old = [item["name"] for item in (*data["inputs"], *data["nodes"])]
    chosen = [name for name in old if d.chance(0.6)]
    fresh = [name for name in NAMES if name not in old]
    d.rng.shuffle(fresh)
    new = {name: fresh.pop() for name in chosen if fresh}

    def called(operand: Any) -> Any:
        return new.get(operand, operand) if isinstance(operand, str) else operand

    return {
        **data,
        "name": d.pick(NAMES) if d.chance(0.5) else data["name"],
        "inputs": [{**item, "name": called(item["name"])} for item in data["inputs"]],
        "nodes": [
            {**node, "name": called(node["name"]), "inputs": [called(one) for one in node["inputs"]]}
            for node in data["nodes"]
        ],
        "outputs": [called(name) for name in data["outputs"]],
    }
