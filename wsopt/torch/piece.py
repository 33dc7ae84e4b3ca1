"""A piece: a kernel's graph, and how it is tied to the FX graph around it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import fx

from wsopt.frontend.kinds import is_matmul, reduces_rows
from wsopt.graph.symbolic import AnyGraph, any_canonical_bytes
from wsopt.graph.types import Graph
from wsopt.partition.constants import Folded, folded
from wsopt.torch.changing import Changing
from wsopt.torch.rates import Attention
from wsopt.torch.reads import bytes_read
from wsopt.torch.values import Dim, Shape

_GROWS = 1.25
"""How many times the bytes a kernel may read of packed constants: types of vectors widen, and rows get space."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An input of a piece: the FX node that it is, and the shape in which the kernel sees it. Where FX repeats some
    elements that the kernel reads once, `dims` says which. Where the kernel sees dimensions in another order, as the
    tensor lies in memory, `order` has it. Where it sees elements repeated that FX has once, `spread` has a shape
    with dimensions of one element, and the one in which they are repeated; it is of the type `dtype` then.
    """

    source: fx.Node
    shape: Shape
    dims: tuple[Dim, ...] | None = None
    order: tuple[int, ...] | None = None
    spread: tuple[Shape, Shape] | None = None
    dtype: torch.dtype | None = None

    @property
    def unordered(self) -> Shape:
        """The shape with the dimensions in the order of FX."""
        if self.order is None:
            return self.shape
        return tuple(self.shape[self.order.index(dim)] for dim in range(len(self.shape)))


@dataclass(frozen=True)
class Piece:
    """A kernel's graph, whose names are those of every piece alike, with the FX nodes of its inputs and outputs, and
    all FX nodes that it computes. Of the inputs `fixed` have contents that are there before a call; if it `packs`,
    what products read of them alone is made once, and `kernel` is the graph of what is left. Where an output has the
    dimensions of its FX node in another order, as that node lies in memory, `orders` has the order; truth values are
    i8 there. Where extents change from call to call, `changing` is the graph in a dimension that has a range.
    `attention` is how FX has one that the piece holds, `copied_bytes` what copies move that FX makes for it of
    elements that it reads once, `turned_bytes` what copies move that turn results which it stores otherwise than they
    lie in FX.
    """

    graph: Graph
    inputs: tuple[Bound, ...]
    outputs: tuple[fx.Node, ...]
    covered: frozenset[str]
    orders: tuple[tuple[int, ...] | None, ...]
    fixed: frozenset[str] = frozenset()
    packs: bool = False
    changing: Changing | None = None
    attention: Attention = Attention.CALLED
    copied_bytes: int = 0
    turned_bytes: int = 0

    @cached_property
    def folded(self) -> Folded | None:
        """The piece's graph in two, if it packs and there is something to be packed that is read as quickly then: a
        weight of 8 bits is not kept in 16.
        """
        found = folded(self.graph, self.fixed) if self.packs and self.changing is None else None
        return None if found is None or _read(found.main) > _GROWS * _read(self.graph) else found

    @property
    def kernel(self) -> Graph:
        """The graph that a kernel is made of, with the extents that are typical."""
        return self.typical if self.folded is None else self.folded.main

    @property
    def typical(self) -> Graph:
        """The graph with the extents that are typical."""
        return self.graph if self.changing is None else self.changing.typical

    @property
    def built(self) -> AnyGraph:
        """The graph that is built: for all of a range where extents change."""
        return self.kernel if self.changing is None else self.changing.graph

    @cached_property
    def bytes_in(self) -> int:
        """Bytes of the inputs that are not constant."""
        return sum(bytes_read(self.graph, one.name) for one in self.graph.inputs if not one.constant)

    @cached_property
    def bytes_moved(self) -> int:
        """Bytes of all inputs and outputs."""
        typical = self.typical
        read = sum(bytes_read(typical, one.name) for one in typical.inputs)
        return read + sum(int(typical.type_of(name).nbytes) for name in typical.outputs)

    @cached_property
    def bytes_by_output(self) -> tuple[tuple[str, int], ...]:
        """The FX node of each output, by name, with its bytes."""
        sizes = (int(self.graph.type_of(name).nbytes) for name in self.graph.outputs)
        return tuple(zip((node.name for node in self.outputs), sizes, strict=True))

    @cached_property
    def is_statistic(self) -> bool:
        """Whether it has no products, reduces rows, and hands on nothing as large as what it reads."""
        read = ((bytes_read(self.graph, one.name), one.type.dtype.bits) for one in self.graph.inputs)
        most = max(nbytes * 8 // bits for nbytes, bits in read)
        without = not any(map(is_matmul, self.graph.nodes))
        return without and all(self.graph.type_of(name).size < most for name in self.graph.outputs)

    @cached_property
    def key(self) -> str:
        """Equal for pieces that one kernel computes."""
        packed = " ".join(sorted(self.fixed)) if self.folded else ""
        graph = self.graph if self.changing is None else self.changing.graph
        told = any_canonical_bytes(graph) + packed.encode()
        return hashlib.sha256(told).hexdigest()[:16]

    @cached_property
    def work(self) -> str:
        """The products and reductions of a piece in words: what its kernel takes most of its time for."""
        found = [
            f"{node.op} {node.type}" for node in self.graph.nodes if is_matmul(node) or reduces_rows(node)
        ]
        return "; ".join(found)


def _read(graph: Graph) -> int:
    """Bytes that a kernel reads of all inputs."""
    return sum(bytes_read(graph, one.name) for one in graph.inputs)
