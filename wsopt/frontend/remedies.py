"""Remedies for graphs that are not lowered, one sentence each, `{}` to be filled in; a test follows each."""

from __future__ import annotations

from collections.abc import Sequence

from wsopt.frontend.kinds import producer
from wsopt.graph.types import DType, Graph, Node

ONE_ORDER = "declare every input and output with its axes in one order, and transpose outside of the graph"
DENSE = "declare it without strides, and hand over a dense copy"
ALIKE = "give every tensor all of them, as a dense copy of what repeats along them"
OWN_SUMS = (
    "write it by sums of the elements alone, as a variance is the mean of squares less the squared mean"
)
SLICE_COPY = "make the slice an input, and hand over a dense copy of it"
WHOLE_TILE = "give an input both, as a dense copy of what repeats along them"
FIRST_ELEMENT = (
    "let slices, zeros around a tensor and parts that are joined begin at a multiple of {} elements, or hand over a "
    "dense copy of what is read"
)
OWN_OUTPUTS = "make each part that is computed an output, and join them outside of the graph"
NO_PRODUCT = "leave it out, and store outside of the graph what the output is without it"
SUMS_OF_PARTS = (
    "split the axis in two, of parts and of elements: a cumsum along the elements, plus a cumsum along the parts "
    "of their sums, less each part's own"
)
OWN_GRAPH = "give each a graph of its own"

# For element types of operands and of inputs that no instruction takes, views of results, and
# pitches of rows that TMA cannot move: outputs are dense, and padding would change rows that are reduced.
OPERAND_TYPE = "declare inputs as one of {}, and cast them before the call"
SOURCE_TYPE = "declare it as one of {}"
WHOLE_NUMBERS = (
    "store it as f32 (leave the cast out), which has whole numbers exactly up to 2^24, "
    'or cast it to "i8" where it is no larger, and convert it after the call'
)
IEEE = (
    "a product of f32 in ieee precision is six of bf16, of operands that other kernels have split; compile a graph "
    'without named extents, which is cut, or choose the precision "tf32"'
)
PROMOTED = 'choose accumulate "f32" for operands of 16 bits, or give the product a graph of its own'
VIEW_OF_INPUT = "leave it out, and take it of the input, which moves nothing; or compute something of it"
VIEW_OF_RESULT = "leave it out, and {} the result after the call, which moves nothing"
INPUT_PITCH = (
    "pad its rows in memory to a multiple of {} elements, and declare the strides that it has then; a matrix of two "
    'dimensions that is "constant" and read once is padded before the first launch'
)
LONG_RANGE = (
    "operand 0, which would be multiplied by it instead, is rounded to f16: round both operands to bf16"
)
OTHER_OPERAND = "multiply by {} what {} is made of, before the call, and leave it out here"
REDUCED_PITCH = "rows of a multiple of {} elements can be stored"


def computed_operand(graph: Graph, name: str) -> str:
    """Remedy for an operand of a matmul that node `name` computes and that would have to be an input."""
    node = producer(graph, name)
    source = next((tensor for tensor in node.tensors if graph.input(tensor) is not None), None)
    if source is not None and node.op == "cast":
        return f"declare {source} as {node.type.dtype.value}, and cast it before the call"
    return computed_before([name])


def computed_before(names: Sequence[str]) -> str:
    """Remedy for nodes that one kernel cannot compute beside the others."""
    what = "it an input" if len(names) == 1 else "them inputs"
    return f"compute {' and '.join(names)} before, and make {what}"


def rows_by_product(graph: Graph, node: Node) -> str:
    """Remedy for rows that are added by index: a product says the same of finite rows, in a type that takes them."""
    x, indices, rows = node.tensors
    dtype = graph.type_of(rows).dtype
    hot = f'cast(equal(iota, {indices}), "f32")'
    if dtype in (DType.BF16, DType.F16):
        product, hot = f"matmul(hot, {rows})", f'cast({hot}, "{dtype.value}")'
    else:
        whole = rows if dtype is DType.F32 else f'cast({rows}, "f32")'
        product = f'matmul(hot, {whole}, precision="ieee")'
    return (
        f"where rows are finite, write it as a product: {x} + {product}, with hot = {hot}, "
        f"the iota along {x}'s rows and {indices} along columns"
    )
