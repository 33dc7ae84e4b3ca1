"""Kernels whose K-blocks are bounded by lengths and offsets at run time: executed, mutated and compiled."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from emit_builds import Case, Emitted, build, case, graph_of

from wsopt.codegen import compile_kernel
from wsopt.emit.source import expected_instructions
from wsopt.errors import CheckError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.lengths import KINDS
from wsopt.graph.reference import random_inputs
from wsopt.interpret import mutants
from wsopt.program.types import Sharing, Structure
from wsopt.report.text import at_run_time
from wsopt.simulation import simulate

QUERIES, KEYS = 72, 200
VALUES = (100, 0, 2**31 - 1, -70, 129, KEYS, -(2**31), 5000, 64, -40)
"""Among them those of an element of the batch, and of the next."""
FORMS = ("length", "chunk", "window", "length and causal", "length and chunk")


def attention(g: GraphBuilder, form: str) -> Symbol:
    """o = softmax(q k' / 8 under a mask by an i32 input) v, two batch elements."""
    q = g.input("q", (2, 1, QUERIES, 64), "bf16")
    k, v = (g.input(name, (2, 1, KEYS, 64), "bf16") for name in "kv")
    s = g.mul(g.matmul(q, k, transpose_b=True), 0.125)
    i, j = g.iota(shape=(QUERIES, 1), axis=0), g.iota(shape=(1, KEYS), axis=1)
    if form.startswith("length"):
        n = g.reshape(g.input("n", (2,), "i32"), shape=(2, 1, 1, 1))
        seen = j < n
        if form == "length and causal":
            seen = g.logical_and(seen, j <= i + (KEYS - QUERIES))
        if form == "length and chunk":
            seen = g.logical_and(seen, j <= i + (n - g.input("first", (), "i32")))
    else:
        n = g.input("n", (), "i32")
        seen = j <= i + n if form == "chunk" else g.logical_and(j <= i + n, j > i + n - 100)
    weights = g.cast(g.softmax(g.where(seen, s, -math.inf), axis=-1), dtype="bf16")
    return g.cast(g.matmul(weights, v), dtype="bf16", name="o")


@functools.cache
def emitted(form: str, consumers: int = 2, depth: int = 64, *, persistent: bool = False) -> Emitted:
    s = Structure(64, 64, depth, consumers, 4, Sharing.COOPERATIVE, persistent, False, 1, 1)
    return build(graph_of(lambda g: attention(g, form)), s)


@functools.cache
def with_values(form: str, number: int) -> Case:
    """A case in which the graph's scalar, or its lengths, are those of VALUES from a number on."""
    graph = emitted(form).graph
    inputs, shape = random_inputs(graph, number), graph.type_of("n").shape
    own = [VALUES[number + place] for place in range(math.prod(shape))]
    return case(graph, inputs=inputs | {"n": np.array(own, np.int32).reshape(shape)})


def all_values(form: str) -> list[Case]:
    """Cases with all VALUES."""
    elements = emitted(form).graph.type_of("n").size
    return [with_values(form, number) for number in range(0, len(VALUES), elements)]


@pytest.mark.parametrize(
    ("form", "consumers", "depth", "persistent"),
    [*((form, 1, 128, True) for form in FORMS), ("chunk", 2, 64, False), ("window", 2, 64, False)],
)
def test_every_value_gives_the_reference(form: str, consumers: int, depth: int, persistent: bool) -> None:
    made = emitted(form, consumers, depth, persistent=persistent)
    for seed, one in enumerate(all_values(form)):
        assert one.check(made.source, seed) is None, one.inputs["n"]


@pytest.mark.parametrize("form", ["length", "chunk"])
@pytest.mark.parametrize("value", [-200, 0, 40, 64])
def test_what_lies_beyond_is_not_read(form: str, value: int) -> None:
    """Keys and values of later K-blocks are no numbers: of those a mask alone would make none either."""
    made, inputs = emitted(form), dict(with_values(form, 0).inputs)
    inputs["n"] = np.full_like(inputs["n"], value)
    clean = case(made.graph, inputs=inputs)
    last = value if form == "length" else value + QUERIES
    poisoned = {name: inputs[name].copy() for name in "kv"}
    for array in poisoned.values():
        array[:, :, max(0, -(-last // 64) * 64) :] = math.nan
    assert Case(inputs | poisoned, clean.referee).check(made.source, 0) is None


def test_a_length_is_loaded_when_the_kernel_before_has_ended() -> None:
    one, wait = with_values("chunk", 0), "visit = 0\n    gdc_wait()"
    early = emitted("chunk").source.replace(wait, f"early = gl.load(n_ptr)\n    {wait}", 1)
    assert "n is used before gdc_wait" in str(one.check(early, 0))
    assert replace(one, constants=frozenset({"n"})).check(early, 0) is None


@pytest.mark.parametrize("form", ["length", "chunk"])
def test_every_mistake_in_a_range_is_found(form: str) -> None:
    """A shifted length, a loader's range that is not its consumers', a sum that overflows unseen."""
    source, cases = emitted(form).source, all_values(form)
    kinds = {
        "scalar",
        "range-scalar",
        "begin",
        "end",
        "whole_begin",
        "whole_end",
        "far-scalar",
        "unseen-overflow",
    }
    found = [
        one
        for one in mutants(source)
        if one.kind.split("+")[0].removesuffix("-K").removesuffix("-1") in kinds
    ]
    assert len(found) >= 13
    left = [one.name for one in found if all(each.check(one.source, 1) is None for each in cases)]
    assert not left


def test_the_simulation_goes_through_all_kinds_of_lengths() -> None:
    made = emitted("length")
    found = simulate(made.graph, made.verified, made.source, KINDS)
    assert found.lines_run == found.lines
    blind = made.source.replace("gl.minimum(n_value, 268435456)", "n_value")
    assert blind != made.source
    with pytest.raises(CheckError):  # only the largest number of the type shows that
        simulate(made.graph, made.verified, blind, KINDS)


def test_longer_axes_than_a_length_is_sure_for_are_refused() -> None:
    source = emitted("length").source
    assert "elements of the streamed axis: masks by lengths at run time take less than 134217728" in source
    assert "stream_extent <= 134217727" in source
    assert "row_extent <= 134217727" in source


def test_inspect_says_what_is_not_known_before_the_call() -> None:
    (told,) = at_run_time(emitted("length").verified.program)
    assert told == "run time   n says which K-blocks are read; work and time here are of all"


@pytest.mark.compiler
def test_machine_code_is_what_was_asked_for() -> None:
    made = emitted("window")
    found = compile_kernel(made.source)
    assert found.tensor_instructions == expected_instructions(made.verified)
    assert (found.stack_bytes, found.spill_loads, found.warnings) == (0, 0, ())
