"""What the README says of extents that vary: one kernel, executed at extents that it was not compiled for.

Kernels of products are of structures that are given: what a call may differ in does not depend on the search.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emit_builds import build, structure

import wsopt
from wsopt.graph.reference import evaluate, random_inputs, relative_error
from wsopt.interpret import InterpreterError, execute

Make = Callable[..., wsopt.Graph]


def product(m: int = 512, n: int = 512, k: int = 256, batch: int = 2) -> wsopt.Graph:
    g = wsopt.Graph("product")
    x, w = g.input("x", (batch, m, k), "bf16"), g.input("w", (batch, n, k), "bf16")
    g.output(g.cast(g.relu(g.matmul(x, w, transpose_b=True)), "bf16", name="y"))
    return g


def attention(heads: int = 2, queries: int = 512, keys: int = 512, size: int = 64) -> wsopt.Graph:
    g = wsopt.Graph("attention")
    q = g.input("q", (heads, queries, size), "bf16")
    k, v = (g.input(name, (heads, keys, size), "bf16") for name in "kv")
    scores = g.matmul(q, k, transpose_b=True) * 0.125
    g.output(g.cast(g.matmul(g.cast(g.softmax(scores), "bf16"), v), "bf16", name="y"))
    return g


def rows(count: int = 1024, length: int = 256) -> wsopt.Graph:
    g = wsopt.Graph("rows")
    g.output(g.cast(g.softmax(g.input("x", (count, length), "bf16")), "bf16", name="y"))
    return g


def reduced(m: int = 256, n: int = 128, k: int = 256) -> wsopt.Graph:
    g = wsopt.Graph("reduced")
    x, w = g.input("x", (m, k), "bf16"), g.input("w", (n, k), "bf16", constant=True)
    g.output(g.cast(g.softmax(g.matmul(x, w, transpose_b=True)), "bf16", name="y"))
    return g


VARYING: dict[str, tuple[Make, dict[str, int], list[dict[str, int]], dict[str, str]]] = {
    "product": (
        product,
        {},
        [{"m": 300}, {"m": 8}, {"n": 264}, {"k": 512}, {"k": 136}, {"batch": 3}],
        {"n=260": "multiples of 16 bytes", "k=132": "multiples of 16 bytes"},
    ),
    "product with a short last block": (
        product,
        {"k": 264, "batch": 1},
        [{"k": 272}, {"k": 328}],
        {"k=256": "takes 1 to 16 more than a multiple of 64"},
    ),
    "attention": (
        attention,
        {},
        [{"heads": 3}, {"queries": 300}, {"keys": 300}, {"queries": 1}],
        {"size=72": "holds up to 64"},
    ),
    "attention with heads in parts": (
        attention,
        {"size": 96},
        [{"heads": 3}, {"queries": 300}, {"keys": 300}, {"queries": 1}, {"size": 80}],
        {"size=104": "holds up to 96"},
    ),
    "rows": (rows, {}, [{"count": 77}], {"length=128": "this schedule reduces rows of 256"}),
    "reduced products": (reduced, {}, [{"m": 77}, {"k": 512}], {"n=64": "this schedule reduces rows of 128"}),
}


STRUCTURES = {
    "product": structure(consumers=2),
    "product with a short last block": structure(consumers=2, tail=16),
    "attention": structure(consumers=2),
    "attention with heads in parts": structure(96, 64, 2, subtiles=3),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    patch = pytest.MonkeyPatch()
    patch.setenv("WSOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.mark.solver
@pytest.mark.compiler
@pytest.mark.parametrize("case", VARYING)
def test_what_varies(case: str, cache: Any) -> None:
    make, compiled, taken, refused = VARYING[case]
    graph = make(**compiled)
    given = STRUCTURES.get(case)
    kernel = wsopt.compile(graph).kernel if given is None else build(graph.build(), given).source
    for changed in taken:
        graph = make(**{**compiled, **changed}).build()
        inputs = random_inputs(graph, 0)
        (expected,) = evaluate(graph, inputs).values()
        ran = execute(kernel, inputs, seed=1, processors=2, constants=graph.constants)
        (found,) = ran.outputs.values()
        assert relative_error(found, expected) < 1e-2, changed
    for changed, told in refused.items():
        name, _, extent = changed.partition("=")
        graph = make(**{**compiled, name: int(extent)}).build()
        inputs = random_inputs(graph, 0)
        with pytest.raises(InterpreterError, match=re.escape(told)):
            execute(kernel, inputs, seed=1, processors=2, constants=graph.constants)


def test_the_readme_says_which() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## Your model: what fits")[2].partition("\n## ")[0]
    for words in ("the heads' size", "the rows' length", "may differ at a call", "multiple of 16 bytes"):
        assert words in section
