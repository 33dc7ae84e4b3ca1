"""Kernels for the emit tests: a graph, a structure that is chosen here, and what is made of them."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import simulated

from wsopt.agreement.judge import Expected
from wsopt.checker import verify
from wsopt.emit.sliced import at_extents_of
from wsopt.emit.source import emit
from wsopt.errors import CheckError
from wsopt.frontend.region import find_region
from wsopt.graph.agreement import Referee, expectations
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.graph.serialize import canonical_bytes
from wsopt.graph.types import Graph
from wsopt.interpret import execute
from wsopt.interpret.strategy import STRATEGIES, Completion, Order
from wsopt.lowering.reduced import reduced
from wsopt.machine import Machine, load_machine
from wsopt.perf.price import lower
from wsopt.program.conditions import Conditions
from wsopt.program.types import Sharing, Structure
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.simulation import TOLERANCE, first_k_blocks
from wsopt.solve.optimum import solve

MARGIN = 24
SEEDS = 4
"""Interleavings of a kernel: one of each order of partitions. `wsopt compile` runs more, with other numbers of
blocks.

Tests of mutants kill with these all that they kill with 20: nearly all at the first, as clocks find races, not luck.
"""
assert {one.order for one in STRATEGIES[:SEEDS]} == set(Order)
assert {one.completion for one in STRATEGIES[:SEEDS]} == set(Completion)
_OF_SPLITS = (("store_warp", False), ("inputs_by_loader", False))
"""Roles that cannot know which block has a split tile's epilogue."""
Body = Callable[[GraphBuilder], Symbol | tuple[Symbol, ...]]


def structure(
    columns: int = 64,
    depth: int = 64,
    consumers: int = 1,
    *,
    rows: int = 64,
    warps: int = 4,
    ping_pong: bool = False,
    persistent: bool = True,
    swap: bool = False,
    subtiles: int = 1,
    copies: int = 1,
    tail: int = 0,
    splits: int = 1,
    paired: bool = False,
    atomics: bool = False,
) -> Structure:
    """A structure of small tiles."""
    sharing = Sharing.PING_PONG if ping_pong else Sharing.COOPERATIVE
    return Structure(
        rows, columns, depth, consumers, warps, sharing, persistent, swap, subtiles, 2, copies, tail,
        splits=splits, paired=paired, atomics=atomics,
    )  # fmt: skip


def graph_of(body: Body, name: str = "small") -> Graph:
    """The graph whose outputs `body` returns."""
    g = GraphBuilder(name)
    found = body(g)
    g.output(*(found if isinstance(found, tuple) else (found,)))
    return g.build()


@functools.cache
def h200() -> Machine:
    return load_machine("h200")


@dataclass(frozen=True)
class Emitted:
    """A kernel with the graph and the schedule that it was made from."""

    graph: Graph
    verified: VerifiedSchedule
    source: str

    @property
    def depth(self) -> int:
        return max(slots for _, slots in self.verified.schedule.rings)


def build(graph: Graph, s: Structure, kib: int = 227) -> Emitted:
    """Solve, check and emit a graph cut to a structure, for a block of so much shared memory."""
    machine = replace(h200(), shared_memory_per_block_bytes=kib * 1024)
    program = lower(find_region(graph), s, machine)
    if s.parted:
        program = replace(program, conditions=Conditions(buffers=_OF_SPLITS))
    solved = solve(program, machine, MARGIN)
    assert solved.schedule is not None, solved.reason
    verified = verify(solved.schedule, program, machine, MARGIN)
    return Emitted(graph, verified, emit(verified))


def kernels_of(cases: Mapping[str, tuple[Body, Structure]], kib: int = 227) -> Callable[[str], Emitted]:
    """What gives the kernel of a test file's case by its name, each made once."""

    @functools.cache
    def emitted(name: str) -> Emitted:
        body, s = cases[name]
        return build(graph_of(body), s, kib)

    return emitted


def lets_the_next_kernel_in_last(source: str) -> bool:
    """Whether `gdc_launch_dependents` stands once in a kernel: as the loader's last statement, after its copies."""
    functions = {item.name: item for item in ast.parse(source).body if isinstance(item, ast.FunctionDef)}
    called = [
        (name, node.lineno)
        for name, function in functions.items()
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "gdc_launch_dependents"
    ]
    loader = functions["loader"]
    copies = [
        node.lineno for node in ast.walk(loader) if isinstance(node, ast.Name) and node.id == "tma_load"
    ]
    last = loader.body[-1]
    alone = ast.unparse(last) == "gdc_launch_dependents()"
    return bool(copies) and alone and called == [("loader", last.lineno)] and max(copies) < last.lineno


class WhenAsked(Mapping[str, Expected]):
    """Expected outputs by name, which are computed when the first of them is asked for."""

    def __init__(self, names: Sequence[str], find: Callable[[], dict[str, Expected]]) -> None:
        self._names, self._find = tuple(names), functools.cache(find)

    def __getitem__(self, name: str) -> Expected:
        return self._find()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Case:
    """Inputs of a kernel and what its outputs are to be. The launcher of a kernel made for a `whole` graph takes the
    shorter tensors of which it reads slices.
    """

    inputs: dict[str, Any]
    referee: Referee
    processors: int = 2
    constants: frozenset[str] = frozenset()
    graph: Graph | None = None
    whole: Graph | None = None

    def check(self, source: str, seed: int) -> str | None:
        """What is wrong with a kernel under one interleaving, or None: the record where one is known."""
        if self.graph is None:
            return self._found(source, seed)
        if self.whole is not None:
            source = at_extents_of(source, self.whole, self.graph)
        case = f"{self._identity} {self.processors} {sorted(self.constants)} {self.referee.tolerance}"
        return simulated.fault(case, source, seed, lambda: self._found(source, seed))

    @functools.cached_property
    def _identity(self) -> str:
        """A digest of the graph and of the inputs."""
        assert self.graph is not None
        found = hashlib.sha256(canonical_bytes(self.graph))
        for name, array in sorted(self.inputs.items()):
            found.update(f"{name} {array.dtype} {array.shape} {array.strides}".encode() + array.tobytes())
        return found.hexdigest()

    def _found(self, source: str, seed: int) -> str | None:
        """What a simulation finds."""
        try:
            outputs = execute(
                source, self.inputs, seed=seed, processors=self.processors, constants=self.constants
            ).outputs
        except CheckError as fault:
            return str(fault)
        if set(outputs) != set(self.referee.expected):
            return f"outputs {sorted(outputs)}"
        judged = ((name, self.referee.agreement(name, output)) for name, output in outputs.items())
        return next((f"{name} is wrong: {found.told}" for name, found in judged if not found.accepted), None)

    def fault(self, source: str, seeds: int) -> str | None:
        """The first thing that is wrong with a kernel, or None."""
        faults = (self.check(source, seed) for seed in range(seeds))
        return next((fault for fault in faults if fault is not None), None)


def case(graph: Graph, processors: int = 2, inputs: dict[str, Any] | None = None) -> Case:
    """Inputs of a graph, as it is: random ones if none are given."""
    inputs = inputs or random_inputs(graph, 0)
    tolerance = {name: TOLERANCE[graph.type_of(name).dtype] for name in graph.outputs}
    expected = WhenAsked(graph.outputs, lambda: expectations(graph, inputs))
    return Case(inputs, Referee(expected, tolerance), processors, graph.constants, graph)


def small_case(emitted: Emitted, k_iterations: int | None = None) -> Case:
    """A few ragged tiles of the kernel's structure, and K-blocks enough to go round the ring."""
    k_blocks = first_k_blocks(emitted.verified) if k_iterations is None else k_iterations
    s = emitted.verified.program.structure
    small = case(reduced(emitted.graph, s, k_blocks, longer=s.splits > 1))
    return replace(small, whole=emitted.graph)


# --- graphs ---------------------------------------------------------------------------------------------


def check_computes(made: Emitted) -> None:
    """Its kernel computes what its graph means, and so it does at the reduced extents."""
    assert case(made.graph).fault(made.source, SEEDS) is None
    assert small_case(made).fault(made.source, 2) is None


def check_shows(made: Emitted, good: str, wrong: str, times: int = -1) -> None:
    """A run shows that a text stands in the place of another one that its kernel has, of the first `times` or all."""
    assert good in made.source
    assert case(made.graph).fault(made.source.replace(good, wrong, times), 1) is not None


def plain(g: GraphBuilder) -> Symbol:
    """y = x w'."""
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (1024, 512), "bf16", constant=True)
    return g.cast(g.matmul(x, w, transpose_b=True, name="p"), dtype="bf16", name="y")


def ragged(g: GraphBuilder) -> Symbol:
    """y = x w' over a streamed axis that ends a little into a K-block."""
    x, w = g.input("x", (1024, 520), "bf16"), g.input("w", (1024, 520), "bf16", constant=True)
    return g.cast(g.matmul(x, w, transpose_b=True, name="p"), dtype="bf16", name="y")


def residual(g: GraphBuilder) -> tuple[Symbol, ...]:
    """h = x w' + b and y = r + h."""
    x, w = g.input("x", (1024, 2048), "bf16"), g.input("w", (1024, 2048), "bf16", constant=True)
    b, r = g.input("b", (1024,), "bf16", constant=True), g.input("r", (1024, 1024), "bf16")
    biased = g.add(g.matmul(x, w, transpose_b=True, name="p"), b, name="biased")
    total = g.add(r, biased, name="total")
    return g.cast(biased, dtype="bf16", name="h"), g.cast(total, dtype="bf16", name="y")


def scaled(g: GraphBuilder) -> Symbol:
    """f8 operands with f32 sums, scaled by row and by column."""
    x, w = g.input("x", (1024, 512), "f8e4m3"), g.input("w", (1024, 512), "f8e4m3", constant=True)
    rows, columns = g.input("sx", (1024, 1), "f32"), g.input("sw", (1024,), "f32")
    product = g.matmul(x, w, transpose_b=True, accumulate="f32", name="p")
    return g.cast(product * rows * columns, dtype="bf16", name="y")


def clamped(g: GraphBuilder) -> Symbol:
    """y = min(relu(max(x w', r)), 6)."""
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (1024, 512), "bf16", constant=True)
    r = g.input("r", (1024, 1024), "bf16")
    largest = g.maximum(g.matmul(x, w, transpose_b=True, name="p"), r, name="largest")
    return g.cast(g.minimum(g.relu(largest), 6.0), dtype="bf16", name="y")


def transposed(g: GraphBuilder) -> Symbol:
    """y = x' w."""
    x, w = g.input("x", (1024, 1024), "f16"), g.input("w", (1024, 1024), "f16", constant=True)
    return g.cast(g.matmul(x, w, transpose_a=True, name="p"), dtype="f16", name="y")


def batched(g: GraphBuilder) -> Symbol:
    """y[i] = x[i] w[i]'."""
    x, w = g.input("x", (4, 512, 512), "bf16"), g.input("w", (4, 512, 512), "bf16")
    return g.cast(g.matmul(x, w, transpose_b=True, name="p"), dtype="bf16", name="y")


def gated(g: GraphBuilder) -> Symbol:
    """y = silu(x a') * (x b')."""
    x = g.input("x", (1024, 512), "bf16")
    a, b = (g.input(name, (1024, 512), "bf16", constant=True) for name in "ab")
    gate, up = g.matmul(x, a, transpose_b=True, name="gate"), g.matmul(x, b, transpose_b=True, name="up")
    return g.cast(g.silu(gate) * up, dtype="bf16", name="y")
