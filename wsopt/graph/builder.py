"""Builds graphs from Python: one method an op, made from the op table, and operators on symbols.

    g = GraphBuilder("mlp_up")
    x = g.input("x", (8192, 4096), "bf16")
    w = g.input("w", (14336, 4096), "bf16", constant=True)
    g.output(g.cast(g.gelu(g.matmul(x, w, transpose_b=True)), dtype="bf16", name="y"))
    graph = g.build()

Every call is checked at once, so that a traceback shows the line that is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wsopt.errors import InputError, Problem
from wsopt.graph.dims import Dim, input_extents, node_extents, read_dim
from wsopt.graph.draft import read_input, read_node, type_node
from wsopt.graph.extents import Extent
from wsopt.graph.faults import Faults, quote
from wsopt.graph.fields import read_doc, read_flag, read_name
from wsopt.graph.op_spec import OpSpec
from wsopt.graph.ops import OPS
from wsopt.graph.parse import FORMAT, parse_graph
from wsopt.graph.serialize import attr_to_json, scalar_to_json
from wsopt.graph.symbolic import SymbolicGraph, parse_any
from wsopt.graph.types import DType, Graph, TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """A tensor of a graph that is being built. `==` compares identities; `g.equal` compares values."""

    builder: GraphBuilder
    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the tensor."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type of the tensor."""
        return self.type.dtype

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"

    def __bool__(self) -> bool:
        raise TypeError(f"{self.name} has no value yet; choose with where")

    if TYPE_CHECKING:
        # Made from `_OPERATORS` below.
        def __add__(self, other: Symbol | float) -> Symbol: ...
        def __radd__(self, other: float) -> Symbol: ...
        def __sub__(self, other: Symbol | float) -> Symbol: ...
        def __rsub__(self, other: float) -> Symbol: ...
        def __mul__(self, other: Symbol | float) -> Symbol: ...
        def __rmul__(self, other: float) -> Symbol: ...
        def __truediv__(self, other: Symbol | float) -> Symbol: ...
        def __rtruediv__(self, other: float) -> Symbol: ...
        def __pow__(self, other: Symbol | float) -> Symbol: ...
        def __rpow__(self, other: float) -> Symbol: ...
        def __matmul__(self, other: Symbol) -> Symbol: ...
        def __lt__(self, other: Symbol | float) -> Symbol: ...
        def __le__(self, other: Symbol | float) -> Symbol: ...
        def __gt__(self, other: Symbol | float) -> Symbol: ...
        def __ge__(self, other: Symbol | float) -> Symbol: ...
        def __and__(self, other: Symbol) -> Symbol: ...
        def __or__(self, other: Symbol) -> Symbol: ...
        def __invert__(self) -> Symbol: ...
        def __neg__(self) -> Symbol: ...
        def __abs__(self) -> Symbol: ...


class GraphBuilder:
    """A graph in the making. Besides the methods below it has one for every op: `g.add(a, b, name=...)`.

    An op's operands are symbols or, where it takes them, numbers; its attributes are keywords. Every
    method raises InputError, with the place in the graph and what is allowed there.
    """

    def __init__(self, name: str, doc: str = "", *, deterministic: bool = False) -> None:
        self.name = name
        self.doc = doc
        self.deterministic = deterministic
        self._inputs: list[dict[str, Any]] = []
        self._nodes: list[dict[str, Any]] = []
        self._outputs: list[str] = []
        self._types: dict[str, TensorType] = {}
        self._dims: dict[str, Dim] = {}
        faults = self._faults()
        read_name(name, "/name", faults)
        read_doc(doc, "/doc", faults)
        read_flag(deterministic, "/deterministic", faults)
        faults.raise_any()

    def dim(
        self, name: str, least: int, most: int, *, typical: Sequence[int] | Mapping[int, float] = ()
    ) -> Extent:
        """A named dimension for shapes, alone or in sums and products; `typical` extents may have weights."""
        weights = (
            {str(extent): one for extent, one in typical.items()} if isinstance(typical, Mapping) else None
        )
        entry = {"min": least, "max": most, "typical": list(typical) if weights is None else weights}
        faults = self._faults()
        found = read_dim(name, entry, f"/dims/{name}", faults)
        if name in self._types or name in self._dims:
            faults.add(f"/dims/{name}", f"the name {quote(name)} is taken")
        faults.raise_any()
        assert found is not None, "a dimension without faults is read whole"
        self._dims[name] = found
        return Extent((((name,), 1),), least)

    def input(
        self,
        name: str,
        shape: Sequence[int | str],
        dtype: str | DType,
        *,
        constant: bool = False,
        strides: Sequence[int] | None = None,
    ) -> Symbol:
        """A tensor that the caller brings; `constant` for weights, `strides` in elements."""
        entry = {"name": name, "shape": _plain(shape), "dtype": _plain(dtype), "constant": constant}
        if strides is not None:
            entry["strides"] = _plain(strides)
        faults = self._faults()
        draft = read_input(input_extents(entry, self._least), f"/inputs/{len(self._inputs)}", faults)
        self._check_free(name, draft.pointer, faults)
        faults.raise_any()
        assert draft.input is not None, "an input without faults is read whole"
        self._inputs.append(entry)
        return self._symbol(name, draft.input.type)

    def output(self, *symbols: Symbol) -> None:
        """Make these results outputs of the graph, after those before them. TypeError for what is no result."""
        for symbol in symbols:
            if not isinstance(symbol, Symbol):
                kind = type(symbol).__name__
                raise TypeError(f"an output is what an operation returned; this is the {kind} {symbol!r}")
        self._outputs.extend(str(self._operand(symbol)) for symbol in symbols)

    def build(self) -> Graph:
        """The graph, checked as a whole. Raises InputError, for outputs that are missing or inputs, and for a graph
        with named dimensions, which `symbolic` gives.
        """
        return parse_graph(self.to_json(), self.name)

    def symbolic(self) -> SymbolicGraph:
        """The graph with its named dimensions, checked as a whole. Raises InputError as `build`, and without any."""
        found = parse_any(self.to_json(), self.name)
        if not isinstance(found, SymbolicGraph):
            raise InputError(self.name, [Problem("", "has no named dimensions: build() gives the graph")])
        return found

    @property
    def named(self) -> bool:
        """Whether it has named dimensions."""
        return bool(self._dims)

    @property
    def _least(self) -> dict[str, int]:
        return {dim.name: dim.least for dim in self._dims.values()}

    def to_json(self) -> dict[str, Any]:
        """The graph built so far, in the file's format."""
        doc: dict[str, Any] = {"doc": self.doc} if self.doc else {}
        doc |= {"deterministic": True} if self.deterministic else {}
        doc |= {"dims": {dim.name: dim.to_json() for dim in self._dims.values()}} if self._dims else {}
        sections = {"inputs": self._inputs, "nodes": self._nodes, "outputs": self._outputs}
        return {"format": FORMAT, "name": self.name, **doc, **sections}

    if TYPE_CHECKING:
        # The methods of the ops, which `_method` makes from the table.
        def __getattr__(self, op: str) -> Callable[..., Symbol]: ...

    def apply(
        self, op: str, operands: Sequence[Symbol | float], attrs: Mapping[str, Any], name: str | None = None
    ) -> Symbol:
        """A node of any op, by the op's name; without `name` it is called after the op."""
        entry = {
            "name": self._free_name(op) if name is None else name,
            "op": op,
            "inputs": [self._operand(operand) for operand in operands],
            "attrs": {key: _plain(value) for key, value in attrs.items()},
        }
        faults = self._faults()
        draft = read_node(node_extents(entry, self._least), f"/nodes/{len(self._nodes)}", faults)
        self._check_free(entry["name"], draft.pointer, faults)
        node = type_node(draft, self._types, faults)
        faults.raise_any()
        assert node is not None, "a node without faults is read whole"
        self._nodes.append(entry)
        return self._symbol(node.name, node.type)

    def _symbol(self, name: str, tensor: TensorType) -> Symbol:
        self._types[name] = tensor
        return Symbol(self, name, tensor)

    def _operand(self, operand: object) -> object:
        if isinstance(operand, Symbol):
            if operand.builder is not self:
                faults = self._faults()
                faults.add("", f"{quote(operand.name)} is a tensor of another graph, {operand.builder.name}")
                faults.raise_any()
            return operand.name
        # Strings would be names in the file; here only symbols name tensors.
        return scalar_to_json(operand) if isinstance(operand, int | float) else operand

    def _check_free(self, name: object, pointer: str, faults: Faults) -> None:
        if isinstance(name, str) and (name in self._types or name in self._dims):
            faults.add(f"{pointer}/name", f"the name {quote(name)} is taken")

    def _free_name(self, op: str) -> str:
        number = sum(node["op"] == op for node in self._nodes)
        while f"{op}_{number}" in self._types:
            number += 1
        return f"{op}_{number}"

    def _faults(self) -> Faults:
        return Faults(f"graph {self.name}" if isinstance(self.name, str) else "graph")


def _plain(value: Any) -> Any:
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return attr_to_json(tuple(value) if listed else value)


# --- methods and operators made from tables -------------------------------------------------------------


def _method(spec: OpSpec) -> Callable[..., Symbol]:
    signature = _signature(spec)
    own = list(signature.parameters.values())[1:]

    def method(self: GraphBuilder, *args: Any, **kwargs: Any) -> Symbol:
        try:
            bound = signature.bind(self, *args, **kwargs).arguments
        except TypeError as error:
            called = ", ".join(str(one.replace(annotation=inspect.Parameter.empty)) for one in own)
            raise TypeError(f"{spec.name}: {error}; it is called as {spec.name}({called})") from None
        operands = [bound[role] for role in spec.operands if bound.get(role) is not None]
        attrs = {attr.name: bound[attr.name] for attr in spec.attrs if bound.get(attr.name) is not None}
        return self.apply(spec.name, operands, attrs, bound.get("name"))

    method.__name__ = spec.name
    method.__qualname__ = f"GraphBuilder.{spec.name}"
    method.__doc__ = _docstring(spec)
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


def _signature(spec: OpSpec) -> inspect.Signature:
    positional, keyword, empty = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.empty,
    )
    required = [*spec.operands[: spec.arity[0]], *(attr.name for attr in spec.attrs if attr.required)]
    unnamed = [attr.name for attr in spec.attrs if attr.positional]
    optional = dict.fromkeys([*unnamed, *spec.operands[spec.arity[0] :]])
    defaults = {attr.name: attr.default for attr in spec.attrs if not (attr.required or attr.positional)}
    return inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY),
            *(inspect.Parameter(name, positional, default=empty) for name in required),
            *(inspect.Parameter(name, positional, default=None) for name in optional),
            *(inspect.Parameter(name, keyword, default=value) for name, value in defaults.items()),
            inspect.Parameter("name", keyword, default=None, annotation="str | None"),
        ],
        return_annotation="Symbol",
    )


def _docstring(spec: OpSpec) -> str:
    lines = [spec.doc, ""]
    for attr in spec.attrs:
        what = " or ".join(map(quote, attr.choices)) or attr.kind.value
        default = "required" if attr.required else "optional" if attr.default is None else f"{attr.default}"
        lines.append(f"{attr.name}: {what} ({default}).")
    return "\n".join([*lines, "Raises InputError if operands or attributes do not fit."])


_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "sub": ("__sub__", "__rsub__"),
    "mul": ("__mul__", "__rmul__"),
    "div": ("__truediv__", "__rtruediv__"),
    "pow": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__",),
    "less": ("__lt__",),
    "less_equal": ("__le__",),
    "greater": ("__gt__",),
    "greater_equal": ("__ge__",),
    "logical_and": ("__and__",),
    "logical_or": ("__or__",),
    "logical_not": ("__invert__",),
    "neg": ("__neg__",),
    "abs": ("__abs__",),
}


def _operator(op: str, *, swapped: bool) -> Callable[..., Any]:
    def operator(self: Symbol, *others: Any) -> Any:
        if not all(isinstance(other, Symbol | int | float) for other in others):
            return NotImplemented
        operands = (*others, self) if swapped else (self, *others)
        return self.builder.apply(op, operands, {})

    return operator


for _spec in OPS.values():
    setattr(GraphBuilder, _spec.name, _method(_spec))
for _op, _names in _OPERATORS.items():
    for _index, _name in enumerate(_names):
        setattr(Symbol, _name, _operator(_op, swapped=_index == 1))
