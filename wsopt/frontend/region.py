"""From a graph to a region: axes with their roles, values, passes over them, and the region that they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wsopt.errors import LoweringError
from wsopt.frontend import block_factors, factors, masks, narrow, online, padding
from wsopt.frontend.assemble import assemble
from wsopt.frontend.axes import Axes
from wsopt.frontend.folded_zeros import fold_zeros
from wsopt.frontend.kept_nans import KeptNans
from wsopt.frontend.kinds import Kind
from wsopt.frontend.linear_sums import LinearSums
from wsopt.frontend.one_place import OnePlace
from wsopt.frontend.packing import pack_constants
from wsopt.frontend.roles import graph_axes
from wsopt.frontend.row_roles import MOST_HELD
from wsopt.frontend.scaled_sums import with_scaled_sums
from wsopt.frontend.shifted_exponents import ShiftedExponents
from wsopt.frontend.translate import translate
from wsopt.frontend.types import Region
from wsopt.frontend.values import Draft
from wsopt.graph.needed import needed
from wsopt.graph.types import Graph
from wsopt.tensors.views import Role, pow2

PASSES: tuple[tuple[Callable[[Draft], Draft], frozenset[Kind]], ...] = (
    (masks.replace_huge_numbers, frozenset({Kind.CHAIN})),
    (OnePlace.of, frozenset({Kind.LONG_ROWS})),
    (LinearSums.of, frozenset({Kind.LONG_ROWS})),
    (factors.FactorMover.of, frozenset({Kind.CHAIN, Kind.SCALED, Kind.COMPUTED})),
    (factors.LateFactors.of, frozenset({Kind.LONG_ROWS})),
    (block_factors.BlockFactors.of, frozenset({Kind.FACTORED})),
    (narrow.NarrowProducts.of, frozenset({Kind.COMPUTED})),
    (factors.BareOperands.of, frozenset({Kind.SCALED})),
    (online.OnlineSums.of, frozenset({Kind.CHAIN, Kind.LONG_ROWS})),
    (masks.bound_loop, frozenset({Kind.CHAIN})),
    (padding.pad_stream, frozenset({Kind.CHAIN, Kind.SCALED, Kind.COMPUTED})),
    (factors.check_reductions, frozenset({Kind.SCALED})),
    (factors.Reciprocals.of, frozenset({Kind.REDUCED, Kind.ROWS, Kind.LONG_ROWS})),
    (ShiftedExponents.of, frozenset({Kind.LONG_ROWS})),
    (padding.pad_columns, frozenset({Kind.REDUCED, Kind.ROWS, Kind.LONG_ROWS})),
    (padding.pad_rows, frozenset({Kind.ROWS})),
    (KeptNans.of, frozenset({Kind.CHAIN, Kind.REDUCED, Kind.ROWS, Kind.LONG_ROWS})),
)
"""What is done to a graph's values, in order, and for which kinds of graphs."""


def find_region(graph: Graph) -> Region:
    """The region of a graph, without nodes that no output needs; of long rows that are held also that of their
    parts, where nothing but values are stored, or where a consumer's registers may not hold a row of every tensor:
    elsewhere a second pass over what is held once gains nothing.

    Raises LoweringError, naming node, axis and reason, for a graph that is neither products over one
    streamed axis with an elementwise tree after them, nor a chain of two products with values between them,
    nor reductions of rows without a product, beside products of them, or of a product's rows, nor elementwise.
    """
    graph = needed(graph)
    region = _region(graph_axes(graph))
    held, columns = region.whole_rows and not region.contractions, pow2(region.extent(Role.COLUMN))
    fits = bool(region.tile_outputs) and len(region.operands) * columns <= MOST_HELD
    if not held or fits or columns <= padding.LONGEST_PART:
        return region
    return replace(region, in_parts=_in_parts(graph))


def _in_parts(graph: Graph) -> Region | None:
    """The region of a graph whose rows are read in parts, once; None where reductions need one another's results."""
    try:
        return _region(graph_axes(graph, held=False))
    except LoweringError:
        return None


def _region(axes: Axes) -> Region:
    draft = translate(axes)
    for rewrite, kinds in PASSES:
        if axes.kind in kinds:
            draft = rewrite(draft)
    return with_scaled_sums(fold_zeros(pack_constants(assemble(draft))))
