"""From a graph to a region, by the kind of its reductions and products. A refusal names node, axis and reason."""

from __future__ import annotations

from dataclasses import replace

from wsopt.frontend.affine import end_is_masked
from wsopt.frontend.assemble import assemble
from wsopt.frontend.chain import read_chain
from wsopt.frontend.factored import scaled_products, scaled_region
from wsopt.frontend.factors import move_factors
from wsopt.frontend.masks import loop_bounds, replace_huge_numbers, split_masks
from wsopt.frontend.online import make_online
from wsopt.frontend.padding import pad_stream
from wsopt.frontend.products import products_region
from wsopt.frontend.roles import chained_products
from wsopt.frontend.row_axes import row_reductions
from wsopt.frontend.row_products import reduced_products_region, reduces_products
from wsopt.frontend.rows import rows_region
from wsopt.frontend.types import End, Region
from wsopt.graph.needed import live_nodes, needed
from wsopt.graph.types import Graph
from wsopt.tensors.views import Role


def find_region(graph: Graph) -> Region:
    """The region of a graph, without nodes that no output needs. Raises LoweringError.

    Raises LoweringError, naming node, axis and reason, for a graph that is neither products over one
    streamed axis with an elementwise tree after them, nor a chain of two products with values between them,
    nor reductions of rows without a product, beside products of them, or of a product's rows.
    """
    graph = needed(graph)
    if chained_products(graph):
        return chain_region(graph)
    if streams_rows(graph):
        return rows_region(graph)
    if scaled_products(graph):
        return scaled_region(graph)
    if reduces_products(graph):
        return reduced_products_region(graph)
    return products_region(graph)


def streams_rows(graph: Graph) -> bool:
    """Whether an output depends on a reduction, and none on a matmul."""
    products = any(node.op == "matmul" for node in live_nodes(graph))
    return bool(row_reductions(graph)) and not products


def chain_region(graph: Graph) -> Region:
    """The region of a graph in which a product feeds a product: its loop computes values, K-block by K-block."""
    chain = read_chain(graph)
    rows, stream = chain.axes.extent(Role.ROW), chain.axes.extent(Role.STREAM)
    given = chain.flow
    infinite = replace_huge_numbers(given, rows, stream)
    flow = make_online(move_factors(infinite))
    bounds = loop_bounds(flow)
    flow, unmasked = split_masks(flow, bounds)
    padded, end, pairs = pad_stream(flow, stream, unmasked)
    if end_is_masked(bounds, rows, stream):
        found = assemble(chain, flow, bounds, unmasked, End.MASKS if end else End.NOTHING)
    else:
        found = assemble(chain, padded, bounds + end, pairs, End.BOUND if end else End.NOTHING)
    return replace(found, full_rows=infinite is not given)
