"""What Inductor would take for a piece: the times that its kernels were measured to take, by size.

That is no model of Inductor. `rates.json` is what `wsopt.torch.sweep` wrote on one machine, for products, attention
and bytes; between the sizes measured there times are interpolated, and work beyond them is done at the speed of the
nearest. What is smaller takes as long as the smallest: a kernel is no quicker for one row than for sixteen. What
Inductor would compute around a piece anyway, and might compute together with it, is not seen.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from functools import cache
from pathlib import Path

from wsopt.frontend.kinds import VIEWS, is_matmul, matmul_dims, reduces_rows
from wsopt.frontend.needed import needed_bytes, needed_flops
from wsopt.frontend.region import find_region
from wsopt.graph.types import DType, Graph, Node
from wsopt.lowering.lower import Cuttable
from wsopt.machine.load import load_machine
from wsopt.machine.types import Machine
from wsopt.tensors.views import Role
from wsopt.torch.reads import bytes_read

_FILE = Path(__file__).parent / "rates.json"
_CAUSAL = 0.75
"""An attention of which masks leave a smaller share has the speed of a causal one."""
_MACHINE = "h200"
"""The machine of the file."""


class Masks(IntEnum):
    """How a library's attention is told which scores count: it has other kernels for each."""

    NONE = 0
    CAUSAL = 1
    READ = 2
    """A tensor that is read, and added to scores or chosen by."""


class Attention(Enum):
    """How an FX graph has an attention: one call, one that a mask is given, or products and a softmax."""

    CALLED = auto()
    MASKED = auto()
    WRITTEN_OUT = auto()


@dataclass(frozen=True, slots=True)
class Rates:
    """Work a microsecond by size, over a grid of sizes."""

    speeds: Mapping[tuple[int, ...], float]
    least_us: float = 0.0
    """The time of the quickest of them."""

    def speed(self, size: Sequence[float]) -> float:
        """The speed at a size: the geometric mean of those around it, weighted by how near they are; beyond the grid
        that at its edge.
        """
        axes = [sorted({key[axis] for key in self.speeds}) for axis in range(len(size))]
        corners = [_around(axis, value) for axis, value in zip(axes, size, strict=True)]
        total = weights = 0.0
        for corner in itertools.product(*corners):
            known = self.speeds.get(tuple(extent for extent, _ in corner))
            weight = math.prod(share for _, share in corner)
            if known is not None and weight > 0:
                total += weight * math.log(known)
                weights += weight
        if not weights:  # what was too large to be measured
            return max(self.speeds.values())
        return math.exp(total / weights)

    def padding(self, size: Sequence[float]) -> float:
        """How many times the work there is at a size whose extents are at least the grid's."""
        axes = zip(*self.speeds, strict=True)
        return math.prod(max(1.0, min(axis) / value) for axis, value in zip(axes, size, strict=True))


def _around(axis: Sequence[int], value: float) -> list[tuple[int, float]]:
    """The measured extents on both sides of a value, with their shares, by the logarithm."""
    value = min(max(value, axis[0]), axis[-1])
    above = next(extent for extent in axis if extent >= value)
    below = max(extent for extent in axis if extent <= value)
    if above == below:
        return [(above, 1.0)]
    share = math.log(value / below) / math.log(above / below)
    return [(below, 1 - share), (above, share)]


@cache
def measured() -> dict[str, Rates]:
    """The rates by kind: `product` and `attention` in floating-point operations, `bytes` in bytes a microsecond."""
    rows = json.loads(_FILE.read_text(encoding="utf-8"))["rows"]
    speeds: dict[str, dict[tuple[int, ...], float]] = {}
    for row in rows:
        shape = tuple(row["shape"])
        speeds.setdefault(row["kind"], {})[shape] = _work(row["kind"], shape) / row["us"]
    least = {kind: min(row["us"] for row in rows if row["kind"] == kind) for kind in speeds}
    return {kind: Rates(found, least[kind]) for kind, found in speeds.items()}


def _work(kind: str, shape: tuple[int, ...]) -> float:
    if kind == "product":
        return 2.0 * math.prod(shape)
    if kind == "attention":
        heads, keys, depth, masks = shape
        return 4.0 * heads * keys * keys * depth / (2 if masks == Masks.CAUSAL else 1)
    return float(shape[0])


def inductor_us(
    graph: Graph, machine: Machine, kernel: Graph | None = None, attention: Attention = Attention.CALLED
) -> float:
    """Microseconds of a piece by Inductor's kernels; `kernel` is what is left of its graph where constants are
    packed, `attention` how FX has it if it is one. Raises LoweringError for a graph that is no region.

    On another machine than the measured one rates are in proportion to what the machine sustains.
    """
    region = find_region(kernel or graph)
    if region.chained and any(reduces_rows(node) for node in graph.nodes):
        if attention is Attention.WRITTEN_OUT:
            return _written_out_us(graph, machine)
        return _attention_us(region, machine, attention)
    products = [node for node in graph.nodes if is_matmul(node)]
    if not products:
        return _bytes_us(needed_bytes(region), machine)
    return sum(_product_us(graph, node, machine) for node in products) + _around_us(kernel or graph, machine)


def copies_us(nbytes: int, machine: Machine) -> float:
    """Microseconds of Inductor's copies that move so many bytes."""
    return _bytes_us(nbytes, machine) if nbytes else 0.0


def _attention_us(region: Cuttable, machine: Machine, attention: Attention) -> float:
    rows, keys = region.extent(Role.ROW), region.extent(Role.STREAM)
    depth = region.extent(Role.COLUMN)
    heads = max(1.0, region.flops / (4.0 * rows * keys * depth)) * rows / keys
    rates, masks = measured()["attention"], _masks(region, attention)
    # What a tensor masks the library computes as well.
    flops = region.flops if masks is Masks.READ else needed_flops(region)
    us = flops / (rates.speed((heads, keys, depth, masks)) * _tensor_share(machine, DType.BF16))
    # Few queries, as when tokens are generated, were not measured: their keys and values are at least read.
    return max(us, rates.least_us, _bytes_us(needed_bytes(region), machine))


def _masks(region: Cuttable, attention: Attention) -> Masks:
    # What a kernel knows as bounds may be a tensor to the library.
    if attention is Attention.MASKED:
        return Masks.READ
    return Masks.CAUSAL if needed_flops(region) < _CAUSAL * region.flops else Masks.NONE


def _written_out_us(graph: Graph, machine: Machine) -> float:
    """Time of an attention's products, and of a kernel between two of them that reads the scores and all else that
    is no operand, and writes what the next product reads.
    """
    products = [node for node in graph.nodes if is_matmul(node)]
    between = sum(node.type.size for node in products[:-1]) * DType.BF16.bits // 8
    operands = set(_operands(graph))
    read = sum(bytes_read(graph, one.name) for one in graph.inputs if one.name not in operands)
    return sum(_product_us(graph, node, machine) for node in products) + _bytes_us(
        2 * between + read, machine
    )


def _product_us(graph: Graph, node: Node, machine: Machine) -> float:
    left = graph.type_of(node.tensors[0])
    contracted = left.shape[matmul_dims(node)[0][1]]
    *_, columns = node.type.shape
    rows = node.type.size // columns
    share, rates = _tensor_share(machine, left.dtype), measured()["product"]
    sizes = [(rows, own, contracted) for own in _joined_columns(graph, node) or (columns,)]
    return sum(2.0 * math.prod(one) * rates.padding(one) / (rates.speed(one) * share) for one in sizes)


def _joined_columns(graph: Graph, product: Node) -> tuple[int, ...]:
    """Columns of the products that one stands for, where its weights are joined; none if they are not."""
    made = graph.producer(product.tensors[1])
    while made is not None and made.op in VIEWS:
        made = graph.producer(made.tensors[0])
    if made is None or made.op != "concat":
        return ()
    axis = made.attr("axis", int)
    return tuple(graph.type_of(name).shape[axis] for name in made.tensors)


def _around_us(graph: Graph, machine: Machine) -> float:
    """Time of the kernels that do what is done to products and to operands: they read products and all else, and
    write the outputs, and operands that are computed.
    """
    bare = all(is_matmul(node) or node.op == "cast" or node.op in VIEWS for node in graph.nodes)
    if bare:
        return 0.0
    multiplied = [graph.type_of(node.tensors[0]).dtype for node in graph.nodes if is_matmul(node)]
    each = max(DType.BF16.bits, *(dtype.bits for dtype in multiplied)) // 8
    products = sum(node.type.size * each for node in graph.nodes if is_matmul(node))
    operands = set(_operands(graph))
    read = sum(bytes_read(graph, one.name) for one in graph.inputs if one.name not in operands)
    written = sum(graph.type_of(name).nbytes for name in graph.outputs)
    made = {name: graph.producer(name) for name in _multiplied(graph)}
    computed = [name for name, node in made.items() if node is not None and not is_matmul(node)]
    written += sum(graph.type_of(name).size * each for name in computed)
    return _bytes_us(products + read + written, machine)


def _operands(graph: Graph) -> Iterator[str]:
    """The inputs that products read, as they are or through views and casts."""
    return (name for name in _multiplied(graph) if graph.input(name) is not None)


def _multiplied(graph: Graph) -> Iterator[str]:
    """What products read, as it is or through views and casts: inputs, and results of arithmetic."""
    for node in filter(is_matmul, graph.nodes):
        for name in node.tensors:
            source = graph.producer(name)
            while source is not None and (source.op in VIEWS or source.op == "cast"):
                name = source.tensors[0]
                source = graph.producer(name)
            yield name


def _bytes_us(nbytes: float, machine: Machine) -> float:
    there = load_machine(_MACHINE)
    share = machine.dram_sustained_bandwidth / there.dram_sustained_bandwidth
    rates = measured()["bytes"]
    return nbytes * rates.padding((nbytes,)) / (rates.speed((nbytes,)) * share)


def _tensor_share(machine: Machine, dtype: DType) -> float:
    """The machine's products a second of a type, as a share of those of 16 bits on the measured one."""
    sustained: float = machine.sustained_tflops(dtype.value)
    return sustained / load_machine(_MACHINE).sustained_tflops("bf16")
