"""Expected outputs of a graph in NumPy, with error bounds by element, and the verdict on a kernel's outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from wsopt.agreement.figures import Errors, Figure, Kit, Step, as_read
from wsopt.agreement.judge import Agreement, Expected, appraise, expectation, judge
from wsopt.agreement.sums import coarse_nodes
from wsopt.graph.ops import OPS
from wsopt.graph.reference import Array, check_inputs, operand_array, relative_error
from wsopt.graph.types import Graph, Node, Operand

_KIT = Kit(np, lambda x: np.asarray(x, np.float32), lambda x: np.asarray(x, np.float64))


def expectations(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Expected]:
    """The outputs by name as `reference.evaluate` gives them, each with the errors that a right kernel may have.

    Bounds follow from the values and from sums of absolute products, operation by operation. Raises InputError if
    the arrays do not fit the graph.
    """
    check_inputs(graph, inputs)
    known = {item.name: Figure(inputs[item.name], Errors(), item.type.dtype.value) for item in graph.inputs}
    coarse = coarse_nodes(graph.nodes, graph.outputs, {n.name: n.type.dtype.value for n in graph.nodes})
    uses = Counter([*(name for node in graph.nodes for name in node.tensors), *graph.outputs])
    # What an output is cast from is kept to the end: its rounding is judged from there.
    uses.update(source for name in graph.outputs if (source := _source(graph, name)))
    for node in graph.nodes:
        if uses[node.name]:
            known[node.name] = _figure(node, known, node.name in coarse)
        for name in node.tensors:
            uses[name] -= 1
            if not uses[name]:
                del known[name]
    return {name: _expected(graph, name, known) for name in graph.outputs}


def agreement(actual: Array, expected: Expected, tolerance: float) -> Agreement:
    """Compare an output with the expected one; `tolerance` is on relative norms."""
    with np.errstate(all="ignore"):
        return judge(_KIT, actual, expected, tolerance, relative_error)


@dataclass(slots=True)
class Referee:
    """Judges outputs of several runs on the same inputs; one with the bytes of the run before is judged once."""

    expected: Mapping[str, Expected]
    tolerance: Mapping[str, float]
    _last: dict[str, tuple[bytes, Agreement]] = field(default_factory=dict)

    def agreement(self, name: str, actual: Array) -> Agreement:
        """Compare the output of this name with the expected one."""
        content = actual.tobytes()
        last = self._last.get(name)
        if last is None or last[0] != content or actual.shape != self.expected[name].value.shape:
            last = content, agreement(actual, self.expected[name], self.tolerance[name])
            self._last[name] = last
        return last[1]


def _figure(node: Node, known: Mapping[str, Figure], coarse: bool) -> Figure:
    operands = as_read(node.op, tuple(_operand(item, known) for item in node.inputs))
    attrs = dict(node.attrs)
    value = np.asarray(OPS[node.op].evaluate(tuple(item.value for item in operands), attrs))
    with np.errstate(all="ignore"):
        return appraise(_KIT, Step(node.op, attrs, node.type.dtype.value, value, coarse), operands)


def _operand(operand: Operand, known: Mapping[str, Figure]) -> Figure:
    if isinstance(operand, str):
        return known[operand]
    return Figure(operand_array(operand), Errors(), "i32" if isinstance(operand, int) else "f32")


def _source(graph: Graph, name: str) -> str | None:
    """Name of the value that an output is cast from, if a cast to a float makes the output."""
    node = graph.producer(name)
    if node is None or node.op != "cast" or not node.type.dtype.is_float:
        return None
    source = node.inputs[0]
    return source if isinstance(source, str) and not graph.type_of(source).dtype.is_integer else None


def _expected(graph: Graph, name: str, known: Mapping[str, Figure]) -> Expected:
    source = _source(graph, name)
    return expectation(_KIT, known[name], known[source] if source else None)
