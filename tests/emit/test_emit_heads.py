"""Head dimensions that are no powers of two, wide ones, f16, lengths that end within a tile, two values."""

from __future__ import annotations

import functools

import attention_graphs as a
import pytest
from attention_graphs import Sizes
from emit_builds import Emitted, build, case, check_computes

from wsopt.codegen import compile_kernel
from wsopt.emit.source import expected_instructions
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.types import Graph
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine
from wsopt.program.types import Sharing, Structure


def sizes(inner: int, column: int, dtype: str = "bf16", *, length: int = 200) -> Sizes:
    return Sizes(1, 2, length, length, inner, column, dtype)


def full(_: a.Parts, x: a.Symbol) -> a.Symbol:
    return x


GRAPHS: dict[str, Graph] = {
    "80": a.attention(a.causal, sizes(80, 80)),
    "96": a.attention(full, sizes(96, 96)),
    "192 and 128": a.attention(a.causal, sizes(192, 128)),
    "256": a.attention(full, sizes(256, 256, length=136)),
    "f16": a.attention(a.causal, sizes(64, 64, "f16")),
    "f16, lse": a.with_lse(full, sizes(80, 64, "f16")),
    "ragged": a.attention(full, sizes(128, 128, length=300)),
    "linear": a.linear(a.zero_causal, sizes(128, 64)),
    "retention": a.linear(a.rescaled, sizes(64, 96)),
    "two values": a.two_values(sizes(64, 64)),
    "cap, causal, window": a.attention(a.everything, sizes(64, 64)),
    "factor by head": a.attention(a.per_head, sizes(64, 64)),
}


@functools.cache
def emitted(name: str) -> Emitted:
    graph = GRAPHS[name]
    columns = 1 << (graph.type_of("o").shape[-1] - 1).bit_length()
    return build(graph, Structure(64, columns, 64, 2, 4, Sharing.COOPERATIVE, False, False, 1, 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_computes(name: str) -> None:
    check_computes(emitted(name))


@pytest.mark.compiler
@pytest.mark.parametrize("name", GRAPHS)
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    made = emitted(name)
    found = compile_kernel(made.source)
    assert found.tensor_instructions == expected_instructions(made.verified)
    assert (found.stack_bytes, found.spill_loads) == (0, 0)


def test_a_wider_head_than_the_kernel_holds_is_refused_at_run_time() -> None:
    made = emitted("80")
    message = "the inner axis has 144 elements: this schedule holds up to 80"
    assert message in (case(a.attention(a.causal, sizes(144, 80))).fault(made.source, 1) or "")


def test_heads_whose_rows_cannot_be_copied_are_refused() -> None:
    region = find_region(a.attention(a.causal, sizes(100, 100)))
    with pytest.raises(LoweringError, match="has a stride of 200 bytes; TMA needs a positive multiple of 16"):
        next(structures(region, load_machine("h200")))
