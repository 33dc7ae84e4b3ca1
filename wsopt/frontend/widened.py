"""Operands of a chain's products that are 8-bit tensors times factors: keys and values of a quantized cache.

Every number of 8 bits is one of the product's 16-bit type. So the operand is the tensor as it lies in memory, which a
role of its own widens, and the factors go where they vary: one that is constant along the contracted axis behind the
product, one that varies along it alone to the left operand (GRAPH.md, 'What a compiler may change').
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.kinds import F8, depending, feeding, input_path, is_matmul, matmul_dims
from wsopt.frontend.names import free_name, names_of
from wsopt.frontend.reshapes import reshaped_factor
from wsopt.graph.needed import needed
from wsopt.graph.ops import OPS
from wsopt.graph.types import AttrValue, DType, Graph, Node, Operand, TensorType

NARROW = (DType.I8, *F8)
"""Element types of which all numbers are numbers of the 16-bit types."""

_WIDE = (DType.BF16, DType.F16)
_FLOATS = (DType.F32, *_WIDE)
_SCALARS = {int: TensorType((), DType.I32), float: TensorType((), DType.F32)}


@dataclass(frozen=True, slots=True)
class _Factor:
    """What elements are multiplied by, or divided: a number, or a tensor whose axes are the last ones of theirs."""

    by: Operand
    op: str = "mul"


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A value as an 8-bit tensor, seen as `rest` is, times factors."""

    rest: str
    factors: tuple[_Factor, ...] = ()


def with_bare_operands(graph: Graph) -> Graph:
    """The graph in which chains of products read 8-bit tensors as they lie in memory, and factors stand elsewhere;
    itself without any.

    Raises LoweringError, naming the product, where a factor has to stay with the operand.
    """
    follows = depending(graph.nodes, is_matmul)
    matmuls = [node for node in graph.nodes if node.op == "matmul"]
    last = [node for node in matmuls if node.inputs[0] in follows and node.inputs[1] not in follows]
    feeds = feeding(graph.nodes, [node.tensors[0] for node in last])
    wanted = {node.name for node in matmuls if node in last or node.name in feeds}
    if not last or any(node.name in feeds for node in last):
        return graph
    writer = _Writer(graph, names_of(graph))
    for node in graph.nodes:
        writer.write(node, wanted=node.name in wanted)
    return needed(replace(graph, nodes=tuple(writer.nodes.values()))) if writer.changed else graph


@dataclass(slots=True)
class _Writer:
    """Writes a graph's nodes anew, with factors in other places."""

    graph: Graph
    taken: set[str]
    nodes: dict[str, Node] = field(default_factory=dict)
    changed: bool = False

    def write(self, node: Node, *, wanted: bool) -> None:
        """Write a node; of a product that is `wanted` its right operand without what widens and scales it."""
        found = self._scaled(node.tensors[1]) if wanted and self._is_computed(node) else None
        if found is None:
            self.nodes[node.name] = node
            return
        self.changed = True
        behind, before = list[_Factor](), list[_Factor]()
        column, contracted = matmul_dims(node)[1]
        for factor in found.factors:
            along, across = (self._extent(factor.by, dim) for dim in (contracted, column))
            if (along > 1 and across > 1) or (along > 1 and not self._takes_factor(node)):
                raise LoweringError(self._refusal(node, factor))
            (before if along > 1 else behind).append(factor)
        left = self._with_factors(node, before)
        made = replace(node, inputs=(left, found.rest))
        for number, factor in enumerate(behind):
            name = free_name(f"{node.name}_unscaled", self.taken)
            self.nodes[name] = replace(made, name=name)
            turned = self._turned(factor.by, node) if column == -2 else factor.by
            last = number == len(behind) - 1
            made = self._node(factor.op, (name, turned), {}, node.name if last else "")
        self.nodes[made.name] = made

    # --- what an operand is made of ---------------------------------------------------------------------

    def _is_computed(self, node: Node) -> bool:
        """Whether a product's right operand is computed in 16 bits."""
        name = node.inputs[1]
        return (
            isinstance(name, str) and input_path(self.graph, name) is None and self._type(name).dtype in _WIDE
        )

    def _scaled(self, name: str) -> _Scaled | None:
        """A tensor as one of 8 bits times factors; None if it is another."""
        node = self.graph.producer(name)
        if node is None or node.op == "gather":
            own = self._type(name).dtype in NARROW and self._is_read(name)
            return _Scaled(name) if own else None
        found = self._scaled(node.tensors[0]) if node.op in ("cast", "reshape", "transpose") else None
        match node.op:
            case "cast" if found and node.type.dtype in _FLOATS:
                return found
            case "transpose" | "reshape" if found:
                return self._viewed(node, found)
            case "dequantize":
                return self._dequantized(node)
            case "mul" | "div":
                return self._multiplied(node)
        return None

    def _is_read(self, name: str) -> bool:
        """Whether a tensor is an input, or its elements at indices that are one."""
        node = self.graph.producer(name)
        return node is None or all(input_path(self.graph, one) is not None for one in node.tensors)

    def _multiplied(self, node: Node) -> _Scaled | None:
        for place, x in enumerate(node.inputs[: 1 if node.op == "div" else 2]):
            found = self._scaled(x) if isinstance(x, str) else None
            if found is not None and self._type(x).shape == node.type.shape:
                return replace(found, factors=(*found.factors, _Factor(node.inputs[1 - place], node.op)))
        return None

    def _dequantized(self, node: Node) -> _Scaled | None:
        """Numbers of 8 bits of which a row shares a scale."""
        found, shape = self._scaled(node.tensors[0]), node.type.shape
        rows = len(node.inputs) == 2 and dict(node.attrs).get("group") == shape[-1]
        return replace(found, factors=(*found.factors, _Factor(node.inputs[1]))) if found and rows else None

    def _viewed(self, node: Node, found: _Scaled) -> _Scaled | None:
        """A value that is seen in another way, with its factors seen so; None where one cannot be."""
        factors = [
            replace(one, by=by) for one in found.factors if (by := self._seen(node, one.by)) is not None
        ]
        if len(factors) < len(found.factors):
            return None
        made = node.name
        if found.rest != node.tensors[0]:
            wish = free_name(f"{node.name}_unscaled", self.taken)
            made = self._written(self._node(node.op, (found.rest,), dict(node.attrs), wish))
        return _Scaled(made, tuple(factors))

    def _seen(self, node: Node, by: Operand) -> Operand | None:
        """A factor as its tensor is seen behind a transpose or a reshape of the elements that it multiplies; None
        where it varies along a part of an axis that the reshape makes.
        """
        own, rank = self._type(by).shape, self._type(node.tensors[0]).rank
        if math.prod(own) == 1:
            return by if not own else self._reshaped(by, (1,) * node.type.rank)
        full = self._reshaped(by, (1,) * (rank - len(own)) + own)
        if node.op == "transpose":
            return self._written(self._node("transpose", (full,), dict(node.attrs)))
        shape = reshaped_factor(self._type(node.tensors[0]).shape, self._type(full).shape, node.type.shape)
        return None if shape is None else self._reshaped(full, shape)

    # --- where factors go -------------------------------------------------------------------------------

    def _extent(self, by: Operand, dim: int) -> int:
        shape = self._type(by).shape
        return shape[dim] if len(shape) >= -dim else 1

    def _takes_factor(self, node: Node) -> bool:
        """Whether a product's left operand may be multiplied before it is rounded: one that is computed in f32, and
        rounded to a type of as long a range.
        """
        made = self.graph.producer(node.tensors[0])
        return made is not None and made.op == "cast" and made.type.dtype is DType.BF16

    def _with_factors(self, node: Node, factors: Sequence[_Factor]) -> Operand:
        """A product's left operand times factors along the contracted axis."""
        left = node.inputs[0]
        if not factors:
            return left
        made = self.graph.producer(str(left))
        assert made is not None, "a factor goes to what is computed"
        name: Operand = made.inputs[0]
        for factor in factors:
            turned = factor.by if matmul_dims(node)[1][1] == -1 else self._turned(factor.by, node)
            name = self._written(self._node(factor.op, (name, turned), {}))
        return self._written(self._node("cast", (name,), dict(made.attrs)))

    def _turned(self, by: Operand, node: Node) -> Operand:
        """A factor of a right operand's elements as one of those of its transpose."""
        shape = self._type(by).shape
        if math.prod(shape) == 1:
            return by
        padded = (1,) * (2 - len(shape)) + shape
        return self._reshaped(by, (*padded[:-2], padded[-1], padded[-2]))  # one of the two is 1

    def _refusal(self, node: Node, factor: _Factor) -> str:
        """Why a factor that varies along the contracted axis stays with the operand, and what to do."""
        scale, operand = str(factor.by), node.tensors[1]
        where = f"node {node.name}: {scale} multiplies operand 1 of the matmul, {operand}, and varies along"
        if self._extent(factor.by, matmul_dims(node)[1][0]) > 1:
            return f"{where} both of its axes; {remedies.computed_before([operand])}"
        made = self.graph.producer(node.tensors[0])
        if made is not None and made.op == "cast" and made.type.dtype is DType.F16:
            return f"{where} the contracted axis; {remedies.LONG_RANGE}"
        return f"{where} the contracted axis; {remedies.OTHER_OPERAND.format(scale, node.tensors[0])}"

    # --- nodes ------------------------------------------------------------------------------------------

    def _reshaped(self, by: Operand, shape: tuple[int, ...]) -> Operand:
        if not isinstance(by, str) or self._type(by).shape == shape:
            return by
        return self._written(self._node("reshape", (by,), {"shape": shape}))

    def _written(self, node: Node) -> str:
        self.nodes[node.name] = node
        return node.name

    def _node(
        self, op: str, inputs: tuple[Operand, ...], given: dict[str, AttrValue], name: str = ""
    ) -> Node:
        types = tuple(map(self._type, inputs))
        attrs = {attr.name: given.get(attr.name, attr.default) for attr in OPS[op].attrs}
        found, full = OPS[op].infer(types, attrs)
        wish = f"{next(x for x in inputs if isinstance(x, str))}_{op}"
        return Node(name or free_name(wish, self.taken), op, inputs, tuple(sorted(full.items())), found)

    def _type(self, operand: Operand) -> TensorType:
        if not isinstance(operand, str):
            return _SCALARS[type(operand)]
        return self.nodes[operand].type if operand in self.nodes else self.graph.type_of(operand)
