"""Regions of products whose rows are reduced after the loop: a tile has whole rows, as wide as one instruction."""

from __future__ import annotations

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.assemble import assemble_tiles
from wsopt.frontend.chain import read_values
from wsopt.frontend.loop_axes import LoopAxes
from wsopt.frontend.padding import pad_rows
from wsopt.frontend.product_axes import check_input, matmul_nodes, product_axes
from wsopt.frontend.roles import check_equal
from wsopt.frontend.row_axes import row_reductions
from wsopt.frontend.rows import divide_by_rows
from wsopt.frontend.types import Region
from wsopt.graph.needed import live_nodes
from wsopt.graph.types import DType, Graph
from wsopt.machine.types import Machine
from wsopt.tensors.views import Role

_LEAST_COLUMNS = 64
_OPERANDS = (DType.F16, DType.BF16)


def reduces_products(graph: Graph) -> bool:
    """Whether an output depends on a reduction behind a matmul."""
    behind: set[str] = set()
    for node in live_nodes(graph):
        if node.op == "matmul" or behind & set(node.tensors):
            behind.add(node.name)
    return bool(behind & set(row_reductions(graph)))


def reduced_axes(graph: Graph) -> LoopAxes:
    """The axes of products whose rows are reduced. Raises LoweringError for operands that are computed."""
    axes = product_axes(graph)
    check_equal(axes, matmul_nodes(axes), most=0)  # rows of the joined product would be other rows
    for node in matmul_nodes(axes):
        for operand in (0, 1):
            check_input(axes, node, operand)
        dtype = axes.graph.type_of(node.tensors[0]).dtype
        if dtype not in _OPERANDS:
            raise LoweringError(
                f"node {node.name}: operands of {dtype.value} are not lowered where the product's rows are reduced; "
                f"{remedies.operand_type(_OPERANDS)}"
            )
    return axes


def reduced_products_region(graph: Graph) -> Region:
    """The region of products with reductions of their rows after the loop. Raises LoweringError, naming node
    and axis."""
    axes = reduced_axes(graph)
    chain = read_values(axes, tuple(node.name for node in matmul_nodes(axes)), Role.COLUMN)
    flow = divide_by_rows(chain.flow)
    extent = axes.extent(Role.COLUMN)
    if extent < _LEAST_COLUMNS or extent & (extent - 1):
        flow = pad_rows(flow)
    return assemble_tiles(chain, flow)


def check_whole_rows(region: Region, machine: Machine) -> None:
    """Raise LoweringError for rows of a product that one tile cannot hold, and for one value a row."""
    extent = region.extent(Role.COLUMN)
    if not (region.whole_rows and region.contractions):
        return
    for output in region.outputs:
        if Role.COLUMN not in output.view.roles:
            raise LoweringError(f"output {output.name}: one value a row of a product is not stored yet")
    if extent > machine.mma_columns_max:
        raise LoweringError(
            f"graph {region.name}: rows of {extent} elements of a product are reduced, and a tile has at most "
            f"{machine.mma_columns_max} columns; reduce them in a kernel of their own"
        )
