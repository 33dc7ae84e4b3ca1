"""Products under way at the end of a pass: a loop carries what it was entered with, plain tiles or products."""

from __future__ import annotations

import ast
from dataclasses import replace

from emit_builds import graph_of, h200, structure

from wsopt.checker import verify
from wsopt.emit.source import emit
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.perf.price import lower
from wsopt.solve.optimum import solve
from wsopt.solve.search import DEFAULT_MARGIN


def gated(g: GraphBuilder) -> Symbol:
    """A gate with a bias and what it lets through: two products for each K-block of a third one."""
    x = g.input("x", (48, 256), "bf16")
    gate, up, down = (
        g.input(name, shape, "bf16")
        for name, shape in (("gate", (256, 688)), ("up", (256, 688)), ("down", (688, 256)))
    )
    bias = g.input("bias", (688,), "bf16")
    h = g.cast(g.silu(g.matmul(x, gate) + bias) * g.matmul(x, up), "bf16")
    return g.cast(g.matmul(h, down), "bf16", name="y")


def carried(statements: list[ast.stmt]) -> dict[str, bool]:
    """For each name that a product of these statements is given, whether a wait is the last that gives it a value."""
    last: dict[str, bool] = {}
    for one in statements:
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call):
            called = ast.unparse(one.value.func)
            for name in ast.walk(one.targets[0]):
                if isinstance(name, ast.Name) and called.startswith("warpgroup_mma"):
                    last[name.id] = called == "warpgroup_mma_wait"
    return last


def pairs(source: str) -> list[tuple[dict[str, bool], dict[str, bool]]]:
    """What is carried into each loop of the consumer, and what its own passes end with, of products of both."""
    functions = (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef))
    consumer = next(one for one in functions if one.name == "consumer")
    found = [
        (carried(body[:place]), carried(loop.body))
        for body in (
            one.body for one in ast.walk(consumer) if isinstance(one, ast.FunctionDef | ast.For | ast.If)
        )
        for place, loop in enumerate(body)
        if isinstance(loop, ast.For)
    ]
    both = [(before, within, before.keys() & within.keys()) for before, within in found]
    return [
        ({n: before[n] for n in names}, {n: within[n] for n in names})
        for before, within, names in both
        if names
    ]


def test_a_loop_ends_with_what_it_begins_with() -> None:
    machine = h200()
    program = lower(
        find_region(graph_of(gated)), replace(structure(columns=256, persistent=False), group=1), machine
    )
    schedule = solve(program, machine, DEFAULT_MARGIN).schedule
    assert schedule is not None
    found = pairs(emit(verify(schedule, program, machine, DEFAULT_MARGIN)))
    assert found
    assert all(before == within for before, within in found)
