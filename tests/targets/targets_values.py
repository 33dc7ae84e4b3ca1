"""Attention whose scores, operands and sums go through tensor memory: kernels of every way that the target has."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
from attention_graphs import Sizes, attention, causal, linear
from emit_builds import MARGIN, Case, Emitted, case

from wsopt.checker import verify
from wsopt.emit.source import emit
from wsopt.frontend.region import find_region
from wsopt.graph.reference import random_inputs
from wsopt.graph.types import Graph
from wsopt.machine import load_machine
from wsopt.perf.price import lower
from wsopt.program.types import Sharing, Structure
from wsopt.solve.optimum import solve
from wsopt.targets import Operands

CARD = "b200"
SMALL = Sizes(batch=1, heads=1, queries=200, keys=136, inner=32, column=32)


def structure(
    consumers: int = 2,
    *,
    operands: Operands = Operands.SCORES,
    corrections: int = 0,
    exp2_eighths: int = 0,
    lazy: bool = False,
) -> Structure:
    """A structure of K-blocks of 32, whose sums have 32 columns."""
    return Structure(
        128, 32, 32, consumers, 4, Sharing.COOPERATIVE, persistent=False, swap=False, subtiles=1, group=1,
        exp2_eighths=exp2_eighths, operands=operands, corrections=corrections, lazy=lazy,
    )  # fmt: skip


@dataclass(frozen=True)
class Values:
    """A kernel for mutation: whether it is causal, or has no softmax, its structure, and what little shared memory is
    left.
    """

    structure: Structure
    masked: bool = False
    linear: bool = False
    kib: int = 42


KERNELS = {
    "scores": Values(structure()),
    "linear": Values(structure(), linear=True),
    "columns": Values(structure(1, operands=Operands.COLUMNS), masked=True, kib=25),
    "published": Values(structure(corrections=1)),
    "correction": Values(structure(operands=Operands.COLUMNS, corrections=1, exp2_eighths=1), kib=44),
    "lazy": Values(structure(corrections=1, lazy=True)),
    "lazy_columns": Values(structure(1, operands=Operands.COLUMNS, lazy=True), masked=True, kib=25),
}


def graph(one: Values) -> Graph:
    """A small attention, whose rows and keys end within a tile."""
    if one.linear:
        return linear(sizes=SMALL)
    return attention(causal, SMALL) if one.masked else attention(sizes=SMALL)


@functools.cache
def made(name: str) -> Emitted:
    """The kernel of a structure."""
    one = KERNELS[name]
    machine = replace(load_machine(CARD), shared_memory_per_block_bytes=one.kib * 1024)
    program = lower(find_region(graph(one)), one.structure, machine)
    solved = solve(program, machine, MARGIN)
    assert solved.schedule is not None, solved.reason
    verified = verify(solved.schedule, program, machine, MARGIN)
    return Emitted(graph(one), verified, emit(verified))


def cases(name: str) -> list[Case]:
    """The graph itself: two tiles of rows, and K-blocks that go round every ring. Where rows may keep their maximum
    also keys that grow, so that some rows' maxima move late, by little or by much.
    """
    found = [case(made(name).graph)]
    if KERNELS[name].structure.lazy:
        inputs = random_inputs(made(name).graph, 1)
        keys = inputs["k"].shape[-2]
        steps = 0.5 * 2000 ** (np.arange(keys) / keys)
        inputs["k"][...] *= steps[:, None].astype(inputs["k"].dtype)
        found.append(case(made(name).graph, inputs=inputs))
    return found
