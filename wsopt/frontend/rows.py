"""Regions without a product: whole rows stream through a block, are reduced, and stored.

A row's reductions are complete as soon as the row is there, so nothing is rewritten for one pass. What is
divided by a row's value is multiplied by its reciprocal, and where a tile's columns reach beyond the end of the
rows, maxima and sums leave them out.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsopt.frontend.assemble import assemble_tiles
from wsopt.frontend.chain import read_values
from wsopt.frontend.expand import Term
from wsopt.frontend.extents import pow2
from wsopt.frontend.padding import pad_rows
from wsopt.frontend.row_axes import row_axes
from wsopt.frontend.types import Region
from wsopt.frontend.values import Flow, Rewriter, Value
from wsopt.graph.types import DType, Graph
from wsopt.tensors.views import Role


@dataclass(slots=True)
class _Reciprocals(Rewriter):
    """Divides once a row instead of once an element."""

    def visit(self, name: str, value: Value, args: tuple[Term, ...]) -> Term:
        if value.primitive == "div" and self.pool.streams(args[0]) and not self.pool.streams(args[1]):
            inverse = self.pool.make("div", (1.0, args[1]), DType.F32, value.node)
            return self.pool.make("mul", (args[0], inverse), DType.F32, value.node)
        return self.copy(value, args)


def divide_by_rows(flow: Flow) -> Flow:
    """An equal flow with divisions by a row's value as multiplications with its reciprocal."""
    return _Reciprocals(flow).run()


def rows_region(graph: Graph) -> Region:
    """The region of a graph without products that reduces its rows. Raises LoweringError, naming node and axis."""
    axes = row_axes(graph)
    chain = read_values(axes, (), Role.COLUMN)
    flow = divide_by_rows(chain.flow)
    extent = axes.extent(Role.COLUMN)
    if extent != pow2(extent):
        flow = pad_rows(flow)
    return assemble_tiles(chain, flow)
