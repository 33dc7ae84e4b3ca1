"""The tensor graph as frozen data: element types, tensors, nodes, and the graph that holds them."""

from __future__ import annotations

import builtins
import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    import numpy as np

Operand = str | float
"""A node's input: a tensor's name, or a scalar (an `int` stays one; nan is always the object `math.nan`)."""

_T = TypeVar("_T")


class DType(enum.Enum):
    """An element type; the value is its word in graph.json."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    I32 = "i32"
    I8 = "i8"
    I4 = "i4"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        """Bits an element takes in memory; i4 is packed two to a byte, bool takes a byte."""
        return _BITS[self]

    @property
    def is_float(self) -> bool:
        """True for the floating-point types."""
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        """True for i32, i8 and i4; bool is neither integer nor float."""
        return self not in _FLOATS and self is not DType.BOOL

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy (or ml_dtypes) element type; i4 is held unpacked, as int8."""
        import ml_dtypes
        import numpy as np

        extended = {
            DType.BF16: ml_dtypes.bfloat16,
            DType.F8E4M3: ml_dtypes.float8_e4m3fn,
            DType.F8E5M2: ml_dtypes.float8_e5m2,
        }
        return np.dtype(extended.get(self) or _NUMPY_NAMES[self])


_BITS = {
    DType.F32: 32,
    DType.F16: 16,
    DType.BF16: 16,
    DType.F8E4M3: 8,
    DType.F8E5M2: 8,
    DType.I32: 32,
    DType.I8: 8,
    DType.I4: 4,
    DType.BOOL: 8,
}
_FLOATS = frozenset({DType.F32, DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2})
_NUMPY_NAMES = {
    DType.F32: "float32",
    DType.F16: "float16",
    DType.I32: "int32",
    DType.I8: "int8",
    DType.I4: "int8",
    DType.BOOL: "bool",
}

AttrValue = bool | int | float | str | DType | tuple[int, ...] | None
"""The value of a node's attribute; None stands for an optional one that was not given."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of a tensor."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def rank(self) -> int:
        """How many axes the tensor has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements the tensor has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor, i4 packed."""
        return (self.size * self.dtype.bits + 7) // 8

    def __str__(self) -> str:
        return f"{self.dtype.value}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that the caller brings; `constant` says its contents are fixed before the launch."""

    name: str
    type: TensorType
    constant: bool = False
    strides: tuple[int, ...] | None = None

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Distance in elements between neighbours along each axis; row-major unless the file says else."""
        return row_major_strides(self.type.shape) if self.strides is None else self.strides


@dataclass(frozen=True, slots=True)
class Node:
    """One operation and its result, which bears the node's name.

    `attrs` is sorted by name and complete: defaults are filled in, and an axis counts from the front.
    """

    name: str
    op: str
    inputs: tuple[Operand, ...]
    attrs: tuple[tuple[str, AttrValue], ...]
    type: TensorType
    tensors: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The names among the inputs, in order; scalars are left out."""

    def __post_init__(self) -> None:
        # Found once: whoever walks a graph asks for them at every node.
        names = tuple(operand for operand in self.inputs if isinstance(operand, str))
        object.__setattr__(self, "tensors", names)

    @overload
    def attr(self, name: str) -> AttrValue: ...
    @overload
    def attr(self, name: str, kind: builtins.type[_T]) -> _T: ...
    def attr(self, name: str, kind: builtins.type[_T] | None = None) -> AttrValue | _T:
        """The value of an attribute, checked to be a `kind` when one is given.

        Raises KeyError if the op has no such attribute, TypeError if it is of another kind.
        """
        for key, value in self.attrs:
            if key == name:
                if kind is not None and not isinstance(value, kind):
                    raise TypeError(f"{self.name}: attribute {name} is {value!r}, not a {kind.__name__}")
                return value
        raise KeyError(f"{self.name}: {self.op} has no attribute {name}")


@dataclass(frozen=True, slots=True)
class Graph:
    """A checked graph. Nodes stand in topological order, by place in the file where that leaves a choice.

    A `deterministic` one wants the same bits whatever the timing, and of each row whatever rows there are beside it.
    """

    name: str
    doc: str
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    deterministic: bool = False
    _by_name: dict[str, Input | Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        items: tuple[Input | Node, ...] = (*self.inputs, *self.nodes)
        object.__setattr__(self, "_by_name", {item.name: item for item in items})

    def type_of(self, name: str) -> TensorType:
        """Shape and dtype of an input or of a node's result. Raises KeyError for an unknown name."""
        return self._by_name[name].type

    def producer(self, name: str) -> Node | None:
        """The node whose result bears this name, or None (an input, or unknown)."""
        found = self._by_name.get(name)
        return found if isinstance(found, Node) else None

    def node(self, name: str) -> Node | None:
        """Another name of `producer`."""
        return self.producer(name)

    def input(self, name: str) -> Input | None:
        """The graph input of this name, or None (a node, or unknown)."""
        found = self._by_name.get(name)
        return found if isinstance(found, Input) else None

    @property
    def constants(self) -> frozenset[str]:
        """The inputs whose contents are fixed before a launch."""
        return frozenset(one.name for one in self.inputs if one.constant)

    def consumers(self, name: str) -> tuple[Node, ...]:
        """The nodes that read this tensor, in topological order, each once."""
        return tuple(node for node in self.nodes if name in node.tensors)


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a dense row-major tensor: (4, 3, 2) has (6, 2, 1)."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
