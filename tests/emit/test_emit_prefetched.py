"""Vectors of a product's epilogue: loaded once a tile, under its first products, in few wide instructions."""

from __future__ import annotations

import ast

import emit_builds as builds
import pytest
from emit_builds import Body, build, graph_of, structure

from wsopt.codegen.aot import compile_kernel
from wsopt.perf.stores import tile_stores
from wsopt.program.types import Structure
from wsopt.schedule import memory

CASES: dict[str, tuple[Body, Structure, int]] = {
    "by columns": (builds.residual, structure(256, consumers=2, subtiles=4), 1),
    "by rows and columns": (builds.scaled, structure(128, copies=2), 2),
    "ping-pong": (builds.residual, structure(consumers=2, ping_pong=True), 1),
}


def calls(source: str, function: str) -> list[str]:
    """What a function of the kernel calls, in the order of its lines."""
    (found,) = (f for f in ast.parse(source).body if isinstance(f, ast.FunctionDef) and f.name == function)
    nodes = sorted((n for n in ast.walk(found) if isinstance(n, ast.Call)), key=lambda n: n.lineno)
    return [ast.unparse(node.func) for node in nodes]


@pytest.mark.parametrize("name", CASES)
def test_vectors_are_loaded_once_and_early(name: str) -> None:
    body, cut, vectors = CASES[name]
    source = build(graph_of(body), cut).source
    consumer = calls(source, "consumer")
    assert "gl.load" not in calls(source, "epilogue")
    assert consumer.count("gl.load") == vectors
    assert consumer.index("gdc_wait") < consumer.index("gl.load") < consumer.index("epilogue")
    assert max(n for n, call in enumerate(consumer) if call == "gl.load") < consumer.index("mbarrier.arrive")


@pytest.mark.compiler
def test_a_bias_takes_two_loads_a_thread() -> None:
    """A thread holds 64 of 256 columns; each consumer's code has the loads of two."""
    cut = structure(256, consumers=2, subtiles=4)
    counts = dict(compile_kernel(build(graph_of(builds.residual), cut).source).sass)
    assert counts["LDG"] == 2 * cut.consumers


def test_vectors_take_shared_memory() -> None:
    verified = build(graph_of(builds.residual), structure(256, consumers=2, subtiles=4)).verified
    program, buffers = verified.program, verified.schedule.buffers
    assert program.epilogue.vector_bytes == 256 * 2
    others = program.epilogue.staged_bytes * buffers.staging + program.epilogue.input_bytes * buffers.inputs
    assert memory.buffer_bytes(program, buffers) == others + 512
    # The first store of every tile but the first finds what the last tile staged read: the copies waited for it.
    assert tile_stores(program, buffers).stores[0].pending is None
