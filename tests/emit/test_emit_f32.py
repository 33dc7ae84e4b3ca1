"""Products of f32 operands, of which the tensor core takes the bits of tf32."""

from __future__ import annotations

import numpy as np
import pytest
from emit_builds import Body, kernels_of, structure
from other_compiler import compiled_by

from wsopt.codegen import compile_kernel
from wsopt.errors import CheckError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import execute
from wsopt.interpret.mma import multiplied
from wsopt.program.types import Structure
from wsopt.simulation import simulate


def product(rows: int = 200, columns: int = 128, deep: int = 256) -> Body:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (rows, deep), "f32"), g.input("w", (columns, deep), "f32")
        p = g.matmul(x, w, transpose_b=True, precision="tf32", name="p")
        return g.add(p, g.input("b", (columns,), "f32"), name="y")

    return body


CASES: dict[str, tuple[Body, Structure]] = {
    "two consumers": (product(), structure(64, 32, 2)),
    "tail": (product(deep=264), structure(64, 32, tail=8)),
    "swapped": (product(rows=40), structure(32, 32, swap=True)),
    "ping-pong": (product(), structure(64, 16, 2, ping_pong=True)),
    "split": (product(deep=512), structure(64, 64, splits=2)),
}
made = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    kernel = made(name)
    assert simulate(kernel.graph, kernel.verified, kernel.source, 1).seeds == 1


@pytest.mark.compiler
def test_compiles(other_triton: str) -> None:
    source = made("two consumers").source
    found = compile_kernel(source)
    assert (found.spill_loads, found.stack_bytes, found.warnings) == (0, 0, ())
    assert found.tensor_instructions % 4 == 0  # eight elements an instruction
    assert [one["spill_loads"] for one in compiled_by(other_triton, [source])] == [0]


def adversarial(rows: int, deep: int) -> np.ndarray:
    """Numbers that differ by many orders of magnitude, and cancel in pairs but for their last bits."""
    rng = np.random.default_rng(7)
    size = np.exp2(rng.integers(-20, 20, (rows, deep // 2))).astype(np.float32)
    first = (rng.standard_normal((rows, deep // 2)) * size).astype(np.float32)
    second = -first * (1 + rng.integers(-4, 5, first.shape) * np.float32(2**-22)).astype(np.float32)
    return np.stack([first, second], axis=2).reshape(rows, deep)


@pytest.mark.slow
def test_what_cancels_is_off_by_the_bits_that_tf32_has_not() -> None:
    kernel = made("two consumers")
    inputs = {"x": adversarial(72, 256), "w": np.abs(adversarial(128, 256)), "b": np.zeros(128, np.float32)}
    found = np.float64(execute(kernel.source, inputs, seed=0).outputs["y"])
    x, w = (np.float64(inputs[name]) for name in "xw")
    sizes = np.abs(x) @ np.abs(w).T
    error = np.abs(found - x @ w.T) / sizes
    assert error.max() < 2 * 2**-10
    assert error.max() > 2**-14  # it is no product of all bits
    cut = np.float64(multiplied(inputs["x"])) @ np.float64(multiplied(inputs["w"])).T
    assert (np.abs(found - cut) / sizes).max() < 2**-20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (', "default_dot_input_precision": "tf32"', "", "wants the option"),
        (".permute((1, 0))", "", "wgmma of"),
    ],
)
def test_faults_are_found(old: str, new: str, told: str) -> None:
    kernel = made("two consumers")
    assert old in kernel.source
    with pytest.raises(CheckError, match=told):
        simulate(kernel.graph, kernel.verified, kernel.source.replace(old, new), 1)
