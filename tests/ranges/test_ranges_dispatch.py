"""The kernel.py of a build of several kernels, with stand-ins for the kernels: who is called at which extents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wsopt.codegen.errors import CompileError
from wsopt.codegen.kernel_file import load_dispatch_file
from wsopt.graph.symbolic import SymbolicGraph, parse_any
from wsopt.ranges.dispatch import dispatch_text, merged
from wsopt.ranges.points import grid_of

STAND_IN = """
def run(**tensors):
    return NUMBER, sorted(tensors)


def prepare(outputs=None, /, **tensors):
    return NUMBER, outputs, sorted(tensors)
"""


@dataclass(frozen=True)
class Shaped:
    """A tensor as far as a dispatch looks at it."""

    shape: tuple[int, ...]


def _graph(shape: list[int | str], dims: dict[str, Any], name: str = "x") -> SymbolicGraph:
    inputs = [
        {"name": name, "shape": shape, "dtype": "bf16"},
        {"name": "k", "shape": [2, *dims], "dtype": "bf16"},
    ]
    nodes = [{"name": "y", "op": "exp", "inputs": [name]}]
    data = {
        "format": "wsopt.graph/1",
        "name": "g",
        "dims": dims,
        "inputs": inputs,
        "nodes": nodes,
        "outputs": ["y"],
    }
    found = parse_any(data, "g")
    assert isinstance(found, SymbolicGraph)
    return found


def _module(folder: Path, graph: SymbolicGraph, serves: list[int]) -> ModuleType:
    folders = [f"kernels/{number}" for number in range(max(serves) + 1)]
    for number, name in enumerate(folders):
        (folder / name).mkdir(parents=True)
        text = STAND_IN.replace("NUMBER", str(number))
        (folder / name / "kernel.py").write_text(text, encoding="utf-8")
    text = dispatch_text(graph, grid_of(graph.dims), serves, folders)
    (folder / "kernel.py").write_text(text, encoding="utf-8")
    return load_dispatch_file(folder / "kernel.py")


@pytest.fixture
def rows(tmp_path: Path) -> ModuleType:
    graph = _graph(["tokens", 64], {"tokens": {"min": 2, "max": 60}})  # classes up to 2, 16, 32, 48, 60
    return _module(tmp_path, graph, [0, 0, 1, 1, 0])


@pytest.mark.parametrize(("tokens", "kernel"), [(2, 0), (16, 0), (17, 1), (48, 1), (49, 0), (60, 0)])
def test_each_extent_has_its_kernel(rows: ModuleType, tokens: int, kernel: int) -> None:
    tensors = {"x": Shaped((tokens, 64)), "k": Shaped((2, tokens))}
    assert rows.run(**tensors) == (kernel, ["k", "out", "x"])
    assert rows.prepare({"y": 1}, **tensors) == (kernel, {"y": 1}, ["k", "x"])
    assert rows.ENDS_0 == (16, 48, 60)


@pytest.mark.parametrize("tokens", [0, 1, 61, 10**9])
def test_an_extent_outside_of_its_range_is_refused(rows: ModuleType, tokens: int) -> None:
    with pytest.raises(ValueError, match=rf"tokens is {tokens} by tensor x: the kernels are for 2 to 60"):
        rows.run(x=Shaped((tokens, 64)), k=Shaped((2, tokens)))


def test_tensors_without_the_dimension_are_left_to_a_kernels_checks(rows: ModuleType) -> None:
    assert rows.run(x=Shaped(()), k=Shaped((2, 3)))[0] == 0
    assert rows.run(x=None, k=None)[0] == 0
    with pytest.raises(ValueError, match="tensor x is missing"):
        rows.prepare(k=Shaped((2, 3)))


def test_two_dimensions_are_looked_up_together(tmp_path: Path) -> None:
    dims = {"batch": {"min": 1, "max": 20}, "seq": {"min": 1, "max": 30}}
    graph = _graph(["batch", "seq"], dims)
    grid = grid_of(graph.dims)
    assert grid.ends == ((1, 16, 20), (1, 16, 30))
    serves = [0, 0, 1, 0, 2, 1, 0, 2, 2]
    module = _module(tmp_path, graph, serves)
    for cell, kernel in zip(grid.cells, serves, strict=True):
        for point in (cell, grid.first(cell)):
            assert module.run(x=Shaped(point), k=Shaped((2, *point)))[0] == kernel
    with pytest.raises(ValueError, match="seq is 31"):
        module.run(x=Shaped((1, 31)), k=Shaped((2, 1, 31)))


def test_neighbours_that_nobody_tells_apart_are_one() -> None:
    graph = _graph(["batch", "seq"], {"batch": {"min": 1, "max": 20}, "seq": {"min": 1, "max": 30}})
    ends, served = merged(grid_of(graph.dims), [0, 0, 1, 0, 0, 1, 0, 0, 2])
    assert ends == [(16, 20), (16, 30)]
    assert served == (0, 1, 0, 2)


def test_a_dimension_is_told_by_a_sum_of_products(tmp_path: Path) -> None:
    inputs = [{"name": "x", "shape": ["2*seq*batch + 1", "batch"], "dtype": "bf16"}]
    data = {
        "format": "wsopt.graph/1",
        "name": "g",
        "dims": {"seq": {"min": 1, "max": 3}, "batch": {"min": 1, "max": 4}},
        "inputs": inputs,
        "nodes": [{"name": "y", "op": "exp", "inputs": ["x"]}],
        "outputs": ["y"],
    }
    graph = parse_any(data, "g")
    assert isinstance(graph, SymbolicGraph)
    module = _module(tmp_path, graph, [0, 0, 1, 1])
    assert module.run(x=Shaped((2 * 3 * 4 + 1, 4)))[0] == 1
    assert module.run(x=Shaped((2 * 1 * 4 + 1, 4)))[0] == 0
    with pytest.raises(
        ValueError, match=r"has 10 elements along axis 0, which are not \(2\*batch\) \* seq \+ 1"
    ):
        module.run(x=Shaped((10, 4)))
    with pytest.raises(ValueError, match="seq is 4"):
        module.run(x=Shaped((2 * 4 * 4 + 1, 4)))


def test_inputs_that_python_has_words_for(tmp_path: Path) -> None:
    graph = _graph(["tokens", 64], {"tokens": {"min": 1, "max": 1}}, name="lambda")
    module = _module(tmp_path, graph, [0])
    assert module.run(**{"lambda": Shaped((1, 64)), "k": Shaped((2, 1))}) == (0, ["k", "lambda", "out"])
    with pytest.raises(ValueError, match="tensor lambda is missing"):
        module.run(k=Shaped((2, 1)))


def test_a_kernel_py_of_one_kernel_is_no_dispatch(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(STAND_IN.replace("NUMBER", "0"), encoding="utf-8")
    with pytest.raises(CompileError, match="lacks KERNELS, serving"):
        load_dispatch_file(tmp_path / "kernel.py")
