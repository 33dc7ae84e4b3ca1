"""Kernels with stamps for the tests of traces, each beside the plain one of the same schedule."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import attention_graphs
from attention_graphs import Sizes
from emit_builds import MARGIN, Emitted, build, graph_of, structure
from golden_kernels import emitted

from wsopt.checker import verify
from wsopt.emit.source import emit
from wsopt.emit.stamps import Trace
from wsopt.folder import BuildFolder
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import execute
from wsopt.program.conditions import Conditions
from wsopt.solve.optimum import solve
from wsopt.trace.files import FOLDER, KERNEL, STAMPS, Stamped, to_text
from wsopt.trace.make import stamped_of

GOLDENS = ("plain", "residual_ping_pong", "scaled", "streamed_rows", "joint")
NAMES = (*GOLDENS, "causal", "parts", "computed", "two loaders", "brought")
TRACE = Trace(blocks=2, tiles=2, iterations=12)


@dataclass(frozen=True)
class Traced:
    """A traced kernel: its schedule and plain text, its own text, and where its stamps lie."""

    made: Emitted
    source: str
    stamped: Stamped


@functools.cache
def causal() -> Emitted:
    """Attention with a loop for whole K-blocks and one for those that the mask touches."""
    graph = attention_graphs.attention(attention_graphs.causal, Sizes(1, 2, 640, 640, 64, 64))
    return build(graph, structure(64, 64, 2))


@functools.cache
def parts() -> Emitted:
    """Attention whose heads are tiles of 64 and 32."""
    graph = attention_graphs.attention(attention_graphs.causal, Sizes(1, 2, 640, 640, 96, 96))
    return build(graph, structure(96, 64, 2, subtiles=3))


@functools.cache
def computed() -> Emitted:
    """A product of two consumers whose left operand a transform warpgroup computes."""

    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (512, 512), "bf16"), g.input("w", (512, 512), "bf16", constant=True)
        return g.cast(g.matmul(g.cast(g.relu(x), "bf16"), w, name="p"), "bf16", name="y")

    return build(graph_of(body), replace(structure(128, consumers=2), transforms=1))


@functools.cache
def two_loaders() -> Emitted:
    """The same attention with two loading warps."""
    one = causal().verified
    asked = replace(one.program, conditions=Conditions(loaders=2))
    solved = solve(asked, one.machine, MARGIN)
    assert solved.schedule is not None
    verified = verify(solved.schedule, asked, one.machine, MARGIN)
    return Emitted(causal().graph, verified, emit(verified))


@functools.cache
def brought() -> Emitted:
    """A product with a residual that the loading warp brings."""

    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (512, 512), "bf16"), g.input("w", (512, 512), "bf16", constant=True)
        return g.cast(g.add(g.matmul(x, w, name="p"), g.input("r", (512, 512), "f32")), "bf16", name="y")

    plain = build(graph_of(body), structure(128, consumers=2, subtiles=2))
    asked = replace(plain.verified.program, conditions=Conditions(buffers=(("inputs_by_loader", True),)))
    solved = solve(asked, plain.verified.machine, MARGIN)
    assert solved.schedule is not None
    verified = verify(solved.schedule, asked, plain.verified.machine, MARGIN)
    return Emitted(plain.graph, verified, emit(verified))


@functools.cache
def traced(name: str) -> Traced:
    others = {
        "causal": causal,
        "parts": parts,
        "computed": computed,
        "two loaders": two_loaders,
        "brought": brought,
    }
    made = others[name]() if name in others else emitted(name)
    source = emit(made.verified, TRACE)
    return Traced(made, source, stamped_of(made.verified, TRACE, source))


def launched(one: Traced, inputs: dict[str, Any], seed: int = 0) -> tuple[dict[str, Any], list[int]]:
    """The outputs of a traced kernel in the simulation, and the words of its records."""
    outputs = dict(execute(one.source, inputs, seed=seed).outputs)
    return outputs, [int(word) for word in outputs.pop(one.stamped.output)]


def folder_of(one: Traced, path: Path) -> Path:
    """A build folder as far as a measurement reads it, with its traced kernel."""
    (path / FOLDER).mkdir(parents=True)
    (path / "graph.json").write_text('{"name": "small"}')
    (path / FOLDER / KERNEL).write_text(one.source)
    (path / FOLDER / STAMPS).write_text(to_text(one.stamped))
    return path


def read_back(made: Emitted, path: Path) -> BuildFolder:
    """A build folder that holds nothing yet, as it is read back from disk."""
    path.mkdir()
    return BuildFolder(path, made.graph, made.verified, None, made.source, {})  # type: ignore[arg-type]
