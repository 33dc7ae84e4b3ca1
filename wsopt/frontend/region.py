"""From a graph to a region: axes with their roles, values, passes over them, and the region that they make."""

from __future__ import annotations

from collections.abc import Callable

from wsopt.frontend.assemble import assemble
from wsopt.frontend.factors import check_reductions, divide_by_rows, lay_operands_bare, move_factors
from wsopt.frontend.kinds import Kind
from wsopt.frontend.masks import bound_loop, replace_huge_numbers
from wsopt.frontend.online import make_online
from wsopt.frontend.padding import pad_columns, pad_stream
from wsopt.frontend.roles import graph_axes
from wsopt.frontend.translate import translate
from wsopt.frontend.types import Region
from wsopt.frontend.values import Draft
from wsopt.graph.needed import needed
from wsopt.graph.types import Graph

PASSES: tuple[tuple[Callable[[Draft], Draft], frozenset[Kind]], ...] = (
    (replace_huge_numbers, frozenset({Kind.CHAIN})),
    (move_factors, frozenset({Kind.CHAIN, Kind.SCALED})),
    (lay_operands_bare, frozenset({Kind.SCALED})),
    (make_online, frozenset({Kind.CHAIN})),
    (bound_loop, frozenset({Kind.CHAIN})),
    (pad_stream, frozenset({Kind.CHAIN, Kind.SCALED})),
    (check_reductions, frozenset({Kind.SCALED})),
    (divide_by_rows, frozenset({Kind.REDUCED, Kind.ROWS})),
    (pad_columns, frozenset({Kind.REDUCED, Kind.ROWS})),
)
"""What is done to a graph's values, in order, and for which kinds of graphs."""


def find_region(graph: Graph) -> Region:
    """The region of a graph, without nodes that no output needs.

    Raises LoweringError, naming node, axis and reason, for a graph that is neither products over one
    streamed axis with an elementwise tree after them, nor a chain of two products with values between them,
    nor reductions of rows without a product, beside products of them, or of a product's rows.
    """
    axes = graph_axes(needed(graph))
    draft = translate(axes)
    for rewrite, kinds in PASSES:
        if axes.kind in kinds:
            draft = rewrite(draft)
    return assemble(draft)
