"""Attention over tokens of packed batches: the kernel knows how long a sequence is, and has no line for another."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from emit_builds import Emitted, build, case, graph_of

from wsopt.errors import CheckError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.graph.types import Graph
from wsopt.interpret import execute
from wsopt.program.types import Sharing, Structure
from wsopt.simulation import simulate

MASKED = "stream_extent, matmul"
"""What a loop with a mask at the end of the axis has."""


@dataclass(frozen=True)
class Flat:
    """Attention over the tokens of two sequences, with heads side by side; queries may be laid out head by head."""

    length: int
    causal: bool = False
    lengths: bool = False
    queries_apart: bool = False
    group: int = 1

    def __call__(self, g: GraphBuilder) -> Symbol:
        keys, shape = 2, (2, 2 * self.group, self.length, 64)
        heads = keys * self.group

        def split(name: str, count: int) -> Symbol:
            flat = g.input(name, (2 * self.length, count * 64), "bf16")
            return g.transpose(g.reshape(flat, shape=(2, self.length, count, 64)), perm=(0, 2, 1, 3))

        q = g.input("q", shape, "bf16") if self.queries_apart else split("q", heads)
        k, v = split("k", keys), split("v", keys)
        if self.group > 1:
            q = g.reshape(q, shape=(2, keys, self.group, self.length, 64))
            k, v = (g.reshape(one, shape=(2, keys, 1, self.length, 64)) for one in (k, v))
        scores = g.mul(g.matmul(q, k, transpose_b=True), 0.125)
        i, j = (
            g.iota(shape=side, axis=axis) for axis, side in enumerate(((self.length, 1), (1, self.length)))
        )
        if self.causal:
            scores = g.where(g.less_equal(j, i), scores, float("-inf"))
        if self.lengths:
            n = g.reshape(g.input("n", (2,), "i32"), shape=(2, 1, 1, 1))
            scores = g.where(g.less(j, n), scores, float("-inf"))
        found = g.matmul(g.cast(g.softmax(scores), dtype="bf16"), v)
        if self.queries_apart:
            return g.cast(found, dtype="bf16", name="o")
        if self.group > 1:
            found = g.reshape(found, shape=shape)
        merged = g.reshape(g.transpose(found, perm=(0, 2, 1, 3)), shape=(2 * self.length, heads * 64))
        return g.cast(merged, dtype="bf16", name="o")


def structure(depth: int = 64, consumers: int = 1, splits: int = 1) -> Structure:
    return Structure(64, 64, depth, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1, splits=splits)


def emitted(flat: Flat, s: Structure) -> Emitted:
    return build(graph_of(flat), s)


CUTS: dict[str, tuple[Flat, Structure, bool]] = {
    "whole K-blocks": (Flat(256), structure(), False),
    "whole K-blocks, two consumers": (Flat(256), structure(consumers=2), False),
    "the last tile has rows of one consumer": (Flat(320), structure(consumers=2), False),
    "a ragged last K-block": (Flat(320), structure(128), True),
    "ragged rows and K-blocks": (Flat(200), structure(consumers=2), True),
    "shorter than a K-block": (Flat(40), structure(), True),
    "causal": (Flat(256, causal=True), structure(consumers=2), False),
    "causal and ragged": (Flat(200, causal=True), structure(), False),
    "queries of a group": (Flat(256, group=2), structure(consumers=2), False),
    "lengths": (Flat(256, lengths=True), structure(consumers=2), False),
    "queries of any number": (Flat(256, queries_apart=True), structure(consumers=2), False),
    "sums split": (Flat(512, queries_apart=True), structure(splits=2), False),
    "sums split, of known rows": (Flat(320), structure(splits=2), False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CUTS)
def test_every_line_runs_at_the_extents_that_are_known(name: str) -> None:
    flat, s, masked = CUTS[name]
    made = emitted(flat, s)
    found = simulate(made.graph, made.verified, made.source, 2)
    assert found.lines_run == found.lines
    assert (MASKED in made.source) == masked


def _stored_flat(batches: int, length: int) -> Graph:
    def body(g: GraphBuilder) -> Symbol:
        q, k, v = (g.input(name, (batches, 2, length, 64), "bf16") for name in "qkv")
        found = g.matmul(g.cast(g.softmax(g.matmul(q, k, transpose_b=True)), dtype="bf16"), v)
        flat = g.reshape(g.transpose(found, perm=(0, 2, 1, 3)), shape=(batches * length, 128))
        return g.cast(flat, dtype="bf16", name="o")

    return graph_of(body)


def test_an_output_as_long_whose_sequences_are_others_is_refused() -> None:
    """Only the output has batches and rows in one dimension; the kernel knows its sequences from there."""
    made = build(_stored_flat(2, 128), structure())
    assert case(_stored_flat(3, 128)).fault(made.source, 1) is None
    inputs = random_inputs(_stored_flat(4, 64), 0)
    with pytest.raises(CheckError, match="o is stored in parts of 128 elements, and the row axis has 64"):
        execute(made.source, inputs, seed=0, processors=2)
