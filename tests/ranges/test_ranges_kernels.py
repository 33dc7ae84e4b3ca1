"""Kernels at other extents than their own: their time, the calls that they refuse, and the bits they give a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from wsopt.checker import verify
from wsopt.errors import InfeasibleError, LoweringError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.graph.symbolic import SymbolicGraph, bound
from wsopt.interpret import execute, mma
from wsopt.interpret.faults import InterpreterError
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.pool.local import LOCAL
from wsopt.program.types import Sharing, Structure
from wsopt.ranges.choose import chooser_of
from wsopt.ranges.find import Task, search_at
from wsopt.ranges.kinds import kind_of
from wsopt.ranges.price import Extents, Kernel
from wsopt.schedule.certificate import Certificate
from wsopt.solve.optimum import solve
from wsopt.solve.search import DEFAULT_MARGIN

CERTIFICATE = Certificate(1, 0, (), 1, 0, 0.0, 0.0, DEFAULT_MARGIN, ())
BASE = Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, persistent=True, swap=False, subtiles=1, group=1)


def _projection(stream: int | str = 512) -> SymbolicGraph:
    """Rows by weights; `tokens` are the rows, and where `stream` says so the contracted axis too."""
    g = GraphBuilder("projection", deterministic=True)
    g.dim("tokens", 1, 4096)
    x = g.input("x", ("tokens", stream), "bf16")
    w = g.input("w", (stream, 192), "bf16", constant=True)
    g.output(g.matmul(x, w, name="y"))  # in f32, which shows the order of sums
    return g.symbolic()


def _kernel(extents: Extents, s: Structure, home: int) -> Kernel:
    program = lower(extents.region((home,)), s, extents.machine)
    found = solve(program, extents.machine, DEFAULT_MARGIN)
    assert found.schedule is not None
    return Kernel((home,), verify(found.schedule, program, extents.machine, DEFAULT_MARGIN), CERTIFICATE)


@pytest.fixture(scope="module")
def extents(h200: Machine) -> Extents:
    return Extents(_projection(), h200)


def test_the_time_elsewhere_is_that_of_the_same_structure_solved_there(extents: Extents) -> None:
    kernel, there = _kernel(extents, BASE, 64), _kernel(extents, BASE, 4096)
    assert extents.microseconds(kernel, (64,)) == kernel.schedule.prediction.microseconds
    found, solved = extents.microseconds(kernel, (4096,)), there.schedule.prediction.microseconds
    assert math.isclose(found, solved, rel_tol=0.01)
    assert found > 1.2 * extents.microseconds(kernel, (64,))


def test_a_kernel_refuses_a_contracted_axis_that_its_schedule_is_not_for(h200: Machine) -> None:
    extents = Extents(_projection("tokens"), h200)
    kernel = _kernel(extents, BASE, 1024)
    assert extents.runs(kernel, (4096,))
    assert not extents.runs(kernel, (8,)) or kernel.recipe.checks
    assert not extents.runs(kernel, (1023,))  # rows that TMA cannot move
    assert extents.microseconds(kernel, (1023,)) == math.inf


def test_kernels_of_one_schedule_and_two_texts_are_two(h200: Machine) -> None:
    """Of one sequence the heads are the only batch axis, and tensors have an axis less: that is in the text alone."""
    g = GraphBuilder("attention")
    b = g.dim("b", 1, 8)
    q = g.input("q", (b, 2, 64, 64), "bf16")
    k, v = (g.transpose(g.input(name, (b, 64, 2, 64), "bf16"), perm=(0, 2, 1, 3)) for name in "kv")
    p = g.cast(g.softmax(g.matmul(q, k, transpose_b=True)), dtype="bf16")
    g.output(g.cast(g.matmul(p, v), dtype="bf16", name="y"))
    chooser = chooser_of(Extents(g.symbolic(), h200), 2, lambda _stage, _done, _total: None, LOCAL)
    s = next(structures(chooser.extents.region((1,)), h200))
    one, many = (_kernel(chooser.extents, s, home) for home in (1, 8))
    assert one.key.schedule == many.key.schedule
    chooser._add(one)
    chooser._add(many)
    assert [*chooser.kernels.values()] == [one, many]


def test_extents_that_no_kernel_is_left_for_are_named(h200: Machine) -> None:
    chooser = chooser_of(Extents(_projection(), h200), 1, lambda _stage, _done, _total: None, LOCAL)
    kernel = _kernel(chooser.extents, BASE, 64)
    chooser._add(kernel)
    chooser.times[kernel.key][-1] = math.inf
    with pytest.raises(InfeasibleError, match="no kernel takes all of tokens = 4033 to tokens = 4096"):
        chooser.choose()


def test_too_few_kernels_are_told_of_the_graph_and_of_how_many_do(h200: Machine) -> None:
    chooser = chooser_of(Extents(_projection(), h200), 1, lambda _stage, _done, _total: None, LOCAL)
    for home in (64, 4096):
        chooser._add(_kernel(chooser.extents, BASE if home == 64 else replace(BASE, columns=64), home))
    early, late = chooser.times.values()
    half = len(early) // 2
    early[half:], late[:half] = [math.inf] * (len(early) - half), [math.inf] * half
    with pytest.raises(
        InfeasibleError, match=r"graph projection: it takes 2 kernels .* at most 1 .* --kernels 2"
    ):
        chooser.choose()


def test_a_cell_whose_first_extents_a_kernel_refuses_is_not_its_own(h200: Machine) -> None:
    """Contracted axes of 296 and 328 elements: the last ends in 8 of a K-block, and the kernel takes that one."""
    g = GraphBuilder("product")
    g.dim("n", 1, 48, typical=[36, 41])
    x, w = (g.input(name, (64, "8*n"), "bf16") for name in "xw")
    g.output(g.matmul(x, w, transpose_b=True, name="y"))
    chooser = chooser_of(Extents(g.symbolic(), h200), 1, lambda _stage, _done, _total: None, LOCAL)
    kernel = _kernel(chooser.extents, replace(BASE, tail=16), 41)
    chooser._add(kernel)
    times = dict(zip(chooser.grid.cells, chooser.times[kernel.key], strict=True))
    assert chooser.extents.runs(kernel, (41,))
    assert times[(41,)] == math.inf
    assert chooser.extents.refusal(kernel, (37,)) == (
        "the contracted axis has 296 elements: this schedule takes 1 to 16 more than a multiple of 64"
    )


def _vocabulary(g: GraphBuilder, x: Symbol) -> Symbol:
    """A matrix whose rows TMA could not begin with, so that it is padded before the first launch."""
    return g.matmul(x, g.input("w", (256, 301), "bf16", constant=True))


def _four_bits(g: GraphBuilder, x: Symbol) -> Symbol:
    """Words in the order of fragments, with scales that are turned."""
    q = g.input("q", (192, 256), "i4", constant=True)
    w = g.dequantize(q, g.input("s", (192, 2), "bf16", constant=True), 128)
    return g.matmul(x, g.cast(w, "bf16"), transpose_b=True)


def _eight_bits(g: GraphBuilder, x: Symbol) -> Symbol:
    w = g.cast(g.input("q", (192, 256), "i8", constant=True), "bf16")
    return g.matmul(x, w, transpose_b=True)


@pytest.mark.parametrize("product", [_vocabulary, _four_bits, _eight_bits])
def test_constants_that_are_laid_out_anew_are_taken(
    product: Callable[[GraphBuilder, Symbol], Symbol], h200: Machine
) -> None:
    """A kernel's checks are of what they are then, and of four bits two are an element of memory."""
    g = GraphBuilder("packed")
    tokens = g.dim("tokens", 1, 64)
    g.output(g.cast(product(g, g.input("x", (tokens, 256), "bf16")), "bf16", name="y"))
    extents = Extents(g.symbolic(), h200)
    kernel = _kernel(extents, next(structures(extents.region((16,)), h200)), 16)
    assert kernel.recipe.packed
    assert [extents.refusal(kernel, (tokens,)) for tokens in (1, 16, 64)] == [None] * 3


@pytest.mark.parametrize(
    ("tokens", "taken"), [(144, True), (208, True), (136, True), (160, False), (64, False)]
)
def test_a_kernel_takes_what_its_own_checks_let_through(h200: Machine, tokens: int, taken: bool) -> None:
    """One whose last K-block is 16 elements long: other rests are refused by `bind`, and not priced."""
    extents = Extents(_projection("tokens"), h200)
    kernel = _kernel(extents, replace(BASE, tail=16), 144)
    inputs = random_inputs(extents.graph((tokens,)), 0)
    refused = nullcontext() if taken else pytest.raises(InterpreterError, match="the contracted axis")
    with refused:
        execute(kernel.source, inputs, seed=0, processors=2, constants=frozenset({"w"}))
    assert extents.runs(kernel, (tokens,)) == taken
    assert (extents.microseconds(kernel, (tokens,)) < math.inf) == taken


def test_a_search_at_extents_that_cannot_be_lowered_names_them(h200: Machine) -> None:
    with pytest.raises(LoweringError, match="with tokens = 1023: tensor x: axis 0"):
        search_at(Task(_projection("tokens"), h200, (1023,)))


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products add up as the tensor core does it, 16 elements of the contracted axis after the other: what NumPy does
    depends on the sizes of tiles.
    """

    def added(a: np.ndarray, b: np.ndarray, before: np.ndarray | None) -> np.ndarray:
        result = np.zeros((len(a), b.shape[1]), np.float32) if before is None else before
        for first in range(0, a.shape[1], 16):
            part = a[:, first : first + 16].astype(np.float64) @ b[first : first + 16].astype(np.float64)
            result = (result + part).astype(np.float32)
        return result

    monkeypatch.setattr(mma, "added", added)


def _rows(kernel: Kernel, graph: SymbolicGraph, tokens: int, seed: int) -> np.ndarray:
    """The bits of the outputs of a call with so many of the same rows."""
    inputs = random_inputs(bound(graph, {"tokens": 64}), 3)
    inputs = {**inputs, "x": inputs["x"][:tokens]}
    done = execute(kernel.source, inputs, seed=seed, processors=2, constants=frozenset({"w"}))
    return done.outputs["y"].view(np.uint32)


def _of_one_kind(extents: Extents) -> Iterator[Kernel]:
    """Kernels with other tiles, consumers and orders, which take sums alike."""
    yield _kernel(extents, replace(BASE, splits=2), 64)
    yield _kernel(extents, replace(BASE, splits=2, columns=128, subtiles=2, early_release=False), 64)
    yield _kernel(extents, replace(BASE, splits=2, consumers=2, group=2), 64)


@pytest.mark.slow
def test_rows_have_the_same_bits_alone_and_among_others_through_every_kernel_of_a_kind(
    extents: Extents,
) -> None:
    kernels = [*_of_one_kind(extents)]
    assert len({kind_of(one.verified.program) for one in kernels}) == 1
    assert len({one.source for one in kernels}) == len(kernels)
    expected = _rows(kernels[0], extents.symbolic, 64, 0)
    for number, kernel in enumerate(kernels):
        for tokens in (1, 7, 64):
            assert np.array_equal(_rows(kernel, extents.symbolic, tokens, number), expected[:tokens])


@pytest.mark.parametrize("other", [{"splits": 4}, {"depth": 128}, {"swap": True}])
def test_kernels_that_take_sums_otherwise_are_of_another_kind(
    extents: Extents, other: dict[str, int]
) -> None:
    program, changed = (
        lower(extents.region((64,)), s, extents.machine)
        for s in (replace(BASE, splits=2), replace(BASE, **{"splits": 2, **other}))
    )
    assert kind_of(program) != kind_of(changed)


def test_other_splits_give_other_bits(extents: Extents) -> None:
    """What the kind is for: without it a row would not be the same through two kernels."""
    one, other = (_kernel(extents, replace(BASE, splits=splits), 64) for splits in (1, 4))
    found, again = (_rows(kernel, extents.symbolic, 64, 0) for kernel in (one, other))
    assert not np.array_equal(found, again)
